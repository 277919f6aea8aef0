"""Which files of the log make up a version, and what follows from features, intervals and paths. Nothing is read."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.delta.spec.features import check_readable, reader_features, unwritable, writer_features
from iceberg_cli.delta.spec.in_commit_timestamps import has_in_commit_timestamps, in_commit_since
from iceberg_cli.delta.spec.log import Listing, listing_of, segment
from iceberg_cli.delta.spec.paths import dv_path, physical, physical_column, z85_decode, z85_encode
from iceberg_cli.delta.spec.protocol import Metadata, Protocol, interval, interval_ms
from iceberg_cli.errors import CorruptFile, InvalidMetadata, Refused, UsageError
from iceberg_cli.testing.delta_writer import a_metadata, a_protocol

FOLDER = "/t/_delta_log"
V2_NAME = "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11"


def names(*files: str, times: tuple[int, ...] = ()) -> Listing:
    stamps = times or tuple(range(len(files)))
    return listing_of(
        FOLDER, ((f"{FOLDER}/{file}", 1, time) for file, time in zip(files, stamps, strict=True))
    )


def commit(version: int) -> str:
    return f"{version:020}.json"


def classic(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def part(version: int, number: int, count: int) -> str:
    return f"{version:020}.checkpoint.{number:010}.{count:010}.parquet"


def compaction(first: int, last: int) -> str:
    return f"{first:020}.{last:020}.compacted.json"


def short(files: tuple[object, ...]) -> list[str]:
    return [getattr(file, "path", "").removeprefix(f"{FOLDER}/").lstrip("0") for file in files]


def test_names_sort_the_files_of_a_log() -> None:
    listing = names(
        commit(1),
        commit(0),
        f"{1:020}.crc",
        classic(1),
        f"{1:020}.{V2_NAME}.json",
        f"{1:020}.{V2_NAME}.parquet",
        compaction(0, 1),
        "_last_checkpoint",
        f".{0:020}.json.crc",
        "_sidecars/a.parquet",
        "_sidecars/.a.parquet.crc",
        f"_staged_commits/{2:020}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
        "1.json",
        f"{1:020}.json.tmp",
        "99999999999999999999.json",
        "sub/" + commit(7),
    )
    assert [file.version for file in listing.commits] == [0, 1]
    assert [(each.version, each.kind) for each in listing.checkpoints] == [
        (1, "classic"),
        (1, "v2"),
        (1, "v2"),
    ]
    assert [end for _, end in listing.compactions] == [1]
    assert [file.version for file in listing.checksums] == [1]
    assert short(listing.sidecars) == ["_sidecars/a.parquet"]
    assert [file.version for file in listing.staged] == [2]
    assert len(listing.others) == 7
    assert listing.latest == 1


def test_a_multi_part_checkpoint_with_a_missing_part_is_ignored() -> None:
    files = [commit(0), commit(1), commit(2), part(1, 1, 2), part(2, 1, 3), part(2, 3, 3)]
    listing = names(*files)
    assert listing.checkpoints == ()
    assert len(listing.incomplete) == 3
    assert segment(listing, FOLDER).checkpoint is None
    whole = segment(names(*files, part(1, 2, 2)), FOLDER)
    assert whole.checkpoint is not None
    assert whole.checkpoint.kind == "multi-part"
    assert short(whole.checkpoint.files) == [part(1, 1, 2).lstrip("0"), part(1, 2, 2).lstrip("0")]
    assert short(whole.commits) == ["2.json"]


def test_parts_of_different_counts_do_not_complete_each_other() -> None:
    listing = names(commit(0), part(0, 1, 2), part(0, 2, 3), part(0, 3, 3))
    assert listing.checkpoints == ()
    assert len(listing.incomplete) == 3


def test_a_version_is_read_from_the_newest_checkpoint_at_or_before_it() -> None:
    listing = names(*map(commit, range(8)), classic(2), classic(5))
    newest, older, between, first = (segment(listing, FOLDER, version) for version in (None, 5, 4, 1))
    assert (newest.version, short(newest.commits)) == (7, ["6.json", "7.json"])
    assert (older.checkpoint, older.commits) == (listing.checkpoints[1], ())
    assert (between.checkpoint, short(between.commits)) == (listing.checkpoints[0], ["3.json", "4.json"])
    assert (first.checkpoint, short(first.commits)) == (None, [".json", "1.json"])


def test_of_the_checkpoints_of_one_version_the_v2_one_is_read() -> None:
    listing = names(commit(3), classic(3), f"{3:020}.{V2_NAME}.parquet", part(3, 1, 2), part(3, 2, 2))
    checkpoint = segment(listing, FOLDER).checkpoint
    assert checkpoint is not None
    assert checkpoint.kind == "v2"


def test_checkpoints_alone_are_a_table() -> None:
    listing = names(classic(1), classic(2))
    assert listing.latest == 2
    assert segment(listing, FOLDER).commits == ()
    assert segment(listing, FOLDER, 1).checkpoint == listing.checkpoints[0]


@pytest.mark.parametrize(
    ("files", "version", "reason"),
    [
        ([commit(0), commit(2)], None, "version 0 is followed by version 2"),
        ([commit(1), commit(2)], None, "the log begins with version 1"),
        ([commit(0), classic(2), commit(4)], None, "version 2 is followed by version 4"),
        ([commit(0), classic(2), commit(3)], 1, "version 0 is followed by version 3"),
    ],
)
def test_a_gap_that_no_checkpoint_bridges_is_refused(
    files: list[str], version: int | None, reason: str
) -> None:
    with pytest.raises(CorruptFile, match=reason):
        segment(names(*files), FOLDER, version)


def test_a_version_that_a_cleanup_took_is_a_usage_error() -> None:
    for files in ([classic(2), commit(3)], [commit(1), commit(2), classic(2), commit(3)]):
        with pytest.raises(UsageError, match="cleaned up to version 2"):
            segment(names(*files), FOLDER, 1)


def test_a_gap_before_the_checkpoint_does_not_matter() -> None:
    assert segment(names(commit(0), commit(3), classic(3), commit(4)), FOLDER).version == 4


@pytest.mark.parametrize("version", [2, -1])
def test_a_version_that_the_table_does_not_have_is_a_usage_error(version: int) -> None:
    with pytest.raises(UsageError, match="the newest version is 1"):
        segment(names(commit(0), commit(1)), FOLDER, version)


def test_compactions_replace_the_commits_that_they_stand_for() -> None:
    listing = names(
        *map(commit, range(10)),
        classic(1),
        compaction(1, 3),
        compaction(3, 5),
        compaction(3, 4),
        compaction(7, 9),
    )
    newest = segment(listing, FOLDER)
    assert short(newest.replayed) == [
        "2.json",
        compaction(3, 5).lstrip("0"),
        "6.json",
        compaction(7, 9).lstrip("0"),
    ]
    assert [file.version for file in newest.replayed] == [2, 5, 6, 9]
    assert [file.version for file in newest.commits] == list(range(2, 10))
    older = segment(listing, FOLDER, 8)
    assert short(older.replayed)[-3:] == ["6.json", "7.json", "8.json"]


def test_a_compaction_that_ends_before_it_begins_is_none() -> None:
    assert names(commit(0), compaction(5, 4)).compactions == ()


def test_commit_times_are_raised_to_one_millisecond_after_the_version_before() -> None:
    listing = names(*map(commit, range(5)), times=(100, 50, 50, 200, 200))
    assert listing.commit_times_ms() == {0: 100, 1: 101, 2: 102, 3: 200, 4: 201}


# -- paths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_log", "on_storage"),
    [
        ("part-0.parquet", "/t/part-0.parquet"),
        ("p=100%2525/a.parquet", "/t/p=100%25/a.parquet"),
        ("p=a+b/two%20words.parquet", "/t/p=a+b/two words.parquet"),
        ("p=é漢/a.parquet", "/t/p=é漢/a.parquet"),
        ("p=%C3%A9/a.parquet", "/t/p=é/a.parquet"),
        ("p=07:45/a", "/t/p=07:45/a"),
        ("/else/a%20b", "/else/a b"),
        ("file:/else/a%20b", "/else/a b"),
        ("file:///else/a%2520b", "/else/a%20b"),
        ("s3a://bucket/k%2Fx", "s3://bucket/k/x"),
        ("100%", "/t/100%"),
    ],
)
def test_a_path_of_the_log_is_decoded_once(in_log: str, on_storage: str) -> None:
    assert physical(in_log, "/t") == on_storage
    assert physical_column(pa.array([in_log, None, "x"]), "/t/").to_pylist() == [on_storage, None, "/t/x"]


def test_columns_without_escapes_or_absolute_paths_are_joined_whole() -> None:
    paths = pa.chunked_array([["a/b"], [], ["c", None]], pa.string())
    assert physical_column(paths, "s3://b/t").to_pylist() == ["s3://b/t/a/b", "s3://b/t/c", None]
    assert physical_column(pa.array([], pa.string()), "/t").to_pylist() == []


def test_escapes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(CorruptFile, match="no UTF-8"):
        physical("p=%FF/a.parquet", "/t")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text[0] != "/"))
def test_quoting_a_name_and_reading_it_gives_the_name(name: str) -> None:
    assert physical(quote(name, safe=""), "/t") == f"/t/{name}"


def test_the_file_of_a_vector_is_that_of_the_protocols_examples() -> None:
    assert (
        dv_path("u", "ab^-aqEH.-t@S}K{vb[*k^", "s3://mytable/")
        == "s3://mytable/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    absolute = "s3://mytable/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert dv_path("p", absolute, "/t") == absolute
    assert dv_path("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "/t") is None


@pytest.mark.parametrize("name", ['"' * 20, "#" * 20, "short"])
def test_a_vector_whose_name_is_no_uuid_is_refused(name: str) -> None:
    with pytest.raises(CorruptFile):
        dv_path("u", name, "/t")


def test_z85_is_that_of_its_specification() -> None:
    assert z85_encode(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    assert z85_decode("HelloWorld") == bytes.fromhex("864FD26FB559F75B")


@given(st.binary(max_size=64).map(lambda data: data[: len(data) // 4 * 4]))
def test_z85_gives_back_what_it_was_given(data: bytes) -> None:
    assert z85_decode(z85_encode(data)) == data


# -- protocol, features, properties ----------------------------------------------------------------------------


def protocol(*versions: int, **features: list[str]) -> Protocol:
    return Protocol.from_json(a_protocol(*versions, **features)["protocol"])


def test_old_versions_stand_for_the_features_of_the_protocols_table() -> None:
    assert writer_features(protocol(1, 1)) == set()
    assert writer_features(protocol(1, 2)) == {"appendOnly", "invariants"}
    assert writer_features(protocol(1, 4)) == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
    }
    assert writer_features(protocol(2, 6)) >= {"columnMapping", "identityColumns"}
    assert reader_features(protocol(2, 5)) == {"columnMapping"}
    assert writer_features(protocol(1, 7, writer_features=["appendOnly"])) == {"appendOnly"}


def test_an_unknown_reader_feature_is_refused_by_name() -> None:
    found = protocol(3, 7, reader_features=["deletionVectors", "teleport"], writer_features=["teleport"])
    with pytest.raises(Refused, match="reader feature teleport"):
        check_readable(found, "/t")
    check_readable(protocol(3, 7, reader_features=["deletionVectors"], writer_features=["teleport"]), "/t")


def test_a_newer_reader_version_is_refused() -> None:
    with pytest.raises(Refused, match="reader version is 4"):
        check_readable(protocol(4, 7, writer_features=[]), "/t")


def test_what_keeps_a_table_from_being_written_is_named() -> None:
    assert unwritable(protocol(1, 2)) == ()
    assert unwritable(protocol(1, 7, writer_features=["rowTracking", "domainMetadata"])) == ()
    (reason,) = unwritable(protocol(1, 7, writer_features=["liquid"]))
    assert "writer feature liquid" in reason
    (reason,) = unwritable(protocol(1, 8))
    assert "writer version is 8" in reason
    (reason,) = unwritable(
        protocol(3, 7, reader_features=["catalogManaged"], writer_features=["catalogManaged"])
    )
    assert "catalogManaged" in reason


def test_protocol_and_metadata_keep_what_they_do_not_know() -> None:
    value = a_protocol(3, 7, reader_features=["b", "a"], writer_features=["c"], later={"x": 1})["protocol"]
    assert Protocol.from_json(value).to_json() == value | {"readerFeatures": ["a", "b"]}
    table = a_metadata(configuration={"k": "v"}, name="n", description="d", later=[1])["metaData"]
    assert Metadata.from_json(table).to_json() == table
    assert list(Metadata.from_json(table).to_json())[:3] == ["id", "name", "description"]


def test_properties_are_typed() -> None:
    metadata = Metadata.from_json(
        a_metadata(configuration={"b": "TRUE", "i": "12", "t": "interval 2 days", "x": "often"})["metaData"]
    )
    assert metadata.property_bool("b", default=False) is True
    assert metadata.property_bool("absent", default=True) is True
    assert metadata.property_int("i", 1) == 12
    assert metadata.property_interval_ms("t", 1) == 172_800_000
    assert metadata.property_interval_ms("absent", 1) == 1
    for read in (metadata.property_bool, metadata.property_int, metadata.property_interval_ms):
        with pytest.raises(InvalidMetadata, match=r"configuration\.x: 'often' is"):
            read("x", 1)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("interval 7 days", 7),
        ("INTERVAL 1 WEEK", 7),
        ("30 days", 30),
        ("interval 168 hours", 7),
        ("interval 1 day 12 hours", 1.5),
        ("interval 1440 minutes", 1),
        ("interval 86400 seconds", 1),
        ("interval 86400000 milliseconds", 1),
        ("interval 86400000000 microseconds", 1),
        ("interval 2 days -1 day", 1),
        ("interval 0 hours", 0),
        ("interval 43200.5 seconds 43199.5 seconds", 1),
        ("interval 0 months 7 days", 7),
        ("  interval + 7 days ", 7),
    ],
)
def test_intervals_are_milliseconds(text: str, days: float) -> None:
    assert interval_ms(text) == days * 86_400_000


@pytest.mark.parametrize(
    "text", ["", "interval", "interval 1 month", "1 year", "7", "days", "interval 7days", "interval -1 day"]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="interval"):
        interval_ms(text)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("interval '7' day", 7),
        ("interval '7 days'", 7),
        ("interval '-1' days 3 days", 2),
        ("interval 1 month", 31),
        ("interval 1 year 2 months", 366 + 62),
        ("interval 1 month -30 days", 1),
    ],
)
def test_what_delta_spark_does_not_read_as_a_length_of_time_is_the_longest_that_it_can_mean(
    text: str, days: int
) -> None:
    assert interval(text).length_ms == days * 86_400_000
    metadata = Metadata.from_json(a_metadata(configuration={"t": text})["metaData"])
    assert metadata.property_interval_ms("t", 0) == days * 86_400_000
    assert metadata.property_interval_ms("t", 10**12) == 10**12
    assert repr(text) in (metadata.interval_problem("t") or "")


@pytest.mark.parametrize(
    "text", ["interval 1.5 days", "interval '1 12:00:00' day to second", "seven days", "7 d"]
)
def test_what_means_no_length_of_time_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no interval of"):
        interval(text)


def test_properties_that_are_null_are_not_set_and_survive() -> None:
    """Delta Spark has it so."""
    value = a_metadata()["metaData"] | {"configuration": {"x": None, "delta.appendOnly": "true"}}
    metadata = Metadata.from_json(value)
    assert metadata.configuration == {"delta.appendOnly": "true"}
    assert metadata.property_interval_ms("x", 5) == 5
    assert metadata.to_json()["configuration"] == {"x": None, "delta.appendOnly": "true"}
    changed = replace(metadata, configuration={**metadata.configuration, "x": "set"})
    assert changed.to_json()["configuration"] == {"x": "set", "delta.appendOnly": "true"}


def test_what_a_flag_counts_as_that_is_neither_true_nor_false_is_said_by_who_reads_it() -> None:
    metadata = Metadata.from_json(a_metadata(configuration={"b": "yes"})["metaData"])
    for unreadable in (True, False):
        assert metadata.property_bool("b", default=not unreadable, unreadable=unreadable) is unreadable


@pytest.mark.parametrize(
    ("features", "properties", "enabled"),
    [
        (["inCommitTimestamp"], {"delta.enableInCommitTimestamps": "true"}, True),
        (["inCommitTimestamp"], {"delta.enableInCommitTimestamps": "false"}, False),
        (["inCommitTimestamp"], {"delta.enableInCommitTimestamps": "perhaps"}, False),
        (["inCommitTimestamp"], {}, False),
        ([], {"delta.enableInCommitTimestamps": "true"}, False),
    ],
)
def test_commits_tell_their_time_where_feature_and_property_say_so(
    features: list[str], properties: dict[str, str], enabled: bool
) -> None:
    protocol = Protocol.from_json(a_protocol(1, 7, writer_features=features)["protocol"])
    metadata = Metadata.from_json(a_metadata(configuration=properties)["metaData"])
    assert has_in_commit_timestamps(protocol, metadata) is enabled
    since = {**properties, "delta.inCommitTimestampEnablementVersion": "4"}
    metadata = Metadata.from_json(a_metadata(configuration=since)["metaData"])
    assert in_commit_since(protocol, metadata) == (4 if enabled else None)
