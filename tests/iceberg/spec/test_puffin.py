"""Puffin files against files of Iceberg's Java library, and PyIceberg reading ours."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from iceberg_cli.encoding.deletion_vector import DeletionVector, decode, encode
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.spec.deletes.puffin import (
    Blob,
    BlobMetadata,
    Footer,
    deletion_vector_blob,
    footer_bytes,
    read_footer,
    read_vectors_footer,
    write,
)
from tests.paths import FIXTURES, needs_fixtures

SAMPLES = FIXTURES / "01-iceberg-spec-fixtures/org/apache/iceberg/puffin/v1"
FIRST = b"abcdefghi"
SECOND = "some blob \0 binary data \U0001f92f that is not very very very very very very long, is it?".encode()

CHANGES = [
    b"",
    *(bytes([byte]) for byte in b'"\\{}[]:, \t\n\0-+.0179eEaz'),
    b"\xff",
    b"\xc3\xa9",
    b"\xed\xa0\x80",  # half of a surrogate pair
]


def footer_of(data: bytes) -> Footer:
    return read_footer(data, len(data), "x.puffin")


def contents(data: bytes) -> list[bytes]:
    """The blobs as they are stored."""
    return [data[b.offset : b.offset + b.length] for b in footer_of(data).blobs]


def puffin_of(
    document: object, *, blobs: bytes = b"", flags: bytes = bytes(4), payload: bytes | None = None
) -> bytes:
    stored = json.dumps(document).encode() if payload is None else payload
    return b"PFA1" + blobs + b"PFA1" + stored + struct.pack("<i", len(stored)) + flags + b"PFA1"


def with_blobs(*rows: dict[str, object]) -> bytes:
    """A file in which these rows of its footer describe three bytes."""
    return puffin_of({"blobs": rows}, blobs=b"abc")


def a_row(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "type": "t",
        "fields": [1],
        "snapshot-id": 2,
        "sequence-number": 1,
        "offset": 4,
        "length": 3,
    }
    row.update({key.replace("_", "-"): value for key, value in changes.items()})
    return {key: value for key, value in row.items() if value is not None}


@needs_fixtures
def test_java_file_without_blobs_has_an_empty_footer() -> None:
    data = (SAMPLES / "empty-puffin-uncompressed.bin").read_bytes()
    assert footer_of(data) == Footer(blobs=(), properties={}, offset=4)
    assert footer_bytes(data[-12:], len(data), "x") == 28


@needs_fixtures
@pytest.mark.parametrize("codec", ["uncompressed", "compressed-zstd"])
def test_java_file_reads_as_its_two_blobs(codec: str) -> None:
    data = (SAMPLES / f"sample-metric-data-{codec}.bin").read_bytes()
    footer = footer_of(data)
    assert footer.properties == {"created-by": "Test 1234"}
    assert [(b.type, b.fields, b.snapshot_id, b.sequence_number) for b in footer.blobs] == [
        ("some-blob", (1,), 2, 1),
        ("some-other-blob", (2,), 2, 1),
    ]
    assert [b.compression_codec for b in footer.blobs] == [None if codec == "uncompressed" else "zstd"] * 2
    if codec == "uncompressed":
        assert contents(data) == [FIRST, SECOND]
    else:
        assert pa.CompressedInputStream(pa.BufferReader(contents(data)[0]), "zstd").read() == FIRST


@needs_fixtures
def test_writing_the_blobs_of_java_gives_the_very_bytes_of_java() -> None:
    for name in (
        "empty-puffin-uncompressed",
        "sample-metric-data-uncompressed",
        "sample-metric-data-compressed-zstd",
    ):
        java = (SAMPLES / f"{name}.bin").read_bytes()
        footer = footer_of(java)
        blobs = [
            Blob(
                type=b.type,
                fields=b.fields,
                data=java[b.offset : b.offset + b.length],
                snapshot_id=b.snapshot_id,
                sequence_number=b.sequence_number,
                compression_codec=b.compression_codec,
                properties=b.properties,
            )
            for b in footer.blobs
        ]
        assert write(blobs, footer.properties) == java


@needs_fixtures
def test_deletion_vectors_of_spark_mark_the_first_row_and_are_written_again_byte_for_byte() -> None:
    java = next((FIXTURES / "03-iceberg-v3-deletion-vectors/data").glob("*.puffin")).read_bytes()
    footer = footer_of(java)
    assert [(b.offset, b.length) for b in footer.blobs] == [(4, 42), (46, 42)]
    assert [decode(c, "x", cardinality=1, max_position=0).positions().tolist() for c in contents(java)] == [
        [0],
        [0],
    ]
    blobs = [
        deletion_vector_blob(
            encode(DeletionVector.of([0])),
            referenced_data_file=b.properties["referenced-data-file"],
            cardinality=1,
        )
        for b in footer.blobs
    ]
    assert write(blobs, footer.properties) == java


@needs_fixtures
def test_every_puffin_file_of_the_tables_reads_whole() -> None:
    read = 0
    for path in sorted(FIXTURES.rglob("*.puffin")) + sorted(FIXTURES.rglob("*.stats")):
        data = path.read_bytes()
        for blob, content in zip(footer_of(data).blobs, contents(data), strict=True):
            if blob.type == "deletion-vector-v1":
                assert blob.fields == (2147483645,)
                assert decode(content, str(path)).cardinality == int(blob.properties["cardinality"])
            read += 1
    assert read > 20


def test_footer_is_read_from_the_tail_of_a_file() -> None:
    data = write([Blob(type="t", fields=[1], data=bytes(10_000))], {})
    needed = footer_bytes(data[-12:], len(data), "x")
    assert read_footer(data[-needed:], len(data), "x") == footer_of(data)
    with pytest.raises(CorruptFile, match="were read"):
        read_footer(data[-needed + 1 :], len(data), "x")


def test_pyiceberg_reads_our_deletion_vectors(tmp_path: Path) -> None:
    positions = {"s3://b/a.parquet": [0, 5, 70_000], "s3://b/b.parquet": list(range(1000))}
    blobs = [
        deletion_vector_blob(encode(DeletionVector.of(p)), referenced_data_file=name, cardinality=len(p))
        for name, p in positions.items()
    ]
    theirs = PuffinFile(write(blobs, {"created-by": "test"}))
    read = {
        v.referenced_data_file: v.to_vector().to_pylist() for v in deletion_vectors_from_puffin_file(theirs)
    }
    assert read == positions


def test_footer_compressed_with_lz4_is_read() -> None:
    payload = json.dumps({"blobs": [a_row()]}).encode()
    stored = pa.compress(payload, codec="lz4", asbytes=True)
    footer = footer_of(puffin_of(None, blobs=b"abc", payload=stored, flags=b"\x01\0\0\0"))
    assert footer.blobs == (
        BlobMetadata(type="t", fields=(1,), snapshot_id=2, sequence_number=1, offset=4, length=3),
    )


def test_unknown_keys_of_footer_and_blob_survive_a_rewrite() -> None:
    footer = footer_of(puffin_of({"blobs": [a_row(colour="red")], "author": "me"}, blobs=b"abc"))
    assert footer.extra == {"author": "me"}
    again = write(
        [Blob(type="t", fields=[1], data=b"abc", extra=footer.blobs[0].extra)], {}, extra=footer.extra
    )
    assert footer_of(again).blobs[0].extra == {"colour": "red"}
    assert footer_of(again).extra == {"author": "me"}


GOOD = with_blobs(a_row())
CORRUPT: dict[str, tuple[bytes, str]] = {
    "magic at the start": (b"PFA2" + GOOD[4:], "byte 0: magic"),
    "magic at the end": (GOOD[:-1] + b"2", "magic"),
    "magic before the footer": (GOOD[:7] + b"PFA2" + GOOD[11:], "footer magic"),
    "flag of the future": (GOOD[:-8] + b"\x02\0\0\0" + b"PFA1", "flags 02000000"),
    "flag in the last byte": (GOOD[:-8] + b"\0\0\0\x80" + b"PFA1", "flags 00000080"),
    "footer size -1": (GOOD[:-12] + b"\xff\xff\xff\xff" + GOOD[-8:], "-1 bytes"),
    "footer larger than the file": (GOOD[:-12] + b"\xff\xff\xff\x7f" + GOOD[-8:], "2147483647 bytes"),
    "footer one byte too large": (GOOD[:-12] + struct.pack("<i", len(GOOD) - 19) + GOOD[-8:], "footer says"),
    "nothing": (b"", "magic"),
    "only magics": (b"PFA1PFA1", "too few"),
    "no blobs": (puffin_of({}), "blobs: a list"),
    "blob is no object": (puffin_of({"blobs": [3]}), r"blobs\[0\]: an object"),
    "no offset": (with_blobs(a_row(offset=None)), r"blobs\[0\].offset"),
    "offset is a bool": (with_blobs(a_row(offset=True)), r"blobs\[0\].offset"),
    "no type": (with_blobs(a_row(type=None)), r"blobs\[0\].type"),
    "fields of text": (with_blobs(a_row(fields=["1"])), r"blobs\[0\].fields"),
    "codec is a number": (with_blobs(a_row(compression_codec=1)), "compression-codec"),
    "property is a number": (with_blobs(a_row(properties={"a": 1})), "properties"),
    "offset before the blobs": (with_blobs(a_row(offset=3)), "leave"),
    "offset -1": (with_blobs(a_row(offset=-1)), "leave"),
    "length -1": (with_blobs(a_row(length=-1)), "leave"),
    "length into the footer": (with_blobs(a_row(length=4)), "leave"),
    "length that overflows": (with_blobs(a_row(length=2**63 - 1)), "leave"),
    "overlap": (with_blobs(a_row(), a_row(offset=6, length=1)), "overlap"),
    "blob twice": (with_blobs(a_row(), a_row()), "overlap"),
    "not JSON": (puffin_of(None, payload=b"{"), "x.puffin"),
    "JSON with a key twice": (puffin_of(None, payload=b'{"blobs":[],"blobs":[]}'), "x.puffin"),
    "footer is no LZ4": (puffin_of({"blobs": []}, flags=b"\x01\0\0\0"), "damaged lz4"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_file_is_refused_with_the_reason(name: str) -> None:
    data, reason = CORRUPT[name]
    with pytest.raises(CorruptFile, match=reason):
        footer_of(data)


def test_footer_with_a_blob_of_a_codec_of_the_future_is_read() -> None:
    data = with_blobs(a_row(compression_codec="brotli"))
    assert footer_of(data).blobs[0].compression_codec == "brotli"


def test_damaged_frame_of_a_footer_is_refused() -> None:
    stored = pa.compress(b"x" * 5000, codec="lz4", asbytes=True)[:-3]
    with pytest.raises(CorruptFile, match="damaged lz4 frame"):
        footer_of(puffin_of(None, payload=stored, flags=b"\x01\0\0\0"))


def test_footer_that_inflates_to_half_a_gigabyte_is_refused() -> None:
    stored = pa.compress(bytes(512 << 20), codec="lz4", asbytes=True)
    assert len(stored) < 4 << 20
    with pytest.raises(CorruptFile, match="after decompression"):
        footer_of(puffin_of(None, payload=stored, flags=b"\x01\0\0\0"))


def rows_of_json(payload: bytes) -> list[tuple[object, ...]]:
    """What Python's own parser reads, in the order of `BlobMetadata`; a key that appears twice is an error."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    keys = ("snapshot-id", "sequence-number", "offset", "length")
    document = json.loads(payload, object_pairs_hook=unique)
    assert document.keys() <= {"blobs", "properties"}
    return [
        (row["type"], tuple(row["fields"]), *(row[key] for key in keys), None, row["properties"], {})
        for row in document["blobs"]
        if row.keys() == {"type", "fields", *keys, "properties"}
    ]


