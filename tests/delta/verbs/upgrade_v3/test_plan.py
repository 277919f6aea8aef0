"""upgrade-v3 of Delta tables: protocols as sets, properties, what stands in the way."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from deltalake import DeltaTable as DeltaRsTable

from iceberg_cli.delta.spec.clients import missing_features
from iceberg_cli.delta.spec.protocol import Metadata, Protocol
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.delta.verbs.upgrade_v3.rules import upgraded
from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.delta_writer import (
    Action,
    a_commit_info,
    a_field,
    a_metadata,
    a_protocol,
    a_protocol_with,
    an_add,
    commit_path,
    write_checkpoint,
    write_log,
)
from tests.delta_opened import Operator, a_log, actions_in, the_log

VERB = VERBS["upgrade-v3"]
LEGACY = {
    (1, 2): {"appendOnly", "invariants"},
    (1, 3): {"appendOnly", "invariants", "checkConstraints"},
    (1, 4): {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"},
}
LEGACY[1, 5] = LEGACY[2, 4] = LEGACY[1, 4]
LEGACY[1, 6] = LEGACY[1, 4] | {"identityColumns"}


OPERATOR = Operator(VERB)


def planned(root: Path, *features: str) -> Plan:
    return OPERATOR.plan(root, features=[*features])


def done(root: Path, *features: str) -> Report:
    return OPERATOR.run(root, features=[*features])


def a_table(root: Path, protocol: Action, **configuration: str) -> Path:
    stated = {key.replace("_", ".", 1): value for key, value in configuration.items()}
    a_log(root, [protocol, a_metadata(configuration=stated), an_add()])
    return root


def state(root: Path) -> tuple[Protocol, Metadata]:
    snapshot = the_log(root).snapshot()
    return snapshot.protocol, snapshot.metadata


def a_value(reader: int, writer: int, readers: Iterable[str], writers: Iterable[str]) -> Protocol:
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=frozenset(readers) if reader == 3 else None,
        writer_features=frozenset(writers),
    )


@pytest.mark.parametrize("versions", LEGACY)
def test_what_older_versions_stood_for_is_written_out(tmp_path: Path, versions: tuple[int, int]) -> None:
    """Measured: (1, 2) stands for invariants and appendOnly, (1, 4) for three more.

    Spec: "Column Mapping" takes reader version 2 and writer version 5.
    """
    done(a_table(tmp_path, a_protocol(*versions)), "deletionVectors", "v2Checkpoint")
    readers = {"deletionVectors", "v2Checkpoint"}
    assert state(tmp_path)[0] == a_value(3, 7, readers, readers | LEGACY[versions])


@pytest.mark.few(10)
@pytest.mark.parametrize("features", [(), ("rowTracking",), ("deletionVectors",), ("inCommitTimestamp",)])
@pytest.mark.parametrize("versions", [*LEGACY, (2, 5), (2, 6)])
def test_delta_rs_opens_what_it_opened_before(
    tmp_path: Path, versions: tuple[int, int], features: tuple[str, ...]
) -> None:
    """It refuses a feature that readers must know too, and that is listed for writers only."""
    a_table(tmp_path, a_protocol(*versions))
    DeltaRsTable(str(tmp_path))
    done(tmp_path, *features)
    found = DeltaRsTable(str(tmp_path)).protocol()
    assert ("columnMapping" in found.writer_features) is (versions in {(2, 5), (2, 6)})


def test_the_default_is_what_version_3_gives_to_an_iceberg_table(tmp_path: Path) -> None:
    report = done(a_table(tmp_path, a_protocol()))
    protocol, metadata = state(tmp_path)
    writers = {"deletionVectors", "rowTracking", "domainMetadata", "invariants", "appendOnly"}
    assert protocol == a_value(3, 7, {"deletionVectors"}, writers)
    assert metadata.configuration == {"delta.enableDeletionVectors": "true"}
    assert report.counts == {"added_features_count": 3, "set_properties_count": 1}


def test_five_features_make_the_protocol_that_delta_spark_makes(tmp_path: Path) -> None:
    """delta-observed 5: (1, 2) with deletionVectors, v2Checkpoint, rowTracking, inCommitTimestamp."""
    asked = ("deletionVectors", "v2Checkpoint", "rowTracking", "inCommitTimestamp", "domainMetadata")
    done(a_table(tmp_path, a_protocol()), *asked)
    protocol, metadata = state(tmp_path)
    writers = {*asked, "invariants", "appendOnly"}
    assert protocol == a_value(3, 7, {"deletionVectors", "v2Checkpoint"}, writers)
    assert {
        "delta.enableDeletionVectors": "true",
        "delta.checkpointPolicy": "v2",
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "1",
    }.items() <= metadata.configuration.items()
    assert "delta.enableRowTracking" not in metadata.configuration


def test_features_of_writers_only_leave_the_reader_version(tmp_path: Path) -> None:
    """delta-observed 5: rowTracking, domainMetadata, inCommitTimestamp alone give (1, 7) without readerFeatures."""
    done(a_table(tmp_path, a_protocol()), "rowTracking", "inCommitTimestamp")
    writers = {"rowTracking", "domainMetadata", "inCommitTimestamp", "invariants", "appendOnly"}
    assert state(tmp_path)[0] == a_value(1, 7, (), writers)


def test_a_table_on_reader_2_lists_column_mapping_for_readers_and_writers() -> None:
    before = Protocol(min_reader_version=2, min_writer_version=5)
    legacy = {*LEGACY[1, 4], "columnMapping"}
    mapped = {"columnMapping", "deletionVectors"}
    assert upgraded(before, ["deletionVectors"]) == a_value(3, 7, mapped, legacy | mapped)
    assert upgraded(before, ["rowTracking"]) == a_value(2, 7, (), legacy | {"rowTracking"})


def test_a_table_on_reader_2_lists_column_mapping_where_its_writers_do() -> None:
    """Spec, "Protocol Evolution": (2, 7) with it in writerFeatures is equivalent to (3, 7) with it in both lists."""
    mapped = a_value(2, 7, (), {"columnMapping", "identityColumns"})
    after = upgraded(mapped, ["deletionVectors"])
    assert after.reader_features == {"columnMapping", "deletionVectors"}
    plain = a_value(2, 7, (), {"identityColumns"})
    both = {"deletionVectors"}
    assert upgraded(plain, ["deletionVectors"]) == a_value(3, 7, both, both | {"identityColumns"})


def test_what_was_listed_for_writers_only_is_listed_for_readers_too(tmp_path: Path) -> None:
    """Spec, "Supported Features": in both lists. delta-rs judges every protocol since the last checkpoint."""
    a_table(tmp_path, a_protocol(1, 7, writer_features=["columnMapping"]))
    with pytest.raises(Exception, match="ReaderWriter feature ColumnMapping"):
        DeltaRsTable(str(tmp_path))
    plan = planned(tmp_path, "domainMetadata")
    reasons = {verdict.id: verdict.reason for verdict in plan.verdicts}
    assert reasons["columnMapping"] == "it is listed for writers only: readers are told of it too"
    done(tmp_path, "domainMetadata")
    writers = {"columnMapping", "domainMetadata"}
    assert state(tmp_path)[0] == a_value(3, 7, {"columnMapping"}, writers)
    Operator(VERBS["rewrite-manifests"]).run(tmp_path)
    assert DeltaRsTable(str(tmp_path)).version() == 1


@pytest.mark.parametrize("versions", [(1, 5), (2, 4)])
def test_a_table_whose_mode_of_column_mapping_nothing_stands_for_is_not_upgraded(
    tmp_path: Path, versions: tuple[int, int]
) -> None:
    """Spec, "Column Mapping": the property is honored only where both versions support it."""
    a_table(tmp_path, a_protocol(*versions), **{"delta_columnMapping.mode": "name"})
    with pytest.raises(Refused, match=r"delta\.columnMapping\.mode is name"):
        done(tmp_path, "rowTracking")


def test_features_and_fields_that_are_there_survive() -> None:
    before = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=frozenset({"timestampNtz"}),
        writer_features=frozenset({"timestampNtz", "clustering", "domainMetadata"}),
        unknown={"note": [1]},
    )
    after = upgraded(before, ["deletionVectors"])
    assert after.reader_features == {"timestampNtz", "deletionVectors"}
    assert after.writer_features == {"timestampNtz", "clustering", "domainMetadata", "deletionVectors"}
    assert after.unknown == {"note": [1]}


@pytest.mark.parametrize("features", [(), ("v2Checkpoint",), ("inCommitTimestamp", "changeDataFeed")])
def test_a_second_run_has_nothing_to_do(tmp_path: Path, features: tuple[str, ...]) -> None:
    a_table(tmp_path, a_protocol())
    assert done(tmp_path, *features).status == "done"
    assert done(tmp_path, *features).status == "nothing_to_do"
    assert not commit_path(tmp_path, 2).exists()


def test_a_feature_that_is_implied_takes_its_property_only(tmp_path: Path) -> None:
    done(a_table(tmp_path, a_protocol(1, 4)), "changeDataFeed")
    protocol, metadata = state(tmp_path)
    assert protocol == Protocol(min_reader_version=1, min_writer_version=4)
    assert metadata.configuration == {"delta.enableChangeDataFeed": "true"}


def test_a_property_that_says_otherwise_is_set_and_told(tmp_path: Path) -> None:
    a_table(tmp_path, a_protocol_with("v2Checkpoint"), delta_checkpointPolicy="classic")
    plan = planned(tmp_path, "v2Checkpoint")
    assert plan.verdicts[0].reason == "the table has it; delta.checkpointPolicy=v2 turns it on, it is classic"
    assert not plan.new_protocol
    done(tmp_path, "v2Checkpoint")
    assert state(tmp_path)[1].configuration == {"delta.checkpointPolicy": "v2"}


def test_the_commit_reads_like_one_of_delta_spark(tmp_path: Path) -> None:
    done(a_table(tmp_path, a_protocol()), "rowTracking")
    info, protocol = actions_in(tmp_path, 1)
    assert info["commitInfo"]["operation"] == "UPGRADE PROTOCOL"
    assert json.loads(info["commitInfo"]["operationParameters"]["newProtocol"]) == protocol["protocol"]
    done(tmp_path, "deletionVectors")
    found = actions_in(tmp_path, 2)
    assert [kind for line in found for kind in line] == ["commitInfo", "metaData", "protocol"]
    assert found[0]["commitInfo"]["operation"] == "SET TBLPROPERTIES"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("quantumRows", "is not known here"),
        ("columnMapping", "needs more than a change of the protocol"),
        ("catalogManaged", "needs more than a change of the protocol"),
        ("DeletionVectors", "is not known here"),
    ],
)
def test_a_feature_that_cannot_be_turned_on_is_refused_by_name(
    tmp_path: Path, name: str, reason: str
) -> None:
    a_table(tmp_path, a_protocol())
    with pytest.raises(UsageError, match=f"--feature {name} {reason}") as raised:
        planned(tmp_path, name)
    if name == "DeletionVectors":
        assert "deletionVectors" in str(raised.value.next_step)


def test_a_table_with_a_writer_feature_that_is_not_known_is_not_upgraded(tmp_path: Path) -> None:
    a_table(tmp_path, a_protocol_with("quantumRows"))
    with pytest.raises(Refused, match="quantumRows"):
        done(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.enableIcebergCompatV2", "true"),
        ("delta.compatibility.symlinkFormatManifest.enabled", "true"),
        ("delta.universalFormat.enabledFormats", "iceberg, HUDI"),
    ],
)
def test_deletion_vectors_are_refused_where_a_property_forbids_them(
    tmp_path: Path, key: str, value: str
) -> None:
    """Spec: "Writer Requirements for IcebergCompatV2". Delta Lake's error conditions
    PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION and HUDI_DELETE_VECTORS_NOT_SUPPORTED.
    """
    a_log(tmp_path, [a_protocol(), a_metadata(configuration={key: value})])
    with pytest.raises(Refused, match=rf"{key} is {value}, and such tables .*--feature"):
        done(tmp_path)
    assert done(tmp_path, "rowTracking").status == "done"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.compatibility.symlinkFormatManifest.enabled", "false"),
        ("delta.universalFormat.enabledFormats", "iceberg"),
    ],
)
def test_deletion_vectors_are_not_refused_without_such_a_property(
    tmp_path: Path, key: str, value: str
) -> None:
    a_log(tmp_path, [a_protocol(), a_metadata(configuration={key: value})])
    assert done(tmp_path).status == "done"


def test_in_commit_timestamps_that_were_switched_on_without_their_feature_begin_with_it(
    tmp_path: Path,
) -> None:
    """Spec: "Writer Requirements for In-Commit Timestamps", 4."""
    a_table(tmp_path, a_protocol(), delta_enableInCommitTimestamps="true")
    done(tmp_path, "inCommitTimestamp")
    (info,) = actions_in(tmp_path, 1, "commitInfo")
    assert state(tmp_path)[1].configuration == {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "1",
        "delta.inCommitTimestampEnablementTimestamp": str(info["inCommitTimestamp"]),
    }


def test_row_tracking_that_was_switched_on_without_its_feature_is_off_until_files_have_ids(
    tmp_path: Path,
) -> None:
    """Spec, "Writer Requirements for Row Tracking": enabled only where all active files have ids."""
    a_table(tmp_path, a_protocol(), delta_enableRowTracking="TRUE")
    plan = planned(tmp_path, "rowTracking")
    assert plan.verdicts[0].reason == (
        "it is added; supported only: assign-row-ids enables it; delta.enableRowTracking is TRUE, it is set to false "
        "until then"
    )
    report = done(tmp_path, "rowTracking")
    assert state(tmp_path)[1].configuration == {"delta.enableRowTracking": "false"}
    assert report.counts == {"added_features_count": 2, "set_properties_count": 1}


def test_change_data_feed_is_refused_where_a_column_has_its_name(tmp_path: Path) -> None:
    a_log(tmp_path, [a_protocol(), a_metadata(a_field("_commit_version", "long"))])
    with pytest.raises(Refused, match="_commit_version"):
        done(tmp_path, "changeDataFeed")


def test_who_wrote_lately_and_would_be_shut_out_is_told(tmp_path: Path) -> None:
    old, new = "Apache-Spark/3.2.1 Delta-Lake/2.0.0", "Apache-Spark/4.1.4 Delta-Lake/4.4.0"
    a_log(
        tmp_path,
        [a_protocol(), a_metadata(), a_commit_info(engineInfo=old)],
        [a_commit_info(engineInfo=new)],
        [a_commit_info(engineInfo="a homemade writer")],
    )
    plan = planned(tmp_path)
    clients = {v.id: v.reason for v in plan.verdicts if v.subject == "client"}
    assert clients == {
        old: "it wrote version 0; it does not know deletionVectors, domainMetadata, rowTracking, and could "
        "neither read nor write the table any more",
        new: "it wrote version 1; it knows the features",
        "a homemade writer": "it wrote version 2; which features it knows is not known here",
    }
    (warning,) = plan.warnings
    assert warning.startswith(old)


def test_who_wrote_is_looked_for_in_the_commits_that_follow_each_other(tmp_path: Path) -> None:
    """Delta Spark may leave older commits behind a gap; they say nothing of who writes now."""
    a_log(tmp_path, *([a_commit_info(engineInfo=f"writer {version}")] for version in range(4)))
    write_checkpoint(tmp_path, 2, a_protocol(), a_metadata())
    commit_path(tmp_path, 1).unlink()
    plan = planned(tmp_path)
    assert [v.id for v in plan.verdicts if v.subject == "client"] == ["writer 2", "writer 3"]


def test_delta_rs_lacks_what_it_was_seen_to_refuse() -> None:
    """delta-observed 8: 1.6.6 reads such tables and refuses to write to them."""
    asked = ["deletionVectors", "rowTracking", "domainMetadata", "inCommitTimestamp"]
    assert missing_features("delta-rs:py-1.6.6", asked) == tuple(asked[1:])


def test_a_feature_dropped_by_another_writer_meanwhile_is_not_there_afterwards_unless_asked_for(
    tmp_path: Path,
) -> None:
    """The commit is made from the newest protocol, not from the one that was shown."""
    a_table(tmp_path, a_protocol())
    table, made = OPERATOR.prepare(tmp_path, features=["rowTracking"])
    write_log(tmp_path, [a_protocol(1, 7, writer_features=["appendOnly", "inCommitTimestamp"])], first=1)
    OPERATOR.apply(made, table)
    writers = {"appendOnly", "inCommitTimestamp", "rowTracking", "domainMetadata"}
    assert state(tmp_path)[0] == a_value(1, 7, (), writers)
