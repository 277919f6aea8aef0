"""Which names under a table's folder a VACUUM does not look at.

A name is hidden that starts with `.` or `_`, and so is everything below it: the log, this tool's own folder, Hadoop's
checksums, the temporary files of writers. Not hidden are names that start with `_delta_index` or `_change_data`, and
folders of partition values, `<column>=`, whatever the column is called. `metadata` is hidden where UniForm keeps
Iceberg metadata there. This is Delta Spark's rule; column names compare exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.paths import may_begin_with

CHANGE_DATA: Final = "_change_data"
_SEEN: Final = ("_delta_index", CHANGE_DATA)
_UNIFORM: Final = "delta.universalFormat.enabledFormats"


def hides_metadata(configuration: Mapping[str, str]) -> bool:
    """Whether the folder `metadata` holds a table's Iceberg metadata."""
    return "iceberg" in [name.strip() for name in configuration.get(_UNIFORM, "").lower().split(",")]


def hidden(paths: pa.Array, *, partition_columns: Sequence[str], metadata: bool) -> pa.Array:
    """Which of n paths a VACUUM does not look at.

    Args:
        paths: n strings relative to the table's folder, without nulls; a plain slash parts their names.
        partition_columns: by their logical names.
        metadata: whether the name `metadata` is hidden too.

    Returns:
        n booleans.
    """
    found = _any_hidden(paths, partition_columns)
    if metadata:
        found = pc.or_(found, pc.match_substring_regex(paths, r"(^|/)metadata(/|$)"))
    return found


def _any_hidden(paths: pa.Array, partition_columns: Sequence[str]) -> pa.Array:
    if not may_begin_with(paths, b"._"):
        return pa.repeat(value=False, size=len(paths))
    seen = [re.escape(name) for name in _SEEN]
    seen += [f"{re.escape(name)}=" for name in partition_columns if name.startswith((".", "_"))]
    # What is not hidden gets another first letter, for the regular expressions at hand know no "but not".
    shown = pc.replace_substring_regex(paths, rf"(^|/)({'|'.join(seen)})", r"\1x")
    return pc.match_substring_regex(shown, r"(^|/)[._]")
