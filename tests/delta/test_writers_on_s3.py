"""Delta tables on S3: written to only with the operator's word on the other writers, and on the service."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import iceberg_cli as ic
from iceberg_cli.cli.context import now_ms
from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.errors import Refused
from iceberg_cli.storage.router import UnsafeOverrides
from iceberg_cli.testing.conformance.delta_logs import DeltaLogConformance, Log, make_log
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, crash
from iceberg_cli.testing.delta_writer import a_remove, an_add, write_log
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.cli.running import Ran, iceberg_cli
from tests.crash import suite
from tests.crash.delta_scenes import Scene
from tests.delta.test_log_conformance import race
from tests.paths import FIXTURES, besides_history, needs_fixtures
from tests.s3_words import WORD, delta_rs_options_of, options_of, storage_of
from tests.servers import S3Server

NOW = ("--retention", "0s", "--unsafe-allow-short-retention")
UPGRADE = ("--feature", "deletionVectors")
MANY_DVS = "31-delta-spark-many-dvs/table"


class OnAmazonS3(MemoryStorage):
    """A storage that says it is Amazon's own service."""

    def endpoint(self, path: str) -> str:
        assert path.startswith("s3://")
        return "https://s3.eu-central-1.amazonaws.com"


def a_table(server: S3Server, tmp_path: Path) -> str:
    """A table of the file a, from which b and c were removed a minute ago; its location."""
    folder, location = tmp_path / "t", f"s3://{server.bucket}/{uuid.uuid4()}"
    paths = ("a", "b", "c")
    gone = [a_remove(path=path, deletionTimestamp=now_ms() - 60_000) for path in paths[1:]]
    write_log(folder, [an_add(path=path) for path in paths], gone)
    storage = storage_of(server)
    for file in folder.rglob("*.json"):
        storage.put_if_absent(f"{location}/{file.relative_to(folder)}", file.read_bytes())
    for path in paths:
        storage.put_if_absent(f"{location}/{path}", b"data")
    return location


def keys(server: S3Server, location: str) -> set[str]:
    """The names of all objects of a table, but for its history."""
    return besides_history(path.removeprefix(f"{location}/") for path in storage_of(server).paths(location))


def ran(server: S3Server, verb: str, location: str, *arguments: object) -> Ran:
    return iceberg_cli(verb, location, "--format", "json", *options_of(server), *arguments)


@pytest.mark.deep
class TestLogOnVersitygw(DeltaLogConformance):
    """The committer on a service that keeps conditional creates under races."""

    @pytest.fixture
    def log(self, versitygw: S3Server) -> Log:
        """A table of one version, and its storage."""
        log = (f"s3://{versitygw.bucket}/{uuid.uuid4()}", storage_of(versitygw))
        make_log(*log)
        return log


@pytest.mark.deep
def test_racing_processes_lose_no_version_on_versitygw(versitygw: S3Server) -> None:
    log = (f"s3://{versitygw.bucket}/{uuid.uuid4()}", storage_of(versitygw))
    make_log(*log)
    assert race(log, writers=8, commits=10, options=versitygw.options) > 0


class VouchedProcess(DeltaProcess):
    """A run on the table of the crash tests as one on S3, with the operator's word."""

    def open(self) -> DeltaTable:
        table = super().open()
        table.committer = DeltaLogCommitter(
            DELTA_TABLE, self.storage, UnsafeOverrides(conditional_writes=True)
        )
        return table


class VouchedScene(Scene):
    """The upgrade of that table."""

    def __init__(self) -> None:
        super().__init__("upgrade")

    def process(self, **script: Any) -> DeltaProcess:
        case = self.case
        return VouchedProcess(
            world=self.world, script=Script(**script), verb=case.operation, policy=case.policy
        )

    def finish(self) -> None:
        super().finish()
        assert not [path for path in self.world.files if "/_iceberg_cli/ops/" in path]


