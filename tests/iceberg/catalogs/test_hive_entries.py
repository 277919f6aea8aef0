"""What goes to a Hive Metastore, without one: entries by the wire's own types, and parameters as Java writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hive_metastore import ttypes as types
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportException

from iceberg_cli.errors import AccessDenied, UsageError
from iceberg_cli.iceberg.catalogs.hive.client import HiveConnection
from iceberg_cli.iceberg.catalogs.hive.entry import HiveEntry, RawStruct
from iceberg_cli.iceberg.catalogs.hive.parameters import parameters_after, why_not_held
from iceberg_cli.iceberg.catalogs.registry import Catalogs, open_catalog_table


def written(struct: Any) -> bytes:
    memory = TMemoryBuffer()
    struct.write(TBinaryProtocol(memory))
    return bytes(memory.getvalue())


def read(data: bytes) -> RawStruct:
    return RawStruct.read(TBinaryProtocol(TMemoryBuffer(data)))


A_TABLE = types.Table(
    tableName="t",
    dbName="d",
    owner="o",
    createTime=-3,
    retention=2_147_483_647,
    temporary=True,
    writeId=1 << 40,
    parameters={"metadata_location": "s3://b/ü", "other": ""},
    sd=types.StorageDescriptor(
        cols=[types.FieldSchema("i", "int", "c")],
        serdeInfo=types.SerDeInfo(parameters={"a": "1"}),
        bucketCols=[],
        skewedInfo=types.SkewedInfo(skewedColValueLocationMaps={}),
    ),
    accessType=8,
)


def test_an_entry_is_written_as_it_was_read() -> None:
    assert written(read(written(A_TABLE))) == written(A_TABLE)


def test_fields_that_no_generated_class_knows_are_kept() -> None:
    unknown = (
        (900, TType.SET, (TType.STRING, [b"one", b"two"])),
        (901, TType.DOUBLE, 0.5),
        (902, TType.STRING, b"\xff no text"),
        (903, TType.STRUCT, RawStruct(((1, TType.I64, -1),))),
    )
    newer = RawStruct((*read(written(A_TABLE)).fields, *unknown))
    entry = HiveEntry(read(written(newer)))
    changed = entry.with_parameters({**entry.parameters, "metadata_location": "elsewhere"})
    found = read(written(changed.raw))
    assert found.fields[-4:] == unknown
    assert HiveEntry(found).parameters == {"metadata_location": "elsewhere", "other": ""}
    others = [field for field in newer.fields if field[0] != 9]
    assert [field for field in found.fields if field[0] != 9] == others


SNAPSHOT = {
    "snapshot-id": 7,
    "timestamp-ms": 1_700_000_000_123,
    "summary": {
        "operation": "replace",
        "total-data-files": "4",
        "total-records": "10",
        "total-files-size": "900",
        "ü": "1",
    },
}
AFTER = {"format-version": 3, "table-uuid": "u", "current-snapshot-id": 7, "snapshots": [SNAPSHOT]}
# As HMSTablePropertyHelper of Iceberg 1.12 writes them for this metadata.
OF_JAVA = {
    "uuid": "u",
    "snapshot-count": "1",
    "current-snapshot-id": "7",
    "current-snapshot-timestamp-ms": "1700000000123",
    "current-snapshot-summary": '{"total-data-files":"4","total-records":"10","total-files-size":"900","ü":"1"}',
    "numFiles": "4",
    "numRows": "10",
    "totalSize": "900",
}
MOVED = {"metadata_location": "new", "previous_metadata_location": "base"}


def after_commit(before: dict[str, str], after: dict[str, Any], *updates: dict[str, Any]) -> dict[str, str]:
    return parameters_after(before, after=after, updates=updates, base="base", location="new")


def test_what_java_repeats_of_the_metadata_is_kept_in_step() -> None:
    stale = dict.fromkeys(OF_JAVA, "stale")
    before = {**stale, "format-version": "2", "owner of it": "x", "metadata_location": "base"}
    found = after_commit(before, AFTER, {"action": "add-snapshot", "snapshot": SNAPSHOT})
    assert found == {**OF_JAVA, **MOVED, "format-version": "3", "owner of it": "x"}


def test_what_no_writer_put_there_is_not_added() -> None:
    assert after_commit({"metadata_location": "base"}, AFTER) == MOVED


def test_a_total_that_the_new_snapshot_does_not_tell_goes_with_the_word_that_it_is_accurate() -> None:
    before = {"numRows": "9", "totalSize": "8", "COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}'}
    silent = {**AFTER, "snapshots": [{**SNAPSHOT, "summary": {"operation": "replace"}}]}
    assert after_commit(before, silent, {"action": "add-snapshot"}) == MOVED
    assert after_commit(before, silent, {"action": "remove-snapshots"}) == {**before, **MOVED}


def test_what_is_too_long_or_gone_is_said_no_more() -> None:
    long = {**SNAPSHOT, "summary": {"x": "y" * 40_000}}
    before = {"current-snapshot-summary": "{}", "current-snapshot-id": "7"}
    found = after_commit(before, {**AFTER, "snapshots": [long]})
    assert found == {**MOVED, "current-snapshot-id": "7"}
    assert after_commit(before, {**AFTER, "snapshots": [], "current-snapshot-id": None}) == MOVED


def test_properties_are_repeated_by_javas_names() -> None:
    updates = (
        {
            "action": "set-properties",
            "updates": {"gc.enabled": "false", "a": "1", "hive.metastore.table.owner": "x"},
        },
        {"action": "remove-properties", "removals": ["b"]},
    )
    found = after_commit({"b": "2", "c": "3"}, AFTER, *updates)
    assert found == {"c": "3", "a": "1", "external.table.purge": "false", **MOVED}


@pytest.mark.parametrize(
    ("location", "base", "reason"),
    [
        ("s3://b/\N{SNOWMAN}", "s3://b/x", "may not hold \N{SNOWMAN}"),
        ("s3://b/\N{SNOWMAN}", "s3://\N{SNOWMAN}", None),
        ("x" * 4_001, "x", "it has 4,001 characters"),
        ("x" * 4_001, "x" * 4_002, None),
        ("x" * 4_000, "x", None),
    ],
)
def test_what_a_column_of_the_metastore_may_not_hold_is_known_by_the_base(
    location: str, base: str, reason: str | None
) -> None:
    found = why_not_held(location, base)
    assert found is None if reason is None else reason in (found or "")


@pytest.mark.parametrize("uri", ["http://h:1", "thrift://", "thrift://h:x", "thrift://h:1,h:2"])
def test_a_uri_that_is_none_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="thrift://host:port"):
        HiveConnection("prod", {"uri": uri})


@pytest.mark.parametrize(
    ("error", "denied"),
    [
        (types.MetaException("No privilege 'Alter' found for inputs { database:d, table:t}"), True),
        (
            types.MetaException(
                "java.security.AccessControlException: Permission denied: user=x, access=WRITE"
            ),
            True,
        ),
        (types.MetaException("Permission denied: user [x] does not have [ALTER] privilege on [d/t]"), True),
        (TTransportException(message="SASL negotiation failure: Unauthorized connection"), True),
        (TTransportException(message="Permission denied"), False),
        (types.MetaException("The table has been modified. The parameter value for key"), False),
        (types.MetaException(None), False),
    ],
)
def test_what_a_metastore_says_to_users_who_may_not_is_known(error: Exception, denied: bool) -> None:
    connection = HiveConnection("prod", {"uri": "thrift://h:1"})
    assert isinstance(connection.error("Cannot do it", error), AccessDenied) == denied


def test_kerberos_without_its_packages_says_what_to_install() -> None:
    with pytest.raises(UsageError) as caught:
        HiveConnection("prod", {"uri": "thrift://h:1", "hive.kerberos-authentication": "true"})
    assert "hive-kerberos" in caught.value.next_step


def test_a_metastore_has_no_namespaces_in_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "thrift://127.0.0.1:1")
    with pytest.raises(UsageError, match="no databases in databases"):
        open_catalog_table("prod.a.b.t", catalogs=Catalogs())
