"""Markers in the place of secrets, and the look for them in all that commands show and leave."""

from __future__ import annotations

import logging
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.storage import backoff
from tests.cli.running import iceberg_cli

EXPIRE: Final = (
    "expire-snapshots",
    "TABLE",
    "--older-than=0s",
    "--retain-last=1",
    "--unsafe-allow-root=s3://b/t",
)
ICEBERG_COMMANDS: Final = (
    ("inspect", "TABLE"),
    ("inspect", "TABLE", "--check", "--verbose"),
    ("inspect", "TABLE", "--format=json"),
    ("plan", "TABLE"),
    (*EXPIRE, "--dry-run", "--verbose"),
    ("plan", "TABLE", "expire-snapshots", *EXPIRE[2:], "--output=PLAN"),
    ("rewrite-manifests", "TABLE", "--yes", "--format=json"),
    ("apply", "PLAN", "--yes"),
    (*EXPIRE, "--yes", "--format=json"),
    (*EXPIRE, "--yes"),
    ("resume", "TABLE", "--list"),
    ("resume", "TABLE"),
    ("merge-dvs", "TABLE", "--yes"),
    ("upgrade-v3", "TABLE", "--yes", "--verbose"),
    ("assign-row-ids", "TABLE", "--yes"),
)


@dataclass
class Markers:
    """The secrets of one case, by where they are: each a text of its own, with no word in it that tells it for one."""

    by_place: dict[str, str] = field(default_factory=dict)

    def at(self, place: str) -> str:
        return self.by_place.setdefault(place, f"zq{uuid.uuid4().hex[:20]}")

    def found_in(self, text: str) -> list[str]:
        return [place for place, marker in self.by_place.items() if marker in text]


@dataclass(kw_only=True)
class Watch:
    """Commands on one table, none of which shows or leaves a marker.

    Args:
        markers: of the case.
        folder: has the folders `given`, of files with markers in them, `left`, and others where commands leave files.
        caplog: of the test.
        table: how a command names it.
        properties: of the catalog `prod`; none: there is no catalog.
        options: of every command.
    """

    markers: Markers
    folder: Path
    caplog: pytest.LogCaptureFixture
    table: str
    properties: dict[str, object] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)

    def run(self, *command: str) -> int:
        """Run a command, in which TABLE and PLAN stand for the table and a plan's file; its exit code."""
        plan = str(self.folder / "left" / "plan.json")
        arguments = [self.table if each == "TABLE" else each.replace("PLAN", plan) for each in command]
        self.caplog.clear()
        ran = iceberg_cli(*arguments, *self.given(), *self.options, *self._files(command[0]))
        shown = {"output": ran.out, "errors": ran.err, "logs": self.caplog.text, **dict(self.left())}
        for where, text in shown.items():
            assert self.markers.found_in(text) == [], f"{command}: {where}: {text[:3000]}"
        return ran.code

    def _files(self, command: str) -> list[str]:
        """The options for the log file and, of commands that write, the metrics file."""
        left = self.folder / "left"
        metrics = [] if command in {"inspect", "plan"} else [f"--metrics={left / 'run.prom'}"]
        return [f"--log-file={left / 'log'}", *metrics]

    def trace_of(self, call: Callable[[str], object]) -> str:
        """The traceback of the error that a call of the Python API raises, else nothing.

        Args:
            call: gets the path of the catalogs' configuration.
        """
        self.given()
        try:
            call(str(self._config))
        except IcebergCliError as error:
            text = trace(error)
            assert self.markers.found_in(text) == [], text
            return text
        return ""

    def given(self) -> list[str]:
        """The options that name the configuration, which is written anew."""
        if not self.properties:
            return []
        self._config.write_text(_yaml({"catalog": {"prod": self.properties}}))
        return ["--catalog-config", str(self._config)]

    @property
    def _config(self) -> Path:
        return self.folder / "given" / "pyiceberg.yaml"

    def left(self) -> Iterator[tuple[str, str]]:
        """All that commands left so far: names and contents."""
        for path in self.folder.rglob("*"):
            if path.is_file() and self.folder / "given" not in path.parents:
                yield str(path), path.read_bytes().decode("latin-1")


def trace(error: BaseException) -> str:
    """The traceback of an error, with those that it was raised from."""
    return "".join(traceback.format_exception(error))


def _yaml(value: object, indent: str = "") -> str:
    if not isinstance(value, dict):
        return f" {value}\n"
    return "\n" * bool(indent) + "".join(
        f"{indent}{key}:{_yaml(each, indent + '  ')}" for key, each in value.items()
    )


def set_up_a_case(folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The folders of a `Watch`, and the cache among them; all that we log is kept, and S3 is tried again at once."""
    for name in ("given", "left", "cache"):
        (folder / name).mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(backoff, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(backoff, "_FIRST_THROTTLED_WAIT_S", 0.001)
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "iceberg_cli")


def secret_properties(markers: Markers) -> dict[str, object]:
    """Of a catalog, for the storages of all services, and of names that nobody knows."""
    at = markers.at
    return {
        "s3.secret-access-key": at("key in the configuration"),
        "s3.session-token": at("session in the configuration"),
        "header.X-Secret": at("a header in the configuration"),
        "gcs.oauth2.token": at("token of Google in the configuration"),
        "adls.client-secret": at("secret of Azure in the configuration"),
        "adls.connection-string": at("connection string in the configuration"),
        "s3.sse.key": at("key of encryption"),
        "unknown.password": at("a password of nobody"),
        "header.Cookie": at("a cookie"),
        "header.X-Signature": at("another header"),
        "s3.proxy-uri": f"http://user:{at('password of a proxy of S3')}@127.0.0.1:9",
        "hf.token": at("token of another service"),
        "client.secret-access-key": at("key of all clients"),
        "client.session-token": at("session of all clients"),
    }


def give_secrets(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets in variables, options and files that every command of a case is given."""
    at = watch.markers.at
    for name, value in {
        "AWS_ACCESS_KEY_ID": "environment",
        "AWS_SECRET_ACCESS_KEY": at("AWS_SECRET_ACCESS_KEY"),
        "AWS_SESSION_TOKEN": at("AWS_SESSION_TOKEN"),
        "PYICEBERG_CATALOG__OTHER__TOKEN": at("the token of another catalog"),
        "PYICEBERG_CATALOG__PROD__HEADER__X_API_KEY": at("a header by the environment"),
        "PYICEBERG_CATALOG__PROD__ADLS__ACCOUNT_KEY": at("a key by the environment"),
        "HTTPS_PROXY": f"http://user:{at('password of a proxy')}@127.0.0.1:9",
        "OPTION_OF_A_TEST": at("an option by the environment"),
    }.items():
        monkeypatch.setenv(name, value)
    file = watch.folder / "given" / "option"
    file.write_text(at("an option by a file"))
    watch.options += [
        "--storage-option=adls.sas-token=" + at("an option"),
        f"--storage-option=adls.account-key=@{file}",
        "--storage-option=gcs.token=env:OPTION_OF_A_TEST",
    ]
