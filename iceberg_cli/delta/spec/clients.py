"""Which clients, by what they leave in commitInfo, know a table feature: a table as of 2026-11.

Delta Lake: its documentation, "How does Delta Lake manage feature compatibility?". delta-rs was measured in 1.6: it
reads tables whose writer features it does not know, and refuses to write to them. Of other clients nothing is known
here.

Spec: "Commit Provenance Information", "Table Features".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.delta.spec.features import READER_FEATURES

_DELTA_LAKE: Final = re.compile(r"Delta-Lake/(\d+)\.(\d+)")
_DELTA_RS: Final = "delta-rs"
_OUR_OWN: Final = "iceberg-cli/"
_NAMES: Final = (
    "engineInfo",
    "clientVersion",
)  # the first was not there in what early versions of delta-rs wrote
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client that wrote to a table lately, seen with features that the table gets.

    Args:
        name: as commitInfo has it.
        version: the last one that is its own.
        lacks: those of the features that it does not know; None where nothing is known of it.
        wrote_last: whether no other client has written since; this program is none.
    """

    name: str
    version: int
    lacks: tuple[str, ...] | None
    wrote_last: bool

    @property
    def reason(self) -> str:
        """What the features keep it from, in words."""
        if self.lacks is None:
            return "which features it knows is not known here"
        if not self.lacks:
            return "it knows the features"
        lost = (
            "neither read nor write the table"
            if READER_FEATURES.intersection(self.lacks)
            else "not write to the table"
        )
        return f"it does not know {', '.join(self.lacks)}, and could {lost} any more"


def is_own(info: Mapping[str, Any]) -> bool:
    """Whether this program made a commit."""
    return (_name_of(info) or "").startswith(_OUR_OWN)


def _name_of(info: Mapping[str, Any]) -> str | None:
    return next((info[key] for key in _NAMES if isinstance(info.get(key), str)), None)


def clients_of(infos: Iterable[tuple[int, Mapping[str, Any]]], features: Sequence[str]) -> tuple[Client, ...]:
    """The clients that wrote, in the order in which each did so first.

    Args:
        infos: versions and commitInfo actions, oldest first.
        features: that the table gets.
    """
    versions: dict[str, int] = {}
    for version, info in infos:
        name = _name_of(info)
        if name is not None and not is_own(info):
            versions[name] = version
    last = max(versions.values(), default=None)
    return tuple(
        Client(name=name, version=version, lacks=missing_features(name, features), wrote_last=version == last)
        for name, version in versions.items()
    )


def missing_features(client: str, features: Sequence[str]) -> tuple[str, ...] | None:
    """Those of the features that a client does not know; None where nothing is known of the client.

    Args:
        client: as commitInfo has it.
        features: that the table gets.
    """
    match = _DELTA_LAKE.search(client)
    if match is not None:
        release = (int(match[1]), int(match[2]))
        return tuple(name for name in features if release < _SINCE.get(name, _TABLE_FEATURES))
    if _DELTA_RS in client:
        return tuple(name for name in features if name in _NOT_IN_DELTA_RS)
    return None
