"""rewrite-manifests: which manifests of main are written anew, how, into how many, and the summary of the commit.

Data and delete manifests of every partition spec, each kind and spec for itself. Nothing is read for it but the
manifest list, and one manifest of a group that is due, to measure how it compresses.

Spec: "Manifests", "Manifest Lists", "Snapshots" (`replace`), "Row Lineage".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.errors import CorruptFile, InvalidMetadata, UsageError
from iceberg_cli.iceberg.avro.container import SYNC_BYTES, container_header
from iceberg_cli.iceberg.spec.manifests.field_summaries import FieldSummary
from iceberg_cli.iceberg.spec.manifests.manifest import DATA, DELETES
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types, schema_of
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types import transforms
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.verbs.rewrite_manifests.layout import (
    DEFAULT_TARGET_BYTES,
    MERGED,
    TARGET_PROPERTY,
    Candidate,
    Layout,
    chosen,
    enclosed,
    is_large,
    name_of,
    outputs,
    rewrite_of,
    rules_of,
    unknown,
)
from iceberg_cli.iceberg.verbs.rewrite_manifests.placement import Target
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.plan.plan import Option, Task

COLUMNS: Final = ("rewritten_manifests_count", "added_manifests_count")
_FURTHEST = 6  # numbers of manifests to rehearse above and below the expected one
CONTENTS: Final[Mapping[str, tuple[int, ...]]] = {
    "all": (DATA, DELETES),
    "data": (DATA,),
    "deletes": (DELETES,),
}
_DEFAULT_MIN_MANIFESTS = 2
_CODEC_PROPERTY = "write.manifest.compression-codec"
_CODECS = {"gzip": "deflate", "uncompressed": "null", "none": "null", "zstd": "zstandard", "snappy": "snappy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSettings:
    """The policy with table properties and defaults filled in, each with its source."""

    target_size_bytes: Option
    min_manifests: Option
    codec: str
    options: Mapping[str, Option] = field(default_factory=dict)


def settings_of(metadata: TableMetadata, policy: RewriteManifests) -> RewriteSettings:
    """The policy with table properties and documented defaults for options that are not given.

    Raises:
        UsageError: a spec or partition field that the table does not have.
        InvalidMetadata: a property is no number, or names no codec.
    """
    target = policy.chosen("target_size", DEFAULT_TARGET_BYTES)
    if policy.target_size is None and TARGET_PROPERTY in metadata.properties:
        value = metadata.property_int(TARGET_PROPERTY, DEFAULT_TARGET_BYTES)
        if value < 1:
            raise InvalidMetadata(metadata.location, f"properties.{TARGET_PROPERTY}", f"{value} is no size")
        target = Option(value=value, source=f"table property {TARGET_PROPERTY}")
    least = policy.chosen("min_manifests", _DEFAULT_MIN_MANIFESTS)
    codec = metadata.properties.get(_CODEC_PROPERTY, "gzip").lower()
    if codec not in _CODECS:
        raise InvalidMetadata(metadata.location, f"properties.{_CODEC_PROPERTY}", f"{codec!r} is no codec")
    _check_names(metadata, policy)
    options = {
        "target_size_bytes": target,
        "min_manifests": least,
        "content": policy.chosen("content"),
        "spec_ids": policy.chosen("spec_ids"),
        "all_manifests": policy.chosen("all_manifests"),
        "sort_by": policy.chosen("sort_by"),
    }
    return RewriteSettings(
        target_size_bytes=target, min_manifests=least, codec=_CODECS[codec], options=options
    )


def _check_names(metadata: TableMetadata, policy: RewriteManifests) -> None:
    known = {spec.spec_id: spec for spec in metadata.partition_specs}
    for spec_id in policy.spec_ids:
        if spec_id not in known:
            raise UsageError(f"--spec-id {spec_id}: the table has {', '.join(map(str, sorted(known)))}")
    specs = [spec for spec_id, spec in known.items() if not policy.spec_ids or spec_id in policy.spec_ids]
    names = {each.name for spec in specs for each in spec.fields}
    for name in policy.sort_by:
        if name not in names:
            there = ", ".join(sorted(names)) or "no partition field"
            raise UsageError(f"--sort-by {name}: no partition field has this name; there is {there}")


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
    schema = schema_of(spec, metadata)
    if schema is None:
        raise ValueError("no schema has all of their source columns any more")
    return schema.to_json()


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rewrite:
    """The manifests of one group that are replaced, and the new ones.

    Args:
        group: whose manifests they are.
        reasons: by row of the manifest list, why it is written anew.
        rows: of the manifests with live files among them.
        tasks: the new manifests, in the order of their partitions.
    """

    group: Group
    reasons: Mapping[int, str]
    rows: pa.Table
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRewrite:
    """The manifests that an earlier plan would have written anew, as far as they are still listed.

    Args:
        reasons: by row of the manifest list.
        complete: all of them are.
    """

    reasons: Mapping[int, str]
    complete: bool


def due(group: Group, *, every: bool = False, shown: EarlierRewrite | None = None) -> dict[int, str]:
    """The manifests of a group that are written anew, by row of the list, with the reason.

    Args:
        group: see `groups`.
        every: whether all of them are, whatever their layout.
        shown: what an earlier plan would have written anew: nothing else is.
    """
    if group.layout is None:
        return {}
    if shown is None and every:
        return dict.fromkeys(group.places, "every manifest is written anew (--all-manifests)")
    if shown is None:
        return chosen(group.candidates(), group.layout)
    reasons = {place: shown.reasons[place] for place in group.places if place in shown.reasons}
    if shown.complete or every:
        return reasons
    rest = [each for each in group.candidates() if each.number in reasons]
    live = [each for each in rest if each.live_files]
    files, size = sum(each.live_files for each in live), sum(each.body_bytes for each in live)
    fewer = outputs(group.layout, body_bytes=size, live_files=files) < len(rest)
    return reasons if fewer or any(is_large(each, group.layout) for each in live) else {}


def rewrite(group: Group, reasons: Mapping[int, str], *, growth: float) -> Rewrite:
    """The rewrite of the chosen manifests of a group.

    Args:
        group: see `groups`.
        reasons: see `due`.
        growth: bytes in new manifests for each stored byte of theirs, as far as is known.
    """
    assert group.layout is not None
    going = [each for each in group.candidates() if each.number in reasons and each.live_files]
    own = {place: index for index, place in enumerate(group.places)}
    rows = group.rows.take(pa.array([own[each.number] for each in going], pa.int64()))
    count = outputs(
        group.layout,
        body_bytes=growth * sum(each.body_bytes for each in going),
        live_files=sum(each.live_files for each in going),
    )
    return into(Rewrite(group=group, reasons=dict(reasons), rows=rows, tasks=()), count)


def into(rewrite: Rewrite, count: int) -> Rewrite:
    """The rewrite into another number of manifests."""
    group = rewrite.group
    assert group.target is not None
    assert group.layout is not None
    digest = _digest(group.target, rewrite.rows, count)
    kind = f"{'deletes' if group.content else 'data'}-spec{group.spec_id}"
    tasks = tuple(
        Task(name=name_of(kind, group.layout, digest, index), kind="manifest") for index in range(count)
    )
    return replace(rewrite, tasks=tasks)


def stored_bytes(rewrite: Rewrite) -> int:
    """Bytes of the manifests that a rewrite reads."""
    return int(rewrite.rows["manifest_length"].to_numpy().sum())


def counts_to_try(rewrite: Rewrite, rehearsed: Sequence[Mapping[str, Any]]) -> list[int]:
    """Other numbers of manifests to rehearse, the likeliest first, by the sizes of those rehearsed."""
    layout = rewrite.group.layout
    assert layout is not None
    files = sum(int(rewrite.rows[f"{name}_files_count"].to_numpy().sum()) for name in ("added", "existing"))
    size = sum(row["manifest_length"] - layout.header_bytes for row in rehearsed)
    likely = outputs(layout, body_bytes=size, live_files=files)
    around = [likely + step for far in range(1, _FURTHEST + 1) for step in (far, -far)]
    return [count for count in (likely, *around) if 0 < count <= files and count != len(rehearsed)]


def due_again(group: Group, rows: Sequence[Mapping[str, Any]]) -> Mapping[int, str]:
    """The new manifests that would be due again, were they alone, by their index, with the reason."""
    assert group.layout is not None
    assert group.target is not None
    named = [{"manifest_path": "", **row} for row in rows]
    candidates = [candidate(number, row, group.layout, group.target) for number, row in enumerate(named)]
    return chosen(candidates, replace(group.layout, min_manifests=1))


def rewrite_pays(rewrite: Rewrite) -> bool:
    """Whether a rewrite improves anything: merging that does not leave fewer manifests does not."""
    return len(rewrite.tasks) < len(rewrite.reasons) or any(
        not reason.startswith(MERGED) for reason in rewrite.reasons.values()
    )


def _digest(target: Target, rows: pa.Table, count: int) -> str:
    """SHA-256 of all that decides the content of the new manifests: equal tasks build equal files."""
    text, header = target.header()
    inputs = rows.drop_columns(["partitions"]).to_pylist()
    parts = (text, header, target.format_version, target.content, target.codec, target.sort_by, inputs, count)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def weights(rows: pa.Table, layout: Layout) -> npt.NDArray[np.float64]:
    """Mean bytes of an entry of each manifest."""
    lengths = rows["manifest_length"].to_numpy() - layout.header_bytes
    entries = sum(rows[f"{name}_files_count"].to_numpy() for name in ("added", "existing", "deleted"))
    bytes_per_entry: npt.NDArray[np.float64] = np.maximum(lengths, 1) / np.maximum(entries, 1)
    return bytes_per_entry


def summary(rewrites: Sequence[Rewrite], *, listed: int) -> dict[str, str]:
    """The keys of the snapshot's summary that Java writes for this operation, without totals."""
    replaced = sum(len(each.reasons) for each in rewrites)
    entries = sum(
        int(each.rows[f"{name}_files_count"].to_numpy().sum())
        for each in rewrites
        for name in ("added", "existing")
    )
    return {
        "manifests-created": str(sum(len(each.tasks) for each in rewrites)),
        "manifests-kept": str(listed - replaced),
        "manifests-replaced": str(replaced),
        "entries-processed": str(entries),
        "changed-partition-count": "0",
    }
