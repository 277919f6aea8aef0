"""What a Delta table promises to Iceberg: files that both read, and metadata of Iceberg that names them (UniForm).

Spec: Delta protocol, "Iceberg Compatibility V1", "Iceberg Compatibility V2"; Delta's RFC "Materialize Partition
Columns". The tag, and the names of UniForm, are those of Delta Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.protocol import Metadata, Protocol

PROPERTIES: Final[Mapping[int, str]] = {
    version: f"delta.enableIcebergCompatV{version}" for version in (1, 2, 3)
}
"""By version, the property that asks for files that Iceberg reads."""

WITHOUT_VECTORS: Final = (1, 2)
"""The versions in which no file may have a deletion vector."""

UNIFORM: Final = "delta.universalFormat.enabledFormats"
_IN_FILES: Final = "materializePartitionColumns"
_TAG: Final = "ICEBERG_COMPAT_VERSION"


def compat_version(metadata: Metadata) -> int | None:
    """The version of Iceberg compatibility that is on; None: none is."""
    on = (version for version, name in PROPERTIES.items() if metadata.property_bool(name, default=False))
    return max(on, default=None)


def compat_tags(metadata: Metadata) -> dict[str, str]:
    """What the adds of files say that were written for Iceberg to read."""
    version = compat_version(metadata)
    return {} if version is None else {_TAG: str(version)}


def has_partition_columns_in_files(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether new data files have the partition columns too, after those of the data."""
    return supports(protocol, _IN_FILES) or compat_version(metadata) is not None


def uniform_formats(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """The formats in which Delta Spark writes metadata beside the log after its commits, in lower case."""
    names = configuration.get(UNIFORM, "").lower().split(",")
    return tuple(name for name in map(str.strip, names) if name)
