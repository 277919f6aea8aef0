"""What the log of the world's Delta table says, slowly and literally: by JSON, pyarrow and pyroaring, action by action.

Spec: "Action Reconciliation", "Checkpoints", "Deletion Vectors", "Row Tracking".
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq
from pyroaring import BitMap64

from iceberg_cli.testing import delta_vectors
from iceberg_cli.testing.crash.world import DELTA_TABLE
from iceberg_cli.testing.delta_vectors import positions_in, z85_decode

LOG = f"{DELTA_TABLE}/_delta_log/"
COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:[^.]+\.)?(?:parquet|json)")
Action = dict[str, Any]
Files = Mapping[str, bytes]
Content = dict[str, tuple[int, ...] | None]


@dataclass
class State:
    """The table at one version."""

    version: int
    adds: dict[tuple[str, str], Action] = field(default_factory=dict)
    removes: dict[tuple[str, str], Action] = field(default_factory=dict)
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    domains: dict[str, Action] = field(default_factory=dict)

    def take(self, actions: Iterable[Action]) -> None:
        """Go on by the actions of one commit, or of a checkpoint."""
        for action in actions:
            ((kind, body),) = action.items()
            if kind in ("add", "remove"):
                key = (body["path"], vector_id(body))
                here, there = (self.adds, self.removes) if kind == "add" else (self.removes, self.adds)
                here[key] = body
                there.pop(key, None)
            elif kind == "protocol":
                self.protocol = body
            elif kind == "metaData":
                self.metadata = body
            elif kind == "domainMetadata":
                self.domains[body["domain"]] = body

    def content(self, files: Files) -> Content:
        """For each file the positions of its deleted rows; None where the file of its vector is gone."""
        paths = [path for path, _ in self.adds]
        assert len(set(paths)) == len(paths), f"a file is in version {self.version} twice: {sorted(paths)}"
        return {path: positions(add, files) for (path, _), add in self.adds.items()}

    def needed(self) -> set[str]:
        """The files of the active adds."""
        vectors = (vector_file(add) for add in self.adds.values())
        return {f"{DELTA_TABLE}/{path}" for path, _ in self.adds} | {
            path for path in vectors if path is not None
        }

    def check_row_ids(self) -> None:
        """Ids are used once, at most up to the mark, and on every file where row tracking is enabled."""
        domain = self.domains.get("delta.rowTracking")
        mark = -1 if domain is None else json.loads(domain["configuration"])["rowIdHighWaterMark"]
        used: set[int] = set()
        for (path, _), add in self.adds.items():
            base = add.get("baseRowId")
            if base is None:
                assert self.metadata["configuration"].get("delta.enableRowTracking") != "true", path
                continue
            ids = range(base, base + json.loads(add["stats"])["numRecords"])
            assert used.isdisjoint(ids), f"{path} has ids that another file has"
            used |= set(ids)
            assert ids[-1] <= mark
            assert add["defaultRowCommitVersion"] <= self.version


def vector_id(body: Action) -> str:
    """What tells the vector of an add or remove from others; empty without one."""
    vector = body.get("deletionVector")
    return (
        "" if vector is None else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"
    )


def vector_file(body: Action) -> str | None:
    """The file of the vector of an add or remove."""
    vector = body.get("deletionVector")
    return None if vector is None else delta_vectors.vector_file(vector, DELTA_TABLE)


def positions(add: Action, files: Files) -> tuple[int, ...] | None:
    """The deleted positions of a file; None where the file of its vector is gone."""
    vector = add.get("deletionVector")
    if vector is None:
        return ()
    path = vector_file(add)
    if path is None:
        data = z85_decode(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
        return tuple(BitMap64.deserialize(data[4:]))
    return tuple(positions_in(files[path], vector)) if path in files else None


def commits(files: Files) -> list[int]:
    """The versions whose commits are there."""
    names = (name.removeprefix(LOG) for name in files if name.startswith(LOG))
    return sorted(int(match[1]) for name in names if (match := COMMIT.fullmatch(name)))


def commit_actions(files: Files, version: int) -> list[Action]:
    """The actions of one commit."""
    lines = files[f"{LOG}{version:020}.json"].splitlines()
    return [json.loads(line) for line in lines]


def checkpoints(files: Files) -> dict[str, int]:
    """The checkpoints that are there, of one file each, by name."""
    names = (name.removeprefix(LOG) for name in files if name.startswith(LOG))
    return {name: int(match[1]) for name in names if (match := CHECKPOINT.fullmatch(name))}


def state_at(files: Files, version: int) -> State | None:
    """The table at a version, from the newest checkpoint at or before it; None where the log begins too late."""
    before = [(at, name) for name, at in checkpoints(files).items() if at <= version]
    state, since = State(version), 0
    if before:
        at, name = max(before)
        state.take(checkpoint_actions(files, name))
        since = at + 1
    there = set(commits(files))
    if not there.issuperset(range(since, version + 1)):
        return None
    for each in range(since, version + 1):
        state.take(commit_actions(files, each))
    return state


def checkpoint_actions(files: Files, name: str) -> list[Action]:
    """The actions of a checkpoint, its sidecars' among them."""
    data = files[LOG + name]
    rows = [json.loads(line) for line in data.splitlines()] if name.endswith(".json") else parquet_rows(data)
    found = []
    for row in rows:
        if "sidecar" in row:
            found += parquet_rows(files[f"{LOG}_sidecars/{row['sidecar']['path']}"])
        elif "checkpointMetadata" not in row:
            found.append(row)
    return found


def parquet_rows(data: bytes) -> list[Action]:
    """The rows of a Parquet file, without fields that are null."""
    table = pq.read_table(io.BytesIO(data))
    return [given(row) for row in table.to_pylist(maps_as_pydicts="strict")]


def given(value: Any) -> Any:
    """Without fields that are null."""
    if isinstance(value, dict):
        return {name: given(item) for name, item in value.items() if item is not None}
    return value


def is_ours(files: Files, version: int) -> bool:
    """Whether this tool wrote a version."""
    infos = (action.get("commitInfo", {}) for action in commit_actions(files, version))
    return any(info.get("engineInfo", "").startswith("iceberg-cli/") for info in infos)


def named_files(files: Files) -> set[str]:
    """Every file of vectors and every sidecar that anything in the log names."""
    actions = [action for version in commits(files) for action in commit_actions(files, version)]
    found = set()
    for name in checkpoints(files):
        actions += checkpoint_actions(files, name)
        if name.endswith(".json"):
            rows = (json.loads(line) for line in files[LOG + name].splitlines())
            found |= {f"{LOG}_sidecars/{row['sidecar']['path']}" for row in rows if "sidecar" in row}
    for action in actions:
        for body in (action.get("add"), action.get("remove")):
            if body is not None and (path := vector_file(body)) is not None:
                found.add(path)
    return found
