"""Files as a listing has them, and the names among them that writers and engines hide. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.paths import may_begin_with

STORED_FILES: Final = pa.schema(
    [("path", pa.string()), ("size_bytes", pa.int64()), ("modified_ms", pa.int64())]  # canonical path
)


def hidden_names(paths: pa.Array, *, shown: Sequence[str]) -> pa.Array:
    """Which of n paths have a name that starts with `.` or `_`, or are below a folder of such a name.

    Args:
        paths: n strings relative to a folder, without nulls; a plain slash parts their names.
        shown: with these names that start so begin which are not hidden.

    Returns:
        n booleans.
    """
    if not may_begin_with(paths, b"._"):
        return pa.repeat(value=False, size=len(paths))
    if shown:
        # What is not hidden gets another first letter, for the regular expressions at hand know no "but not".
        names = "|".join(map(re.escape, shown))
        paths = pc.replace_substring_regex(paths, rf"(^|/)({names})", r"\1x")
    return pc.match_substring_regex(paths, r"(^|/)[._]")


def partition_folders(columns: Sequence[str]) -> list[str]:
    """With what the names of folders of partition values begin whose columns' names would hide them."""
    return [f"{name}=" for name in columns if name.startswith((".", "_"))]
