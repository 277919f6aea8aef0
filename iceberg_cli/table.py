"""A table as the shell sees it: its pointer, its state, and the answers that plans need.

`open_table` picks storage and committer from what the operator typed; nothing below it knows how a table is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli import own_files
from iceberg_cli.committers import Attempt, Committed, Committer, Conflict, Unknown
from iceberg_cli.committers.pointer import metadata_folder
from iceberg_cli.committers.retries import Retries
from iceberg_cli.engines import Engine, Exchanging
from iceberg_cli.errors import InvalidMetadata, Refused, TableNotFound
from iceberg_cli.iceberg.expire_snapshots import snapshot_files
from iceberg_cli.iceberg.known_keys import KnownKeys
from iceberg_cli.iceberg.metadata import TableMetadata
from iceberg_cli.iceberg.metadata_file import decode_metadata_file
from iceberg_cli.iceberg.reachability import keys_of
from iceberg_cli.liveness import Liveness
from iceberg_cli.liveness_cache import LivenessCache
from iceberg_cli.opened_table import OpenedTable
from iceberg_cli.paths import Roots
from iceberg_cli.plan import Base, Change, Plan, Staged, Step, Task
from iceberg_cli.removal_rows import SCHEMA
from iceberg_cli.removals import Removals
from iceberg_cli.storage.links import OtherNames


@dataclass(kw_only=True)
class IcebergTable(OpenedTable):
    """One Iceberg table, opened.

    Args:
        name, storage, engine, on_event: see `OpenedTable`.
        committer: how its pointer moves.
        allow_roots: folders outside the table's own locations in which files may be deleted too.
        trust_lists: take manifest lists at their word where the summary says they were cut short.
    """

    format: ClassVar[Literal["iceberg"]] = "iceberg"
    committer: Committer
    allow_roots: tuple[str, ...] = ()
    trust_lists: bool = False
    metadata_location: str = ""
    _metadata: TableMetadata | None = None
    _newer: tuple[str, TableMetadata] | None = None  # location and content of one that is not loaded yet
    _live: KnownKeys | None = None
    _live_location: str = ""
    _liveness: Liveness = field(init=False)

    def __post_init__(self) -> None:
        """One memory of what was read, for the whole run."""
        self._liveness = Liveness(engine=self.engine, on_event=self.on_event, trust_lists=self.trust_lists)

    @property
    def workers_write(self) -> bool:  # type: ignore[override]
        """Whether the engine's workers write new files."""
        return isinstance(self.engine, Exchanging)

    def use(self, engine: Engine) -> None:
        """Read with another engine from now on."""
        self.engine = self._liveness.engine = engine

    def look_through_links(self) -> None:
        """For tables on local disks, where symbolic links to folders give one file several names."""
        self._liveness.other_names = OtherNames(self.roots().folders)

    def use_cache(self, folder: Path, *, limit_bytes: int) -> None:
        """Take what earlier runs learnt of this table's immutable files, and keep what this one learns.

        Args:
            folder: of all tables; see `LivenessCache`.
            limit_bytes: of what is kept of all tables.
        """
        if self.metadata.table_uuid is None:  # nothing tells it from another table at its place
            return
        names = self._liveness.other_names
        self._liveness.cache = LivenessCache(
            folder,
            self.storage,
            table_uuid=self.metadata.table_uuid,
            location=self.location,
            one_name=None if names is None else names.only_one,
            limit_bytes=limit_bytes,
        )

    def keep_learnt(self) -> str | None:
        """Write what this run learnt, if anything, to the cache; why that failed, or None."""
        cache = self._liveness.cache
        return None if cache is None else cache.save([snapshot_files(s) for s in self.metadata.snapshots])

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> TableMetadata:
        """The state as loaded last."""
        if self._metadata is None:
            self.load()
        assert self._metadata is not None
        return self._metadata

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.metadata.location

    def load(self) -> Base:
        """Look at the pointer, and read what it points to if it has moved.

        Raises:
            TableNotFound, CorruptFile, BackendUnavailable.
        """
        location = self.committer.current()
        if location != self.metadata_location or self._metadata is None:
            self._metadata = self._version(location)
            self.metadata_location, self._newer = location, None
        return base_of(self._metadata, location)

    def _version(self, location: str) -> TableMetadata:
        """What the pointer names now, read once: a metadata file never changes under its name."""
        if self._metadata is not None and location == self.metadata_location:
            return self._metadata
        if self._newer is None or self._newer[0] != location:
            self._newer = location, self.read_metadata(location)
        return self._newer[1]

    def read_metadata(self, location: str) -> TableMetadata:
        """Any version of the table's metadata.

        Raises:
            TableNotFound: no file is there. CorruptFile: it cannot be read whole or breaks the specification.
        """
        try:
            data = self.storage.read(location)
        except FileNotFoundError:
            raise TableNotFound(
                f"Cannot open {self.name}: its metadata file {location} is not there"
            ) from None
        return TableMetadata.from_json(decode_metadata_file(data, location), path=location)

    def describe(self) -> dict[str, Any]:
        """How plans and reports name this table."""
        return {
            "name": self.name,
            "location": self.location,
            "format": self.format,
            "format_version": self.metadata.format_version,
        }

    def roots(self) -> Roots:
        """The folders in which this table's files may be deleted."""
        return Roots.of([*own_files.folders(self.metadata), *self.allow_roots])

    # -- plans -------------------------------------------------------------------------------------------------

    @property
    def liveness(self) -> Liveness:
        """What was read of manifests in this run."""
        return self._liveness

    def read_only_reason(self) -> str | None:
        """Why this table cannot be committed to from here, or None."""
        return self.committer.read_only_reason()

    def resolve(self, plan: Plan) -> Plan:
        """Answer what a plan asks: which files go."""
        content: list[Iterator[pa.Table]] = []
        tables = [SCHEMA.empty_table()]
        warnings: list[str] = []
        for step in plan.steps:
            if step.reach is not None:
                answer = self._liveness.answer(step.reach, step=step.name)
                content.append(answer.content)
                tables.append(answer.rows)
                warnings += answer.warnings
            if step.change is not None:
                tables.append(self._dropped_metadata(step, step.change, plan.as_of_ms))
        plan = replace(plan, warnings=(*plan.warnings, *warnings))
        return self.with_own_removals(
            plan,
            chain(*content, [pa.concat_tables(tables).cast(SCHEMA)]),
            partial(own_files.own_removals, roots=self.roots()),
            folders="the table's own locations",
        )

    def _dropped_metadata(self, step: Step, change: Change, timestamp_ms: int) -> pa.Table:
        """The metadata files that the table's own properties drop with this commit."""
        from iceberg_cli.iceberg.update import dropped_metadata_files, updates_from_json, with_updates

        after = with_updates(
            self.metadata,
            updates_from_json(change.updates),
            base_location=self.metadata_location,
            timestamp_ms=timestamp_ms,
        )
        paths = dropped_metadata_files(self.metadata, after)
        return own_files.metadata_removals(paths, step=step.name, canonical=self.storage.canonical)

    # -- commit ------------------------------------------------------------------------------------------------

    def retries(self) -> Retries:
        """`commit.retry.*` with the documented defaults."""
        metadata = self.metadata
        return Retries(
            attempts=metadata.property_int("commit.retry.num-retries", 4) + 1,
            min_wait_ms=metadata.property_int("commit.retry.min-wait-ms", 100),
            max_wait_ms=metadata.property_int("commit.retry.max-wait-ms", 60_000),
            total_timeout_ms=metadata.property_int("commit.retry.total-timeout-ms", 1_800_000),
        )

    def bind(
        self,
        step: Step,
        staged: Mapping[Task, Staged],
        *,
        timestamp_ms: int,
        commit_uuid: str,
        operation_id: str,
        mark: str,
    ) -> Attempt:
        """This attempt's commit on the table as loaded last."""
        from iceberg_cli.iceberg.bind import bind

        assert step.change is not None
        bound = bind(
            step.change,
            self.metadata,
            staged=staged,
            timestamp_ms=timestamp_ms,
            commit_uuid=commit_uuid,
            operation_id=operation_id,
            list_path=f"{metadata_folder(self.metadata)}/snap-{mark}.avro",
        )
        attempt = self.committer.prepare(bound.commit, base_location=self.metadata_location)
        return replace(attempt, files=bound.files, counts=bound.counts)

    def rebind(self, step: Step, intent: Mapping[str, Any]) -> Attempt | None:
        """The attempt that an intent of the journal describes, byte for byte; None if its base is not there any more.

        Raises:
            Refused: it cannot be made again: the digests differ.
        """
        from iceberg_cli.iceberg.update import Commit, requirements_for, updates_from_json

        base_location = intent["base_location"]
        try:
            base = self.read_metadata(base_location)
        except TableNotFound:
            return None
        updates = updates_from_json(intent["updates"])
        commit = Commit(
            updates=updates,
            requirements=requirements_for(updates, base),
            base=base,
            timestamp_ms=intent["timestamp_ms"],
            commit_uuid=intent["commit_uuid"],
        )
        attempt = self.committer.prepare(commit, base_location=base_location)
        if attempt.digest != intent["digest"]:
            raise Refused(
                f"Cannot settle step {step.name}: its commit cannot be made again with the same content",
                state="The commit's outcome is unknown. Nothing was deleted.",
            )
        return attempt

    def commit(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """One swap."""
        return self.committer.commit(attempt)

    def settle(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """What came of an earlier swap."""
        return self.committer.settle(attempt)

    def effects_visible(self, step: Step) -> bool:
        """Whether the table as loaded last already is as the step would leave it."""
        from iceberg_cli.iceberg.update import effects_visible, updates_from_json

        assert step.change is not None
        return effects_visible(updates_from_json(step.change.updates), self.metadata)

    # -- sweep -------------------------------------------------------------------------------------------------

    def not_live(self, removals: Removals, rows: Sequence[int], *, plan: Plan) -> list[int]:  # noqa: ARG002 - no age
        """Those of `rows` that the table, looked at now, does not reach, inside its own locations."""
        live = self._live_now()
        asked = removals.rows(rows)
        # Metadata files leave by the table's own property, whatever gc.enabled says of its other files.
        if pc.any(pc.not_equal(asked["kind"].cast(pa.string()), "metadata_file")).as_py():
            self._check_interlocks()
        both = np.concatenate([keys_of(asked["as_written"]), keys_of(asked["path"])])
        gone = ~live.holds(both).reshape(2, -1).any(axis=0)
        own = own_files.own_removals(asked, self.roots()).to_numpy(zero_copy_only=False)
        return [rows[int(place)] for place in (gone & own).nonzero()[0]]

    def _check_interlocks(self) -> None:
        """Ask again what forbids deletions: a property may have been set since the commit."""
        if not self.metadata.property_bool("gc.enabled", default=True):
            raise Refused(
                f"Cannot delete files of {self.name}: table property gc.enabled is not true any more",
                state="The commit is done. Some unreferenced files are still there.",
                next_step="Set gc.enabled=true and `resume`, or close the operation with `resume --abandon`.",
            )

    def _live_now(self) -> KnownKeys:
        self.load()
        if self._live is None or self._live_location != self.metadata_location:
            self._live = self._liveness.everything_live(
                [snapshot_files(s) for s in self.metadata.snapshots],
                own_files.named_files(self.metadata, self.metadata_location),
            )
            self._live_location = self.metadata_location
        return self._live

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete files; the ones still there, with the reason."""
        return self.storage.delete(paths)

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        """Delete files of this tool's own making, and nothing that could be another's or the table's.

        Args:
            paths: that nothing references.
            marks: operation id or commit UUIDs; one of them is in each file's name.
        """
        if not paths:
            return
        # The table as loaded stays: a plan was made of it.
        location = self.committer.current()
        metadata = self._version(location)
        self.storage.delete(
            own_files.discardable(
                paths, metadata=metadata, location=location, marks=marks, canonical=self.storage.canonical
            )
        )

    # -- staging -----------------------------------------------------------------------------------------------

    def staging_path(self, mark: str, task: Task) -> str:
        """Where a task's new file goes: Puffin files among the data, the rest among the metadata."""
        folder = metadata_folder(self.metadata)
        if task.kind == "puffin":
            own = self.metadata.properties.get("write.data.path")
            folder = (own or f"{self.location.rstrip('/')}/data").rstrip("/")
        return f"{folder}/{mark}-{task.name}"


def base_of(metadata: TableMetadata, location: str) -> Base:
    """The version that a plan is made from."""
    if metadata.table_uuid is None and metadata.format_version > 1:
        raise InvalidMetadata(location, "table-uuid", "required from version 2 on")
    return Base(
        table_uuid=metadata.table_uuid or "",
        version=location,
        refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
        last_sequence_number=metadata.last_sequence_number,
        next_row_id=metadata.next_row_id,
    )
