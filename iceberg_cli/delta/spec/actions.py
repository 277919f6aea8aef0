"""The actions of commits as one value, with columns for what grows with files.

Spec: "Actions". Every action that the protocol names is typed; the others survive as the lines they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.delta.spec.columns import ADD, CDC, DELETION_VECTOR, REMOVE, STRINGS, concat, dv_ids
from iceberg_cli.delta.spec.irregularities import Irregularity
from iceberg_cli.delta.spec.protocol import Metadata, Protocol
from iceberg_cli.errors import CorruptFile

__all__ = [
    "ADD",
    "CDC",
    "CHECKPOINT_ONLY",
    "DELETION_VECTOR",
    "REMOVE",
    "STRINGS",
    "Actions",
    "Metadata",
    "Protocol",
    "combine",
    "dv_ids",
]

Int64s = npt.NDArray[np.int64]
Json = Mapping[str, Any]

CHECKPOINT_ONLY: Final = ("sidecar", "checkpointMetadata")
_INT64: Final = 2**63


def _no_numbers() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The actions of one commit, or of several in the order of their versions.

    Args:
        adds: columns of `ADD` and unknown ones, in the order of the commits and of their lines.
        removes: columns of `REMOVE` and unknown ones, likewise.
        cdc: columns of `CDC` and unknown ones, likewise.
        add_versions: the commit of each add; likewise the others.
        add_places: the line of each add in its commit, the first is 1.
        protocol: the newest one; so is `metadata`.
        transactions: the newest `txn` action of each `appId`.
        domains: the newest `domainMetadata` action of each domain, removed ones included.
        commit_infos: versions and `commitInfo` actions.
        unknown: actions of kinds that the protocol does not name, each as a line of its own.
        irregular: what the commits do that the protocol does not allow; nothing of checkpoints.
    """

    adds: pa.Table = field(default_factory=ADD.empty_table)
    removes: pa.Table = field(default_factory=REMOVE.empty_table)
    cdc: pa.Table = field(default_factory=CDC.empty_table)
    add_versions: Int64s = field(default_factory=_no_numbers)
    add_places: Int64s = field(default_factory=_no_numbers)
    remove_versions: Int64s = field(default_factory=_no_numbers)
    remove_places: Int64s = field(default_factory=_no_numbers)
    cdc_versions: Int64s = field(default_factory=_no_numbers)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, Json] = field(default_factory=dict)
    domains: Mapping[str, Json] = field(default_factory=dict)
    commit_infos: tuple[tuple[int, Json], ...] = ()
    unknown: tuple[Json, ...] = ()
    irregular: tuple[Irregularity, ...] = ()


def combine(parts: Sequence[Actions]) -> Actions:
    """The actions of all parts, given in the order of their versions."""
    if len(parts) == 1:
        return parts[0]
    return Actions(
        adds=concat([part.adds for part in parts], ADD),
        removes=concat([part.removes for part in parts], REMOVE),
        cdc=concat([part.cdc for part in parts], CDC),
        add_versions=_joined([part.add_versions for part in parts]),
        add_places=_joined([part.add_places for part in parts]),
        remove_versions=_joined([part.remove_versions for part in parts]),
        remove_places=_joined([part.remove_places for part in parts]),
        cdc_versions=_joined([part.cdc_versions for part in parts]),
        protocol=next((part.protocol for part in reversed(parts) if part.protocol), None),
        metadata=next((part.metadata for part in reversed(parts) if part.metadata), None),
        transactions={key: item for part in parts for key, item in part.transactions.items()},
        domains={key: item for part in parts for key, item in part.domains.items()},
        commit_infos=tuple(chain.from_iterable(part.commit_infos for part in parts)),
        unknown=tuple(chain.from_iterable(part.unknown for part in parts)),
        irregular=tuple(chain.from_iterable(part.irregular for part in parts)),
    )


def transaction_key(action: Any, path: str, where: str) -> str:
    """The `appId` of a `txn` action.

    Raises:
        CorruptFile: it has none, or no version.
    """
    fields = fields_of(action, path, where)
    version = fields.get("version")
    if type(version) is not int or not -_INT64 <= version < _INT64:
        raise CorruptFile(path, f"{where}.version", f"a whole number is expected, not {version!r:.40}")
    return _text(fields, "appId", path, where)


def domain_key(action: Any, path: str, where: str) -> str:
    """The domain of a `domainMetadata` action.

    Raises:
        CorruptFile: it has none, or another field is of another type.
    """
    fields = fields_of(action, path, where)
    if not isinstance(fields.get("removed", False), bool):
        raise CorruptFile(path, f"{where}.removed", "true or false is expected")
    if fields.get("configuration") is not None:
        _text(fields, "configuration", path, where)
    return _text(fields, "domain", path, where)


def fields_of(action: Any, path: str, where: str) -> Json:
    """The fields of an action.

    Raises:
        CorruptFile: it is no object.
    """
    if not isinstance(action, dict):
        raise CorruptFile(path, where, "an object is expected")
    return action


def _text(fields: Mapping[str, Any], name: str, path: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise CorruptFile(path, f"{where}.{name}", f"a string is expected, not {value!r:.40}")
    return value


def _joined(arrays: Sequence[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else _no_numbers()