class TestProbe(suite.Undisturbed, suite.Crashes, suite.SecondCrashes):
    """The process dies around any effect, those of the probe among them, and leaves nothing."""

    crashes = 4
    second_crashes = 4

    @pytest.fixture
    def scene(self) -> VouchedScene:
        return VouchedScene()

    def test_the_service_is_probed_once_and_before_anything_else_but_the_beginning(
        self, scene: VouchedScene
    ) -> None:
        effects = scene.undisturbed()
        kinds = [effect.rpartition("/")[2] for effect in effects]
        assert kinds[:4] == ["000000.json", "probe-1", "probe-1", "probe-1"]
        assert [effect.partition(" ")[0] for effect in effects[1:4]] == ["put", "put", "delete"]
        assert not [kind for kind in kinds[4:] if kind.startswith("probe")]

    def test_who_goes_on_probes_the_service_again_before_the_commit(self, scene: VouchedScene) -> None:
        [commit, *_] = [
            number for number, effect in enumerate(scene.undisturbed()) if scene.is_commit(effect)
        ]
        process = scene.process(before={commit: crash})
        assert process.dies(process.run)
        resuming = scene.process()
        resuming.resume()
        [sent, *_] = [number for number, effect in enumerate(resuming.effects) if scene.is_commit(effect)]
        probes = [number for number, effect in enumerate(resuming.effects) if "/probe-" in effect]
        assert len(probes) == 3
        assert max(probes) < sent


# Without the word


def test_without_the_word_nothing_is_written_and_the_reason_names_the_option_and_the_service(
    versitygw: S3Server, tmp_path: Path
) -> None:
    location = a_table(versitygw, tmp_path)
    before = keys(versitygw, location)
    refused = ran(versitygw, "upgrade-v3", location, *UPGRADE, "--yes")
    assert refused.code == 11
    assert f"{WORD} vouches that no such writer is at work" in refused.json["message"]
    assert f"and that {versitygw.endpoint} keeps conditional creates" in refused.json["message"]
    assert keys(versitygw, location) == before


def test_reading_and_planning_need_no_word_and_say_that_carrying_out_does(
    moto_server: S3Server, tmp_path: Path
) -> None:
    location = a_table(moto_server, tmp_path)
    summary = ran(moto_server, "inspect", location)
    assert summary.code == 0
    assert WORD in summary.json["read_only"]
    for arguments in (("plan", location, "upgrade-v3"), ("upgrade-v3", location, "--dry-run")):
        planned = ran(moto_server, *arguments, *UPGRADE, "--exit-code")
        assert planned.code == 0
        [reason] = planned.json["blocked_by"]
        assert WORD in reason
        assert "unsafe_conditional_writes" not in planned.json["options"]
    with_word = ran(moto_server, "plan", location, "upgrade-v3", *UPGRADE, "--exit-code", WORD)
    assert with_word.code == 3
    assert with_word.json["blocked_by"] == []


def test_commands_that_a_plan_of_all_verbs_names_have_the_word(moto_server: S3Server, tmp_path: Path) -> None:
    location = a_table(moto_server, tmp_path)
    for given in ((), (WORD,)):
        survey = iceberg_cli("plan", location, *options_of(moto_server), *given)
        [command] = [line for line in survey.out.splitlines() if "iceberg-cli rewrite-manifests" in line]
        assert (WORD in command.split()) == bool(given)


def test_on_amazons_own_service_the_word_is_needed_for_the_other_writers_alone() -> None:
    root, storage = "s3://bucket/t", OnAmazonS3()
    make_log(root, storage)
    reason = DeltaLogCommitter(root, storage).unvouched_reason()
    assert reason is not None
    assert reason.endswith(f"{WORD} vouches that no such writer is at work")
    vouched = DeltaLogCommitter(root, storage, UnsafeOverrides(conditional_writes=True))
    assert vouched.unvouched_reason() is None
    [voucher] = vouched.vouchers()
    assert voucher.value == "https://s3.eu-central-1.amazonaws.com"
    assert "under races" not in voucher.sentence


def test_a_service_is_probed_once_for_all_operations_of_a_run() -> None:
    root, storage = "s3://bucket/t", OnAmazonS3()
    committer = DeltaLogCommitter(root, storage, UnsafeOverrides(conditional_writes=True))
    committer.probe(f"{root}/probe")
    storage.put_if_absent(f"{root}/probe", b"another one would have deleted this")
    committer.probe(f"{root}/probe")
    assert list(storage.paths(root)) == [f"{root}/probe"]


