"""Names of storage options: those that storages read, and that Iceberg and PyIceberg have, are known; slips are not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyiceberg.io
import pytest

from iceberg_cli.storage import option_names
from iceberg_cli.storage.declarations import StorageDeclaration
from iceberg_cli.storage.option_names import unknown_options
from tests.cli.running import iceberg_cli
from tests.paths import ROOT


def test_what_a_storage_reads_is_known() -> None:
    sources = [
        path.read_text()
        for path in (ROOT / "iceberg_cli/storage").rglob("*.py")
        if path.stem != "declaration"
    ]
    names = {
        name
        for text in sources
        for name in re.findall(r'"((?:s3|client|gcs|adls|hdfs)\.[a-z0-9_.-]+)"', text)
    }
    assert {"s3.sse.md5", "gcs.user-project", "adls.anon", "hdfs.user", "client.access-key-id"} <= names
    assert unknown_options(names) == {}


def test_what_pyiceberg_gives_its_storages_is_known() -> None:
    constants = [
        text for name, text in vars(pyiceberg.io).items() if name.isupper() and isinstance(text, str)
    ]
    names = [text for text in constants if re.match(r"(s3|client|adls|gcs|hdfs)\.", text)]
    assert (len(names) > 50, unknown_options(names)) == (True, {})


@pytest.mark.parametrize(
    "name",
    [
        "header.X-Tenant", "s3.delete.tags.Old", "s3.access-points.lake", "adls.sas-token.lake.dfs.core.windows.net",
        "adls.account-key.lake", "rest.sigv4-enabled", "io-impl", "s3.endpoint", "key",
        "gcs.channel.read.chunk-size-bytes",
    ],
)  # fmt: skip
def test_names_that_the_specifications_have_and_families_are_known(name: str) -> None:
    assert unknown_options([name]) == {}


@pytest.mark.parametrize(
    "name", ["s3.endpont", "S3.endpoint", "s3.delete.tags", "adls.sas-tokn.lake", "s3", ""]
)
def test_slips_are_not_known(name: str) -> None:
    assert list(unknown_options([name, "s3.region"])) == [name]


@pytest.mark.parametrize(
    ("declared", "unknown"),
    [
        (None, []),
        (("vault.",), ["s3.endpont"]),
        (("s3.endpont",), ["vault.role"]),
        ((), []),
    ],
)
def test_an_installed_storage_has_the_options_that_it_names_and_any_where_it_names_none(
    declared: tuple[str, ...] | None, unknown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by = SimpleNamespace()
    if declared is not None:
        made_by.declaration = StorageDeclaration(
            title="a vault", schemes=("vault",), spellings=("vault",), adapter=("", ""), option_names=declared
        )
    entry: Any = SimpleNamespace(load=lambda: made_by)
    entries: Mapping[str, EntryPoint] = {"vault": entry}
    monkeypatch.setattr(option_names, "entry_points_of", lambda _: entries)
    assert list(unknown_options(["s3.endpont", "vault.role"])) == unknown


NOWHERE = (
    "inspect",
    "s3://bucket/t",
    "--storage-option",
    "s3.endpoint=http://127.0.0.1:1",
    "--storage-option",
)


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        ("s3.endpont=x", "no storage here knows s3.endpont. Did you mean s3.endpoint?"),
        ("S3.Region=x", "no storage here knows S3.Region. Did you mean s3.region?"),
        ("zzz.q=x", "no storage here knows zzz.q."),
        ("wJalrXUtnFEMIK7MDENGbPxRfiCY==", "no storage here knows the name of one of the options."),
        ("0123456789abcdef0123456789abcdef==", "no storage here knows the name of one of the options."),
    ],
)
def test_a_slip_is_one_warning_with_the_nearest_name_and_no_value(
    given: str, warned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    ran = iceberg_cli(*NOWHERE, given, "--format", "json")
    assert ran.code == 2  # without credentials
    assert ran.json["message"].startswith("Cannot list s3://bucket/t")
    assert ran.err == f"warning: --storage-option: {warned}\n"


def test_quiet_and_known_options_have_no_warning() -> None:
    assert "warning" not in iceberg_cli(*NOWHERE, "s3.endpont=x", "--quiet").err
    assert "warning" not in iceberg_cli(*NOWHERE, "s3.region=x").err
