"""Tables from Python: look, plan, carry out, resume. The command line and Airflow tasks call this and nothing below it.

    import iceberg_cli as ic

    table = ic.open_table("prod.sales.orders")
    plan = table.plan(ic.iceberg.ExpireSnapshots(older_than="7d", retain_last=10))
    plan.save("orders.plan")
    print(plan.removals.count, plan.blocked_by)
    report = table.apply(plan)

Nothing is printed, no signal is handled, and one table has no state of another's: threads may each have their own.
Where the program has set up OpenTelemetry there is a span for each phase, below the current one. Errors are those of
`iceberg_cli.errors`: `message`, `state` (of table and files now), `next_step` and `exit_code`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from iceberg_cli.api.plan import Plan, refuse_additions
from iceberg_cli.api.runtime import new_runtime
from iceberg_cli.api.table import Table
from iceberg_cli.engines.selection import EngineChoice
from iceberg_cli.errors import UsageError
from iceberg_cli.formats.open import open_table as open_format_table
from iceberg_cli.operation.runtime import DeletionAllowance, Runtime
from iceberg_cli.paths import METADATA_SUFFIXES, Roots
from iceberg_cli.plan.arguments import OPEN_ARGUMENTS, naming
from iceberg_cli.plan.events import OPEN, Listener, phase, unheard
from iceberg_cli.telemetry import traced

if TYPE_CHECKING:
    from iceberg_cli.iceberg.catalogs.registry import Catalogs
    from iceberg_cli.table.recovery import OpenOperation as OpenOperation

__all__ = [
    "DeletionAllowance",
    "EngineChoice",
    "Plan",
    "Runtime",
    "Table",
    "new_runtime",
    "open_table",
    "refuse_additions",
]


def open_table(
    name: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    catalog_config: str | None = None,
    catalogs: Catalogs | None = None,
    seen: str | None = None,
    forks: bool = True,
    allow_roots: Sequence[str] = (),
    trust_lists: bool = False,
    conditional_writes: bool = False,
    single_writer: bool = False,
    forget_metadata: Sequence[str] = (),
    engine: EngineChoice | None = None,
    cache_bytes: int | None = None,
    even_unreadable: bool = False,
    names_options: bool = False,
    on_event: Listener = unheard,
) -> Table:
    """Open a table.

    Args:
        name: a folder or URI, a metadata file, or `catalog.namespace.table`.
        storage_options: for the storage, beside those of the catalog.
        catalog_config: a `.pyiceberg.yaml`; None: where PyIceberg looks for it.
        catalogs: configured ones, with the connections of tables that the same thread opened before; in place of
            `catalog_config`.
        seen: where the table's catalog was just seen to point; None: it is asked.
        forks: whether large scans may be split among forked processes; False where other threads are alive.
        allow_roots: folders or buckets, beside its own, in which files of the table may be deleted, too.
        trust_lists: believe manifest lists that hold fewer files than the summary says.
        conditional_writes: vouch that the object store keeps conditional creates under races and, on S3, that
            nobody writes the Delta table without them.
        single_writer: vouch that nobody else commits to this Iceberg table by file names in an object store.
        forget_metadata: names of metadata files beside an Iceberg table's own that no table needs.
        engine: which reads; None: the local one.
        cache_bytes: room for what runs learn of immutable files; None: nothing is read from there or kept.
        even_unreadable: open one whose current state cannot be read, too: it can be checked, and `resume` can abandon
            its operations; all else of it is the error.
        names_options: errors name the options of the command line, which calls, and not arguments.
        on_event: gets progress and what else happens: see `iceberg_cli.plan.events`.

    Raises:
        UsageError: the name or an argument has no meaning.
        TableNotFound: no table is there.
        Refused: the table may not be opened so.
        CorruptFile: its metadata cannot be read.
        BackendUnavailable: storage or catalog did not answer.
    """
    on_event = traced(on_event)
    with naming(OPEN_ARGUMENTS, names_options=names_options):
        _check_unsafe(allow_roots, forget_metadata)
    cache = None
    if cache_bytes is not None:
        from iceberg_cli.iceberg.reachability.cache_folder import cache_folder

        folder = cache_folder(os.environ)
        cache = None if folder is None else (folder, cache_bytes)
    with naming(OPEN_ARGUMENTS, names_options=names_options), phase(OPEN, on_event, table=name):
        opened = open_format_table(
            name,
            storage_options=storage_options or {},
            catalog_config=catalog_config,
            catalogs=catalogs,
            seen=seen,
            forks=forks,
            allow_roots=tuple(allow_roots),
            trust_lists=trust_lists,
            conditional_writes=conditional_writes,
            single_writer=single_writer,
            forget_metadata=tuple(forget_metadata),
            engine=engine,
            cache=cache,
            even_unreadable=even_unreadable,
            on_event=on_event,
        )
    return Table(opened, names_options=names_options)


def _check_unsafe(allow_roots: Sequence[str], forget_metadata: Sequence[str]) -> None:
    for root in allow_roots:
        if not Roots.of((), allowed=[root]).folders:
            raise UsageError(
                f"--unsafe-allow-root: {root!r} is no folder or bucket; a whole disk cannot be allowed"
            )
    for file_name in forget_metadata:
        if not file_name.endswith(METADATA_SUFFIXES) or "/" in file_name:
            raise UsageError(
                f"--unsafe-forget-metadata: {file_name!r} is no name of a metadata file, which ends in "
                f"{' or '.join(METADATA_SUFFIXES)} and has no folder"
            )
