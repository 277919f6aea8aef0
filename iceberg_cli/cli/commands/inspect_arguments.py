"""The arguments of `inspect` by format; refusals name the argument that may be meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from iceberg_cli.errors import UsageError

WHAT = (
    "summary",
    "snapshots",
    "refs",
    "history",
    "schemas",
    "specs",
    "properties",
    "manifests",
    "files",
    "deletes",
    "partitions",
    "statistics",
    "metadata-log",
    "row-ids",
    "protocol",
    "features",
)
_OF_DELTA = {
    "protocol": "format_version in the summary",
    "features": "format_version in the summary, or properties",
}
_OF_ICEBERG = {
    "snapshots": "history",
    "refs": "history: a Delta table has versions and no branches",
    "specs": "schemas, which has the partition columns",
    "manifests": "the summary, which has checkpoints and commits",
    "statistics": "files, whose stats they are",
    "metadata-log": "history",
}
_OF_TABLE = ("snapshots", "refs", "history", "schemas", "specs", "properties", "statistics", "metadata-log")


def what_of(table_format: str) -> tuple[str, ...]:
    """The values of WHAT for a table of this format, `iceberg` or `delta`."""
    others = _OF_DELTA if table_format == "iceberg" else _OF_ICEBERG
    return tuple(what for what in WHAT if what not in others)


class StateSelector(NamedTuple):
    """The options that select a snapshot (Iceberg) or a version (Delta) of the table."""

    snapshot_id: int | None
    ref: str | None
    at_ms: int | None
    version: int | None

    def given(self) -> list[str]:
        """The options that are given, as they are spelled."""
        spelled = ("--snapshot", "--ref", "--at", "--version")
        return [option for option, value in zip(spelled, self, strict=True) if value is not None]


def check_iceberg(what: str, named: StateSelector) -> None:
    """Refuse arguments that have no meaning for an Iceberg table.

    Raises:
        UsageError: naming what was meant.
    """
    if what in _OF_DELTA:
        raise UsageError(
            f"{what!r} is about Delta tables, and this is an Iceberg table",
            next_step=f"Look at {_OF_DELTA[what]}.",
        )
    if named.version is not None:
        raise UsageError(
            "--version is about Delta tables",
            next_step="For an Iceberg table: --snapshot ID, --ref NAME or --at TIME.",
        )
    if len(named.given()) > 1:
        raise UsageError("--snapshot, --ref and --at each name the snapshot; give one of them")
    if named.given() and what in _OF_TABLE:
        raise UsageError(
            f"--snapshot, --ref and --at do not change what {what} shows: it is about the whole table"
        )


def check_delta(what: str, named: StateSelector, *, recount: bool) -> None:
    """Refuse arguments that have no meaning for a Delta table.

    Raises:
        UsageError: naming what was meant.
    """
    if what in _OF_ICEBERG:
        raise UsageError(
            f"{what!r} is about Iceberg tables, and this is a Delta table",
            next_step=f"Look at {_OF_ICEBERG[what]}.",
        )
    for option in {"--snapshot", "--ref"}.intersection(named.given()):
        raise UsageError(
            f"{option} is about Iceberg tables", next_step="For a Delta table: --version N or --at TIME."
        )
    if len(named.given()) > 1:
        raise UsageError("--version and --at each name the version; give one of them")
    if named.given() and what == "history":
        raise UsageError("--version and --at do not change what history shows: it is about the whole table")
    if recount:
        raise UsageError(
            "--recount is about the manifests of Iceberg tables",
            next_step="Leave it out: what a Delta summary says is always counted.",
        )


def refuse_beside_check(what: str, *, check: bool, deep: bool, others: Mapping[str, object]) -> None:
    """Refuse arguments that have no meaning together with --check, and --deep without it.

    Raises:
        UsageError: naming the option.
    """
    if deep and not check:
        raise UsageError("--deep is about --check")
    if not check:
        return
    if what != "summary":
        raise UsageError(f"--check is about the whole table, not {what}")
    for option, value in others.items():
        if value:
            raise UsageError(f"{option} does not go with --check")
