"""Maintain Apache Iceberg and Delta tables. A pure core decides and a thin shell acts.

    cli -> fleet -> api -> formats -> iceberg | delta -> operation -> engines -> storage -> plan -> encoding -> paths,
    errors

A format owns everything that knows it, under the same names: `spec/` reads and writes its files, `reachability` tells
which files its snapshots need, `commit` makes the next version, `verbs/<verb>/` decide and build, `inspect/` and
`check/` look, `table.py` is an open table. The formats do not know each other. `formats/` finds out which one a name
means, by what each answers (`FORMAT`), and opens the table with a storage and an engine. `api.py` is all that the
command line, Airflow tasks and notebooks call about one table; `fleet/` is about many, by `api` and by the lists of
catalogs and folders: patterns, policy files, surveys, maintenance. What stands below the formats knows none: `plan/`
are values that can be printed, saved, compared and refused; `operation/` is the only place where things happen,
`stage -> bind -> commit -> sweep`, journalled, by the rules of its docstring, which keep data safe; `engines/` and
`storage/` are ports; `encoding/` are bytes and columns that both formats share. Others plug in by the entry points
`iceberg_cli.storage`, `iceberg_cli.committers` and `iceberg_cli.formats`.

Whoever watches a run is a listener, a function that gets each event of `plan/events.py` as it happens: what emits knows
none. Progress, `--metrics` and `--log-file` listen in `cli/`, spans are made by `telemetry.py`, below `api`.

A verb is one folder. Its `policy.py` is what an operator can ask for: a frozen dataclass, of whose fields the options
of the command line, the checks of their values, the JSON form and its schema are made. `policy.py`, `rules.py` and
`retention.py` do no input or output, nor does anything in `spec/` and `plan/`; `plan.py` reads what they decide on,
`plan(table, policy, ...) -> Planned`: the plan, which is a value, and what builds its files. `testing/` is public:
suites for plug-ins, a crash simulator, and writers and readers of tables that share no code with the rest.

What grows with snapshots is a frozen dataclass; what grows with files is an Arrow table or a numpy array.

Where building showed something better than the first design:

- A folder's `__init__.py` holds its port or nothing: what carries a plan out is `operation/apply.py` and a verb's shell
  its `plan.py`, so that whoever imports an outcome or a rule loads only that. The storage of a table that is opened is
  found in `storage/router.py`, below the formats, so that opening needs nothing handed in.
- The rules by which versions of a Delta log go are the protocol's and stand in `delta/spec/log_cleanup.py`: the sweep
  asks them again. What Iceberg metadata beside a Delta table reaches is handed to that table when it is opened.
- Avro is decoded by a bounds-checked numpy decoder of our own that walks many blocks in lockstep. It needs no
  child process with a deadline, and small manifests take a scalar path over the same plan. So DataFusion is not
  needed for reading.
- Reachability is a set of 64-bit hashes of kept paths (`iceberg/reachability/keys.py`), not an anti join in SQL: 8
  bytes a file, and the second look before the sweep costs nothing for manifests that were read in the same run. The
  hash is of the path without scheme and authority, so that two spellings of one object keep it.
- What a run reads of immutable files is kept for the next one (`iceberg/reachability/cache.py`), so a daily job costs
  what the day changed.
- A verb that rewrites has `build` for all tasks of a step, not a function for each file: outputs share the inputs that
  were decoded. A saved plan does not hold that work; carrying it out plans again, bounded by what the file lists.
- The snapshot id is drawn for each attempt: staged entries leave it null and inherit it.
- Engines run pure functions, and neither runs SQL: what the workers of Spark must do, for sets of keys that no one
  process can hold and for the new files, is one more function of the port (`Engine.shuffle`: rows to buckets, then each
  bucket by itself, and a file that is made of one is written where it is made). The local engine has it too.
- Files that go are one table in memory while they are few. Many are put in order and written through a file of this
  machine (`encoding/external_sort.py`, `operation/removal_files.py`), as Parquet parts that plan, journal and sweep
  pass on one by one. So Spark's driver holds a tenth more for 20 million of them than for 2, and a local process 8
  bytes for each.
- Big scans of local disks run in forked processes (`engines/process_pool.py`): threads gain nothing under the
  interpreter's lock.
- A committer first prepares an `Attempt` (new location, content, digest) and then swaps it: the journal records the
  intent with the digest, and `resume` can send the very same swap again while all files that it names are there. One of
  Delta only within the hour: it says when it removed files, and a vacuum would take them at once.
- A REST catalog writes the metadata itself: its `Attempt` is the request and has no location. A request whose answer is
  lost may come in at any later time, so it is a conflict only once a ref that it asserts has moved, and until then
  unknown, however often the table moves. Where the server drops with it a tag that we had not seen, every file is kept:
  the journal has `Committed.withheld`, and no operation of the table deletes while that one is open.
- A server writes back only what its own model of metadata has: a table that it shows without fields which the table's
  file has is read, and not committed to.
- An open operation is finished, not rolled back: its plan was confirmed, and planning again may only remove less. So
  what comes due by others' commits meanwhile is kept, and an expiry that a catalog takes only in parts
  (`operation/parts.py`) is several operations, each bounded by what was shown of the whole.
- A table's folder opened in another place than its metadata says is a copy: it is read there and never written to.
- A Delta commit that lost to another is not merged with the winners by rules of its own: the verb plans again on the
  winners' version, bounded by what was shown, so one set of rules decides. Reading the winners costs their size alone.
- A Delta verb that writes checkpoints commits nothing: its step has tasks and no change.
- What writes Delta tables for tests and benchmarks (`testing/delta_writer.py`) is functions, not a class: a commit of a
  Delta log needs nothing of the one before it, as a snapshot of Iceberg does.
- What happens in a run is passed to listeners at once, by classes of `plan/events.py`: the display of progress, the log
  file, the metrics file and spans are made of the same events, and nothing below the command line knows them.
- A glance at metadata (`plan/decision.py`) tells a survey what expires, of a Delta log when that may be something else;
  it is kept with what decisions by it would free, so that a table whose pointer did not move is not read again: a
  metadata file in a catalog, else a listing of the log or of the metadata files. Nothing is planned on it.
- Tables are worked on side by side in threads, each with connections to catalogs of its own, and then no process is
  forked. What may be deleted by all of them together is one `DeletionAllowance`.
- Text for people is parts with typed values (`plan/inspection.py`): formats say what stands where and what a value is,
  and `cli/render/layout.py` alone decides by the width what a time or a path looks like.
- Local files go through plain system calls instead of fsspec: `link`, `fsync` and unlinking inside an opened folder
  are what the safety rules stand on.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli import delta, errors, iceberg
    from iceberg_cli.api import Plan, Table, new_runtime, open_table
    from iceberg_cli.plan.report import Report

__all__ = [
    "DISTRIBUTION",
    "Plan",
    "Report",
    "Table",
    "__version__",
    "delta",
    "errors",
    "iceberg",
    "new_runtime",
    "open_table",
]

DISTRIBUTION = "iceberg-table-maintenance"
__version__ = "0.1.0"
_MODULE_OF = {
    **dict.fromkeys(("Plan", "Table", "new_runtime", "open_table"), "iceberg_cli.api"),
    "Report": "iceberg_cli.plan.report",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is used: whoever needs a part of the package loads only that."""
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in __all__:
        return import_module(f"iceberg_cli.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
