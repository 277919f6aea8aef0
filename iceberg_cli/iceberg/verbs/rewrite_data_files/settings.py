"""What a rewrite of data files goes by: its policy, the table's properties, and documented defaults, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from iceberg_cli.iceberg.rows.data_locations import DataLocations, data_locations
from iceberg_cli.iceberg.rows.leaf_columns import leaf_columns
from iceberg_cli.iceberg.rows.metrics_modes import MetricsMode, metrics_modes
from iceberg_cli.iceberg.rows.parquet_properties import ParquetProperties, parquet_properties
from iceberg_cli.iceberg.spec.table_metadata.columns import ROW_LINEAGE, WITH_ROW_IDS
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.schema import NestedField
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.layout.compaction import CompactionSettings
from iceberg_cli.layout.files.chosen_by import chosen_by
from iceberg_cli.plan.plan import Option

_TARGET: Final = "write.target-file-size-bytes"
_FORMAT: Final = "write.format.default"
_DEFAULT_TARGET_BYTES: Final = 512 << 20
_DELETE_RATIO: Final = 0.3
WITH_NULL_SNAPSHOTS: Final = (
    2  # the first format version whose entries inherit the id of the commit's snapshot
)


def compaction_of(
    metadata: TableMetadata, policy: RewriteDataFiles
) -> tuple[CompactionSettings, Mapping[str, Option]]:
    """Which files are chosen, and the options that say so.

    Raises:
        UsageError: sizes do not go together. InvalidMetadata: a property is no number.
    """
    target = policy.chosen("target_size", _DEFAULT_TARGET_BYTES)
    if policy.target_size is None and _TARGET in metadata.properties:
        number = metadata.property_int(_TARGET, _DEFAULT_TARGET_BYTES)
        target = Option(value=max(1, number), source=f"table property {_TARGET}")
    settings, options = chosen_by(
        policy, target, delete_ratio=_DELETE_RATIO, delete_files=policy.delete_files
    )
    return settings, {
        **options,
        "branch": policy.chosen("branch"),
        "delete_files": policy.chosen("delete_files"),
        **policy.chosen_or_none("output_spec"),
        "output_format": policy.chosen("output_format"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How new data files of a table are written, by its properties.

    Args:
        properties: of Parquet files.
        modes: of metrics, by field id.
        locations: of the files.
        refused: why properties are not obeyed, by their names.
        without_effect: names of properties that change nothing of the files.
    """

    properties: ParquetProperties
    modes: Mapping[int, MetricsMode]
    locations: DataLocations
    refused: Mapping[str, str]
    without_effect: tuple[str, ...]


def write_settings(
    metadata: TableMetadata, fields: tuple[NestedField, ...], policy: RewriteDataFiles
) -> WriteSettings:
    """How new data files are written.

    Args:
        metadata: of the table.
        fields: that files have, see `fields_in_files`.
        policy: what the operator asked for.
    """
    own = (*fields, *ROW_LINEAGE) if metadata.format_version >= WITH_ROW_IDS else fields
    properties = parquet_properties(leaf_columns(own), metadata.properties)
    order = next(each for each in metadata.sort_orders if each.order_id == metadata.default_sort_order_id)
    modes, refused_modes = metrics_modes(
        own,
        metadata.properties,
        sorted_ids=[source_id for field in order.fields for source_id in field.source_ids],
    )
    locations = data_locations(metadata.location, metadata.properties)
    refused = {**properties.refused, **refused_modes, **locations.refused}
    file_format = metadata.properties.get(_FORMAT, "parquet").lower()
    if file_format != "parquet" and policy.output_format is None:
        refused[_FORMAT] = f"{file_format} is not written here; --output-format parquet writes Parquet"
    return WriteSettings(
        properties=properties,
        modes=modes,
        locations=locations,
        refused=refused,
        without_effect=properties.without_effect,
    )
