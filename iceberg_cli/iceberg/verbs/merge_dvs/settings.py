"""merge-dvs: the policy, with table properties and defaults for options that are not given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.plan.plan import Option

WITH_VECTORS: Final = 3  # the first format version that has deletion vectors
DEFAULT_TARGET_BYTES: Final = 64 << 20
DEFAULT_MIN_FILES: Final = 5
DEFAULT_DEAD_RATIO: Final = 0.3
TARGET_PROPERTY: Final = "write.delete.target-file-size-bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """The policy, with table properties and defaults for options that are not given."""

    target_bytes: int
    min_files: int
    dead_ratio: float
    keep_dangling: bool
    with_vectors: bool  # False: only position deletes that dangle go, as below version 3
    options: Mapping[str, Option]


def settings_of(metadata: TableMetadata, policy: MergeDvs) -> MergeSettings:
    """Settings from option, table property and documented default, in this order.

    Raises:
        InvalidMetadata: the property is no number.
    """
    target = _first(policy.target_size_bytes, "--target-size", DEFAULT_TARGET_BYTES)
    if target.source == "default" and TARGET_PROPERTY in metadata.properties:
        number = metadata.property_int(TARGET_PROPERTY, DEFAULT_TARGET_BYTES)
        target = Option(value=max(1, number), source=f"table property {TARGET_PROPERTY}")
    options = {
        "target_size_bytes": target,
        "min_files": _first(policy.min_files, "--min-files", DEFAULT_MIN_FILES),
        "dead_ratio": _first(policy.dead_ratio, "--dead-ratio", DEFAULT_DEAD_RATIO),
        "where": _first(policy.where, "--where", None),
        "keep_dangling": Option(
            value=policy.keep_dangling, source="--keep-dangling" if policy.keep_dangling else "default"
        ),
    }
    return MergeSettings(
        target_bytes=target.value,
        min_files=options["min_files"].value,
        dead_ratio=options["dead_ratio"].value,
        keep_dangling=policy.keep_dangling,
        with_vectors=metadata.format_version >= WITH_VECTORS,
        options=options,
    )


def _first(value: Any, option: str, default: Any) -> Option:
    return Option(value=default, source="default") if value is None else Option(value=value, source=option)
