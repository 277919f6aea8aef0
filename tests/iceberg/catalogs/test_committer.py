"""The port `Committer`: what forbids a commit or a deletion has no answer by default."""

from __future__ import annotations

import inspect

import pytest

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.iceberg.catalogs.files.committer import FilesystemCommitter, PinnedCommitter
from iceberg_cli.iceberg.catalogs.glue.committer import GlueCommitter
from iceberg_cli.iceberg.catalogs.object_store.committer import ObjectStoreCommitter
from iceberg_cli.iceberg.catalogs.read_only import ReadOnlyCommitter
from iceberg_cli.iceberg.catalogs.rest.committer import RestCommitter
from iceberg_cli.iceberg.catalogs.sql.committer import SqlCommitter
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.crash.catalogs import ServingCommitter, SimCommitter
from iceberg_cli.testing.memory_catalog import MemoryCommitter

INTERLOCKS = (
    "read_only_reason",
    "takes_late_requests",
    "hidden_snapshots_reason",
    "lost_fields_reason",
    "prove",
)
COMMITTING = (
    FilesystemCommitter, ObjectStoreCommitter, GlueCommitter, RestCommitter, SqlCommitter, ServingCommitter,
    SimCommitter, MemoryCommitter,
)  # fmt: skip


@pytest.mark.parametrize("name", INTERLOCKS)
def test_an_interlock_is_answered_by_every_committer_and_never_by_default(name: str) -> None:
    assert getattr(getattr(Committer, name), "__isabstractmethod__", False)
    for each in (*COMMITTING, ReadOnlyCommitter):
        owner = next(owner for owner in each.__mro__ if name in vars(owner))
        assert owner is not Committer
    missing = type("Missing", (MemoryCommitter,), {name: getattr(Committer, name)})
    with pytest.raises(TypeError, match=name):
        missing(None, "t", None)


@pytest.mark.parametrize("name", ["takes_late_requests", "hidden_snapshots_reason", "prove"])
def test_who_compares_and_swaps_still_says_what_only_the_catalog_knows(name: str) -> None:
    assert name in SwapCommitter.__abstractmethods__


def test_every_committer_that_commits_is_whole() -> None:
    assert [each.__name__ for each in COMMITTING if inspect.isabstract(each)] == []


def test_what_is_read_only_is_refused_before_anything_is_tried() -> None:
    committer = PinnedCommitter("/t/metadata/v1.metadata.json", open_storage())
    with pytest.raises(Refused, match="is one metadata file"):
        committer.prove("/t/probe", {})
