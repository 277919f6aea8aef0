"""What of a table decides how its data files are written, and whether files can be committed that were written before.

Files are written by physical names. So columns that were added, renamed, dropped or widened since make a new file read
as the files would whose rows it has; what no file of the table could be read by, or asks for other files, does not.

Spec: Delta protocol, "Column Mapping", "Row Tracking", "Type Widening"; `compaction-delta.md` E2 and E3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from iceberg_cli.delta.rows.table_columns import MODE
from iceberg_cli.delta.spec.clustering import clustering_columns
from iceberg_cli.delta.spec.features import supports, writer_features
from iceberg_cli.delta.spec.iceberg_compat import compat_version, has_partition_columns_in_files
from iceberg_cli.delta.spec.protocol import Metadata, Protocol, schema_fields
from iceberg_cli.delta.spec.row_ids import ENABLED, FEATURE, MATERIALIZED
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.statistics_columns import physical_name
from iceberg_cli.delta.verbs.rewrite_data_files.clustering import CLUSTERED_ANEW
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.delta.verbs.rewrite_data_files.settings import obstacles
from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import CorruptFile

WRITTEN_FOR_FILE: Final = "table.json"
_WIDENING: Final = ("typeWidening", "typeWidening-preview")
_BY_IDS: Final = "id"


def written_for(snapshot: Snapshot) -> bytes:
    """What decides how files are written: the protocol, the metadata and the clustering, in one spelling."""
    value = {
        "protocol": snapshot.protocol.to_json(),
        "metaData": snapshot.metadata.with_plain_schema().to_json(),
        "clusteringColumns": [[*path] for path in clustering_columns(snapshot)],
    }
    return json.dumps(value, sort_keys=True).encode()


def why_not(then: bytes, path: str, now: Snapshot, policy: RewriteDataFiles) -> str | None:
    """Why files that were written for a table as it was are none of the table as it is, in words, or None.

    Args:
        then: see `written_for`.
        path: of the file that has it, for messages.
        now: the table.
        policy: what the operator asked for.

    Raises:
        CorruptFile: the table's schema is none.
    """
    try:
        value = loads(then, path)
        protocol = Protocol.from_json(value.get("protocol"), path=path)
        metadata = Metadata.from_json(value.get("metaData"), path=path)
    except CorruptFile as error:  # nothing of the table is
        return error.message
    clustering = [[*path] for path in clustering_columns(now)]
    for is_as_it_was, reason in (
        (metadata.id == now.metadata.id, "another table is in its place by now"),
        (
            _partitions(metadata) == _partitions(now.metadata),
            "the table is partitioned by other columns by now",
        ),
        (value.get("clusteringColumns", []) == clustering, CLUSTERED_ANEW),
        (
            _for_iceberg(protocol, metadata) == _for_iceberg(now.protocol, now.metadata),
            "the table asks for other files for the sake of Iceberg by now",
        ),
        (
            _row_ids(protocol, metadata) == _row_ids(now.protocol, now.metadata),
            "the table keeps row ids in another way by now",
        ),
    ):
        if not is_as_it_was:
            return reason
    if _mode(metadata) != _mode(now.metadata) and _BY_IDS in (_mode(metadata), _mode(now.metadata)):
        return f"{MODE} is {_mode(now.metadata)} by now, and files were written for {_mode(metadata)}"
    if gone := writer_features(protocol) - writer_features(now.protocol):
        return f"the table has lost the feature {', '.join(sorted(gone))}"
    if not any(supports(now.protocol, name) for name in _WIDENING):
        kinds = dict(_leaves(metadata))
        for name, kind in _leaves(now.metadata):
            if kinds.get(name, kind) != kind:
                return f"column {'.'.join(name)} has another type by now"
    return next(iter(obstacles(now, policy)), None)


def _partitions(metadata: Metadata) -> list[str]:
    """The physical names of partition columns."""
    names = {field["name"]: physical_name(field) for field in schema_fields(metadata)}
    return [names.get(name, name) for name in metadata.partition_columns]


def _mode(metadata: Metadata) -> str:
    return metadata.configuration.get(MODE, "none").lower()


def _for_iceberg(protocol: Protocol, metadata: Metadata) -> tuple[int | None, bool]:
    """The version of Iceberg compatibility, and whether files have partition columns."""
    return compat_version(metadata), has_partition_columns_in_files(protocol, metadata)


def _row_ids(protocol: Protocol, metadata: Metadata) -> tuple[Any, ...]:
    """How rows keep their ids: whether files have ids at all, and the columns where rows have their own."""
    if not supports(protocol, FEATURE):
        return ()
    if not metadata.property_bool(ENABLED, default=False):
        return (FEATURE,)
    return (FEATURE, *(metadata.configuration.get(name) for name, _ in MATERIALIZED))


def _leaves(metadata: Metadata) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The columns, and what is in them, by physical names: each with its primitive type."""
    for field in schema_fields(metadata):
        yield from _parts((physical_name(field),), field["type"])


def _parts(name: tuple[str, ...], kind: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    match kind:
        case {"type": "struct", "fields": fields}:
            for field in fields:
                yield from _parts((*name, physical_name(field)), field["type"])
        case {"type": "array", "elementType": element}:
            yield from _parts((*name, "element"), element)
        case {"type": "map", "keyType": key, "valueType": value}:
            yield from _parts((*name, "key"), key)
            yield from _parts((*name, "value"), value)
        case _:
            yield name, kind
