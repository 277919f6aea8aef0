"""A Delta table on a local disk: a writer that does odd things, and a literal reader of rows.

Nothing here is the package's: the log is JSON, checkpoints and data are pyarrow's, bitmaps pyroaring's. The reader is
the referee: it replays the log action by action.

Spec: "Action Reconciliation", "Checkpoints", "Deletion Vectors", "Row Tracking", "In-Commit Timestamps".
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

Json = dict[str, Any]
Key = tuple[str, str]  # path and deletion vector of a file
DAY_MS: Final = 86_400_000
_MAGIC: Final = struct.pack("<I", 1681511377)
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\..+)?\.(parquet|json)")
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FIELDS: Final = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("id", "long"), ("k", "string"), ("v", "integer"))
]


class Row(NamedTuple):
    """A row that a reader sees; the last two are null without row tracking."""

    k: str | None
    v: int
    row_id: int | None
    commit_version: int | None


class State(NamedTuple):
    """The table at one version."""

    adds: dict[Key, Json]
    protocol: Json
    metadata: Json
    domains: dict[str, Json]


def z85(data: bytes) -> str:
    """Z85 of bytes, a multiple of four of them."""
    return base64.b85encode(data).translate(bytes.maketrans(_RFC1924, _Z85)).decode()


def from_z85(text: str) -> bytes:
    """The bytes that Z85 spells."""
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _RFC1924)))


def _key(action: Mapping[str, Any]) -> Key:
    vector = action.get("deletionVector")
    if vector is None:
        return action["path"], ""
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


class Log:
    """What the log of a table says, read slowly."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "_delta_log"

    def versions(self) -> list[int]:
        """Whose commits are there."""
        return sorted(int(m[1]) for p in self.folder.iterdir() if (m := _COMMIT.fullmatch(p.name)))

    def commit(self, version: int) -> list[Json]:
        """The actions of one version."""
        return [json.loads(line) for line in (self.folder / f"{version:020}.json").read_text().splitlines()]

    def times_ms(self) -> dict[int, int]:
        """The time of each version: what its commit tells itself, else its file's, always growing."""
        found: dict[int, int] = {}
        latest = 0
        for version in self.versions():
            infos = [action["commitInfo"] for action in self.commit(version) if "commitInfo" in action]
            own = infos[0].get("inCommitTimestamp") if infos else None
            modified = (self.folder / f"{version:020}.json").stat().st_mtime_ns // 1_000_000
            latest = max(own if own is not None else modified, latest + 1)
            found[version] = latest
        return found

    def checkpoints(self) -> dict[int, list[Path]]:
        """The checkpoints of each version."""
        found: dict[int, list[Path]] = {}
        for path in self.folder.iterdir():
            if match := _CHECKPOINT.fullmatch(path.name):
                found.setdefault(int(match[1]), []).append(path)
        return found

    def _of_checkpoint(self, path: Path) -> list[Json]:
        rows = _lines(path) if path.suffix == ".json" else _rows(path)
        sidecars = [row["sidecar"]["path"] for row in rows if "sidecar" in row]
        return rows + [row for name in sidecars for row in _rows(self.folder / "_sidecars" / name)]

    def states(self, version: int) -> list[State]:
        """The table at a version, once from the first commit and once from each checkpoint that can stand below."""
        there = set(self.versions())
        found = []
        starts: list[tuple[int, Path | None]] = [(-1, None)]
        starts += [(at, path) for at, paths in self.checkpoints().items() if at <= version for path in paths]
        for start, path in starts:
            if there.issuperset(range(start + 1, version + 1)):
                state = State({}, {}, {}, {})
                if path is not None:
                    state = _applied(state, self._of_checkpoint(path))
                for each in range(start + 1, version + 1):
                    state = _applied(state, self.commit(each))
                found.append(state)
        return found

    def rows(self, state: State) -> dict[int, Row]:
        """The rows of one state by their `id`."""
        tracked = state.metadata["configuration"].get("delta.enableRowTracking") == "true"
        rows: dict[int, Row] = {}
        paths = [path for path, _ in state.adds]
        assert len(set(paths)) == len(paths), "a file is active twice"
        for add in state.adds.values():
            table = pq.read_table(self.root / unquote(add["path"]), partitioning=None)
            gone = self.positions(add.get("deletionVector"))
            values = add["partitionValues"]
            ks = [values["k"] or None] * len(table) if "k" in values else table["k"].to_pylist()
            first = add.get("baseRowId")
            if tracked:
                assert first is not None
                assert add["defaultRowCommitVersion"] is not None
            for at, (key, k, v) in enumerate(
                zip(table["id"].to_pylist(), ks, table["v"].to_pylist(), strict=True)
            ):
                if at not in gone:
                    assert key not in rows, f"row {key} is there twice"
                    ids = (first + at, add["defaultRowCommitVersion"]) if tracked else (None, None)
                    rows[key] = Row(k, v, *ids)
        return rows

    def vector_file(self, vector: Mapping[str, Any]) -> Path | None:
        """Where a deletion vector is; None for one in the log itself."""
        text = vector["pathOrInlineDv"]
        if vector["storageType"] == "i":
            return None
        if vector["storageType"] == "p":
            return Path(text.removeprefix("file://"))
        return self.root / text[:-20] / f"deletion_vector_{uuid.UUID(bytes=from_z85(text[-20:]))}.bin"

    def positions(self, vector: Mapping[str, Any] | None) -> set[int]:
        """The rows that a deletion vector deletes."""
        if vector is None:
            return set()
        file = self.vector_file(vector)
        if file is None:
            data = from_z85(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
        else:
            frame = file.read_bytes()[vector["offset"] :]
            assert struct.unpack(">i", frame[:4])[0] == vector["sizeInBytes"]
            data = frame[4 : 4 + vector["sizeInBytes"]]
            assert struct.unpack(">I", frame[4 + len(data) :][:4])[0] == zlib.crc32(data)
        assert data[:4] == _MAGIC
        found = set(BitMap64.deserialize(data[4:]))
        assert len(found) == vector["cardinality"]
        return found


def _lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _rows(path: Path) -> list[Json]:
    return [_given(row) for row in pq.read_table(path, partitioning=None).to_pylist(maps_as_pydicts="strict")]


def _given(value: Any) -> Any:
    """Without fields that are null, but for partition values."""
    if isinstance(value, dict):
        return {
            name: item if name == "partitionValues" else _given(item)
            for name, item in value.items()
            if item is not None
        }
    return value


def _applied(state: State, actions: Iterable[Mapping[str, Any]]) -> State:
    adds, protocol, metadata, domains = dict(state.adds), state.protocol, state.metadata, dict(state.domains)
    for action in actions:
        if "remove" in action:
            adds.pop(_key(action["remove"]), None)
    for action in actions:
        if "add" in action:
            adds[_key(action["add"])] = action["add"]
        protocol = action.get("protocol", protocol)
        metadata = action.get("metaData", metadata)
        if "domainMetadata" in action:
            domains[action["domainMetadata"]["domain"]] = action["domainMetadata"]
    return State(adds, protocol, metadata, domains)


# -- the writer ------------------------------------------------------------------------------------------------


class Table:
    """A table whose writers' clocks differ. Every draw is the seed's, so that a table can be made again."""

    def __init__(self, root: Path, *, seed: int, now_ms: int) -> None:
        self.root, self.draw, self.now_ms = root, random.Random(seed), now_ms
        self.log = Log(root)
        self.time_ms = now_ms - 40 * DAY_MS
        self.next_id = 0
        self.removed: list[Json] = []  # adds of files that were removed whole
        self.log.folder.mkdir(parents=True)
        self.by_k, own_times = self.draw.random() < 0.5, self.draw.random() < 0.5
        features = ["deletionVectors", "v2Checkpoint"]
        configuration = {
            "delta.enableDeletionVectors": "true",
            "delta.deletedFileRetentionDuration": "interval 2 days",
            "delta.logRetentionDuration": "interval 4 days",
        }
        writes = [*features]
        if own_times:
            configuration["delta.enableInCommitTimestamps"] = "true"
            writes.append("inCommitTimestamp")
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": writes,
        }
        metadata = {
            "id": str(uuid.UUID(int=self.draw.getrandbits(128))),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": _FIELDS}),
            "partitionColumns": ["k"] if self.by_k else [],
            "configuration": configuration,
        }
        self._commit("CREATE TABLE", [{"protocol": protocol}, {"metaData": metadata}])

    @property
    def newest(self) -> int:
        """The newest version."""
        return self.log.versions()[-1]

    @property
    def state(self) -> State:
        """The newest version, by the log as it is."""
        return self.log.states(self.newest)[0]

    # -- what writers do ---------------------------------------------------------------------------------------

    def append(self) -> None:
        """New files, of several partitions where there are partitions."""
        self._commit("WRITE", self._new_files([self._new_row() for _ in range(self.draw.randint(3, 9))]))

    def delete(self) -> None:
        """Some rows of some files go, by a new vector for each: in a file of several, in the log, or of a path."""
        adds = self.draw.sample(sorted(self.state.adds.values(), key=_key), min(len(self.state.adds), 3))
        chosen = []
        for add in adds:
            count = json.loads(add["stats"])["numRecords"]
            gone = self.log.positions(add.get("deletionVector"))
            more = gone | {self.draw.randrange(count)}
            if more != gone:
                chosen.append((add, more))
        vectors = self._vectors([positions for _, positions in chosen])
        actions: list[Json] = []
        for (add, _), vector in zip(chosen, vectors, strict=True):
            actions += [self._remove(add), {"add": {**add, "deletionVector": vector, "dataChange": True}}]
        if actions:
            self._commit("DELETE", actions)

    def rewrite(self) -> None:
        """Files go whole, and their rows are written anew."""
        state = self.state
        adds = self.draw.sample(sorted(state.adds.values(), key=_key), min(len(state.adds), 2))
        rows = [
            (key, row.k, row.v)
            for add in adds
            for key, row in self.log.rows(state._replace(adds={_key(add): add})).items()
        ]
        self.removed += adds
        self._commit("OPTIMIZE", [*map(self._remove, adds), *self._new_files(rows)])

    def add_again(self) -> None:
        """A file that was removed whole comes back without any vector, if its rows are nowhere else by now."""
        state = self.state
        live, active = self.log.rows(state), {path for path, _ in state.adds}
        for add in self.removed:
            path = self.root / unquote(add["path"])
            if (
                path.exists()
                and add["path"] not in active
                and not live.keys() & set(pq.read_table(path, partitioning=None)["id"].to_pylist())
            ):
                plain = {name: value for name, value in add.items() if name != "deletionVector"}
                self._commit("RESTORE", [{"add": self._numbered([plain])[0]}, *self._mark(plain)])
                return

    def checkpoint(self) -> None:
        """A checkpoint in one JSON file, as a V2 checkpoint may be."""
        state, version = self.state, self.newest
        actions: list[Json] = [{"checkpointMetadata": {"version": version}}]
        actions += [{"protocol": state.protocol}, {"metaData": state.metadata}]
        actions += [{"domainMetadata": domain} for domain in state.domains.values()]
        actions += [{"add": add} for add in state.adds.values()] + self._tombstones()
        name = f"{version:020}.checkpoint.{uuid.UUID(int=self.draw.getrandbits(128))}.json"
        self._write(self.log.folder / name, "".join(f"{json.dumps(a)}\n" for a in actions).encode())

    def orphan(self) -> None:
        """A writer died before its commit: nobody names its file."""
        self._write(self.root / f"orphan-{self.draw.getrandbits(40):010x}.parquet", b"PAR1")

    # -- how they do it ----------------------------------------------------------------------------------------

    def _tombstones(self) -> list[Json]:
        """Of the commits that are there, what is not active."""
        active = self.state.adds
        found: dict[Key, Json] = {}
        for version in self.log.versions():
            for action in self.log.commit(version):
                if "remove" in action and _key(action["remove"]) not in active:
                    found[_key(action["remove"])] = action
        return list(found.values())

    def _new_row(self) -> tuple[int, str | None, int]:
        self.next_id += 1
        return self.next_id, self.draw.choice(["a", "b/ü %", None]), self.draw.randrange(100)

    def _write(self, path: Path, data: bytes, *, time_ms: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        seconds = (self.time_ms if time_ms is None else time_ms) / 1000
        os.utime(path, (seconds, seconds))

    def _new_files(self, rows: Iterable[tuple[int, str | None, int]]) -> list[Json]:
        groups: dict[Any, list[tuple[int, str | None, int]]] = {}
        for row in rows:
            groups.setdefault(row[1] if self.by_k else None, []).append(row)
        adds = []
        for k, some in groups.items():
            ids, ks, vs = zip(*some, strict=True)
            columns = {
                "id": pa.array(ids, pa.int64()),
                "k": pa.array(ks, pa.string()),
                "v": pa.array(vs, pa.int32()),
            }
            if self.by_k:
                del columns["k"]
            name = f"part-{self.draw.getrandbits(60):015x}.parquet"
            folder = "" if not self.by_k else f"k={'none' if k is None else k.replace('/', '%2F')}/"
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table(columns), sink)
            data = sink.getvalue().to_pybytes()
            self._write(self.root / f"{folder}{name}", data)
            escaped = f"{folder}{name}".replace("%", "%25").replace(" ", "%20")
            stats = {"numRecords": len(some), "minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}}
            adds.append(
                {
                    "path": escaped, "partitionValues": {"k": k} if self.by_k else {}, "size": len(data),
                    "modificationTime": self.time_ms, "dataChange": True, "stats": json.dumps(stats),
                }
            )  # fmt: skip
        return [*({"add": add} for add in self._numbered(adds)), *self._mark(*adds)]

    def _numbered(self, adds: list[Json]) -> list[Json]:
        """With row ids where the table has them."""
        state = self.state
        if "rowTracking" not in state.protocol["writerFeatures"]:
            return adds
        number, version = self._high_water_mark(state) + 1, self.newest + 1
        found = []
        for add in adds:
            found.append({**add, "baseRowId": number, "defaultRowCommitVersion": version})
            number += json.loads(add["stats"])["numRecords"]
        return found

    def _mark(self, *adds: Json) -> list[Json]:
        state = self.state
        if "rowTracking" not in state.protocol["writerFeatures"] or not adds:
            return []
        mark = self._high_water_mark(state) + sum(json.loads(add["stats"])["numRecords"] for add in adds)
        configuration = json.dumps({"rowIdHighWaterMark": mark})
        return [
            {
                "domainMetadata": {
                    "domain": "delta.rowTracking",
                    "configuration": configuration,
                    "removed": False,
                }
            }
        ]

    def _high_water_mark(self, state: State) -> int:
        domain = state.domains.get("delta.rowTracking")
        return -1 if domain is None else int(json.loads(domain["configuration"])["rowIdHighWaterMark"])

    def _remove(self, add: Mapping[str, Any]) -> Json:
        names = ("deletionVector", "baseRowId", "defaultRowCommitVersion", "partitionValues", "size")
        fields = {name: add[name] for name in names if name in add}
        # The clock of this writer may be hours off.
        deleted_ms = self.time_ms + self.draw.choice([0, 0, -5, 7]) * 3_600_000
        remove = {"path": add["path"], "deletionTimestamp": deleted_ms, "dataChange": True}
        return {"remove": {**remove, "extendedFileMetadata": True, **fields}}

    def _vectors(self, sets: Iterable[set[int]]) -> list[Json]:
        kind, number = self.draw.choice("uip"), uuid.UUID(int=self.draw.getrandbits(128))
        prefix = self.draw.choice(["", "dv"])
        path = self.root / prefix / f"deletion_vector_{number}.bin"
        found, content = [], bytearray(b"\x01")
        for positions in sets:
            data = _MAGIC + BitMap64(positions).serialize()
            vector: Json = {"storageType": kind, "sizeInBytes": len(data), "cardinality": len(positions)}
            if kind == "i":
                vector["pathOrInlineDv"] = z85(data + bytes(-len(data) % 4))
            else:
                vector["pathOrInlineDv"] = prefix + z85(number.bytes) if kind == "u" else f"file://{path}"
                vector["offset"] = len(content)
                content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
            found.append(vector)
        if kind != "i":
            self._write(path, bytes(content))
        return found

    def _commit(self, operation: str, actions: list[Json]) -> None:
        versions = self.log.versions()
        metadata = (
            self.state.metadata if versions else next(a["metaData"] for a in actions if "metaData" in a)
        )
        own_times = metadata["configuration"].get("delta.enableInCommitTimestamps") == "true"
        self.time_ms = min(self.time_ms + self.draw.randint(1, 3 * DAY_MS), self.now_ms - 1)
        times = self.log.times_ms()
        info: Json = {"timestamp": self.time_ms, "operation": operation, "operationParameters": {}}
        if own_times:
            self.time_ms = max([self.time_ms, *(at + 1 for at in times.values())])
            info["inCommitTimestamp"] = self.time_ms
        elif times:
            self.time_ms = max(self.time_ms, max(times.values()) + 1)
        lines = "".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": info}, *actions))
        number = versions[-1] + 1 if versions else 0
        # With times of their own in the commits, those of the files mean nothing.
        modified_ms = self.draw.randrange(self.time_ms) if own_times and self.draw.random() < 0.3 else None
        self._write(self.log.folder / f"{number:020}.json", lines.encode(), time_ms=modified_ms)

    @property
    def deeds(self) -> list[Callable[[], None]]:
        """What it may do next, the frequent ones more than once."""
        return [
            self.append,
            self.append,
            self.delete,
            self.delete,
            self.rewrite,
            self.add_again,
            self.checkpoint,
            self.orphan,
        ]
