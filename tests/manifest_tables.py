"""Tables for tests of manifests: opened over memory, and read by a slow reader that shares no code with ours."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.outcomes import Attempt
from iceberg_cli.operation.ports import Planned
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.report import Report
from iceberg_cli.storage import FileInfo, Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.crash.world import World, unseen
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, manifest, manifest_list, manifest_row
from iceberg_cli.testing.memory_catalog import MemoryCatalog, MemoryCommitter
from tests.builders import LOCATION, NOW_MS, a_snapshot, a_table_document

Entry = dict[str, Any]
NAME = "visits"


@dataclass
class Overlay(Storage):
    """A storage: files in memory over the files of a folder, which stands where `original` says.

    `tamper` may change what is read of a new file.
    """

    folder: Path | None = None
    original: str = LOCATION
    files: dict[str, bytes] = field(default_factory=dict)
    tamper: Callable[[str, bytes], bytes] = lambda _path, data: data

    def canonical(self, path: str) -> str:
        return path

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        if path in self.files:
            data = self.tamper(path, self.files[path])
        elif self.folder is None or not path.startswith(self.original):
            raise FileNotFoundError(path)
        else:
            data = (self.folder / path.removeprefix(self.original).lstrip("/")).read_bytes()
        return data if span is None else data[span[0] : sum(span)]

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:  # noqa: ARG002
        return [FileInfo(path, len(self.files[path]), 0) if path in self.files else None for path in paths]

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path in self.files:
            raise FileExistsError(path)
        self.files[path] = data

    def replace(self, path: str, data: bytes) -> None:
        self.files[path] = data

    def list(self, folder: str) -> Iterator[FileInfo]:
        inside = [path for path in sorted(self.files) if path.startswith(f"{folder}/")]
        return (FileInfo(path, len(self.files[path]), 0) for path in inside)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        for path in paths:
            self.files.pop(path, None)
        return {}


class Racing(MemoryCommitter):
    """Lets another writer act once, just before the first swap."""

    meanwhile: Callable[[], None] | None = None

    def _swap(self, attempt: Attempt) -> bool:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        return super()._swap(attempt)


@dataclass
class Opened:
    """A table, its storage and its catalog."""

    table: IcebergTable
    storage: Any
    catalog: MemoryCatalog
    committer: Racing
    world: World = field(default_factory=World)

    def prepare(self, verb: str, policy: Mapping[str, Any], *, within: Plan | None = None) -> Planned:
        chosen = VERBS[verb].policy.from_json(policy)
        self.table.load()
        return VERBS[verb].plan(self.table, chosen, as_of_ms=NOW_MS, within=within)

    def plan(self, verb: str, policy: Mapping[str, Any], *, within: Plan | None = None) -> Plan:
        return self.prepare(verb, policy, within=within).plan

    def apply(self, planned: Planned) -> Report:
        runtime = Runtime(
            now_ms=lambda: NOW_MS,
            new_uuid=self.world.new_uuid,
            sleep_ms=lambda _ms: None,
            on_event=unseen,
            host="here",
            process_id=1,
        )
        return apply(planned, self.table, VERBS[planned.plan.verb], runtime)

    def metadata(self) -> dict[str, Any]:
        """The current metadata file."""
        location = self.catalog.locations[NAME]
        found: dict[str, Any] = decode_metadata_file(self.storage.read(location), location)
        return found

    def head(self) -> dict[str, Any]:
        """The current snapshot."""
        metadata = self.metadata()
        (found,) = (s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
        return found

    def manifests(self) -> list[Entry]:
        """The rows of the current manifest list, by fastavro."""
        return avro(self.storage.read(self.head()["manifest-list"]))

    def publish(self, document: Mapping[str, Any]) -> None:
        """Make a document the current metadata, as another writer would."""
        location = f"{document['location']}/metadata/other-{len(self.storage.files)}.metadata.json"
        self.storage.put_if_absent(location, json.dumps(document).encode())
        self.catalog.locations[NAME] = location


def opened(storage: Any, location: str) -> Opened:
    """The table of a metadata file."""
    catalog = MemoryCatalog()
    catalog.locations[NAME] = location
    committer = Racing(catalog, NAME, storage)
    engine = LocalEngine(storage, threads=1)
    table = IcebergTable(name=NAME, storage=storage, committer=committer, engine=engine, on_event=unseen)
    return Opened(table, storage, catalog, committer)


def of_fixture(folder: Path) -> Opened:
    """A fixture's newest metadata, opened over its folder."""
    files = [*folder.glob("metadata/*.metadata.json")]
    documents = {path: decode_metadata_file(path.read_bytes(), str(path)) for path in files}
    newest = max(files, key=lambda path: (documents[path]["last-updated-ms"], path.name))
    original = documents[newest]["location"].removeprefix("./")  # as its manifests spell it
    return opened(Overlay(folder, original), f"{original}/metadata/{newest.name}")


