"""An open Iceberg table: its catalog, its metadata, and its answers to what plans and operations ask.

`open_table` picks storage and committer from what the operator typed; nothing below it knows how a table is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import Engine
from iceberg_cli.errors import InvalidMetadata, Refused, TableNotFound, UsageError
from iceberg_cli.iceberg import ownership as own_files
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.metadata_swap import metadata_folder
from iceberg_cli.iceberg.commit.verification import (
    length_notice,
    mended_lengths,
    naming_the_way_out,
    read_kept,
)
from iceberg_cli.iceberg.metadata_beside import MetadataBeside
from iceberg_cli.iceberg.reachability.cache import ReachabilityCache
from iceberg_cli.iceberg.reachability.names import NamesReader
from iceberg_cli.iceberg.reachability.question import ReachQuestion, snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.second_look import STATE, SecondLook, check_deletions_allowed, check_owner
from iceberg_cli.iceberg.shared_folders import delta_owner
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table_names import TableNames
from iceberg_cli.iceberg.unknown_metadata import (
    FORGET_METADATA,
    FilesOfUnknownMetadata,
)
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.workspace import IcebergWorkspace
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Unknown
from iceberg_cli.operation.ports import Retries
from iceberg_cli.operation.verbs import FormatVerbs
from iceberg_cli.paths import Roots, canonical
from iceberg_cli.plan.plan import Base, Plan, StagedFile, Step, Task, Voucher
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import Removals
from iceberg_cli.storage.aliases import OtherNames
from iceberg_cli.table.nested_tables import METADATA, NestedFiles, NestedTables
from iceberg_cli.table.own_removals import with_own_removals
from iceberg_cli.table.table import OpenTable

if TYPE_CHECKING:
    from iceberg_cli.operation.history import PastOperation
    from iceberg_cli.operation.records import CommitIntent
    from iceberg_cli.plan.way_back import UndoState

_ENCRYPTED = "encryption.key-id"


@dataclass(kw_only=True)
class IcebergTable(OpenTable):
    """One Iceberg table, opened.

    Args:
        name, storage, engine, on_event: see `OpenTable`.
        committer: how its pointer moves.
        allow_roots: folders outside the table's own locations in which files may be deleted too.
        trust_lists: take manifest lists at their word where the summary says they were cut short.
        forget_metadata: names of metadata files that are no roots, see `unknown_metadata.py`.
    """

    format: ClassVar[str] = "iceberg"
    verbs: ClassVar[FormatVerbs] = VERBS
    committer: Committer
    allow_roots: tuple[str, ...] = ()
    trust_lists: bool = False
    forget_metadata: frozenset[str] = frozenset()
    metadata_location: str = ""
    _metadata: TableMetadata | None = None
    _newer: tuple[str, TableMetadata] | None = None  # location and content of one that is not loaded yet
    _noticed: set[str] = field(default_factory=set)  # manifests of which `notices` spoke
    _beside: MetadataBeside = field(init=False)
    _reachability: Reachability = field(init=False)
    _names: TableNames = field(init=False)
    _workspace: IcebergWorkspace = field(init=False)
    _second_look: SecondLook = field(init=False)

    def __post_init__(self) -> None:
        """One memory of what was read, for the whole run."""
        self._reachability = Reachability(
            engine=self.engine, on_event=self.on_event, trust_lists=self.trust_lists
        )
        self._beside = MetadataBeside(
            storage=self.storage,
            reachability=self._reachability,
            loaded=lambda: (self.metadata, self.metadata_location),
        )
        self._names = TableNames(
            storage=self.storage,
            reader=NamesReader(self._reachability),
            beside=self._beside,
            loaded=lambda: (self.metadata, self.metadata_location),
        )
        self._workspace = IcebergWorkspace(
            storage=self.storage,
            loaded=lambda: self.metadata,
            newest=self._newest,
            read_metadata=self.read_metadata,
        )
        self._second_look = SecondLook(reachability=self._reachability, beside=self._beside, newest=self._now)

    @property
    def takes_late_requests(self) -> bool:  # type: ignore[override]
        """Whether the catalog may not hold a request against the version that it replaces."""
        return self.committer.takes_late_requests()

    @property
    def workers_write(self) -> bool:  # type: ignore[override]
        """Whether the engine's workers write new files."""
        return self.engine.is_distributed

    def use(self, engine: Engine) -> None:
        """Read with another engine from now on."""
        self.engine = self._reachability.engine = engine

    def look_through_links(self) -> None:
        """For tables on local disks, where symbolic links to folders give one file several names."""
        self._reachability.other_names = OtherNames(self.roots().folders)
        self._names.reader.with_folders = True

    def use_cache(self, folder: Path, *, limit_bytes: int) -> None:
        """Take what earlier runs read of this table's immutable files, and keep what this one reads.

        Args:
            folder: of all tables; see `ReachabilityCache`.
            limit_bytes: of what is kept of all tables.
        """
        if self.metadata.table_uuid is None:  # nothing tells it from another table at its place
            return
        names = self._reachability.other_names
        self._reachability.cache = ReachabilityCache(
            folder,
            self.storage,
            table_uuid=self.metadata.table_uuid,
            location=self.location,
            one_name=None if names is None else names.only_one,
            limit_bytes=limit_bytes,
        )

    def save_cache(self) -> str | None:
        """Write what this run read to the cache; why that failed, or None."""
        cache = self._reachability.cache
        return (
            None
            if cache is None
            else cache.save(
                [snapshot_files(snapshot) for snapshot in self.metadata.snapshots if snapshot.key_id is None]
            )
        )

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def workspace(self) -> IcebergWorkspace:
        """The files of its operations."""
        return self._workspace

    @property
    def metadata(self) -> TableMetadata:
        """The state as loaded last."""
        if self._metadata is None:
            self.load()
        assert self._metadata is not None
        return self._metadata

    def load(self, seen: str | None = None) -> Base:
        """Look at the pointer, and read what it points to if it has moved.

        Args:
            seen: where it was seen to point just now, so that another look is not needed; None: it was not.

        Raises:
            TableNotFound, CorruptFile, BackendUnavailable.
        """
        return self.load_from(self.committer.current() if seen is None else seen)

    def base(self) -> Base:
        """What the table was when it was loaded last."""
        return base_of(self.metadata, self.metadata_location)

    def load_from(self, location: str) -> Base:
        """Read what the pointer was just seen to point to, if it has moved.

        Raises:
            TableNotFound, CorruptFile, BackendUnavailable.
            Refused: no file can be written where the table lies.
        """
        if location != self.metadata_location or self._metadata is None:
            metadata = self._version(location)
            self._check_in_reach(metadata.location, location)
            self._metadata = metadata
            self.metadata_location, self._newer = location, None
        return base_of(self._metadata, location)

    def _check_in_reach(self, own_location: str, metadata_location: str) -> None:
        """The command is right where a table's own folder cannot be used, so the error is none of usage."""
        try:
            self.storage.canonical(own_location)
        except UsageError as error:
            raise Refused(
                f"{error.message} That is the location of the table by {metadata_location}",
                next_step="Run this where that location can be used, or register the table where its files are.",
            ) from None

    def _newest(self) -> tuple[str, TableMetadata]:
        """Where the pointer points now, and the metadata there; what is loaded stays."""
        location = self.committer.current()
        return location, self._version(location)

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

    def properties(self) -> Mapping[str, str]:
        """As `OpenTable`."""
        return self.metadata.properties

    def live_files(self) -> int:
        """As the summary of the current snapshot says."""
        current = self.metadata.current_snapshot()
        return 0 if current is None else current.summary_count("total-data-files") or 0

    def oldest_state_ms(self) -> int | None:
        """The time of the oldest snapshot."""
        return min((snapshot.timestamp_ms for snapshot in self.metadata.snapshots), default=None)

    def describe(self) -> dict[str, Any]:
        """How plans name this table."""
        return {**self.identity, "format_version": self.metadata.format_version}

    def roots(self) -> Roots:
        """The folders in which this table's files may be deleted."""
        return Roots.of(own_files.folders(self.metadata), allowed=self.allow_roots)

    def _nested_tables(self, *, only_known: bool = False) -> NestedTables:
        """The other tables in these folders, as they are from now on.

        Args:
            only_known: metadata in a folder that the operator allows is not taken for the table's own, for what goes
                is named by no metadata of this table.
        """
        own_metadata = own_files.metadata_folders(self.metadata, self.metadata_location)
        # The table may have been where the operator says that files of it are.
        allowed = {f"{canonical(folder).rstrip('/')}/{METADATA}" for folder in self.allow_roots}
        return NestedTables(
            storage=self.storage,
            roots=self.roots().folders,
            own=[canonical(self.location).rstrip("/")],
            own_metadata=own_metadata - self._beside.shared_folders()
            if only_known
            else own_metadata | allowed,
        )

    # -- plans -------------------------------------------------------------------------------------------------

    @property
    def reachability(self) -> Reachability:
        """What was read of manifests in this run."""
        return self._reachability

    @property
    def names(self) -> TableNames:
        """What was read of the names of reachable files in this run."""
        return self._names

    @property
    def beside(self) -> MetadataBeside:
        """The metadata files beside the table's own."""
        return self._beside

    def read_only_reason(self) -> str | None:
        """Why this table cannot be committed to from here, or None."""
        return (
            self.committer.read_only_reason()
            or self.committer.lost_fields_reason(self.metadata, self.metadata_location)
            or self.storage_refusal()
        )

    def blocked(self, plan: Plan) -> Plan:
        """See `OpenTable`; where snapshots may be hidden, more than adding one is blocked, and so is any expiry."""
        plan = super().blocked(plan)
        if any(step.tasks for step in plan.steps) and _ENCRYPTED in self.metadata.properties:
            encrypts = (
                f"table property {_ENCRYPTED}: its writers encrypt what they write, and nothing here has keys"
            )
            plan = replace(plan, blocked_by=(*plan.blocked_by, encrypts))
        reason = self.committer.hidden_snapshots_reason()
        removes = VERBS.policy(plan.verb).place.removes
        harmless = plan.only_adds_snapshots if plan.due else not removes
        if reason is None or harmless:
            return plan
        return replace(plan, blocked_by=(*plan.blocked_by, reason))

    def head_state(self, past: PastOperation) -> UndoState:
        """As `OpenTable`, by the snapshots of the metadata as loaded last."""
        from iceberg_cli.iceberg.commit.own_snapshots import head_state

        return head_state(self.metadata, past.operation_id, past.branches)

    def closing_refusal(self) -> str | None:
        """Why open operations are not closed unfinished: that takes no commit, so nobody vouches for it."""
        return self.committer.closing_refusal()

    def vouchers(self) -> Sequence[Voucher]:
        """What the operator vouches for: of metadata files, and where the table is one by names in an object store."""
        vouchers = [*self.committer.vouchers()]
        if self.forget_metadata:
            names = ", ".join(sorted(self.forget_metadata))
            sentence = (
                f"the operator vouches that no table needs what only these metadata files reach: {names}"
            )
            vouchers.append(Voucher(option=FORGET_METADATA, value=names, sentence=sentence))
        return vouchers

    def probe(self, path: str) -> None:
        """Refuse an object store, or a catalog, that is seen not to keep what commits rest on; see `OpenTable`."""
        self.committer.prove(path, self.metadata.properties)

    def checked(self, plan: Plan, *, deletes: bool) -> Plan:
        """The plan, blocked where it would write or delete and this table is not the one to do it."""
        found = self.blocked(plan)
        if not plan.due:
            return found
        reasons = [self._delta_owner(), self._beside.other_owner() if deletes else None]
        return replace(found, blocked_by=(*found.blocked_by, *(reason for reason in reasons if reason)))

    def _delta_owner(self) -> str | None:
        """Why the table's files are a Delta table's to maintain, or None."""
        folder = canonical(self.location).rstrip("/") or "/"
        return delta_owner(self.storage, folder, self.metadata.properties)

    def resolve(self, plan: Plan, reach: Mapping[str, ReachQuestion] | None = None) -> Plan:
        """The plan with its removals, blocked where this table is not the one to carry it out.

        What it keeps is read whole, see `commit/verification.py`.

        Args:
            plan: without removals.
            reach: what must be scanned to know which files go, by the name of the step that deletes them.
        """
        reach = reach or {}
        plan = self.checked(plan, deletes=bool(reach))
        self._beside.check_forgotten(self.forget_metadata)
        content: list[Iterator[pa.Table]] = []
        tables = [SCHEMA.empty_table()]
        warnings: list[str] = []
        with naming_the_way_out(self.metadata, plan):
            for step in plan.steps:
                if step.name in reach:
                    answer = self._reachability.answer(reach[step.name], step=step.name)
                    content.append(answer.content)
                    tables.append(answer.rows)
                    warnings += answer.warnings
                if step.change is not None:
                    dropped = own_files.dropped_metadata(
                        self.metadata, self.metadata_location, step.change, timestamp_ms=plan.as_of_ms
                    )
                    tables.append(
                        own_files.metadata_removals(dropped, step=step.name, canonical=self.storage.canonical)
                    )
            read_kept(self._reachability, self.metadata, plan)
        self._noticed |= mended_lengths(plan, self._reachability.stale_lengths)
        warnings += self.notices()
        plan = replace(plan, warnings=(*plan.warnings, *warnings))
        nested = NestedFiles(self._nested_tables())
        unknown = FilesOfUnknownMetadata(
            lambda: self._beside.unknown(self.forget_metadata),
            lambda root: root.may_be_under_way(self.metadata_location, as_of_ms=plan.as_of_ms),
        )
        plan = with_own_removals(
            plan,
            chain(*content, [pa.concat_tables(tables).cast(SCHEMA)]),
            partial(own_files.own_removals, roots=self.roots()),
            storage=self.storage,
            roots=self.roots(),
            locations=own_files.folders(self.metadata),
            left_out=lambda tables: unknown.left_out(nested.left_out(tables)),
        )
        return replace(
            plan,
            verdicts=(*plan.verdicts, *nested.verdicts(), *unknown.verdicts()),
            warnings=(*plan.warnings, *unknown.warnings()),
        )

    def with_found(self, plan: Plan, tables: Iterable[pa.Table]) -> Plan:
        """A plan with those of some files that are this table's to delete, and not those of a table in a folder below.

        Args:
            plan: without removals.
            tables: rows of `removal_rows.LISTED_SCHEMA`; see `collect_removals`.
        """
        nested = NestedFiles(self._nested_tables(only_known=True))
        plan = with_own_removals(
            plan,
            tables,
            partial(own_files.own_removals, roots=self.roots()),
            storage=self.storage,
            roots=self.roots(),
            locations=own_files.folders(self.metadata),
            left_out=nested.left_out,
            takes_tags=False,
        )
        return replace(plan, verdicts=(*plan.verdicts, *nested.verdicts()))

    def notices(self) -> list[str]:
        """What was noticed while this table was read and not told yet, for the operator."""
        stale = self._reachability.stale_lengths
        new = [path for path in stale if path not in self._noticed]
        if not new:
            return []
        self._noticed.update(new)
        return [length_notice(new, *stale[new[0]])]

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
        staged: Mapping[Task, StagedFile],
        *,
        timestamp_ms: int,
        commit_uuid: str,
        operation_id: str,
        mark: str,
    ) -> Attempt:
        """This attempt's commit on the table as loaded last."""
        from iceberg_cli.iceberg.commit.bind import bind

        assert step.change is not None
        if reason := self._delta_owner():
            raise Refused(f"Cannot commit to {self.name}: {reason}")
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

    def rebind(self, step: Step, intent: CommitIntent) -> Attempt | None:
        """The attempt that an intent of the journal describes, byte for byte; None if its base is not there any more.

        Raises:
            Refused: it cannot be made again: the digests differ.
        """
        from iceberg_cli.iceberg.commit.rebinding import possible_commits

        base_location = intent.base_location
        try:
            base = self.read_metadata(base_location)
        except TableNotFound:
            return None
        for commit in possible_commits(intent, base):
            attempt = self.committer.prepare(commit, base_location=base_location)
            if attempt.digest == intent.digest:
                return attempt
        raise Refused(
            f"Cannot settle step {step.name}: its commit cannot be made again with the same content",
            state="The commit's outcome is unknown. Nothing was deleted.",
        )

    def kept_before(self, attempt: Attempt) -> Mapping[str, bytes]:
        """As `Table`: what the commit takes out of the metadata, so that it can be put back without the old file."""
        from iceberg_cli.iceberg.commit.removed_file import removed_file

        return removed_file(attempt)

    def commit(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """One swap."""
        return self.committer.commit(attempt)

    def settle(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """What came of an earlier swap."""
        return self.committer.settle(attempt)

    def effects_visible(self, step: Step) -> bool:
        """Whether the table as loaded last already is as the step would leave it."""
        from iceberg_cli.iceberg.commit.update import effects_visible, updates_from_json

        assert step.change is not None
        return effects_visible(updates_from_json(step.change.updates), self.metadata)

    # -- sweep -------------------------------------------------------------------------------------------------

    def unreachable(self, removals: Removals, rows: Sequence[int], *, plan: Plan) -> list[int]:
        """Those of `rows` that the table, looked at now, does not reach, inside its own locations.

        What metadata files beside its own reach stays too, but for those that the plan says are none of any table.

        Raises:
            Refused: deletions are forbidden by now, or the table cannot be read here any more.
        """
        request = removals.read_rows(rows)
        self._beside.look_again()  # since the last batch
        try:
            verb = VERBS.get(plan.verb)
            gone = None if verb is None else verb.unreached(self, request, plan=plan)
            by_name = gone is not None
            if gone is None:
                gone = self._second_look.unreached(request, plan)
        except Refused as error:  # encrypted by now, or newer
            raise Refused(
                f"Cannot delete files of {self.name} any more: {error.message}",
                state=STATE,
                next_step=f"{error.next_step} `resume --abandon` closes the operation.".lstrip(),
            ) from error
        # Metadata files leave by the table's own property, whatever gc.enabled says of its other files.
        if pc.any(pc.not_equal(request["kind"].cast(pa.string()), "metadata_file")).as_py():
            check_deletions_allowed(self.name, self.metadata)
        check_owner(self.name, self._delta_owner() or self._beside.other_owner())
        own = own_files.own_removals(request, self.roots()).to_numpy(zero_copy_only=False)
        nested = self._nested_tables(only_known=by_name)
        own &= nested.holding(request["path"]).is_null().to_numpy()
        return [rows[int(place)] for place in (gone & own).nonzero()[0]]

    def _now(self) -> tuple[TableMetadata, str]:
        self.load()
        return self.metadata, self.metadata_location


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
