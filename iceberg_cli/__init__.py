"""Maintain Apache Iceberg and Delta tables. A pure core decides and a thin shell acts.

    cli -> fleet -> api -> formats -> iceberg | delta -> layout -> table -> operation -> engines -> storage -> plan
    -> encoding -> paths, names, errors

A format owns everything that knows it, under the same names: `spec/` reads and writes its files, `reachability` tells
which files its snapshots need, `commit` makes the next version, `verbs/<verb>/` decide and build, `inspect/` and
`check/` look, `table.py` is an open table. The formats do not know each other. `formats/` finds out which one a name
means, by what each answers (`FORMAT`), and opens the table with a storage and an engine. `api/` is all that the
command line, Airflow tasks and notebooks call about one table; `fleet/` is about many, by `api` and by the lists of
catalogs and folders: patterns, policy files, surveys, maintenance, and in `fleet/calls/` what programs call of them.
What stands below the formats knows none: `plan/` are values that can be printed, saved, compared and refused; `table/`
is what every open table is, and which operations of it are open; `layout/` is what they share of writing rows;
`operation/` is the only place where things happen, `stage -> bind -> commit -> sweep`, journalled, by the rules of its
docstring, which keep data safe; in `operation/groups/` many commits of files that are rewritten group by group;
`engines/` and `storage/` are ports; `encoding/` are bytes and columns that both formats share. Others plug in by the
entry points `iceberg_cli.storage`, `iceberg_cli.committers` and `iceberg_cli.formats`.

Whoever watches a run is a listener, a function that gets each event of `plan/events.py` as it happens: what emits knows
none. Progress, `--metrics` and `--log-file` listen in `cli/listening/`, spans are made by `telemetry.py`, below `api`.
A value that a program prints or a notebook shows is `Shown` (`plan/display.py`): its text and page are made by the
command line, in `cli/display/`, which is found by its name then.

A verb is one folder. Its `policy.py` is what an operator can ask for: a frozen dataclass, of whose fields the options
of the command line, the checks of their values, the JSON form and its schema are made. `policy.py`, `rules.py` and
`retention.py` do no input or output, nor does anything in `spec/` and `plan/`; `plan.py` reads what they decide on,
`plan(table, policy, ...) -> Planned`: the plan, which is a value, and what builds its files. A catalog is one folder of
`iceberg/catalogs/`, and in it one object, a `Catalog`, by which its tables are opened and listed; how the pointer of
one moves is its `Committer`. `testing/` is public: suites for plug-ins, a crash simulator, and writers and readers of
tables that share no code with the rest.

What grows with snapshots is a frozen dataclass; what grows with files is an Arrow table or a numpy array.

Why it is so, where building showed something better than the first design, stands in `docs/pages/decisions.md`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli import delta, errors, iceberg
    from iceberg_cli.api import DeletionAllowance, EngineChoice, Plan, Runtime, Table, new_runtime, open_table
    from iceberg_cli.fleet.calls import list_tables, maintain, survey
    from iceberg_cli.fleet.calls.maintenance_result import MaintenanceResult
    from iceberg_cli.fleet.calls.survey_result import SurveyResult
    from iceberg_cli.fleet.calls.table_listing import TableListing
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.fleet.policy_file import PolicyFile as Policy
    from iceberg_cli.plan.report import Report

__all__ = [
    "DeletionAllowance",
    "EngineChoice",
    "ListedTable",
    "MaintenanceResult",
    "Plan",
    "Policy",
    "Report",
    "Runtime",
    "SurveyResult",
    "Table",
    "TableListing",
    "__version__",
    "delta",
    "errors",
    "iceberg",
    "list_tables",
    "maintain",
    "new_runtime",
    "open_table",
    "survey",
]

DISTRIBUTION = "iceberg-table-maintenance"
__version__ = "0.1.0"
_MODULES = ("delta", "errors", "iceberg")
_CALLS = "iceberg_cli.fleet.calls"
_PLACES = {
    **dict.fromkeys(
        ("DeletionAllowance", "EngineChoice", "Plan", "Runtime", "Table", "new_runtime", "open_table"),
        ("iceberg_cli.api", ""),
    ),
    **dict.fromkeys(("list_tables", "maintain", "survey"), (_CALLS, "")),
    "ListedTable": ("iceberg_cli.fleet.listing", ""),
    "MaintenanceResult": (f"{_CALLS}.maintenance_result", ""),
    "Policy": ("iceberg_cli.fleet.policy_file", "PolicyFile"),
    "Report": ("iceberg_cli.plan.report", ""),
    "SurveyResult": (f"{_CALLS}.survey_result", ""),
    "TableListing": (f"{_CALLS}.table_listing", ""),
}  # of public names: the module, and the name there where that is another one


if not TYPE_CHECKING:  # for whom every name would be one

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is used: whoever needs a part of the package loads only that."""
        if name in _PLACES:
            module, name_there = _PLACES[name]
            return getattr(import_module(module), name_there or name)
        if name in _MODULES:
            return import_module(f"iceberg_cli.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
