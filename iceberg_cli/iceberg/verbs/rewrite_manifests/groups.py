"""rewrite-manifests: the manifests of a branch head by content and partition spec, and how each group is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import SYNC_BYTES, container_header
from iceberg_cli.iceberg.spec import transforms
from iceberg_cli.iceberg.spec.columns import column_types
from iceberg_cli.iceberg.spec.field_summaries import FieldSummary
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.spec.partition_spec import PartitionSpec
from iceberg_cli.iceberg.verbs.rewrite_manifests.layout import (
    Candidate,
    Layout,
    enclosed,
    rewrite_of,
    rules_of,
    unknown,
)
from iceberg_cli.iceberg.verbs.rewrite_manifests.placement import Target
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.iceberg.verbs.rewrite_manifests.settings import CONTENTS, RewriteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The manifests of one content and partition spec.

    Args:
        places: their rows in the manifest list.
        rows: these rows.
        target: schema, spec and codec of new manifests; None where they are not known.
        layout: the limits that they are judged by.
        reason: why they stay whatever their layout is, or "".
    """

    content: int
    spec_id: int
    places: tuple[int, ...]
    rows: pa.Table
    target: Target | None = None
    layout: Layout | None = None
    reason: str = ""

    def candidates(self) -> list[Candidate]:
        """The manifests in their order."""
        assert self.layout is not None
        assert self.target is not None
        return [
            candidate(place, row, self.layout, self.target)
            for place, row in zip(self.places, self.rows.to_pylist(), strict=True)
        ]


def groups(
    rows: pa.Table, metadata: TableMetadata, policy: RewriteManifests, settings: RewriteSettings
) -> list[Group]:
    """The manifests of a branch head by content and spec, in the order in which these appear.

    Args:
        rows: of `MANIFEST_LIST_SCHEMA`, with counts.
        metadata: the table's.
        policy: the options.
        settings: these with table properties and defaults.
    """
    contents, specs = rows["content"].to_pylist(), rows["partition_spec_id"].to_pylist()
    encrypted = rows["key_metadata"].is_valid().to_pylist()
    places: dict[tuple[int, int, bool], list[int]] = {}
    for place, key in enumerate(zip(contents, specs, encrypted, strict=True)):
        places.setdefault(key, []).append(place)
    found = []
    for (content, spec_id, with_key), own in places.items():
        group = Group(
            content=content, spec_id=spec_id, places=tuple(own), rows=rows.take(pa.array(own, pa.int64()))
        )
        reason = "it is encrypted" if with_key else _left_out(group, policy)
        found.append(_prepared(group, metadata, policy, settings, reason))
    return found


def _left_out(group: Group, policy: RewriteManifests) -> str:
    if group.content not in CONTENTS[policy.content]:
        return f"--content {policy.content}"
    if policy.spec_ids and group.spec_id not in policy.spec_ids:
        return f"--spec-id: it is of spec {group.spec_id}"
    return ""


def _prepared(
    group: Group, metadata: TableMetadata, policy: RewriteManifests, settings: RewriteSettings, reason: str
) -> Group:
    """The group with its target and layout, or with the reason for which it stays."""
    values: dict[str, Any] = {name: getattr(group, name) for name in ("content", "spec_id", "places", "rows")}
    if reason:
        return Group(**values, reason=reason)
    try:
        target = _target(group, metadata, policy, settings)
        text, header = target.header()
    except ValueError as error:
        return Group(**values, reason=f"its partitions cannot be written: {error}")
    layout = Layout(
        target_bytes=int(settings.target_size_bytes.value),
        header_bytes=len(container_header(text, header, codec=settings.codec, sync=bytes(SYNC_BYTES))),
        min_manifests=int(settings.min_manifests.value),
        fields=len(target.sort_by),
        rules=rules_of(settings.target_size_bytes.value, target.codec, target.sort_by),
    )
    return Group(**values, target=target, layout=layout)


def _target(
    group: Group, metadata: TableMetadata, policy: RewriteManifests, settings: RewriteSettings
) -> Target:
    """Schema, spec and codec of the group's new manifests; ValueError where they cannot be written."""
    spec = metadata.partition_spec(group.spec_id)
    if spec is None:
        raise ValueError(f"the table has no spec {group.spec_id}")
    names = [each.name for each in spec.fields]
    by = [name for name in policy.sort_by if name in names] if policy.sort_by else names
    return Target(
        schema=_schema(metadata, spec),
        spec=spec.to_json(),
        format_version=metadata.format_version,
        content=group.content,
        codec=settings.codec,
        types=_types(metadata, spec),
        sort_by=tuple(dict.fromkeys(names.index(name) for name in by)),
    )


def _schema(metadata: TableMetadata, spec: PartitionSpec) -> dict[str, Any]:
    """The current schema, or the newest that has the source columns of the spec."""
    source_ids = {each.source_id for each in spec.fields}
    for schema in (metadata.current_schema(), *reversed(metadata.schemas)):
        if source_ids <= schema.types_by_id().keys():
            return schema.to_json()
    raise ValueError("no schema has all of their source columns any more")


def _types(metadata: TableMetadata, spec: PartitionSpec) -> tuple[str, ...]:
    columns = column_types(metadata)
    types = []
    for each in spec.fields:
        source = columns.get(each.source_id)
        transform = transforms.parse(each.transform)
        if not isinstance(source, str) or transform.kind == "unknown":
            raise ValueError(f"the result of {each.transform} of column {each.source_id} has no known type")
        types.append(transforms.result_type(transform, source))
    return tuple(types)


def candidate(place: int, row: Mapping[str, Any], layout: Layout, target: Target) -> Candidate:
    """A row of a manifest list, with counts, as it is judged."""
    live = row["added_files_count"] + row["existing_files_count"]
    entries = live + row["deleted_files_count"]
    body = max(row["manifest_length"] - layout.header_bytes, 1) * (live / entries if entries else 1)
    lower, upper = _bounds(row, target)
    return Candidate(
        number=place,
        body_bytes=int(body),
        live_files=live,
        lower=lower,
        upper=upper,
        rewrite=rewrite_of(row["manifest_path"], layout),
    )


def _bounds(row: Mapping[str, Any], target: Target) -> Any:
    partitions = row["partitions"]
    if partitions is None or len(partitions) != len(target.types):
        return unknown(len(target.sort_by))
    path = row["manifest_path"]
    try:
        return enclosed(
            [
                FieldSummary.from_row(partitions[index], target.types[index], path=path)
                for index in target.sort_by
            ]
        )
    except CorruptFile:
        # The bounds only decide whether a rewrite is worth it; the rewrite reads the partitions themselves.
        return unknown(len(target.sort_by))
