"""Fixtures that several test modules use."""

from __future__ import annotations

import pytest

from tests.servers import postgres_database, postgres_server, s3_server

__all__ = ["postgres_database", "postgres_server", "s3_server"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n 2 --dist loadgroup` a module stays on one worker, and so do all tests that share Spark."""
    for item in items:
        module = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group("live" if "/live/" in module else module))
