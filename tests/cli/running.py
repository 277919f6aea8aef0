"""Runs the command line in this process and keeps what it says."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

from iceberg_cli.cli import run


@dataclass(frozen=True)
class Ran:
    """One command line: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one document on standard output; anything else there is an error."""
        document: dict[str, Any] = json.loads(self.out)
        return document


def iceberg_cli(*arguments: object) -> Ran:
    """Run `iceberg-cli` with these arguments; standard output and error are no terminals."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def expire(table: str, *arguments: object) -> Ran:
    """`expire-snapshots TABLE ... --yes --format json`, which succeeds."""
    ran = iceberg_cli("expire-snapshots", table, *arguments, "--yes", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran
