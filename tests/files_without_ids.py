"""Manifests and their lists written again with Avro schemas in which no field has an id, as ClickHouse wrote them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro

_IDS = ("field-id", "element-id", "key-id", "value-id")


def without_ids(node: Any) -> Any:
    if isinstance(node, list):
        return [without_ids(each) for each in node]
    if isinstance(node, dict):
        return {key: without_ids(value) for key, value in node.items() if key not in _IDS}
    return node


def written_again(
    data: bytes,
    change: Callable[[Any], Any],
    header: Callable[[dict[str, Any]], Any] = dict,
    lengths: dict[str, int] | None = None,
) -> bytes:
    """A container with another schema of the same shape, another header, and a list's lengths of manifests by name."""
    reader = fastavro.reader(io.BytesIO(data))
    records = [dict(record) for record in reader]  # type: ignore[arg-type, call-overload]
    for record in records:
        if "manifest_path" in record and lengths:
            record["manifest_length"] = lengths[record["manifest_path"].rpartition("/")[2]]
    kept = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    out = io.BytesIO()
    schema = json.loads(reader.metadata["avro.schema"])
    fastavro.writer(out, change(schema), records, metadata=header(kept), codec="deflate")
    return out.getvalue()


def strip_folder(folder: Path) -> None:
    """Write every manifest and list below a folder again, without ids."""
    change_folder(folder, lambda data, lengths, _: written_again(data, without_ids, lengths=lengths))


def change_folder(folder: Path, change: Callable[[bytes, dict[str, int], bool], bytes]) -> None:
    """Write every manifest and list below a folder again, and drop Hadoop's checksums of the bytes before.

    Args:
        folder: of a table.
        change: of a file's bytes, the lengths of new manifests by name, and whether it is a list.
    """
    files = sorted(folder.rglob("*.avro"), key=lambda path: path.name.startswith("snap-"))
    lengths: dict[str, int] = {}
    for path in files:
        path.write_bytes(change(path.read_bytes(), lengths, path.name.startswith("snap-")))
        lengths[path.name] = path.stat().st_size
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
