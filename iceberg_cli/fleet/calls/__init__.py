"""Many tables from Python: list them, survey them, maintain them by a policy file.

    import iceberg_cli as ic

    policy = ic.Policy.load("policy.toml")
    print(ic.survey("/warehouse/**", policy=policy))
    result = ic.maintain(policy=policy, deadline="3h")
    for run in result:
        print(run.name, run.verb, run.status, run.reason)

As with one table nothing is printed, no signal is handled, and what is asked for wrongly raises `UsageError`. What
fails on one table stops no other: the result has it, and `exit_code` is the worst of all. Variables and configuration
files of the command line have no say here.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.arguments import OPEN_ARGUMENTS, naming
from iceberg_cli.plan.events import Listener, unheard
from iceberg_cli.plan.text import did_you_mean, listed, size_bytes
from iceberg_cli.plan.times import Time, deadline_ms, moment_ms

if TYPE_CHECKING:
    from iceberg_cli.engines.selection import EngineChoice
    from iceberg_cli.fleet.calls.maintenance_result import MaintenanceResult
    from iceberg_cli.fleet.calls.survey_result import SurveyResult
    from iceberg_cli.fleet.calls.table_listing import TableListing
    from iceberg_cli.fleet.facts import FactsStore
    from iceberg_cli.fleet.listing import Failures, ListedTable, TableList
    from iceberg_cli.fleet.patterns import Pattern
    from iceberg_cli.fleet.policy_file import PolicyFile
    from iceberg_cli.operation.runtime import DeletionAllowance

Tables: TypeAlias = "str | ListedTable | Iterable[str | ListedTable] | None"
"""A pattern or several, as the commands take them, or tables that were listed before."""

DEFAULT_JOBS: Final = 2


@naming(OPEN_ARGUMENTS)
def list_tables(
    tables: str | Iterable[str] | None = None,
    *,
    kind: str | None = None,
    policy: PolicyFile | str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    catalog_config: str | None = None,
) -> TableListing:
    """The tables that patterns mean, each once. None of them is opened.

    Args:
        tables: a pattern or several: a catalog, a namespace or tables ("prod", "prod.sales", "prod.*.orders_*"), or
            folders ("/wh/**", "s3://lake/db/*"); None: what `policy` matches, else every configured catalog.
        kind: `iceberg` or `delta`: only tables of this format.
        policy: of `ic.Policy.load`, or the path of a policy file. With it all names of a table are compared, as what
            writes needs it.
        storage_options: see `open_table`.
        catalog_config: see `open_table`.

    Returns:
        The tables, and as `failed` places that could not be listed whole and patterns that mean nothing.

    Raises:
        UsageError: a pattern has no meaning or names a catalog that is not configured, or the file cannot be read.
    """
    from iceberg_cli.fleet.calls.table_listing import TableListing
    from iceberg_cli.fleet.listing import list_tables as tables_of
    from iceberg_cli.formats import BUILT_IN

    if kind is not None and kind not in BUILT_IN:
        raise UsageError(f"kind must be {listed(BUILT_IN, last='or')}, not {kind!r}")
    file = _policy(policy)
    found = tables_of(
        _patterns(_several(tables), file),
        catalog_config=catalog_config,
        storage_options=storage_options,
        compared=file is not None,
    )
    return TableListing(
        tuple(each for each in found if kind in (None, each.format)),
        failed=found.failures(),
        views=found.views,
    )


@naming(OPEN_ARGUMENTS)
def survey(
    tables: Tables = None,
    *,
    policy: PolicyFile | str | os.PathLike[str] | None = None,
    prices: str | os.PathLike[str] | None = None,
    sort: str = "freed",
    quick: bool = False,
    jobs: int | None = None,
    as_of: Time | None = None,
    storage_options: Mapping[str, str] | None = None,
    catalog_config: str | None = None,
    allow_roots: Sequence[str] = (),
    trust_lists: bool = False,
    conditional_writes: bool = False,
    single_writer: bool = False,
    engine: EngineChoice | None = None,
    cache_bytes: int | None = None,
    on_event: Listener = unheard,
) -> SurveyResult:
    """What is due in many tables and what it frees. Nothing is written to a table.

    Args:
        tables: patterns, see `list_tables`, or tables that it listed.
        policy: the verbs and options of this policy file, by table; None: expire-snapshots, rewrite-manifests and
            merge-dvs by the tables' own properties and the defaults.
        prices: of a TOML file with prices: what is due is shown as money a month.
        sort: `freed`, `grade` or `name`: what the tables are ranked by.
        quick: read no manifests: tells of expiries alone, and of no bytes that are not known yet.
        jobs: tables that are read side by side; None: 2, or 1 if `quick`.
        as_of: the "now" of every age; None: now.
        storage_options: see `open_table`, as all that follow.
        catalog_config: likewise.
        allow_roots: likewise.
        trust_lists: likewise.
        conditional_writes: likewise.
        single_writer: likewise.
        engine: likewise.
        cache_bytes: likewise; without it no facts of earlier surveys are used or kept, either.
        on_event: likewise.

    Raises:
        UsageError: an argument has no meaning.
        BackendUnavailable: Spark was chosen and does not start.
    """
    from iceberg_cli.fleet.calls.survey_result import SORTS, SurveyResult
    from iceberg_cli.fleet.due import FleetPolicy
    from iceberg_cli.fleet.opening import TableOpener
    from iceberg_cli.fleet.survey import Survey
    from iceberg_cli.telemetry import traced

    now_ms = _now_ms()
    if sort not in SORTS:
        raise UsageError(f"sort must be {listed(SORTS, last='or')}, not {sort!r}")
    file = _policy(policy)
    chosen, found = _tables(tables, file, catalog_config, storage_options)
    as_of_ms = now_ms if as_of is None else moment_ms(as_of, "as_of", now_ms=now_ms)
    opener = TableOpener(
        storage_options=storage_options or {},
        catalog_config=catalog_config,
        allow_roots=allow_roots,
        trust_lists=trust_lists,
        conditional_writes=conditional_writes,
        single_writer=single_writer,
        engine=engine,
        cache_bytes=cache_bytes,
        on_event=traced(on_event),
    )
    rows = Survey(
        tables=chosen,
        opener=opener,
        policy=FleetPolicy(file=file),
        as_of_ms=as_of_ms,
        now_ms=now_ms,
        facts=_facts(cache_bytes),
        quick=quick,
        jobs=_jobs(jobs, otherwise=1 if quick else DEFAULT_JOBS),
        prices=_prices(prices),
    )
    surveyed = tuple(rows)
    return SurveyResult(
        surveyed,
        failed=_failures(found),
        sort=sort,
        policy=file,
        as_of_ms=as_of_ms,
        views=_views(found),
        quick=quick,
    )


@naming(OPEN_ARGUMENTS)
def maintain(
    tables: Tables = None,
    *,
    policy: PolicyFile | str | os.PathLike[str],
    dry_run: bool = False,
    only: str | Iterable[str] = (),
    limit_deletes: int | None = None,
    max_bytes: int | str | None = None,
    deadline: Time | None = None,
    memory: int | str | None = None,
    settle: bool = True,
    jobs: int | None = None,
    as_of: Time | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
    storage_options: Mapping[str, str] | None = None,
    catalog_config: str | None = None,
    allow_roots: Sequence[str] = (),
    trust_lists: bool = False,
    conditional_writes: bool = False,
    single_writer: bool = False,
    engine: EngineChoice | None = None,
    cache_bytes: int | None = None,
    on_event: Listener = unheard,
) -> MaintenanceResult:
    """Carry out every due verb of every table that matches, by a policy file. Nobody is asked.

    A verb that the file does not name never runs, nor does any on a table with `maintain = false` or outside its
    window. What fails on one table stops no other, and is in the result. With a bound (`limit_deletes`, `max_bytes`,
    `deadline`) the tables of which most is freed come first.

    Args:
        tables: patterns, see `list_tables`, or tables that it listed; None: what the policy file matches.
        policy: of `ic.Policy.load`, or the path of a policy file.
        dry_run: only plan.
        only: these verbs and no others; none: all that the file names.
        limit_deletes: delete at most so many files, over all tables.
        max_bytes: delete at most so many bytes, over all tables; also as a text such as "10GiB".
        deadline: nothing more is begun after this time, or this long from now.
        memory: for the rows that are held where data files are rewritten, in bytes or as "2GiB", over all tables that
            are worked on side by side; None: 2 GiB, or a quarter of what there is if that is less.
        settle: finish open operations of earlier runs first.
        jobs: tables that are worked on side by side; None: 2.
        as_of: the "now" of every age; None: now.
        stop_requested: whether to stop at the next safe point; what is begun then `resume` finishes.
        storage_options: see `open_table`, as all that follow.
        catalog_config: likewise.
        allow_roots: likewise.
        trust_lists: likewise.
        conditional_writes: likewise.
        single_writer: likewise.
        engine: likewise.
        cache_bytes: likewise; without it no facts of earlier surveys are used or kept, either.
        on_event: likewise.

    Returns:
        What came of each verb on each table, by the tables' names.

    Raises:
        UsageError: an argument has no meaning.
        Refused, BackendUnavailable: it cannot be found out on which tables nothing may run, or Spark does not start.
        Cancelled: `stop_requested` before anything was begun.
    """
    from iceberg_cli.fleet.calls.maintenance_result import MaintenanceResult
    from iceberg_cli.fleet.due import FleetPolicy
    from iceberg_cli.fleet.maintenance import Maintenance
    from iceberg_cli.fleet.memory import memory_of_rows
    from iceberg_cli.fleet.opening import TableOpener
    from iceberg_cli.telemetry import traced

    now_ms = _now_ms()
    file = _policy(policy)
    if file is None:
        raise UsageError("policy must be one, and is None", next_step='Give ic.Policy.load("policy.toml").')
    verbs = _verbs(only)
    allowance = _allowance(limit_deletes, max_bytes)
    side_by_side = _jobs(jobs, otherwise=DEFAULT_JOBS)
    rows_bytes = _positive(size_bytes(memory, "memory") if isinstance(memory, str) else memory, "memory")
    until_ms = None if deadline is None else deadline_ms(deadline, "deadline", now_ms=now_ms)
    chosen, found = _tables(tables, file, catalog_config, storage_options, compared=True)
    if found is not None:
        found.stop_requested = stop_requested
    is_one = isinstance(chosen, list) and len(chosen) == 1  # which comes first however much it frees
    as_of_ms = now_ms if as_of is None else moment_ms(as_of, "as_of", now_ms=now_ms)
    listener = traced(on_event)
    maintenance = Maintenance(
        tables=chosen,
        opener=TableOpener(
            storage_options=storage_options or {},
            catalog_config=catalog_config,
            allow_roots=allow_roots,
            trust_lists=trust_lists,
            conditional_writes=conditional_writes,
            single_writer=single_writer,
            engine=engine,
            cache_bytes=cache_bytes,
            on_event=listener,
        ),
        policy=FleetPolicy(file=file, only=verbs, memory=memory_of_rows(rows_bytes, jobs=side_by_side)),
        as_of_ms=as_of_ms,
        jobs=side_by_side,
        allowance=allowance,
        deadline_ms=until_ms,
        ranked=(allowance is not None or until_ms is not None) and not is_one,
        dry_run=dry_run,
        settle=settle,
        stop_requested=stop_requested,
        on_event=listener,
        facts=_facts(cache_bytes),
    )
    runs = tuple(maintenance)
    return MaintenanceResult(
        sorted(runs, key=lambda each: each.name),
        failed=_failures(found),
        run_id=str(uuid.uuid4()),
        policy=file,
        as_of_ms=as_of_ms,
        dry_run=dry_run,
        views=_views(found),
        warnings=maintenance.warnings,
    )


# -- arguments -------------------------------------------------------------------------------------------------


def _several(tables: Any) -> list[Any]:
    from iceberg_cli.fleet.listing import ListedTable

    if tables is None:
        return []
    return [tables] if isinstance(tables, str | os.PathLike | ListedTable) else list(tables)


def _patterns(texts: Sequence[Any], policy: PolicyFile | None) -> Sequence[Pattern]:
    from iceberg_cli.fleet.patterns import parse_patterns

    for text in texts:
        if not isinstance(text, str | os.PathLike):
            raise UsageError(
                f"tables: {text!r} is no pattern", next_step="Give patterns alone, or listed tables alone."
            )
    if not texts and policy is not None:
        return policy.patterns
    return parse_patterns(os.fspath(text) for text in texts)


def _tables(
    given: Tables,
    policy: PolicyFile | None,
    catalog_config: str | None,
    storage_options: Mapping[str, str] | None,
    *,
    compared: bool = False,
) -> tuple[Iterable[ListedTable], TableList | None]:
    """The tables that are meant; and the list of which they come, where patterns mean them."""
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.fleet.listing import list_tables as tables_of

    several = _several(given)
    if (several or given is not None) and all(isinstance(each, ListedTable) for each in several):
        return several, None
    found = tables_of(
        _patterns(several, policy),
        catalog_config=catalog_config,
        storage_options=storage_options,
        compared=compared,
    )
    return found, found


def _failures(found: TableList | None) -> Failures:
    from iceberg_cli.fleet.listing import Failures

    return Failures() if found is None else found.failures()


def _views(found: TableList | None) -> int:
    return 0 if found is None else found.views


def _policy(given: PolicyFile | str | os.PathLike[str] | None) -> PolicyFile | None:
    from iceberg_cli.fleet.policy_file import PolicyFile, load_policy

    if given is None or isinstance(given, PolicyFile):
        return given
    return load_policy(os.fspath(given))


def _prices(path: str | os.PathLike[str] | None) -> Any:
    if path is None:
        return None
    from iceberg_cli.fleet.prices import load_prices

    return load_prices(os.fspath(path))


def _verbs(only: str | Iterable[str]) -> frozenset[str]:
    from iceberg_cli.formats import maintenance_verbs

    known, verbs = maintenance_verbs(), frozenset([only] if isinstance(only, str) else only)
    for verb in sorted(verbs):
        if verb not in known:
            raise UsageError(
                f"only: {verb!r} is no verb that it runs.{did_you_mean(verb, known)}",
                next_step=f"Verbs are {listed(known)}.",
            )
    return verbs


def _allowance(limit_deletes: int | None, max_bytes: int | str | None) -> DeletionAllowance | None:
    if limit_deletes is None and max_bytes is None:
        return None
    from iceberg_cli.operation.runtime import DeletionAllowance

    most = size_bytes(max_bytes, "max_bytes") if isinstance(max_bytes, str) else max_bytes
    return DeletionAllowance(
        files=_positive(limit_deletes, "limit_deletes"), size_bytes=_positive(most, "max_bytes")
    )


def _jobs(given: int | None, *, otherwise: int) -> int:
    return _positive(given, "jobs") or otherwise


def _positive(number: int | None, name: str) -> int | None:
    if number is not None and number < 1:
        raise UsageError(f"{name} must be at least 1, not {number}")
    return number


def _facts(cache_bytes: int | None) -> FactsStore:
    from iceberg_cli.fleet.facts import FactsStore, facts_folder

    return FactsStore(None if cache_bytes is None else facts_folder(os.environ))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - the clock of real runs
