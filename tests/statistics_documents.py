"""Documents of statistics, and the type that they are read as."""

from __future__ import annotations

import json
from typing import Any

from iceberg_cli.delta.spec.statistics_columns import statistics_type
from iceberg_cli.testing.delta_writer import a_field, a_schema

EVERY = a_schema(
    a_field("n", "long"),
    a_field("i", "integer"),
    a_field("b", "byte"),
    a_field("f", "double"),
    a_field("d", "decimal(10,2)"),
    a_field("s", "string"),
    a_field("day", "date"),
    a_field("at", "timestamp"),
    a_field("local", "timestamp_ntz"),
    a_field("flag", "boolean"),
    a_field("list", {"type": "array", "elementType": "long", "containsNull": True}),
    a_field("inside", a_schema(a_field("x", "long"), a_field("raw", "binary"))),
)


TYPE = statistics_type(EVERY, (), {}, deletion_vectors=True)


def smallest(**values: Any) -> str:
    return json.dumps({"numRecords": 1, "minValues": values})
