"""The look before a commit whether the storage lets this user delete; on a service in `test_rest_credentials`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from iceberg_cli.errors import AccessDenied
from iceberg_cli.operation.deletion_probe import check_deletable
from tests.plans import a_plan, a_removal, removals_of


def probed(*paths: str) -> list[str]:
    """The folders in which a name is deleted, before files of these paths go; the names are not those of files."""
    deleted: list[str] = []

    def delete(names: Sequence[str]) -> Mapping[str, str]:
        deleted.extend(names)
        return {}

    check_deletable(a_plan(removals=removals_of(*map(a_removal, paths))), delete, "op-1")
    assert not set(deleted) & set(paths)
    assert {name.rpartition("/")[2].partition(".")[0] for name in deleted} <= {"op-1-probe"}
    return [name.rpartition("/")[0] for name in deleted]


def test_each_folder_of_an_object_store_is_probed_once_and_none_of_a_local_disk() -> None:
    paths = ["s3://b/t/data/p=1/a", "s3://b/t/data/p=1/b", "s3://c/x", "/t/data/a", "gs://d/e/f"]
    assert probed(*paths) == ["gs://d/e", "s3://b/t/data/p=1", "s3://c"]


@pytest.mark.parametrize("ending", ["avro", "metadata.json", "c000.zstd.parquet", "puffin"])
def test_the_name_ends_like_that_of_a_file_that_goes(ending: str) -> None:
    plan, names = a_plan(removals=removals_of(a_removal(f"s3://b/t.x/metadata/f-1.{ending}"))), list[str]()
    check_deletable(plan, lambda found: names.extend(found) or {}, "op-1")  # type: ignore[func-returns-value]
    assert names == [f"s3://b/t.x/metadata/op-1-probe.{ending}"]


@pytest.mark.parametrize("number", [16, 17, 1000])
def test_of_many_folders_some_are_probed_from_the_first_on(number: int) -> None:
    folders = [f"s3://b/t/data/p={each:04}" for each in range(number)]
    found = probed(*(f"{folder}/f" for folder in folders))
    assert found[0] == folders[0]
    assert 8 < len(found) <= 16
    assert max(map(folders.index, found)) > 0.8 * number


def test_a_refusal_names_the_folder_and_the_reason() -> None:
    plan = a_plan(removals=removals_of(a_removal("s3://b/t/data/f")))
    with pytest.raises(AccessDenied, match=r"did not delete in s3://b/t/data, .*: AccessDenied: no") as error:
        check_deletable(plan, lambda names: dict.fromkeys(names, "AccessDenied: no"), "op")
    assert (error.value.exit_code, error.value.state) == (16, "Nothing was changed.")
