"""What is due in many tables, and the bytes that it frees. Nothing here writes to a table."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.errors import CorruptFile, IcebergCliError
from iceberg_cli.fleet.due import FleetPolicy, PlannedVerb, is_due, is_offer, names_of, plans_of
from iceberg_cli.fleet.facts import FactsStore, decision_key
from iceberg_cli.fleet.grades import OK, DueVerb, grade_of, grade_of_error
from iceberg_cli.fleet.listing import key_of_location
from iceberg_cli.fleet.memory import MemoryBudget, needed_by
from iceberg_cli.fleet.policy_file import DUE
from iceberg_cli.fleet.side_by_side import side_by_side
from iceberg_cli.fleet.thresholds import EVERY, OF_REMOVALS, why_resting
from iceberg_cli.formats import format_of, place_of
from iceberg_cli.plan.text import end_of, iso, size

if TYPE_CHECKING:
    from iceberg_cli.api import Plan, Table
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.fleet.opening import TableOpener
    from iceberg_cli.fleet.policy_file import TablePolicy, VerbPolicy
    from iceberg_cli.fleet.prices import Prices
    from iceberg_cli.iceberg.catalogs import Pointer
    from iceberg_cli.plan.decision import Decision, FileGlances, Glances

_BUG: Final = 1  # exit code
_COLUMNS: Final = (
    "snapshots", "oldest_snapshot_ms", "files", "small_files", "data_bytes", "delete_ratio", "manifests",
    "manifest_target_ratio", "metadata_bytes", "log_versions_since_checkpoint",
)  # fmt: skip
_MOST_DECISIONS: Final = 32  # of one table that are kept
_MOST_SKEW_MS: Final = 3_600_000  # between the clock of a storage and the one here


@dataclass(frozen=True, kw_only=True, repr=False)
class SurveyedTable:
    """One table of a survey.

    Args:
        listed: as it was listed.
        row: as an element of `fleet/1`.
        exit_code: 0, unless it is broken or cannot be read.
        traceback: of a bug.
        key: what it has in common with itself under another name, its version among that; None where it could not be
            read.
        decided: the verbs of which it is known whether they are due.
    """

    listed: ListedTable
    row: Mapping[str, Any]
    exit_code: int = 0
    traceback: str = ""
    key: tuple[str, str, str] | None = None
    decided: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the table."""
        return self.listed.name

    def __repr__(self) -> str:
        """Its name, its grade, and what is freed."""
        freed = f", {size(self.freed_bytes)} freed" if self.freed_bytes else ""
        return f"SurveyedTable({end_of(self.name)}: {self.grade}{freed})"

    @property
    def grade(self) -> str:
        """`ok`, `due`, `overdue`, `broken` or `unreadable`; the row's `rule` says why."""
        return str(self.row["grade"])

    @property
    def freed_bytes(self) -> int:
        """What carrying out all that is due frees, in bytes, as far as it was looked for."""
        return sum(each["bytes"] or 0 for each in self.row["due"] if not each["blocked_by"])

    @property
    def due_bytes(self) -> dict[str, int | None]:
        """By each verb that was decided on what it frees, in bytes; None: that was not looked for."""
        found: dict[str, int | None] = dict.fromkeys(self.decided, 0)
        found |= {each["operation"]: each["bytes"] for each in self.row["due"] if not each["blocked_by"]}
        return found

    @property
    def is_due(self) -> bool:
        """Whether something is due that nothing blocks."""
        return any(not each["blocked_by"] for each in self.row["due"])


