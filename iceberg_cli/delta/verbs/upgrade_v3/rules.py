"""upgrade-v3 on Delta: table features, and the properties that turn them on.

By default the two that format version 3 gives to a table of Iceberg: deletion vectors, and row ids. Row tracking is
only declared supported here, with the domain that holds its high-water mark: enabling it needs ids on every file, which
is `assign-row-ids`. V2 checkpoints, in-commit timestamps and the others have to be asked for.

The writer version becomes 7, the reader version 3 only where there is a feature that readers must know and that the
reader version does not stand for. What older versions stood for is written out. A table that has all of it already
stays as it is.

Spec: "Table Features", "Protocol Evolution", "Valid Feature Names in Table Features"; Delta Lake's error conditions
DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED and DELTA_UNIVERSAL_FORMAT_VIOLATION for what excludes deletion vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iceberg_cli.delta.spec.features import (
    READER_FEATURES,
    READER_VERSION,
    WRITER_FEATURES,
    WRITER_VERSION,
    implied_features,
    reader_features,
    supports,
    unread_features,
    writer_features,
)
from iceberg_cli.delta.spec.iceberg_compat import PROPERTIES, UNIFORM, WITHOUT_VECTORS, uniform_formats
from iceberg_cli.delta.spec.in_commit_timestamps import IN_COMMIT_TIMESTAMPS
from iceberg_cli.delta.spec.protocol import Metadata, Protocol, schema_fields
from iceberg_cli.delta.spec.row_ids import ENABLED as ROW_TRACKING_ENABLED
from iceberg_cli.errors import UsageError

DEFAULT_FEATURES: Final = ("deletionVectors", "rowTracking")

_DECLARED: Final[Mapping[str, str]] = {}
OFFERED: Final[Mapping[str, Mapping[str, str]]] = {
    "deletionVectors": {"delta.enableDeletionVectors": "true"},
    "v2Checkpoint": {"delta.checkpointPolicy": "v2"},
    "inCommitTimestamp": {IN_COMMIT_TIMESTAMPS: "true"},
    "changeDataFeed": {"delta.enableChangeDataFeed": "true"},
    "typeWidening": {"delta.enableTypeWidening": "true"},
    "rowTracking": _DECLARED,
    "domainMetadata": _DECLARED,
    "vacuumProtocolCheck": _DECLARED,
    "timestampNtz": _DECLARED,
    "appendOnly": _DECLARED,
    "invariants": _DECLARED,
    "checkConstraints": _DECLARED,
    "generatedColumns": _DECLARED,
    "identityColumns": _DECLARED,
    "allowColumnDefaults": _DECLARED,
}
"""Features that can be asked for, with the properties that turn them on; without one a feature is declared only."""

_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {"rowTracking": ("domainMetadata",)}
_WITHOUT_VECTORS: Final = (
    *(PROPERTIES[version] for version in WITHOUT_VECTORS),
    "delta.compatibility.symlinkFormatManifest.enabled",
)
_MAPPING: Final = "delta.columnMapping.mode"
_CDC_COLUMNS: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature that is asked for, or that another one needs.

    Args:
        name: the protocol's.
        supported: whether the table has it.
        properties: those that it takes and that are not set so, with what they are now.
        needed_by: the feature that needs it, or "".
    """

    name: str
    supported: bool
    properties: Mapping[str, str | None]
    needed_by: str = ""

    @property
    def there(self) -> bool:
        """Whether nothing is to be done for it."""
        return self.supported and not self.properties


def requested_features(names: Sequence[str]) -> tuple[str, ...]:
    """The features that are asked for, the default set where none is.

    Raises:
        UsageError: one is not known, or cannot be turned on by a change of properties alone.
    """
    for name in names:
        if name in OFFERED:
            continue
        meant = next((each for each in OFFERED if each.lower() == name.lower()), None)
        hint = f"Write {meant}." if meant else f"Known are {', '.join(OFFERED)}."
        reason = (
            "needs more than a change of the protocol" if name in WRITER_FEATURES else "is not known here"
        )
        raise UsageError(f"--feature {name} {reason}", next_step=hint)
    return tuple(dict.fromkeys(names)) or DEFAULT_FEATURES


def features_of(protocol: Protocol, metadata: Metadata, names: Sequence[str]) -> tuple[Feature, ...]:
    """What is to be done for each feature, those that others need included."""
    needed = {need: name for name in names for need in _NEEDS.get(name, ()) if need not in names}
    return tuple(
        Feature(
            name=name,
            supported=_supported(protocol, name),
            properties={key: metadata.configuration.get(key) for key in _missing(protocol, metadata, name)},
            needed_by=needed.get(name, ""),
        )
        for name in (*names, *needed)
    )


