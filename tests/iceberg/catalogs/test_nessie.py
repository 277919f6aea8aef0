"""Tables of Nessie's own server: they are shown, manifests are rewritten, and what it cannot take is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.cli.running import Ran, iceberg_cli
from tests.nessie import Nessie
from tests.rest_servers import Fate, Front, configuration_of, pyiceberg_options_of, table_of_integers

pytestmark = pytest.mark.deep

ROWS = [0, 1, 2]


@dataclass(frozen=True)
class Lake:
    """A table of three snapshots, and a front of the server."""

    nessie: Nessie
    front: Front
    theirs: RestCatalog
    name: tuple[str, str]
    config: Path

    @property
    def table(self) -> Table:
        return self.theirs.load_table(self.name)

    def files(self) -> set[str]:
        """All objects of the table, journals too."""
        folder = self.nessie.s3.folder / self.table.location().removeprefix(f"s3://{self.nessie.s3.bucket}/")
        return {str(path) for path in folder.rglob("*") if path.is_file()}

    def run(self, verb: str, *options: object) -> Ran:
        more = ("--catalog-config", self.config, "--no-cache", "--format", "json", "--no-progress")
        return iceberg_cli(verb, f"prod.{'.'.join(self.name)}", *options, *more)


@pytest.fixture
def lake(nessie: Nessie, tmp_path: Path) -> Iterator[Lake]:
    options = {"warehouse": "warehouse", **pyiceberg_options_of(nessie.s3)}
    name = (f"n{uuid.uuid4().hex}", "t")
    theirs = table_of_integers(nessie.uri, name[:1], None, ROWS, options)
    config = tmp_path / "pyiceberg.yaml"
    server = urlsplit(nessie.uri)
    with Front(f"{server.scheme}://{server.netloc}") as front:
        uri = f"{front.uri}{server.path}"
        # Nessie tells its clients where to go on.
        where = f"{server.path}/v1/config?warehouse=warehouse"
        configuration = requests.get(f"{server.scheme}://{server.netloc}{where}", timeout=60).text
        front.contents[where] = configuration.replace(nessie.uri, uri).encode()
        config.write_text(configuration_of("prod", {"uri": uri, **options}))
        yield Lake(nessie, front, theirs, name, config)


def test_what_is_said_of_nessie_is_true(lake: Lake) -> None:
    metadata = lake.table.metadata
    assert [each.snapshot_id for each in metadata.snapshots] == [metadata.current_snapshot_id]
    assert metadata.metadata_log == []
    path = lake.theirs.url(
        "namespaces/{namespace}/tables/{table}", namespace=lake.name[0], table=lake.name[1]
    )
    update = {"action": "remove-snapshots", "snapshot-ids": [metadata.current_snapshot_id]}
    answer = requests.post(path, json={"requirements": [], "updates": [update]}, timeout=60)
    assert answer.status_code == 500
    assert "does not allow external snapshot management" in answer.text


def test_a_table_is_shown_and_checked(lake: Lake) -> None:
    summary = lake.run("inspect")
    assert summary.code == 0
    assert summary.json["metadata_location"] == lake.table.metadata_location
    assert summary.json["read_only"] is None
    files = lake.run("inspect", "files")
    assert sorted(row["file_path"] for row in files.json["rows"]) == sorted(
        task.file.file_path for task in lake.table.scan().plan_files()
    )
    assert lake.run("inspect", "--check", "--deep").code == 0


@pytest.mark.parametrize(
    "command",
    [
        ("expire-snapshots", "--older-than", "0s", "--retain-last", "1"),
        ("expire-snapshots",),
        ("upgrade-v3",),
        ("upgrade-v3", "--with", "assign-row-ids"),
    ],
    ids=" ".join,
)
def test_a_verb_is_refused_with_the_reason_before_anything_is_written(
    lake: Lake, command: tuple[str, ...]
) -> None:
    location, files = lake.table.metadata_location, lake.files()
    refused = lake.run(*command, "--yes")
    assert refused.code == 11
    assert "its catalog is Nessie, which shows only the current snapshot" in refused.json["message"]
    assert refused.json["state"] == "Nothing was changed."
    planned = lake.run(*command, "--dry-run", "--exit-code")
    assert planned.code == 0  # nothing is due that nothing blocks
    assert [reason for reason in planned.json["blocked_by"] if "Nessie" in reason]
    assert (lake.table.metadata_location, lake.files()) == (location, files)
    lake.table.append(pa.table({"i": [3]}))
    assert sorted(lake.table.scan().to_arrow()["i"].to_pylist()) == [*ROWS, 3]


def check_rewritten(lake: Lake, rows: list[int], *, manifests: int = 1) -> None:
    """The rows are there, listed by so many manifests, and no operation is open."""
    table = lake.table
    assert sorted(table.scan().to_arrow()["i"].to_pylist()) == rows
    head = table.current_snapshot()
    assert head is not None
    assert len(head.manifests(table.io)) == manifests
    assert lake.run("inspect", "--check", "--deep").code == 0
    assert lake.run("resume", "--list").json["operations"] == []


def test_manifests_are_rewritten_and_every_file_stays(lake: Lake) -> None:
    before = lake.files()
    done = lake.run("rewrite-manifests", "--yes")
    assert (done.code, done.json["status"]) == (0, "done"), done.out
    assert done.json["committed_snapshot_id"] == str(lake.table.metadata.current_snapshot_id)
    assert lake.files() > before
    check_rewritten(lake, ROWS)


def test_an_append_meanwhile_is_a_conflict_and_stays(lake: Lake) -> None:
    lake.front.meanwhile.append(lambda: lake.table.append(pa.table({"i": [3]})))
    done = lake.run("rewrite-manifests", "--yes")
    assert (done.code, done.json["status"]) == (0, "done"), done.out
    assert len(lake.front.bodies) == 2
    # The first request may be among what Nessie does not show: what it named is not taken away.
    assert "cannot be proved that nothing references 2 files of its own" in " ".join(done.json["notes"])
    # The appended manifest was not there when the plan was shown.
    check_rewritten(lake, [*ROWS, 3], manifests=2)


@pytest.mark.parametrize(("fate", "code"), [("lost after", 0), ("500 after", 0), ("lost before", 13)])
def test_a_commit_whose_answer_is_lost_is_found_by_its_snapshot(lake: Lake, fate: Fate, code: int) -> None:
    lake.front.fates.append(fate)
    assert lake.run("rewrite-manifests", "--yes").code == code
    if code:
        assert lake.run("resume").code == 0
    check_rewritten(lake, ROWS)


def test_an_append_right_after_a_commit_does_not_make_it_a_conflict(lake: Lake) -> None:
    """The answer names the version that the commit made, and Nessie shows the next one only."""
    forward, appended = lake.front.forward, False

    def append_after_it(
        method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes, str]:
        nonlocal appended
        answer = forward(method, path, headers, body)
        if method == "POST" and not appended:
            appended = True
            lake.table.append(pa.table({"i": [3]}))
        return answer

    lake.front.forward = append_after_it  # type: ignore[method-assign]
    done = lake.run("rewrite-manifests", "--yes")
    assert (done.code, done.json["status"]) == (0, "done"), done.out
    assert len(lake.front.bodies) == 1
    assert "cannot be proved" not in " ".join(done.json["notes"])
    check_rewritten(lake, [*ROWS, 3], manifests=2)