@dataclass(kw_only=True)
class Survey:
    """A survey of many tables. Iterate over it once.

    Args:
        tables: those that are listed.
        opener: opens them.
        policy: says which verbs are looked at.
        as_of_ms: the "now" of every age.
        now_ms: the time, by which what is kept for later surveys is dated.
        jobs: how many tables are read side by side.
        prices: of storage and requests; None: no cost is shown.
        facts: what earlier surveys read, and where this one keeps what it reads.
        quick: read no manifest: of what is due only expiries are told, and no bytes but those that are known.
        memory: of all tables that are read side by side.
        is_streamed: a row is shown before the next one is read. Elsewhere another name of a table is added to its row.
    """

    tables: Iterable[ListedTable]
    opener: TableOpener
    policy: FleetPolicy = field(default_factory=FleetPolicy)
    as_of_ms: int
    now_ms: int = 0
    jobs: int = 2
    prices: Prices | None = None
    facts: FactsStore = field(default_factory=lambda: FactsStore(None))
    quick: bool = False
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    is_streamed: bool = False
    _seen: dict[tuple[str, str, str], SurveyedTable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __iter__(self) -> Iterator[SurveyedTable]:
        """Each table once, as it is ready."""
        if not self.quick:
            self.opener.start_engine()
        yield from side_by_side(self._look_at, self.tables, jobs=self.jobs)

    def _look_at(self, listed: ListedTable) -> Iterator[SurveyedTable]:
        """One table; nothing where it is in the row of another name."""
        table: Table | None = None
        try:
            pointer = self.opener.pointer(listed)
            version = self._version(listed, pointer)
            found = None if version is None else self._by_facts(listed, version, pointer)
            glances = format_of(listed.format).surveying.file_glances
            if found is None and self.quick and pointer is not None and glances is not None:
                found = self._by_file(listed, pointer, glances)
            if found is None:
                table = self.opener.open(listed, seen=None if pointer is None else pointer.location)
                with self.memory.room(needed_by(table)):
                    found = self._of_newest(listed, table, version)
            if self._has_row(found):
                yield found
        except IcebergCliError as error:
            identity = listed.identity if table is None else table.identity
            yield unreadable(listed, identity, error)
        except Exception as error:  # noqa: BLE001 - a bug met on one table says nothing of the others
            yield _bug(listed, error)
        finally:
            if table is not None:
                table.save_cache()

    def _has_row(self, found: SurveyedTable) -> bool:
        """Whether a table has a row of its own: no other name of it was looked at before, or that row was shown."""
        if found.key is None:
            return True
        with self._lock:
            first = self._seen.setdefault(found.key, found)
            if first is found:
                return True
            if self.is_streamed:
                found.row["table"]["also"].append(first.name)
                return True
            first.row["table"]["also"] += [found.name, *found.listed.also]
            return False

    # -- what metadata and earlier surveys tell ----------------------------------------------------------------

    def _version(self, listed: ListedTable, pointer: Pointer | None) -> str | None:
        """What stands for the table's version, as far as that is seen without opening it."""
        if pointer is not None:
            return pointer.location
        return self.opener.folder_version(listed) if self.facts.is_kept else None

    def _by_facts(self, listed: ListedTable, version: str, pointer: Pointer | None) -> SurveyedTable | None:
        """The table by what an earlier survey read of this version; None where more must be read."""
        known = self.facts.get(version)
        if known is None:
            return None
        glance, glances = known["glance"], format_of(listed.format).surveying.glances
        own, verbs = self._verbs(listed, glance["location"], glances.properties(glance))
        due: list[DueVerb] = []
        offers: list[DueVerb] = []
        awake = self._awake_unopened(listed, glance, verbs, pointer)
        if awake is None and not self.quick:
            return None
        for verb in verbs if awake is None else awake:
            if _lists_all(listed, verb):
                due.append(_due_by_time(verb, may_rest=awake is None))
                continue
            decision = self._decision(listed, verb, glance, glances, version)
            freed = known["decisions"].get(self._decision_key(verb, decision))
            if freed is not None and not _still_holds(freed, decision):
                freed = None
            if freed is None and not self.quick:
                return None
            if freed["is_due"] if freed is not None else decision.is_due:
                due.append(_due_by(verb, decision, freed, may_rest=awake is None))
            elif freed is not None and freed["is_offer"]:
                offers.append(_due_by(verb, decision, freed, may_rest=awake is None))
        return self._at_a_glance(
            listed,
            glance,
            columns=known["columns"],
            findings=known["findings"],
            open_operations=self._open_operations(listed, glance, pointer),
            due=due,
            offers=offers,
            decided=verbs,
            own=own,
            verbs=verbs,
            from_cache=True,
            version=version,
        )

    def _by_file(self, listed: ListedTable, pointer: Pointer, glances: FileGlances) -> SurveyedTable:
        """The table by its metadata file alone."""
        glance = self.opener.glance(listed, pointer, glances)
        own, verbs = self._verbs(listed, glance["location"], glances.properties(glance))
        due: list[DueVerb] = []
        decided = [verb for verb in verbs if verb.verb in glances.decides or _lists_all(listed, verb)]
        awake = self._awake_unopened(listed, glance, decided, pointer)
        for verb in decided if awake is None else awake:
            if _lists_all(listed, verb):
                due.append(_due_by_time(verb, may_rest=awake is None))
                continue
            decision = self._decision(listed, verb, glance, glances, pointer.location)
            if decision.is_due:
                due.append(_due_by(verb, decision, None, may_rest=awake is None))
        columns = glances.columns(glance)
        return self._at_a_glance(
            listed,
            glance,
            columns=columns,
            findings=(),
            open_operations=self._open_operations(listed, glance, pointer),
            due=due,
            decided=decided,
            own=own,
            verbs=verbs,
            from_cache=False,
            version=pointer.location,
        )

    def _open_operations(
        self, listed: ListedTable, glance: Mapping[str, Any], pointer: Pointer | None
    ) -> int | None:
        """As in the row: a catalog that hands out metadata may hand out credentials too, for an opened table alone."""
        if pointer is not None and pointer.document is not None:
            return None
        return self.opener.open_operations(
            listed, listed.location if listed.catalog is None else glance["location"]
        )

    def _decision(
        self, listed: ListedTable, verb: VerbPolicy, glance: Mapping[str, Any], glances: Glances, version: str
    ) -> Decision:
        policy = self.policy.policy_of(verb, listed.format, as_of_ms=self.as_of_ms)
        return glances.decide(glance, policy, version, as_of_ms=self.as_of_ms)

    def _at_a_glance(self, listed: ListedTable, glance: Mapping[str, Any], **found: Any) -> SurveyedTable:
        """A table that was not opened; `found`: what more `_surveyed` takes."""
        return self._surveyed(
            listed,
            identity={"name": listed.name, "location": glance["location"], "format": listed.format},
            uuid=glance["table_uuid"],
            format_version=glance["format_version"],
            # A copy is another table, whatever its metadata says of where it is.
            folder=listed.location if listed.catalog is None else None,
            **found,
        )

    def _verbs(
        self, listed: ListedTable, location: str, properties: Mapping[str, str]
    ) -> tuple[TablePolicy | None, list[VerbPolicy]]:
        """What the policy has for a table, and the verbs that are looked at."""
        own = self.policy.as_narrowed(names_of(listed, location), properties, as_of_ms=self.as_of_ms)
        return own, self.policy.verbs(own, listed.format)

    def _awake_unopened(
        self,
        listed: ListedTable,
        glance: Mapping[str, Any],
        verbs: Sequence[VerbPolicy],
        pointer: Pointer | None,
    ) -> list[VerbPolicy] | None:
        """As `_awake`, of a table that is not opened; None where only opening it tells.

        A catalog that hands out metadata may hand out credentials too, for an opened table alone.
        """
        if not any(EVERY in verb.thresholds for verb in verbs):
            return [*verbs]
        if pointer is not None and pointer.document is not None:
            return None
        location = listed.location if listed.catalog is None else None
        location, table_uuid = location or glance["location"], glance["table_uuid"] or ""
        try:
            return self._awake(verbs, partial(self.opener.last_run_ms, listed, location, table_uuid))
        except IcebergCliError:
            return None

    def _awake(
        self, verbs: Sequence[VerbPolicy], last_run_ms: Callable[[str], int | None]
    ) -> list[VerbPolicy]:
        """The verbs that are looked at: of those that ran not long ago nothing is due."""
        return [
            verb
            for verb in verbs
            if why_resting(verb.thresholds, partial(last_run_ms, verb.verb), as_of_ms=self.as_of_ms) is None
        ]

    def _decision_key(self, verb: VerbPolicy, decision: Decision) -> str:
        return decision_key(
            verb.verb, [decision.decided, self.opener.vouched, verb.when, dict(verb.thresholds)]
        )

    # -- what plans tell ---------------------------------------------------------------------------------------

    def _of_newest(self, listed: ListedTable, table: Table, seen: str | None) -> SurveyedTable:
        """The table as it is now, also where another writer deletes files of the version before while it is read."""
        version = table.version
        try:
            return self._by_plans(listed, table, seen)
        except CorruptFile:
            if not table.has_moved_from(version):
                raise
            return self._by_plans(listed, table, None)

    def _by_plans(self, listed: ListedTable, table: Table, seen: str | None) -> SurveyedTable:
        version = table.version
        summary = table.inspect("summary", as_of=self.as_of_ms).to_json()
        findings = [each.to_json() for each in table.quick_check(as_of=self.as_of_ms).findings()]
        own, verbs = self._verbs(listed, table.identity["location"], table.properties)
        looked_at = [] if self.quick else verbs
        awake = self._awake(looked_at, table.last_run_ms)
        by_time = [verb for verb in awake if _lists_all(listed, verb)]
        by_plan = [verb for verb in awake if verb not in by_time]
        planned = list(plans_of(table, self.policy, by_plan, as_of_ms=self.as_of_ms))
        due = [
            _due(each.plan, as_of_ms=self.as_of_ms)
            for each in planned
            if each.plan is not None and is_due(each.plan, each.verb)
        ]
        due += [_due_by_time(verb, may_rest=False) for verb in by_time]
        offers = [
            _due(each.plan, as_of_ms=self.as_of_ms)
            for each in planned
            if each.plan is not None and _is_shown_offer(each.plan, each.verb)
        ]
        undecided = [each.verb for each in planned if each.plan is None]
        columns = table.fleet_columns(summary)
        # Not where another writer came meanwhile: some of it is of his version and some of the one before.
        if self.facts.is_kept and table.version == version and not self.opener.trust_lists:
            self._keep(listed, table, seen, columns, findings, planned)
        return self._surveyed(
            listed,
            identity=table.identity,
            uuid=summary["table_uuid"],
            format_version=summary["format_version"],
            columns=columns,
            findings=[*findings, *(_finding_of(each) for each in planned if each.error is not None)],
            due=due,
            offers=offers,
            decided=[verb for verb in looked_at if verb not in undecided],
            own=own,
            verbs=verbs,
            failed=[each.error for each in planned if each.error is not None and not is_offer(each.verb)],
            open_operations=len(summary["open_operations"]),
            version=version,
            folder=table.key[1],
        )

    def _keep(
        self,
        listed: ListedTable,
        table: Table,
        seen: str | None,
        columns: Mapping[str, Any],
        findings: Sequence[Mapping[str, Any]],
        planned: Sequence[PlannedVerb],
    ) -> None:
        """Keep what later surveys need of this version of a table."""
        version = table.version if listed.catalog is not None else self._unmoved(listed, seen)
        if version is None or any(each.error is not None for each in planned):
            return
        glance = table.glance()
        if glance is None:
            return
        glances = format_of(table.format).surveying.glances
        decisions = dict((self.facts.get(version) or {}).get("decisions", {}))
        for each in planned:
            decision = self._decision(listed, each.verb, glance, glances, version)
            assert each.plan is not None
            key = self._decision_key(each.verb, decision)
            decisions.pop(key, None)
            # What a catalog says of deletions is no part of the table's version.
            if each.plan.content.tagged is None and (is_offer(each.verb) or table.lasts(each.plan, decision)):
                files, size_bytes = each.plan.content.deletes
                decisions[key] = {
                    "is_due": is_due(each.plan, each.verb),
                    "is_offer": _is_shown_offer(each.plan, each.verb),
                    "reason": each.plan.content.reason or "",
                    "blocked_by": each.plan.blocked_by,
                    "bytes": size_bytes,
                    "files": files,
                    "cut_ms": decision.cut_ms,
                    "listed_ms": self.now_ms - _MOST_SKEW_MS,
                }
        newest = dict(list(decisions.items())[-_MOST_DECISIONS:])
        facts = {"glance": glance, "columns": columns, "findings": findings, "decisions": newest}
        self.facts.put(version, facts, now_ms=self.now_ms)

    def _unmoved(self, listed: ListedTable, seen: str | None) -> str | None:
        """The version of a table in a folder, where that is still the one that was seen before it was read."""
        return seen if seen is not None and self.opener.folder_version(listed) == seen else None

    def _surveyed(
        self,
        listed: ListedTable,
        *,
        identity: Mapping[str, Any],
        uuid: str | None,
        format_version: int,
        columns: Mapping[str, Any],
        findings: Sequence[Mapping[str, Any]],
        due: Sequence[DueVerb],
        decided: Sequence[VerbPolicy],
        own: TablePolicy | None,
        verbs: Sequence[VerbPolicy],
        offers: Sequence[DueVerb] = (),
        failed: Sequence[IcebergCliError] = (),
        open_operations: int | None = None,
        from_cache: bool = False,
        version: str,
        folder: str | None = None,
    ) -> SurveyedTable:
        row: dict[str, Any] = {
            "table": {**identity, "also": list(listed.also)},
            "format_version": format_version,
            "grade": "",
            "rule": "",
            **{name: columns[name] for name in _COLUMNS},
            "oldest_snapshot": iso(columns["oldest_snapshot_ms"]),
            "due": [each.to_json() for each in sorted(due, key=lambda each: -(each.size_bytes or 0))],
            "offers": [{"operation": each.verb, "reason": each.reason} for each in offers],
            "open_operations": open_operations,
            "findings": list(findings),
            "cost": None,
            "from_cache": from_cache,
        }
        row["grade"], row["rule"], code = grade_of(row, due, failed, as_of_ms=self.as_of_ms)
        if row["grade"] == OK and self.policy.file is not None and not verbs:
            row["rule"] = _why_no_verb(own)
        if self.prices is not None:
            row["cost"] = self.prices.cost(row)
        key = (uuid or "", key_of_location(folder or str(identity["location"])), version)
        verbs_decided = tuple(each.verb for each in decided)
        return SurveyedTable(listed=listed, row=row, exit_code=code, key=key, decided=verbs_decided)


def unreadable(listed: ListedTable, identity: Mapping[str, Any], error: IcebergCliError) -> SurveyedTable:
    """A table that could not be read.

    Args:
        listed: which one.
        identity: its `name`, `location` and `format`, as far as they are known.
        error: why.
    """
    row: dict[str, Any] = {
        "table": {**identity, "also": list(listed.also)},
        "format_version": None,
        "grade": grade_of_error(error),
        "rule": error.message,
        **dict.fromkeys(_COLUMNS),
        "oldest_snapshot": None,
        "due": [],
        "offers": [],
        "open_operations": None,
        "findings": [],
        "cost": None,
        "from_cache": False,
    }
    return SurveyedTable(listed=listed, row=row, exit_code=error.exit_code)


def _bug(listed: ListedTable, error: Exception) -> SurveyedTable:
    found = unreadable(listed, listed.identity, IcebergCliError(f"a bug of iceberg-cli was met: {error!r}"))
    return SurveyedTable(
        listed=listed, row=found.row, exit_code=_BUG, traceback="".join(traceback.format_exception(error))
    )


def _is_shown_offer(plan: Plan, verb: VerbPolicy) -> bool:
    """Whether a row has a plan among its `offers`."""
    return is_offer(verb) and plan.due and not plan.blocked_by


def _why_no_verb(own: TablePolicy | None) -> str:
    """Why a policy file has no verb run on a table."""
    if own is None:
        return "no entry of the policy file matches it"
    if not own.maintain:
        return f"not maintained: {own.why_not_maintained}"
    return "the policy file names no verb for it"


def _still_holds(freed: Mapping[str, Any], decision: Decision) -> bool:
    """Whether what a listing of files told is what another one would: none is of a time in between that goes now."""
    return decision.cut_ms is None or bool(freed["cut_ms"] <= decision.cut_ms <= freed["listed_ms"])


def _due_by(
    verb: VerbPolicy, decision: Decision, freed: Mapping[str, Any] | None, *, may_rest: bool
) -> DueVerb:
    """A due verb by what decides about it, and by what is known of its removals; `may_rest`: when it ran is not."""
    reason = decision.reason if freed is None else freed["reason"]
    unseen = [
        name
        for name in verb.thresholds
        if (name in OF_REMOVALS and freed is None and verb.when == DUE) or (name == EVERY and may_rest)
    ]
    if unseen:
        reason = "; ".join(filter(None, (reason, f"not looked at: {', '.join(unseen)}")))
    return DueVerb(
        verb=verb.verb,
        size_bytes=None if freed is None else freed["bytes"],
        files=None if freed is None else freed["files"],
        blocked_by=decision.blocked_by if freed is None else tuple(freed["blocked_by"]),
        oldest_ms=decision.oldest_ms,
        allowed_ms=decision.allowed_ms,
        reason=reason,
    )


def _lists_all(listed: ListedTable, verb: VerbPolicy) -> bool:
    """Whether a plan of a verb lists all files of a table, so that a survey makes none."""
    return place_of(listed.format, verb.verb).planned_by_name


def _due_by_time(verb: VerbPolicy, *, may_rest: bool) -> DueVerb:
    """A verb that lists all files, which a survey does not; `may_rest`: when it ran is not known."""
    unseen = [
        name
        for name in verb.thresholds
        if (name in OF_REMOVALS and verb.when == DUE) or (name == EVERY and may_rest)
    ]
    listing = "how much goes only a listing of all files tells"
    reason = f"{listing}; not looked at: {', '.join(unseen)}" if unseen else listing
    return DueVerb(verb=verb.verb, size_bytes=None, files=None, reason=reason)


def _due(plan: Plan, *, as_of_ms: int) -> DueVerb:
    cutoff = plan.content.options.get("older_than_ms")
    going = [
        each.timestamp_ms
        for each in plan.verdicts
        if not each.keep and each.subject == "snapshot" and each.timestamp_ms is not None
    ]
    by_age = cutoff is not None and cutoff.value is not None
    return DueVerb(
        verb=plan.verb,
        size_bytes=plan.content.deletes[1],
        files=plan.content.deletes[0],
        blocked_by=tuple(plan.blocked_by),
        oldest_ms=min(going, default=None) if by_age else None,
        allowed_ms=as_of_ms - int(cutoff.value) if cutoff is not None and by_age else None,
        reason=plan.content.reason or "",
    )


def _finding_of(planned: PlannedVerb) -> dict[str, Any]:
    """An error of planning a verb as a finding."""
    error = planned.error
    assert error is not None
    return {
        "id": f"{planned.verb.verb}-cannot-be-planned",
        "severity": "error" if isinstance(error, CorruptFile) and not is_offer(planned.verb) else "warning",
        "where": getattr(error, "path", "") or planned.verb.verb,
        "message": error.message,
        "section": "",
        "remedy": error.next_step,
    }
