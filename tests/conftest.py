"""Fixtures that several test modules use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers import postgres_database, postgres_server, s3_server
from tests.spark_tables.clusters import cluster, server
from tests.spark_tables.sessions import hadoop, lake, lakes, spark_session

__all__ = [
    "cluster",
    "hadoop",
    "lake",
    "lakes",
    "postgres_database",
    "postgres_server",
    "s3_server",
    "server",
    "spark_session",
]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What commands learn is kept in a folder of the tests', not in the developer's."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n 2 --dist loadgroup` a module stays on one worker, and so do all tests that share a Spark.

    In the order of the files a process has the engine's session before the live tests ask for Spark, and they share it.
    """
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        shared = next((name for name, fixtures in _SHARED.items() if asked & fixtures), None)
        item.add_marker(pytest.mark.xdist_group(shared or item.nodeid.partition("::")[0]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop where groups would do nothing, as with pytest 9.2: each worker would start every Spark."""
    grouped = getattr(session.config.option, "loadgroup", False)
    if grouped and not all("@" in item.nodeid for item in session.items):
        pytest.exit("--dist loadgroup has no effect with these versions of pytest and pytest-xdist", 3)


_SHARED = {
    "spark": {"spark_session", "lakes"},
    "cluster": {"cluster", "server"},
    "delta": {"delta_lake"},
}
