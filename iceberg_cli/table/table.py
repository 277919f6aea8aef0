"""What an open table has whatever its format: storage, engine, and the workspace of its operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from iceberg_cli.engines import Engine
from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.operation.history import PastOperation
from iceberg_cli.operation.outcomes import Attempt
from iceberg_cli.operation.ports import Table
from iceberg_cli.operation.verbs import FormatVerbs
from iceberg_cli.operation.workspace import Workspace
from iceberg_cli.paths import Roots
from iceberg_cli.plan.events import Listener
from iceberg_cli.plan.findings import Findings
from iceberg_cli.plan.plan import Plan, Voucher
from iceberg_cli.plan.way_back import UndoState, WayBack
from iceberg_cli.storage import Storage
from iceberg_cli.storage.local.write import leftovers_in
from iceberg_cli.storage.router import RoutedStorage, UnsafeOverrides, storage_of


@dataclass(frozen=True, kw_only=True)
class OpenRequest:
    """A table as the operator named it, and what it is opened with.

    Args:
        name: as typed.
        location: its folder, its log's or a metadata file as an absolute path; None for one in a catalog.
        folder: of these, the one whose links are followed.
        storage_options: for the storage.
        catalog_config: a `.pyiceberg.yaml`, or None for PyIceberg's own locations of it.
        catalogs: what is known of catalogs from tables that were opened before, or None; in place of `catalog_config`.
        seen: where the catalog was just seen to point, or None.
        forks: whether large scans may be split among forked processes, before which no other thread may be alive.
        overrides: of safety checks.
        cache: folder and limit in bytes of what runs remember of immutable files, or None.
        iceberg_files: what Iceberg metadata in the folder of a table of another format reaches, by that one's log.
        on_event: progress.
    """

    name: str
    location: str | None
    folder: str
    storage_options: Mapping[str, str]
    catalog_config: str | None
    overrides: UnsafeOverrides
    cache: tuple[Path, int] | None
    iceberg_files: Callable[[Any], Any]
    on_event: Listener
    catalogs: Any = None
    seen: str | None = None
    forks: bool = True

    @cached_property
    def storage(self) -> RoutedStorage:
        """Where the files of a table that is in no catalog are."""
        return storage_of(self.folder, self.storage_options, self.overrides)


@dataclass(kw_only=True)
class OpenTable(Table, ABC):
    """One table, opened.

    Args:
        name: as the operator typed it.
        storage: where its files are.
        engine: reads many files.
        on_event: gets progress and what else happens.
    """

    format: ClassVar[str]
    verbs: ClassVar[FormatVerbs | None] = None
    send_again_ms: ClassVar[int | None] = None
    takes_late_requests: ClassVar[bool] = False
    workers_write: ClassVar[bool] = False
    name: str
    storage: Storage
    engine: Engine
    on_event: Listener

    @property
    @abstractmethod
    def workspace(self) -> Workspace:
        """The files of its operations."""

    @abstractmethod
    def use(self, engine: Engine) -> None:
        """Read with another engine from now on."""

    def save_cache(self) -> str | None:
        """Write what this run read to the cache, where the format has one; why that failed, or None."""
        return None

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.workspace.location

    @property
    def identity(self) -> dict[str, str]:
        """How every document names this table."""
        return {"name": self.name, "location": self.location, "format": self.format}

    def properties(self) -> Mapping[str, str]:
        """The properties of this table, as loaded last."""
        return {}

    def live_files(self) -> int:
        """About how many data files this table, as loaded last, has; 0: not known."""
        return 0

    def oldest_state_ms(self) -> int | None:
        """The time of the oldest snapshot or version that this table, as loaded last, can show; None: not known."""
        return None

    @abstractmethod
    def read_only_reason(self) -> str | None:
        """Why this table, as loaded last, cannot be committed to from here, or None."""

    def storage_refusal(self) -> str | None:
        """Why nothing is written to this table by the options of its storage, or None."""
        return (
            self.storage.unwritable_reason(self.workspace.location)
            if isinstance(self.storage, RoutedStorage)
            else None
        )

    def recovery_refusal(self) -> str | None:
        """Why open operations of this table are not gone on with, or None."""
        return self.read_only_reason()

    def closing_refusal(self) -> str | None:
        """Why open operations of this table are not closed without being finished, or None."""
        return self.read_only_reason()

    def vouchers(self) -> Sequence[Voucher]:
        """What the operator vouches for, as far as changes of this table rest on it."""
        return ()

    def probe(self, path: str) -> None:
        """Refuse a storage that is seen not to keep what commits rest on.

        Args:
            path: where nothing is yet; nothing is there afterwards.

        Raises:
            Refused, BackendUnavailable.
        """

    @abstractmethod
    def roots(self) -> Roots:
        """The folders in which this table's files may be deleted."""

    def blocked(self, plan: Plan) -> Plan:
        """The plan, blocked where it would write or delete and the table cannot be committed to from here."""
        plan = plan.with_vouchers(self.vouchers())
        reason = self.read_only_reason()
        if reason is None or not plan.due:
            return plan
        return replace(plan, blocked_by=(*plan.blocked_by, reason))

    def kept_before(self, attempt: Attempt) -> Mapping[str, bytes]:  # noqa: ARG002 - nothing, where the format keeps it
        """As `Table`."""
        return {}

    def way_back(self, verb: str) -> WayBack:
        """How operations of a verb of this format are taken back."""
        if self.verbs is None:
            return WayBack(why_not="the table cannot be read")
        if verb not in self.verbs:
            return WayBack(why_not=f"the verb {verb!r} is not known here")
        return self.verbs.policy(verb).place.undo

    def head_state(self, past: PastOperation) -> UndoState:  # noqa: ARG002 - it has none
        """Whether the commits of an operation can be taken from the branch that has them.

        Args:
            past: an operation whose verb is taken back while it is at the head.
        """
        return UndoState(possible=False, reason="tables of this format have no branches")

    def notices(self) -> list[str]:
        """What was noticed while this table was read and not told yet, for the operator."""
        return []


def find_leftovers(table: OpenTable, *, now_ms: int) -> list[str]:
    """Temporary files that killed runs of this tool left in a table's local folders; none of a read-only table.

    Raises:
        BackendUnavailable: a folder cannot be listed.
    """
    folders = [table.storage.canonical(folder) for folder in table.workspace.written_folders()]
    leftovers = leftovers_in([folder for folder in folders if folder.startswith("/")], now_ms=now_ms)
    return leftovers if leftovers and table.read_only_reason() is None else []


def remove_leftovers(table: OpenTable, *, now_ms: int) -> list[str]:
    """Delete leftovers; those that are gone. What is not there any more, or cannot be deleted now, does no harm."""
    try:
        leftovers = find_leftovers(table, now_ms=now_ms)
    except BackendUnavailable:
        return []
    failures = table.storage.delete(leftovers) if leftovers else {}
    return [path for path in leftovers if path not in failures]


def check_leftovers(table: OpenTable, findings: Findings, *, now_ms: int) -> None:
    """Add a finding for each leftover."""
    for path in find_leftovers(table, now_ms=now_ms):
        findings.add("leftover-temporary-file", path, "a run that was killed left it more than a day ago")
