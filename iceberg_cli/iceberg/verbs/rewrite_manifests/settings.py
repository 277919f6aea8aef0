"""rewrite-manifests: the policy, with table properties and defaults for options that are not given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from iceberg_cli.errors import InvalidMetadata, UsageError
from iceberg_cli.iceberg.spec.manifest import DATA, DELETES
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.plan.plan import Option

CONTENTS: Final[Mapping[str, tuple[int, ...]]] = {
    "all": (DATA, DELETES),
    "data": (DATA,),
    "deletes": (DELETES,),
}
_DEFAULT_TARGET_BYTES = 8 << 20
_DEFAULT_MIN_MANIFESTS = 2
_TARGET_PROPERTY = "commit.manifest.target-size-bytes"
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
    if policy.target_size_bytes is not None:
        target = Option(value=policy.target_size_bytes, source="--target-size")
    elif _TARGET_PROPERTY in metadata.properties:
        value = metadata.property_int(_TARGET_PROPERTY, _DEFAULT_TARGET_BYTES)
        if value < 1:
            raise InvalidMetadata(metadata.location, f"properties.{_TARGET_PROPERTY}", f"{value} is no size")
        target = Option(value=value, source=f"table property {_TARGET_PROPERTY}")
    else:
        target = Option(value=_DEFAULT_TARGET_BYTES, source="default")
    least = Option(value=_DEFAULT_MIN_MANIFESTS, source="default")
    if policy.min_manifests is not None:
        least = Option(value=policy.min_manifests, source="--min-manifests")
    codec = metadata.properties.get(_CODEC_PROPERTY, "gzip").lower()
    if codec not in _CODECS:
        raise InvalidMetadata(metadata.location, f"properties.{_CODEC_PROPERTY}", f"{codec!r} is no codec")
    _check_names(metadata, policy)
    options = {
        "target_size_bytes": target,
        "min_manifests": least,
        "content": Option(value=policy.content, source="default" if policy.content == "all" else "--content"),
        "spec_ids": Option(value=list(policy.spec_ids), source="--spec-id" if policy.spec_ids else "default"),
        "all_manifests": Option(
            value=policy.all_manifests, source="--all-manifests" if policy.all_manifests else "default"
        ),
        "sort_by": Option(value=list(policy.sort_by), source="--sort-by" if policy.sort_by else "default"),
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