def test_on_a_local_disk_there_is_nothing_to_vouch_for(tmp_path: Path) -> None:
    write_log(tmp_path / "t", [an_add()])
    done = iceberg_cli("upgrade-v3", tmp_path / "t", *UPGRADE, "--yes", "--format", "json", WORD)
    assert done.code == 0
    assert done.json["notes"] == []
    assert not (tmp_path / "t" / "_iceberg_cli" / "ops").exists()


def test_the_word_on_other_committers_of_iceberg_tables_means_nothing_for_delta(
    moto_server: S3Server, tmp_path: Path
) -> None:
    refused = ran(moto_server, "plan", a_table(moto_server, tmp_path), "--unsafe-single-writer")
    assert refused.code == 2
    assert "--unsafe-single-writer is an option of Iceberg tables" in refused.json["message"]


# With the word


def test_with_the_word_it_is_carried_out_and_plan_and_report_name_the_service(
    versitygw: S3Server, tmp_path: Path
) -> None:
    location = a_table(versitygw, tmp_path)
    saved = tmp_path / "plan"
    planned = ran(versitygw, "plan", location, "upgrade-v3", *UPGRADE, WORD, "-o", saved)
    assert planned.json["options"]["unsafe_conditional_writes"] == {
        "value": versitygw.endpoint,
        "source": WORD,
    }
    # Whoever carries it out gives his own word.
    before = keys(versitygw, location)
    refused = ran(versitygw, "apply", saved, "--yes")
    assert refused.code == 11
    assert keys(versitygw, location) == before
    done = ran(versitygw, "apply", saved, "--yes", WORD)
    assert done.code == 0
    [note] = done.json["notes"]
    assert note.startswith(f"{WORD}: the operator vouches that ")
    assert versitygw.endpoint in note
    assert keys(versitygw, location) - before == {"_delta_log/00000000000000000002.json"}


@pytest.mark.deep
def test_from_python_the_word_is_an_argument(versitygw: S3Server, tmp_path: Path) -> None:
    location = a_table(versitygw, tmp_path)
    policy = ic.delta.UpgradeV3(features=("deletionVectors",))
    table = ic.open_table(location, storage_options=versitygw.options)
    with pytest.raises(Refused, match=r"\bconditional_writes vouches"):
        table.apply(table.plan(policy))
    table = ic.open_table(location, storage_options=versitygw.options, conditional_writes=True)
    assert table.apply(table.plan(policy)).status == "done"


def test_a_service_that_is_seen_not_to_keep_conditional_creates_is_refused_whatever_was_vouched(
    unconditional: S3Server, tmp_path: Path
) -> None:
    location = a_table(unconditional, tmp_path)
    before = keys(unconditional, location)
    refused = ran(unconditional, "upgrade-v3", location, *UPGRADE, "--yes", WORD)
    assert refused.code == 11
    assert f"Cannot commit in {unconditional.endpoint}" in refused.json["message"]
    assert keys(unconditional, location) == before


# Delta Spark's store


def test_a_log_with_copies_of_delta_sparks_store_is_refused_even_with_the_word(
    versitygw: S3Server, tmp_path: Path
) -> None:
    location = a_table(versitygw, tmp_path)
    copy = f"{location}/_delta_log/.tmp/00000000000000000001.json.{uuid.uuid4()}"
    storage_of(versitygw).put_if_absent(copy, b"")
    before = keys(versitygw, location)
    assert ran(versitygw, "inspect", location).code == 0
    refused = ran(versitygw, "upgrade-v3", location, *UPGRADE, "--yes", WORD)
    assert refused.code == 11
    assert "S3DynamoDBLogStore" in refused.json["message"]
    assert "Maintain this table with Spark" in refused.json["message"]
    assert keys(versitygw, location) == before


