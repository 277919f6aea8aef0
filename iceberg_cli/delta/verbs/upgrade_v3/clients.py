"""Which clients, by what they leave in commitInfo, know a table feature. A dated table.

Delta Lake: its documentation, "How does Delta Lake manage feature compatibility?". delta-rs was measured in 1.6: it
reads tables whose writer features it does not know, and refuses to write to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from iceberg_cli.delta.spec.features import READER_FEATURES

_DELTA_LAKE: Final = re.compile(r"Delta-Lake/(\d+)\.(\d+)")
_DELTA_RS: Final = re.compile(r"delta-rs")
_OUR_OWN: Final = "iceberg-cli/"
_TABLE_FEATURES: Final = (2, 3)
_SINCE: Final[Mapping[str, tuple[int, int]]] = {
    "deletionVectors": (2, 3),
    "timestampNtz": (2, 4),
    "v2Checkpoint": (3, 0),
    "domainMetadata": (3, 0),
    "rowTracking": (3, 2),
    "inCommitTimestamp": (3, 3),
    "typeWidening": (4, 0),
    "vacuumProtocolCheck": (3, 3),
}
_NOT_IN_DELTA_RS: Final = frozenset(
    {"domainMetadata", "rowTracking", "inCommitTimestamp", "typeWidening", "identityColumns", "clustering"}
)


def writers_of(infos: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[str, int]:
    """The clients that wrote, each with the last version that is its own.

    Args:
        infos: versions and commitInfo actions, oldest first.
    """
    found: dict[str, int] = {}
    for version, info in infos:
        name = info.get("engineInfo")
        if isinstance(name, str) and not name.startswith(_OUR_OWN):
            found[name] = version
    return found


def missing_features(client: str, features: Sequence[str]) -> list[str] | None:
    """Those of the features that a client does not know; None where nothing is known of the client.

    Args:
        client: `engineInfo`.
        features: that the table gets.
    """
    match = _DELTA_LAKE.search(client)
    if match is not None:
        release = (int(match[1]), int(match[2]))
        return [name for name in features if release < _SINCE.get(name, _TABLE_FEATURES)]
    if _DELTA_RS.search(client):
        return [name for name in features if name in _NOT_IN_DELTA_RS]
    return None


def client_reason(missing: Sequence[str] | None) -> str:
    """What the features that a client lacks keep it from, in words; see `missing_features`."""
    if missing is None:
        return "which features it knows is not known here"
    if not missing:
        return "it knows the features"
    lost = (
        "neither read nor write the table"
        if READER_FEATURES.intersection(missing)
        else "not write to the table"
    )
    return f"it does not know {', '.join(missing)}, and could {lost} any more"
