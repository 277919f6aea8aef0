"""Where there are no credentials nothing is tried again: the error says where they were looked for."""

from __future__ import annotations

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
