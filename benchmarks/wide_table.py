"""A table with little data and a long history."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.table_writer import STEP_MS
from benchmarks.tables import Size, make_table


def make_wide_table(location: str) -> None:
    """10,000 snapshots and 2,000 schemas, most of them in the metadata alone: a metadata.json of 16 MB."""
    made = make_table(location, Size(2, 10, 1))
    path = Path(f"{location}/metadata/v1.metadata.json")
    metadata = json.loads(path.read_text())
    last = metadata["snapshots"][-1]
    old = [
        {
            **last,
            "snapshot-id": 10 + i,
            "parent-snapshot-id": 9 + i,
            "timestamp-ms": made.last_ms - (10_000 - i) * STEP_MS,
            "sequence-number": 1,
            "schema-id": i // 5,
        }
        for i in range(9_998)
    ]
    old[0].pop("parent-snapshot-id")
    metadata["snapshots"] = [*old, *metadata["snapshots"]]
    fields = metadata["schemas"][0]["fields"]
    metadata["schemas"] = [
        {
            "type": "struct",
            "schema-id": n,
            "fields": [
                *fields,
                *(
                    {
                        "id": 100 + k,
                        "name": f"column_{k}",
                        "required": False,
                        "type": "string",
                        "doc": "added",
                    }
                    for k in range(n % 130)
                ),
            ],
        }
        for n in range(2_000)
    ]
    metadata["last-column-id"] = 1_000
    path.write_text(json.dumps(metadata, separators=(",", ":")))
