"""What writers leave out of manifests and their lists: we read each, a rewrite mends it, and what PyIceberg does.

Of Iceberg Java only files without ids were tried, see `rewrite_manifests/test_live.py`; iceberg-go was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tests.budget import deep_unless
from tests.cli.lakes import catalog_table
from tests.cli.running import iceberg_cli
from tests.files_without_ids import change_folder, without_ids, written_again

READS = ""
IDS = [0, 1, 2]


class LeftOut(NamedTuple):
    """What is left out.

    Args:
        name: in words.
        where: "manifest" or "list".
        change: of the Avro schema.
        header: of its other keys.
        pyiceberg: the error of PyIceberg 0.11 as it reads the table; "" where it reads all rows.
    """

    name: str
    where: Literal["manifest", "list"]
    change: Callable[[Any], Any] = lambda schema: schema
    header: Callable[[dict[str, Any]], Any] = dict
    pyiceberg: str = READS


def fields(*names: str) -> Callable[[Any], Any]:
    """A schema without some fields."""

    def change(schema: Any) -> Any:
        kept = [field for field in schema["fields"] if field["name"] not in names]
        return {**json.loads(json.dumps(schema)), "fields": kept}

    return change


def keys(*names: str) -> Callable[[dict[str, Any]], Any]:
    """A header without some keys."""
    return lambda header: {key: value for key, value in header.items() if key not in names}


HEADER = ("schema", "schema-id", "partition-spec", "partition-spec-id", "format-version", "content")
CASES = [
    LeftOut("ids of a list", "list", without_ids, pyiceberg="ValueError"),
    LeftOut("ids of manifests", "manifest", without_ids, pyiceberg="ValueError"),
    *(LeftOut(f"{key} of headers", "manifest", header=keys(key)) for key in HEADER),
    LeftOut("headers of manifests", "manifest", header=keys(*HEADER)),
    LeftOut("headers of lists", "list", header=lambda _: {}),
    LeftOut("added_files_count", "list", fields("added_files_count"), pyiceberg="ResolveError"),
    LeftOut("added_rows_count", "list", fields("added_rows_count"), pyiceberg="ResolveError"),
    LeftOut("added_snapshot_id", "list", fields("added_snapshot_id"), pyiceberg="ResolveError"),
    *(
        LeftOut(name, "list", fields(name))
        for name in ("partitions", "sequence_number", "min_sequence_number", "content", "key_metadata")
    ),
    LeftOut("numbers of entries", "manifest", fields("sequence_number", "file_sequence_number")),
    LeftOut("snapshot_id of entries", "manifest", fields("snapshot_id")),
]
ALWAYS = (CASES[0], CASES[1], CASES[8], CASES[10])


@pytest.mark.parametrize("case", deep_unless(ALWAYS, CASES))
def test_it_is_read_and_a_rewrite_mends_it(
    case: LeftOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch, appends=3)

    def change(data: bytes, lengths: dict[str, int], is_list: bool) -> bytes:
        if is_list == (case.where == "list"):
            return written_again(data, case.change, case.header, lengths)
        return written_again(data, lambda schema: schema, lengths=lengths)

    change_folder(table.folder, change)
    if case.pyiceberg:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of any module of PyIceberg
            table.ids()
        assert type(caught.value).__name__ == case.pyiceberg
    else:
        assert table.ids() == IDS
    shown = iceberg_cli("inspect", table.name, "sample", "--limit", "100", "--format", "json")
    assert sorted(row["id"] for row in shown.json["rows"]) == IDS
    ran = iceberg_cli("rewrite-manifests", table.name, "--all-manifests", "--yes")
    assert ran.code == 0, ran.err
    assert table.ids() == IDS
