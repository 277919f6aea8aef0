"""A library that is not installed: each error names the extra that brings it and all else that is needed beside it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from iceberg_cli.errors import how_to_install
from iceberg_cli.iceberg.catalogs.rest.connection import RestConnection
from tests.cli.running import iceberg_cli
from tests.paths import ROOT
from tests.test_names import BUILD

EXTRAS: Mapping[str, list[str]] = BUILD["project"]["optional-dependencies"]


@dataclass(frozen=True, kw_only=True)
class Use:
    """What needs an extra.

    Args:
        words: of a command line that needs it; `{table}` is a table, `{folder}` a folder for files.
        variables: of its environment.
        package: of ours that imports the modules, and is imported again.
        modules: by their first names.
    """

    words: Sequence[str]
    package: str
    modules: Sequence[str]
    variables: Mapping[str, str]


def a_catalog(kind: str, *modules: str, **properties: str) -> Use:
    variables = {f"PYICEBERG_CATALOG__C__{name.upper()}": text for name, text in properties.items()}
    package = f"iceberg_cli.iceberg.catalogs.{kind}"
    return Use(words=["inspect", "c.n.t"], package=package, modules=modules, variables=variables)


def a_storage(name: str, *modules: str, path: str) -> Use:
    return Use(words=["inspect", path], package=f"iceberg_cli.storage.{name}", modules=modules, variables={})


def a_command(package: str, *modules: str, words: Sequence[str]) -> Use:
    return Use(words=words, package=package, modules=modules, variables={})


IMPL = {"py-catalog-impl": "pyiceberg.catalog.noop.NoopCatalog"}
PATH_ON_AZURE = "abfss://c@account.dfs.core.windows.net/t"
USES: Sequence[tuple[str, Use]] = (
    ("s3", a_storage("s3", "s3fs", "aiobotocore", "botocore", "aiohttp", path="s3://b/t")),
    ("gcs", a_storage("gcs", "gcsfs", "google", "yarl", "aiohttp", "requests", path="gs://b/t")),
    ("azure", a_storage("azure", "azure", "azure.storage", "azure.identity", "requests", path=PATH_ON_AZURE)),
    ("glue", a_catalog("glue", "boto3", "botocore", type="glue")),
    ("hive", a_catalog("hive", "hive_metastore", "thrift", type="hive", uri="thrift://127.0.0.1:1")),
    ("rest", a_catalog("rest", "pyiceberg", "requests", "pydantic", "urllib3", uri="http://127.0.0.1:1")),
    ("rest", a_catalog("python_class", "pyiceberg", **IMPL)),
    ("sql", a_catalog("sql", "sqlalchemy", uri="sqlite:////nowhere")),
    (
        "spark",
        a_command("iceberg_cli.engines.spark.startup", "pyspark", words=["plan", "{table}", "--engine", "spark"]),
    ),
    (
        "report",
        a_command("no", "jinja2", "matplotlib", words=["plan", "{table}", "--report", "{folder}/p.html"]),
    ),
    (
        "order",
        a_command("no", "duckdb", words=["rewrite-data-files", "{table}", "--strategy", "sort", "--sort-by", "id"]),
    ),
    ("import", a_command("no", "yaml", words=["policy", "import", "{folder}/p.yaml", "--from", "iceops"])),
    (
        "rest",
        a_command("no", "strictyaml", words=["inspect", "c.n.t", "--catalog-config", "{folder}/.pyiceberg.yaml"]),
    ),
)  # fmt: skip
CASES = [(extra, use, module) for extra, use in USES for module in use.modules]
# Without these the program does less, and says nothing: reads of S3 are slower, no trace is written.
NO_ERROR = {"obstore", "opentelemetry"}
# pyspark and jinja2 cannot be imported without these.
ALONG = {"py4j", "markupsafe"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    assert iceberg_cli("demo", folder / "demo", "--quiet").code == 0
    return folder / "demo" / "db" / "events"


@pytest.mark.parametrize(
    ("extra", "use", "module"), CASES, ids=[f"{extra} {module}" for extra, _, module in CASES]
)
def test_a_missing_module_leads_to_the_extra_that_brings_all_that_is_needed(
    extra: str, use: Use, module: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yaml").write_text("a: b\n")
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  c:\n    type: rest\n")
    for name in ("HOME", "PYICEBERG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name, text in use.variables.items():
        monkeypatch.setenv(name, text)
    for name in list(sys.modules):
        if f"{name}.".startswith(f"{use.package}."):
            monkeypatch.delitem(sys.modules, name)
        if f"{name}.".startswith(f"{module}."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    ran = iceberg_cli(*(word.format(table=table, folder=tmp_path) for word in use.words))
    assert ran.code == 2, ran.err
    assert module in ran.err.splitlines()[0]
    step = f"Install all that is needed with: pip install 'iceberg-table-maintenance[{extra}]'"
    assert ran.err.splitlines()[-1].startswith(step), ran.err


def test_each_extra_brings_its_modules() -> None:
    distributions = packages_distributions()
    for extra, use in USES:
        brought = brought_by(EXTRAS[extra])
        for module in use.modules:
            names = {canonicalize_name(name) for name in distributions[module.partition(".")[0]]}
            assert names & brought, (extra, module)


def brought_by(requirements: Sequence[str]) -> set[str]:
    """The names of all distributions that some requirements bring, with those that they need themselves."""
    found: set[tuple[str, str]] = set()
    left = [(Requirement(each), "") for each in requirements]
    while left:
        requirement, extra = left.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for own in ("", *requirement.extras):
            if (name, own) not in found:
                found.add((name, own))
                left += [(Requirement(each), own) for each in requires(name) or ()]
    return {name for name, _ in found}


def test_no_other_module_is_imported_that_only_an_extra_brings() -> None:
    always = {Requirement(each).name for each in BUILD["project"]["dependencies"]}
    known = {module.partition(".")[0] for _, use in USES for module in use.modules}
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "iceberg_cli").rglob("*.py")
        if "testing" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        for name in names_of(node)
    }
    others = imported - set(sys.stdlib_module_names) - {"iceberg_cli", "iceberg_table_maintenance"} - always
    assert others - known == NO_ERROR | ALONG
    assert known <= others


def names_of(node: ast.AST) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


@pytest.mark.parametrize(
    ("module", "extra", "properties"),
    [
        ("boto3", "glue", {"rest.sigv4-enabled": "true"}),
        ("google", "gcs", {"auth": {"type": "google", "google": {}}}),
        ("azure.identity", "azure", {"auth": {"type": "entra", "entra": {}}}),
    ],
)
def test_what_authenticates_requests_to_a_catalog_is_named_too(
    module: str, extra: str, properties: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Exception, match="Cannot open the catalog c") as refused:
        RestConnection("c", {"uri": "http://127.0.0.1:1", **properties})
    assert f"'iceberg-table-maintenance[{extra}]'" in getattr(refused.value, "next_step", "")


@pytest.mark.parametrize(
    ("module", "requirement"),
    [
        ("oracledb", "oracledb"),
        ("psycopg2", "psycopg2-binary"),
        ("puresasl.client", "pyiceberg[hive-kerberos]>=0.12"),
    ],
)
def test_what_no_extra_brings_is_named_itself(module: str, requirement: str) -> None:
    assert how_to_install(ModuleNotFoundError(name=module)) == f"Install it with: pip install '{requirement}'"