def test_copies_that_appear_after_the_plan_stop_the_commit(versitygw: S3Server, tmp_path: Path) -> None:
    location = a_table(versitygw, tmp_path)
    table = ic.open_table(location, storage_options=versitygw.options, conditional_writes=True)
    plan = table.plan(ic.delta.UpgradeV3(features=("deletionVectors",)))
    storage_of(versitygw).put_if_absent(f"{location}/_delta_log/.tmp/x", b"")
    before = keys(versitygw, location)
    with pytest.raises(Refused, match="S3DynamoDBLogStore"):
        table.apply(plan)
    assert keys(versitygw, location) == before


# Operations that are open


@pytest.fixture
def interrupted(versitygw: S3Server, tmp_path: Path) -> str:
    """A table whose vacuum stopped after one of two files; its location."""
    location = a_table(versitygw, tmp_path)
    partial = ran(versitygw, "expire-snapshots", location, *NOW, "--yes", WORD, "--limit-deletes", 1)
    assert (partial.code, partial.json["status"]) == (0, "partial")
    assert len({"b", "c"} & keys(versitygw, location)) == 1
    return location


def test_an_open_operation_is_gone_on_with_only_with_the_word(versitygw: S3Server, interrupted: str) -> None:
    before = keys(versitygw, interrupted)
    [refused] = ran(versitygw, "resume", interrupted).json["reports"]
    assert refused["status"] == "refused"
    assert WORD in " ".join(refused["notes"])
    assert keys(versitygw, interrupted) == before
    # A verb without the word leaves it as it is, too.
    assert ran(versitygw, "rewrite-manifests", interrupted, "--yes").code == 11
    assert keys(versitygw, interrupted) == before
    [done] = ran(versitygw, "resume", interrupted, WORD).json["reports"]
    assert done["status"] == "done"
    assert not any(
        name in ("b", "c") or name.startswith("_iceberg_cli/ops") for name in keys(versitygw, interrupted)
    )


@pytest.mark.deep
def test_a_verb_with_the_word_goes_on_with_it_first(versitygw: S3Server, interrupted: str) -> None:
    done = ran(versitygw, "rewrite-manifests", interrupted, "--yes", WORD)
    assert done.code == 0
    [settled] = done.json["settled"]
    assert settled["status"] == "done"
    assert not {"b", "c"} & keys(versitygw, interrupted)


def test_an_open_operation_is_abandoned_without_the_word_also_beside_delta_sparks_store(
    versitygw: S3Server, interrupted: str
) -> None:
    storage_of(versitygw).put_if_absent(f"{interrupted}/_delta_log/.tmp/x", b"")
    [abandoned] = ran(versitygw, "resume", interrupted, "--abandon").json["reports"]
    assert (abandoned["status"], abandoned["abandoned"]["orphan_files_count"]) == ("done", 1)
    assert not any(name.startswith("_iceberg_cli/ops") for name in keys(versitygw, interrupted))


@needs_fixtures
@pytest.mark.deep
def test_every_verb_leaves_a_table_that_delta_rs_reads_as_before(versitygw: S3Server) -> None:
    deltalake = pytest.importorskip("deltalake")
    location, storage = f"s3://{versitygw.bucket}/{uuid.uuid4()}", storage_of(versitygw)
    for file in (FIXTURES / MANY_DVS).rglob("*"):
        if file.is_file():
            storage.put_if_absent(f"{location}/{file.relative_to(FIXTURES / MANY_DVS)}", file.read_bytes())
    options = delta_rs_options_of(versitygw)

    def read() -> list[object]:
        table = deltalake.DeltaTable(location, storage_options=options)
        batches = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
        return sorted(pa.table(batches).to_pylist(), key=repr)

    rows = read()
    assert rows
    before = keys(versitygw, location)
    for verb, *arguments in (
        ("upgrade-v3", "--feature", "rowTracking", "--feature", "v2Checkpoint"),
        ("assign-row-ids",),
        ("merge-dvs", "--min-files", 2),
        ("rewrite-manifests",),
        ("expire-snapshots", *NOW),
    ):
        done = ran(versitygw, verb, location, *arguments, "--yes", WORD)
        assert (done.code, done.json["status"]) == (0, "done"), verb
        assert read() == rows, verb
    assert before - keys(versitygw, location)
    assert not any(name.startswith("_iceberg_cli/ops") for name in keys(versitygw, location))
