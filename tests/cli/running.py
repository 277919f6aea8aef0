"""Runs the command line, in this process or in one of its own, and keeps what it says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from iceberg_cli.cli.app import run
from tests.paths import ROOT

JSON = ("--format", "json")

SCHEMAS: dict[str, Any] = {
    schema["$id"]: schema
    for file in (files("iceberg_cli") / "schemas").iterdir()
    for schema in [json.loads(file.read_text())]
}
_REGISTRY = Registry().with_resources(
    (name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)


def validate(document: dict[str, Any]) -> None:
    """Hold a document against its JSON Schema."""
    schema = SCHEMAS[document["schema"]]
    jsonschema.Draft202012Validator(schema, registry=_REGISTRY).validate(document)


@dataclass(frozen=True)
class Ran:
    """One command line: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one document on standard output, which its JSON Schema describes; anything else is an error."""
        document: dict[str, Any] = json.loads(self.out)
        validate(document)
        if document["schema"].startswith("iceberg-cli/error/"):
            assert document["message"], "an error says what cannot be done"
            assert document["state"], "an error says what state things are in"
            assert document["next"], "an error says what to do"
        return document


def iceberg_cli(*arguments: object) -> Ran:
    """Run `iceberg-cli` with these arguments; standard input, output and error are no terminals."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def process(*arguments: object, redirection: str = "", python: Sequence[str] = (), **options: Any) -> Ran:
    """Run the program in a process of its own.

    Args:
        arguments: its command line.
        redirection: of its streams, as a shell has it; output and errors are kept, and standard input has nothing.
        python: options of the interpreter.
        options: of `subprocess.run`.
    """
    command = [sys.executable, *python, "-m", "iceberg_cli", *map(str, arguments)]
    if redirection:
        command = ["/bin/sh", "-c", f'"$@" {redirection}', "sh", *command]
    options = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "errors": "replace", **options}
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, **options)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def expire(table: str, *arguments: object) -> Ran:
    """`expire-snapshots TABLE ... --yes --format json`, which succeeds."""
    ran = iceberg_cli("expire-snapshots", table, *arguments, "--yes", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran


def dry(table: str, *arguments: object) -> dict[str, Any]:
    """The plan of `expire-snapshots TABLE ... --dry-run --format json`, which succeeds."""
    ran = iceberg_cli("expire-snapshots", table, *arguments, "--dry-run", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def going(plan: dict[str, Any], subject: str = "snapshot") -> set[str]:
    """Ids of what a plan removes."""
    return {v["id"] for v in plan["verdicts"] if v["subject"] == subject and not v["keep"]}


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system in memory; only root may have one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    if not done:
        pytest.skip("only root may mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, where this process has them."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