def of_folder(folder: Path) -> Opened:
    """The table in a folder, by its newest metadata."""
    files = [str(path) for path in folder.glob("metadata/*.metadata.json")]
    storage = LocalStorage()
    documents = {path: decode_metadata_file(storage.read(path), path) for path in files}
    return opened(storage, max(files, key=lambda path: (documents[path]["last-updated-ms"], path)))


# -- a reader ---------------------------------------------------------------------------------------------------


def avro(data: bytes) -> list[Entry]:
    """The records of a container."""
    return [dict(record) for record in fastavro.reader(io.BytesIO(data))]  # type: ignore[arg-type, call-overload]


def by_id(schema: Any, value: Any) -> Any:
    """A value with the field ids of its schema in the place of names."""
    if isinstance(schema, list):
        return None if value is None else by_id(next(branch for branch in schema if branch != "null"), value)
    if isinstance(schema, dict) and schema["type"] == "record":
        return {field["field-id"]: by_id(field["type"], value[field["name"]]) for field in schema["fields"]}
    if isinstance(schema, dict) and schema["type"] == "array":
        items = [by_id(schema["items"], item) for item in value]
        if schema.get("logicalType") == "map":
            return dict(tuple(item.values()) for item in items)
        return items
    return value


def live_entries(table: Opened) -> list[tuple[Any, ...]]:
    """Every live entry of the current snapshot with what it inherits: the specification's rules, one by one."""
    found = []
    for row in table.manifests():
        data = table.storage.read(row["manifest_path"])
        reader = fastavro.reader(io.BytesIO(data))
        next_row_id = row.get("first_row_id")
        for record in reader:
            entry = by_id(reader.writer_schema, record)
            file = {key: value for key, value in entry.pop(2).items() if key != 105}
            status = entry[0]
            if status == DELETED:
                continue
            for number in (3, 4):
                if entry.get(number) is None and (status == ADDED or not row.get("sequence_number")):
                    entry[number] = row.get("sequence_number") or 0
            snapshot_id = entry[1] if entry[1] is not None else row["added_snapshot_id"]
            if row.get("content") or row.get("first_row_id") is None:
                file[142] = None
            elif file.get(142) is None:
                file[142] = next_row_id
                next_row_id += file[103]
            numbers = (
                snapshot_id,
                entry.get(3),
                entry.get(4),
                row["partition_spec_id"],
                row.get("content") or 0,
            )
            known = tuple(sorted((key, repr(value)) for key, value in file.items() if _says(key, value)))
            found.append((*numbers, known))
    return sorted(found, key=repr)


def _says(field_id: int, value: Any) -> bool:
    """Whether a value says more than the field's absence; content is 0 where it is absent."""
    return value is not None and not (field_id == 134 and value == 0)


# -- a table of manifests ----------------------------------------------------------------------------------------


def entry(status: int, path: str, **others: Any) -> Entry:
    """A manifest entry; its numbers are inherited if it is ADDED."""
    own = {} if status == ADDED else {"snapshot_id": 1, "sequence_number": 1, "file_sequence_number": 1}
    return {
        "status": status,
        **own,
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {},
        "record_count": 10,
        "file_size_in_bytes": 1_000,
        "column_sizes": {1: 400, 2: 500},
        "lower_bounds": {1: b"\x01", 2: b"\xff" * 20},
        "split_offsets": [4],
        **others,
    }


VERB = "rewrite-manifests"
KIB = 1 << 10


def columns(*types: str) -> dict[str, Any]:
    fields = [
        {"id": number, "name": f"c{number}", "required": False, "type": type_}
        for number, type_ in enumerate(types, start=1)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def spec(*sources: int, spec_id: int = 0, transform: str = "identity") -> dict[str, Any]:
    return {
        "spec-id": spec_id,
        "fields": [
            {"source-id": source, "field-id": 1000 + source, "name": f"p{source}", "transform": transform}
            for source in sources
        ],
    }


SCHEMA = columns("int", "string")
BY_ONE = spec(1)


@dataclass(kw_only=True)
class Manifests:
    """A table whose manifests a test writes one by one; `table` publishes them as one snapshot."""

    schema: dict[str, Any] = field(default_factory=lambda: SCHEMA)
    spec: dict[str, Any] = field(default_factory=lambda: BY_ONE)
    format_version: int = 2
    properties: Mapping[str, str] = field(default_factory=dict)
    more_specs: Sequence[dict[str, Any]] = ()
    storage: Any = field(default_factory=Overlay)
    location: str = LOCATION
    rows: list[Entry] = field(default_factory=list)
    written: int = 0  # how many manifests `add` has written

    def add(
        self,
        *entries: Entry,
        content: int = 0,
        spec: dict[str, Any] | None = None,
        version: int | None = None,
        codec: str = "deflate",
        **row: Any,
    ) -> str:
        """Write one manifest, with a row that has no summaries; its path."""
        path = f"{self.location}/metadata/m{self.written}.avro"
        self.written += 1
        data = manifest(
            entries, schema=self.schema, spec=spec or self.spec, version=version or self.format_version,
            content=content, codec=codec, sync=bytes(16),
        )  # fmt: skip
        return self.put(path, data, entries, content=content, spec_id=(spec or self.spec)["spec-id"], **row)

    def put(
        self, path: str, data: bytes, entries: Sequence[Entry], *, content: int, spec_id: int, **row: Any
    ) -> str:
        """A manifest of other bytes."""
        self.storage.put_if_absent(path, data)
        number = len(self.rows) + 1
        made = manifest_row(
            path, data, entries, content=content, spec_id=spec_id, snapshot_id=number, sequence_number=number,
            min_sequence_number=1,
        )  # fmt: skip
        self.rows.append({**made, **row})
        return path

    def write_list(self, *, snapshot_id: int, sequence_number: int) -> str:
        """Write a manifest list of all rows; its path."""
        path = f"{self.location}/metadata/snap-{snapshot_id}.avro"
        data = manifest_list(
            self.rows, version=self.format_version, snapshot_id=snapshot_id, parent_snapshot_id=None,
            sequence_number=sequence_number, first_row_id=0, sync=bytes(16),
        )  # fmt: skip
        self.storage.put_if_absent(path, data)
        return path

    def table(self, *, next_row_id: int = 0) -> Opened:
        """The table with all that was added."""
        count = len(self.rows)
        list_path = self.write_list(snapshot_id=count, sequence_number=count)
        document = a_table_document(
            a_snapshot(
                count, manifest_list=list_path, summary={"total-data-files": "0", "total-records": "70"}
            ),
            format_version=self.format_version,
            properties=self.properties,
        )
        document |= {
            "location": self.location, "schemas": [self.schema], "partition-specs": [self.spec, *self.more_specs],
            "last-column-id": 99,
        }  # fmt: skip
        if self.format_version > 2:
            document["next-row-id"] = next_row_id
        if self.format_version < 2:
            document |= {"schema": self.schema, "partition-spec": self.spec["fields"]}
        location = f"{self.location}/metadata/v{count}.metadata.json"
        self.storage.put_if_absent(location, json.dumps(document).encode())
        return opened(self.storage, location)


def policy(**values: Any) -> dict[str, Any]:
    return RewriteManifests(**values).to_json()


def a_lot(version: int = 2, *, files: int = 400, manifests: int = 8, **values: Any) -> Manifests:
    """Files of 20 partitions, strewn over manifests."""
    lot = Manifests(schema=SCHEMA, spec=BY_ONE, format_version=version, **values)
    numbers = random.Random(7)
    for number in range(manifests):
        row = {"first_row_id": number << 32} if version > 2 else {}
        lot.add(*(a_file(numbers) for _ in range(files // manifests)), **row)
    return lot


def a_file(numbers: random.Random, status: int = ADDED) -> dict[str, Any]:
    partition = numbers.choice([None, *range(-9, 10)])
    path = f"/lake/data/{numbers.getrandbits(200):050x}.parquet"
    return entry(status, path, partition={"p1": partition}, record_count=numbers.randrange(1_000_000))
