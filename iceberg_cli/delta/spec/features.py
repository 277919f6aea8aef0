"""Table features: which are known here, which ones older protocol versions stand for, and what follows from them.

Spec: "Table Features", "Valid Feature Names in Table Features", "Reader Version Requirements"; and the names that Delta
Lake writes beside these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iceberg_cli.delta.spec.protocol import Metadata, Protocol
from iceberg_cli.errors import Refused

READER_VERSION: Final = 3
WRITER_VERSION: Final = 7

READER_FEATURES: Final = frozenset(
    {
        "catalogManaged",
        "catalogOwned-preview",
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""Those that readers must know too; nothing in them changes how the log is read."""

WRITER_FEATURES: Final = READER_FEATURES | {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "domainMetadata",
    "generatedColumns",
    "icebergCompatV1",
    "icebergCompatV2",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "materializePartitionColumns",
    "rowTracking",
}
"""All features that are known here."""

VECTORS: Final = "deletionVectors"
VECTORS_PROPERTY: Final = "delta.enableDeletionVectors"

ADAPTIVE: Final = "adaptiveMetadata-preview"
"""Commits may hold what the table is, and all of its files, in one action: who passes over it reads another table."""

CATALOG_FEATURES: Final = frozenset({"catalogManaged", "catalogOwned-preview"})
"""A catalog decides which commits count: what is published can be read, and nothing written."""

_COORDINATOR: Final = "delta.coordinatedCommits.commitCoordinator-preview"

_LEGACY_READER: Final[Mapping[int, frozenset[str]]] = {1: frozenset(), 2: frozenset({"columnMapping"})}
_LEGACY_WRITER: Final = (
    (2, ("appendOnly", "invariants")),
    (3, ("checkConstraints",)),
    (4, ("changeDataFeed", "generatedColumns")),
    (5, ("columnMapping",)),
    (6, ("identityColumns",)),
)


def implied_writer_features(version: int) -> frozenset[str]:
    """The features that a writer version below 7 stands for: "Writer Version Requirements"."""
    return frozenset(
        name for since, names in _LEGACY_WRITER if since <= version < WRITER_VERSION for name in names
    )


def implied_reader_features(version: int) -> frozenset[str]:
    """The features that a reader version below 3 stands for: "Reader Version Requirements"."""
    return _LEGACY_READER.get(version, frozenset())


def implied_features(protocol: Protocol) -> frozenset[str]:
    """The features that the versions stand for: one that readers must know too only where both versions reach it.

    Spec: "Column Mapping": reader version 2 and writer version 5 or 6.
    """
    writers = implied_writer_features(protocol.min_writer_version)
    return writers - (READER_FEATURES - implied_reader_features(protocol.min_reader_version))


def reader_features(protocol: Protocol) -> frozenset[str]:
    """All features that a reader must know, listed or implied; reader version 2 has no list for what writers list."""
    implied = implied_reader_features(protocol.min_reader_version) & writer_features(protocol)
    return implied | (protocol.reader_features or frozenset())


def writer_features(protocol: Protocol) -> frozenset[str]:
    """All features that a writer must know, listed or implied."""
    return implied_features(protocol) | (protocol.writer_features or frozenset())


def takes_deletion_vectors(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether commits may have new deletion vectors.

    Spec: "Deletion Vectors", writer requirements.
    """
    return supports(protocol, VECTORS) and metadata.property_bool(VECTORS_PROPERTY, default=False)


def new_features(protocol: Protocol, then: Protocol) -> frozenset[str]:
    """Those that a client has to know once a table's protocol is `then`, and did not before."""
    return (writer_features(then) - writer_features(protocol)) | (
        reader_features(then) - reader_features(protocol)
    )


def unread_features(protocol: Protocol) -> frozenset[str]:
    """Those that readers must know too, and that the protocol lists for writers only.

    Spec: "Supported Features".
    """
    return (writer_features(protocol) & READER_FEATURES) - reader_features(protocol)


def supports(protocol: Protocol, feature: str) -> bool:
    """Whether the table may use a feature: whether its writers must know it."""
    return feature in writer_features(protocol) or feature in reader_features(protocol)


def check_readable(protocol: Protocol, table: str) -> None:
    """Refuse a table that cannot be read rightly.

    Raises:
        Refused: its reader version or a reader feature is not known here.
    """
    reasons = []
    if protocol.min_reader_version > READER_VERSION:
        reasons.append(
            f"its reader version is {protocol.min_reader_version}, and at most {READER_VERSION} is known"
        )
    if unknown := sorted(reader_features(protocol) - READER_FEATURES):
        reasons.append(f"it needs the reader feature {', '.join(unknown)}, which is not known here")
    if reasons:
        raise _newer(table, "; ".join(reasons))


def newer_feature(path: str, sign: str, feature: str) -> Refused:
    """The error of a file of the log that shows a feature that is newer than this tool.

    Args:
        path: of the file.
        sign: what is in it.
        feature: that needs it.
    """
    return _newer(path, f"{sign}, which belongs to the table feature {feature}")


def _newer(what: str, reasons: str) -> Refused:
    return Refused(
        f"Cannot read {what}: {reasons}; this is newer than this iceberg-cli",
        next_step="Use a newer iceberg-cli.",
    )


def unwritable(protocol: Protocol) -> tuple[str, ...]:
    """Why no verb may write to the table or delete any of its files; each names version or feature. Mostly nothing."""
    reasons = []
    if protocol.min_writer_version > WRITER_VERSION:
        found = protocol.min_writer_version
        reasons.append(f"the writer version is {found}, and at most {WRITER_VERSION} is known here")
    features = writer_features(protocol) | reader_features(protocol)
    reasons += [f"the writer feature {name} is not known here" for name in sorted(features - WRITER_FEATURES)]
    reasons += [
        f"the table feature {name} lets a catalog decide which commits count"
        for name in sorted(features & CATALOG_FEATURES)
    ]
    return tuple(reasons)


def write_refusal(protocol: Protocol, metadata: Metadata) -> str | None:
    """Why no verb may write to the table or delete any of its files, in one sentence, or None."""
    reasons = list(unwritable(protocol))
    if coordinator := metadata.configuration.get(_COORDINATOR):
        reasons.append(f"{_COORDINATOR} is {coordinator}, which decides which commits count")
    return "; ".join(reasons) or None