@needs_fixtures
def test_footer_of_spark_is_read_by_the_quick_way_and_says_what_json_says() -> None:
    java = next((FIXTURES / "03-iceberg-v3-deletion-vectors/data").glob("*.puffin")).read_bytes()
    payload = java[footer_of(java).offset + 4 : -12]
    for text in (payload, json.dumps(json.loads(payload), ensure_ascii=False).encode()):
        quick = read_vectors_footer(text)
        assert quick is not None
        assert list(quick.rows) == rows_of_json(text)
        assert quick.properties == json.loads(text)["properties"]


def test_every_change_of_one_byte_of_a_footer_is_read_as_json_says_or_left_to_the_strict_parser() -> None:
    blobs = [
        deletion_vector_blob(b"abc", referenced_data_file=path, cardinality=3)
        for path in ("a", "data/é x.parquet")
    ]
    data = write(blobs, {"created-by": "us"})
    payload = data[footer_of(data).offset + 4 : -12]
    assert read_vectors_footer(payload) is not None
    read = 0
    for place in range(len(payload)):
        changes = [payload[:place] + byte + payload[place + 1 :] for byte in CHANGES]
        changes += [payload[:place] + byte + payload[place:] for byte in CHANGES]
        for changed in changes:
            quick = read_vectors_footer(changed)
            if quick is not None:
                assert list(quick.rows) == rows_of_json(changed)
                assert quick.properties == json.loads(changed).get("properties", {})
                read += 1
    assert read > 500
