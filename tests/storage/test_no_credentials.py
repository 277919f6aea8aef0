"""Where there are no credentials nothing is tried again: the error says where they were looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.running import iceberg_cli


def test_an_s3_bucket_without_credentials_is_an_error_of_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    ran = iceberg_cli("inspect", "s3://bucket/table", "--storage-option", "s3.endpoint=http://127.0.0.1:1")
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert lines[0] == "error: Cannot list s3://bucket/table/_delta_log: there are no credentials"
    assert lines[1].startswith("Looked for: s3.access-key-id, AWS_ACCESS_KEY_ID, the profile of AWS_PROFILE")
    assert "again" not in ran.err


@pytest.fixture
def without_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Neither variables of Azure nor the login of a program."""
    for name in [name for name in os.environ if name.startswith(("AZURE_", "IDENTITY_", "MSI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return monkeypatch


AZURE = "abfss://lake@account.dfs.core.windows.net/table"


@pytest.mark.usefixtures("without_azure")
def test_an_azure_container_without_credentials_is_an_error_of_usage() -> None:
    ran = iceberg_cli("inspect", AZURE)
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert lines[0] == f"error: Cannot list {AZURE}/_delta_log: there are no credentials"
    assert lines[1].startswith(
        "Looked for: adls.account-key, adls.sas-token, adls.connection-string, a service"
    )
    assert "AZURE_STORAGE_CONNECTION_STRING, a managed identity, the login of az" in lines[1]
    assert len(lines) == 2
    assert "again" not in ran.err


@pytest.mark.deep  # Azure's client waits before it asks again
def test_a_principal_that_cannot_be_asked_for_a_token_is_no_lack_of_credentials(
    without_azure: pytest.MonkeyPatch,
) -> None:
    for name, text in (
        ("TENANT_ID", "00000000-0000-0000-0000-000000000000"), ("CLIENT_ID", "c"), ("CLIENT_SECRET", "s" * 9),
    ):  # fmt: skip
        without_azure.setenv(f"AZURE_{name}", text)
    without_azure.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1")
    ran = iceberg_cli("inspect", AZURE)
    assert (ran.code, "there are no credentials" in ran.err, "s" * 9 in ran.err) == (16, False, False)
