"""What an open table has whatever its format: storage, engine, and the journals of its operations."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import Engine, OnEvent
from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused, UsageError
from iceberg_cli.operation.foreign_files import ForeignFiles, some
from iceberg_cli.operation.journal import Journal, open_operations
from iceberg_cli.operation.ports import Table
from iceberg_cli.operation.removal_parts import collected
from iceberg_cli.paths import Roots, whole_store
from iceberg_cli.plan.plan import Plan
from iceberg_cli.storage import Storage
from iceberg_cli.storage.leftovers import leftovers_in
from iceberg_cli.storage.obstacles import ObstructedStorage, local_folders


@dataclass(kw_only=True)
class OpenTable(Table, ABC):
    """One table, opened.

    Args:
        name: as the operator typed it.
        storage: where its files are.
        engine: reads many files.
        on_event: progress.
    """

    format: ClassVar[Literal["iceberg", "delta"]]
    send_again_ms: ClassVar[int | None] = None
    workers_write: ClassVar[bool] = False
    takes_roots: ClassVar[bool] = True  # whether folders outside its own can be allowed
    name: str
    storage: Storage
    engine: Engine
    on_event: OnEvent
    # By operation id: the location where an open operation began, where it is the table's no more.
    left_behind: dict[str, str] = field(default_factory=dict, init=False)

    @property
    @abstractmethod
    def location(self) -> str:
        """The table's base location."""

    @property
    def identity(self) -> dict[str, str]:
        """How every document names this table."""
        return {"name": self.name, "location": self.location, "format": self.format}

    @abstractmethod
    def read_only_reason(self) -> str | None:
        """Why this table, as loaded last, cannot be committed to from here, or None."""

    def recovery_refusal(self) -> str | None:
        """Why open operations of this table are not gone on with, or None."""
        return self.read_only_reason()

    @abstractmethod
    def roots(self) -> Roots:
        """The folders in which this table's files may be deleted."""

    # -- plans -------------------------------------------------------------------------------------------------

    def blocked(self, plan: Plan) -> Plan:
        """The plan, blocked where it would write or delete and the table cannot be committed to from here."""
        reason = self.read_only_reason()
        if reason is None or not plan.due:
            return plan
        return replace(plan, blocked_by=(*plan.blocked_by, reason))

    def with_own_removals(
        self,
        plan: Plan,
        tables: Iterable[pa.Table],
        own: Callable[[pa.Table], pa.Array],
        *,
        roots: Roots,
        locations: Sequence[str],
        left_out: Callable[[Iterator[pa.Table]], Iterator[pa.Table]] = iter,
    ) -> Plan:
        """The plan with those rows that are the table's own, and a warning about the others.

        It is blocked where it is known by now that rows of the table's own will not be deleted.

        Args:
            plan: without removals.
            tables: see `removal_parts.collected`.
            own: of n rows n booleans: in a folder where this table's files may be deleted, and by their kind.
            roots: these folders.
            locations: of the table, whole buckets among them.
            left_out: takes rows out that are in these folders and stay for another reason.
        """
        stores = [
            store for location in locations if (store := whole_store(location)) not in {None, *roots.folders}
        ]
        in_stores = {store: ForeignFiles() for store in stores if store is not None}
        outside, misnamed = ForeignFiles(), ForeignFiles()
        folders: set[str] = set()

        def mine() -> Iterator[pa.Table]:
            for rows in tables:
                is_own = own(rows)
                going = rows.filter(is_own)
                if len(going) < len(rows):
                    foreign = rows.filter(pc.invert(is_own))
                    inside = roots.inside_column(foreign["path"])
                    misnamed.add(foreign.filter(inside))
                    foreign = foreign.filter(pc.invert(inside))
                    for store, files in in_stores.items():
                        in_store = pc.starts_with(foreign["path"], f"{store.rstrip('/')}/")
                        files.add(foreign.filter(in_store))
                        foreign = foreign.filter(pc.invert(in_store))
                    outside.add(foreign)
                yield going

        def seen(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
            for rows in tables:
                folders.update(local_folders(rows["path"]))
                yield rows

        removals = collected(seen(left_out(mine())))
        lasting = [self._outside(outside)] if outside.count else []
        if misnamed.count:
            lasting.append(
                misnamed.stay(
                    "their names have dot segments, or are those of other kinds of files",
                    of_one="its name has dot segments, or is that of another kind of file",
                )
            )
        blocked_by = [self._whole(store, files) for store, files in in_stores.items() if files.count]
        blocked_by += self._obstacles(folders)
        plan = replace(plan, blocked_by=(*plan.blocked_by, *blocked_by))
        return plan.with_removals(removals, lasting=lasting)

    def _outside(self, files: ForeignFiles) -> str:
        """That files outside the table stay, in words."""
        folders = some(files.folders, "places")
        if not self.takes_roots:
            where = f"outside the table's own folder, in {folders}"
            return files.stay(f"they are {where}", of_one=f"it is {where}")
        named = all(Roots.of([folder]).folders for folder in files.folders)
        allowed = [shlex.quote(folder) for folder in files.folders] if named else ["FOLDER"]
        options = " ".join(f"--unsafe-allow-root {folder}" for folder in allowed)
        where = f"outside the table's own locations, in {folders}, and nothing will reference"
        return files.stay(
            f"they are {where} them any more",
            of_one=f"it is {where} it any more",
            remedy=f" `{options}` deletes {'them' if files.count > 1 else 'it'}.",
        )

    def _whole(self, store: str, files: ForeignFiles) -> str:
        """Why files of a table are not deleted whose location is a whole bucket or disk."""
        if store == "/":
            return f"the table's location is a whole disk, where none is deleted: {files.quantity} would stay for ever"
        return (
            f"the table's location is all of {store}, and others may have files there: {files.quantity} go only with "
            f"--unsafe-allow-root {store}"
        )

    def _obstacles(self, folders: Iterable[str]) -> list[str]:
        """Why files in some local folders cannot be deleted, as far as that is known before it is tried."""
        if not isinstance(self.storage, ObstructedStorage):
            return []
        found = self.storage.obstacles(sorted(folders))
        closed = [folder for folder, obstacle in found.items() if obstacle.target is None]
        reasons = (
            [f"files in {some(closed, 'folders')} cannot be deleted: {found[closed[0]].reason}"]
            if closed
            else []
        )
        links = {
            obstacle.reason: obstacle.target for obstacle in found.values() if obstacle.target is not None
        }
        for reason, target in links.items():
            allow = f"--unsafe-allow-root {shlex.quote(target)} allows that, or " if self.takes_roots else ""
            reasons.append(
                f"files cannot be deleted: {reason}; {allow}mount {target} there instead of the link"
            )
        return reasons

    def notices(self) -> list[str]:
        """What was noticed while this table was read and not told yet, for the operator."""
        return []

    # -- leftovers ---------------------------------------------------------------------------------------------

    @abstractmethod
    def written_folders(self) -> list[str]:
        """The folders in which verbs write new files, but for those of journals."""

    def leftovers(self, *, now_ms: int) -> list[str]:
        """Temporary files that killed runs left in these folders on local disks; none of a table that is read-only.

        Raises:
            BackendUnavailable: a folder cannot be listed.
        """
        folders = [self.storage.canonical(folder) for folder in self.written_folders()]
        found = leftovers_in([folder for folder in folders if folder.startswith("/")], now_ms=now_ms)
        return found if found and self.read_only_reason() is None else []

    def remove_leftovers(self, *, now_ms: int) -> list[str]:
        """Delete them; those that are gone. What is not there any more, or cannot be deleted now, does no harm."""
        try:
            found = self.leftovers(now_ms=now_ms)
        except BackendUnavailable:
            return []
        kept = self.storage.delete(found) if found else {}
        return [path for path in found if path not in kept]

    # -- files and journals ------------------------------------------------------------------------------------

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write new files, put-if-absent."""
        for path, data in files.items():
            self.storage.put_if_absent(path, data)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Those of some files that are not there."""
        sizes = self.storage.stat_many(paths)
        return [path for path, size in zip(paths, sizes, strict=True) if size is None]

    def journal(self, operation_id: str) -> Journal:
        """The journal of an operation: empty, or as it was left."""
        return Journal.load(self.storage, self._location_of(operation_id), operation_id)

    def forget(self, operation_id: str) -> None:
        """Delete the files of a journal that cannot be read."""
        Journal.create(self.storage, self._location_of(operation_id), operation_id).clean_up()

    def _location_of(self, operation_id: str) -> str:
        return self.left_behind.get(operation_id, self.location)

    def open_operations(self) -> list[str]:
        """Ids of the operations that were not closed, those among them that began at an earlier location."""
        here = open_operations(self.storage, self.location)
        self.left_behind = {}
        for location in self.earlier_locations():
            # Another table may be there by now, or nobody may look there any more: that is no matter of this table's.
            with suppress(BackendUnavailable, UsageError):
                for operation_id in open_operations(self.storage, location):
                    if operation_id not in here and self._began(operation_id, location):
                        self.left_behind[operation_id] = location
        return [*here, *self.left_behind]

    def _began(self, operation_id: str, location: str) -> bool:
        """Whether a journal at another location is of an operation on this table."""
        try:
            operation = Journal.load(self.storage, location, operation_id).operation()
        except (CorruptFile, Refused):
            return False
        return operation is not None and operation.table_uuid == self.table_uuid

    def earlier_locations(self) -> Sequence[str]:
        """Where this table was, without its location now."""
        return ()

    @property
    @abstractmethod
    def table_uuid(self) -> str:
        """What tells this table from another one at its place; empty where it has none."""