def upgraded(protocol: Protocol, names: Sequence[str]) -> Protocol:
    """The protocol with features, and what its older versions stood for written out; itself if it has them all.

    What readers must know too is listed for them then, also where it was listed for writers only.
    """
    if all(_supported(protocol, name) for name in names):
        return protocol
    readers = reader_features(protocol)
    writers = writer_features(protocol) | readers | frozenset(names)
    then = replace(protocol, min_writer_version=WRITER_VERSION, writer_features=writers)
    if protocol.min_reader_version < READER_VERSION and not unread_features(then):
        return then
    return replace(
        then, min_reader_version=READER_VERSION, reader_features=readers | writers & READER_FEATURES
    )


def configured(protocol: Protocol, metadata: Metadata, names: Sequence[str]) -> Metadata:
    """The metadata with the properties that the features take; `protocol` is the one before."""
    missing = {key: value for name in names for key, value in _missing(protocol, metadata, name).items()}
    return replace(metadata, configuration={**metadata.configuration, **missing}) if missing else metadata


def written_out(protocol: Protocol) -> tuple[str, ...]:
    """What the protocol's versions stand for without saying so."""
    stated = implied_features(protocol) | reader_features(protocol)
    return tuple(sorted(stated - (protocol.writer_features or frozenset())))


def obstacles(
    protocol: Protocol, metadata: Metadata, features: Sequence[Feature]
) -> tuple[tuple[str, str], ...]:
    """Why features that are not there cannot be turned on: for each reason its rule in `plan/preflight.py`."""
    due = {feature.name for feature in features if not feature.there}
    reasons = []
    if "deletionVectors" in due:
        must_not = "such tables must not have deletion vectors"
        way_out = "change that first, or name the other features with --feature"
        reasons += [
            ("deletion-vectors-excluded", f"{setting}, and {must_not}: {way_out}")
            for setting in _without_vectors(metadata)
        ]
    mode = metadata.configuration.get(_MAPPING, "none")
    if due and mode.lower() != "none" and not supports(protocol, "columnMapping"):
        reason = (
            f"{_MAPPING} is {mode}, and the protocol does not have columnMapping, so readers may differ in what they "
            "read: set the property or the protocol with an engine, so that both agree"
        )
        reasons.append(("column-mapping-undeclared", reason))
    provider = metadata.format.get("provider", "parquet")
    if provider != "parquet" and due:
        reasons.append(("data-files-not-parquet", f"its data files are {provider!r}, not Parquet"))
    if "changeDataFeed" in due:
        reasons += [
            ("change-data-column", f"the column {name} has a name that change data files use")
            for name in sorted(_CDC_COLUMNS & _columns(metadata))
        ]
    return tuple(reasons)


def updates_for(
    protocol: Protocol, metadata: Metadata, names: Sequence[str]
) -> tuple[Mapping[str, Any], ...]:
    """The actions that the features take, with a commitInfo as Delta Lake has it; none where all is there."""
    then, stated = upgraded(protocol, names), configured(protocol, metadata, names)
    if then == protocol and stated == metadata:
        return ()
    actions: list[Mapping[str, Any]] = []
    if stated != metadata:
        before = metadata.configuration
        changed = {key: value for key, value in stated.configuration.items() if before.get(key) != value}
        info = {"operation": "SET TBLPROPERTIES", "operationParameters": {"properties": _text(changed)}}
        actions.append({"metaData": stated.to_json()})
    else:
        info = {
            "operation": "UPGRADE PROTOCOL",
            "operationParameters": {"newProtocol": _text(then.to_json())},
        }
    if then != protocol:
        actions.append({"protocol": then.to_json()})
    return ({"commitInfo": {**info, "isolationLevel": "Serializable", "isBlindAppend": True}}, *actions)


def _supported(protocol: Protocol, name: str) -> bool:
    """Whether a feature is in all lists where it must be, by itself or because of older versions."""
    return name in writer_features(protocol) and (
        name not in READER_FEATURES or name in reader_features(protocol)
    )


def _missing(protocol: Protocol, metadata: Metadata, name: str) -> dict[str, str]:
    """The properties that a feature takes and that are not set so.

    Row tracking that is declared must not be enabled by a property from before: files have no row ids yet.
    """
    if name == "rowTracking" and not _supported(protocol, name):
        on = _property(metadata, ROW_TRACKING_ENABLED) == "true"
        return {ROW_TRACKING_ENABLED: "false"} if on else {}
    return {key: value for key, value in OFFERED[name].items() if _property(metadata, key) != value}


def _property(metadata: Metadata, key: str) -> str:
    return metadata.configuration.get(key, "").strip().lower()


def _without_vectors(metadata: Metadata) -> list[str]:
    """The settings that exclude deletion vectors."""
    found = [f"{name} is true" for name in _WITHOUT_VECTORS if metadata.property_bool(name, default=False)]
    if "hudi" in uniform_formats(metadata.configuration):
        found.append(f"{UNIFORM} is {metadata.configuration[UNIFORM]}")
    return found


def _columns(metadata: Metadata) -> set[str]:
    return {field["name"].lower() for field in schema_fields(metadata)}


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
