"""A storage says of itself what others must know of it: a package's in one folder, as those here."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from iceberg_cli.engines.spark import startup
from iceberg_cli.errors import UsageError
from iceberg_cli.storage.conditional_create import is_known, service_of, unwritable_reason
from iceberg_cli.storage.credential_options import with_environment, with_options
from iceberg_cli.storage.declarations import BUILT_IN, declaration_of, declarations
from iceberg_cli.storage.redaction import redact, secrets_of
from iceberg_cli.storage.router import open_storage
from tests.installed import install
from tests.paths import ROOT

PACKAGE = """
import re

from iceberg_cli.storage.declarations import KnownService, StorageDeclaration
from iceberg_cli.testing.memory_storage import MemoryStorage


class VaultStorage(MemoryStorage):
    declaration = StorageDeclaration(
        title="the vault",
        schemes=("vault",),
        spellings=("vault",),
        adapter=("vault_storage", "VaultStorage"),
        options="vault_storage.options",
        requirements=(("vaultlib", "vaultlib>=3"),),
        workers_need=frozenset({"vaultlib"}),
        secret_words=("vault-pin",),
        signed_parameters=("vault-seal",),
        services=(KnownService("The vault", "https://vault.example.com/creates", re.compile("vault[0-9]+")),),
    )

    def __init__(self, options):
        super().__init__()

    def endpoint(self, path):
        return "https://user:pin@vault7/x/"
"""
OPTIONS = """
from iceberg_cli.storage.declarations import StorageOptions


class VaultOptions(StorageOptions):
    def from_environment(self, options, environment):
        return {"vault.pin": environment["VAULT_PIN"], **options} if "VAULT_PIN" in environment else dict(options)

    def replaced_by(self, options, over):
        return {"vault.pin", "vault.name"} if "vault.name" in over else ()

    def unwritable_reason(self, options, *, takes_soft_deletions):
        return "the vault is shut" if options.get("vault.shut") else None


OPTIONS = VaultOptions()
"""


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder in the storage of an installed package, which is in use."""
    entry = "vault = vault_storage:VaultStorage"
    install(tmp_path, monkeypatch, "vault_storage", group="iceberg_cli.storage", entry=entry, source=PACKAGE)
    (tmp_path / "vault_storage" / "options.py").write_text(OPTIONS)
    monkeypatch.delitem(sys.modules, "vault_storage.options", raising=False)
    monkeypatch.setattr("iceberg_cli.storage.declarations._brought", {})
    storage = open_storage()
    with pytest.raises(FileNotFoundError):
        storage.read("vault://cellar/t/none")
    return "vault://cellar/t"


def test_what_a_package_declares_is_known_as_what_is_built_in(vault: str) -> None:
    own = declaration_of(vault)
    assert own is not None
    assert own in declarations()
    assert redact("see vault-pin=4711 at https://h/x?vault-seal=abcd") == (
        "see vault-pin=*** at https://h/x?vault-seal=***"
    )
    assert secrets_of({"a.vault-pin": "4711", "b": "c"})[0] == "4711"
    assert with_environment({}, {"VAULT_PIN": "4711"})["vault.pin"] == "4711"
    assert with_options({"vault.pin": "old", "x": "y"}, {"vault.name": "new"}) == {
        "x": "y",
        "vault.name": "new",
    }
    assert open_storage({"vault.shut": "1"}).unwritable_reason(vault) == "the vault is shut"  # type: ignore[attr-defined]
    service = service_of(vault, open_storage())
    assert service is not None
    assert (service.scheme, service.name, service.is_known) == ("vault", "https://vault7/x", True)
    assert not is_known("vault.example.com", vault)
    assert unwritable_reason(vault) is None
    assert own.workers_need == {"vaultlib"}


def test_a_scheme_that_nothing_declares_is_refused_with_those_that_are_known() -> None:
    assert declaration_of("oss://bucket/t") is None
    with pytest.raises(UsageError, match="no storage for the scheme oss") as refused:
        open_storage().stat("oss://bucket/t")
    assert refused.value.next_step.startswith(
        "Known are local paths, file:, s3:, gs:, abfss:, wasbs: and hdfs:"
    )


def test_every_storage_that_is_built_in_is_a_folder_with_its_declaration() -> None:
    folders = {path.parent.name for path in (ROOT / "iceberg_cli" / "storage").glob("*/__init__.py")}
    assert folders == set(BUILT_IN)
    schemes = [scheme for each in declarations() for scheme in each.schemes]
    assert sorted(schemes) == ["abfss", "file", "gs", "hdfs", "s3", "viewfs"]


@pytest.mark.parametrize(
    "place",
    ["storage/router.py", "storage/conditional_create.py", "storage/redaction.py", "errors.py", "engines"],
)
def test_no_scheme_is_named_where_all_storages_are_worked_with(place: str) -> None:
    """But that of local disks, which are seen by one machine alone."""
    schemes = {name for each in declarations() for name in (*each.schemes, *each.spellings)} - {"file"}
    named = re.compile(rf"\b(?:{'|'.join(schemes)})(?::|$)")
    path = ROOT / "iceberg_cli" / place
    for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        tree = ast.parse(module.read_text())
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and isinstance(node.body[0], ast.Expr)
        }
        found = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
        ]
        assert [text for text in found if named.search(text)] == [], module


def test_workers_of_spark_need_what_the_storage_declares(vault: str) -> None:
    assert startup.needed_for("s3a://b/t") == {"s3fs"}
    assert startup.needed_for("gs://b/t") == {"gcsfs"}
    assert startup.needed_for("abfs://c@a.dfs.core.windows.net/t") == {"azure.identity", "azure.storage.blob"}
    assert (
        startup.needed_for("/data/t")
        == startup.needed_for("hdfs://n/t")
        == startup.needed_for("oss://b/t")
        == set()
    )
    assert startup.needed_for(vault) == {"vaultlib"}


def test_what_a_package_lacks_is_one_clear_error(vault: str, tmp_path: Path) -> None:
    source = (tmp_path / "vault_storage" / "__init__.py").read_text()
    made = "    def __init__(self, options):\n        import vaultlib.core\n"
    (tmp_path / "vault_storage" / "__init__.py").write_text(
        source.replace("    def __init__(self, options):\n", made)
    )
    del sys.modules["vault_storage"]
    with pytest.raises(UsageError, match="vaultlib is not installed") as refused:
        open_storage().stat(f"{vault}/f")
    assert refused.value.next_step == "Install it with: pip install 'vaultlib>=3'"
    (tmp_path / "vault_storage" / "__init__.py").write_text("import vaultlib\n")
    del sys.modules["vault_storage"]
    with pytest.raises(UsageError, match="vaultlib is not installed"):
        open_storage().stat(f"{vault}/f")
