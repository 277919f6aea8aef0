"""Which object a path names, what keeps a file, and which folders a table owns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.paths import (
    Roots,
    canonical,
    canonical_column,
    common_folders,
    folder_column,
    is_suspicious,
    may_begin_with,
    may_have,
    path_key,
    path_key_column,
    scheme_of,
    whole_store,
)

STARTS = [
    "s3://bucket",
    "s3a://bucket",
    "S3N://b",
    "file:",
    "file://",
    "hdfs://nn:8020",
    "gs://b",
    "abfss://c@a.dfs.core.windows.net",
    "WASB://c@A.blob.core.windows.net",
    "hdfs:",
    "",
]
SEGMENTS = ["", ".", "..", "a", "b=1", "%2e%2e", "%2F", "%5C", "k=50%25", "é漢", ":", "?versionId=", "\n"]
SEGMENTS += ["..\n", "\\", "a\\..\\b", "k=1\u20442", "東京\uff0f大阪", "\0", "\x7f"]
SEGMENTS += ["_iceberg_cli", "version-hint.text"]
PIECES = st.sampled_from([*STARTS, *SEGMENTS, "/", "//", "/./"])
PATHS = st.lists(PIECES, max_size=6).map("".join)
WHOLE_PATHS = st.builds(
    lambda start, segments: "/".join([start, *segments]),
    st.sampled_from(STARTS),
    st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=5),
)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("/a//b/./c", "/a/b/c"),
        ("/a/../b", "/a/../b"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3a://bucket/a/b", "s3://bucket/a/b"),
        ("s3n://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a//b/./c", "s3://bucket/a//b/./c"),
        ("s3://bucket/k=50%25/x", "s3://bucket/k=50%25/x"),
        ("hdfs://nn:8020/a", "hdfs://nn:8020/a"),
        ("HDFS:/a", "hdfs:/a"),
    ],
)
def test_one_object_has_one_spelling(path: str, key: str) -> None:
    assert canonical(path) == key


@pytest.mark.parametrize(
    "path", ["s3://b/t/x", "s3a://b/t/x", "s3n://other/t/x", "/t/x", "file:///t/x", "hdfs:/t//x", "/t/./x"]
)
def test_liveness_ignores_scheme_and_authority_so_that_doubt_keeps_a_file(path: str) -> None:
    assert path_key(path) == "/t/x"


@pytest.mark.parametrize(
    "path",
    ["k=Inc./x", "k=Inc../x", "k=Inc[[.]]/x", "k=Inc.[[.]]/x", "k=Inc.\\x", "k=Inc/x.", "k=Inc./x[[.]]"],
)
def test_names_on_azure_end_before_their_last_dots(path: str) -> None:
    assert path_key(f"wasbs://c@a.blob.core.windows.net/t/{path}") == "/t/k=Inc/x"
    assert path_key(f"s3://b/t/{path}") == f"/t/{path}"


def test_case_and_encoding_tell_objects_apart() -> None:
    names = ["/t/k=50%25/x", "/t/k=50%/x", "/t/K=50%25/x", "/t/é", "/t/e\u0301"]
    assert len({path_key(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("path", "scheme"), [("/a", "file"), ("a:b", "a"), ("s3a://b", "s3"), ("S3://b", "s3"), ("gs://b", "gs")]
)
def test_the_scheme_is_in_lower_case_and_aliases_of_s3_are_one(path: str, scheme: str) -> None:
    assert scheme_of(path) == scheme


@pytest.mark.parametrize(
    "path",
    [
        "s3://b/t/../u",
        "/t/..",
        "/t/./x",
        "s3://b/t/./x",
        "s3://b/t/..",
        "/t/a\x00b",
        "s3://b/t/a\x00b",
        "abfss://b@c/t/a/../b",
        "abfss://b@c/t/a\\b",
        "abfss://b@c/t/a\nb",
    ],
)
def test_a_path_that_could_mean_another_place_is_suspicious(path: str) -> None:
    assert is_suspicious(path)
    assert not Roots.of(["/t", "s3://b/t", "abfss://b@c/t"]).own(path)


ODD_NAMES = [
    *(
        "a..b",
        "k=07%3A45%2Fb",
        ".hidden",
        "k=50%25",
        "...",
        "é漢",
        "a b",
        "a+b",
        "a?b#c",
        "..;",
        "..\n",
        "\n",
        " ..",
    ),
    *(
        "k=東京\uff0f大阪",
        "k=1\u20442",
        "a\u2215b",
        "a\u29f8b",
        "\uff0e\uff0e",
        "\u2025",
        "a\x7fb",
        "a\x01b",
        "a\rb",
    ),
    *(
        "a\\b",
        "a\\..\\b",
        "%2e%2e",
        "%2E%2e",
        ".%2e",
        "k=a%2F.%2Fb",
        "k=a%2f..%2fb",
        "a%5c%2E%2e%5cb",
        "%00",
        "~",
    ),
]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("folder", ["/t", "s3://b/t"])
def test_a_name_that_the_storage_takes_as_it_is_spelled_is_the_table_s_own(folder: str, name: str) -> None:
    roots = Roots.of(["/t", "s3://b/t"])
    for path in (f"{folder}/{name}", f"{folder}/{name}/x", f"{folder}/data/{name}/{name}"):
        assert not is_suspicious(path)
        assert roots.own(path)
        assert roots.own_column(pa.array([f"{folder}/plain", path])).to_pylist() == [True, True]


def test_a_table_owns_what_is_below_its_folder_and_nothing_beside_it() -> None:
    roots = Roots.of(["s3a://lake/shop/orders/"])
    assert roots.own("s3://lake/shop/orders/data/x")
    for path in (
        "s3://lake/shop/orders",
        "s3://lake/shop/orders/data/x/",
        "s3://lake/shop/orders_old/data/x",
        "s3://lake/shop/x",
        "s3://other/shop/orders/data/x",
        "/shop/orders/data/x",
    ):
        assert not roots.own(path), path


@pytest.mark.parametrize(
    "location", ["/", "//", "file:///", "s3://bucket", "s3://bucket/", "", "t", "s3://b/../t"]
)
def test_a_whole_bucket_or_disk_is_no_table_s_folder(location: str) -> None:
    assert Roots.of([location]).folders == ()


@pytest.mark.parametrize("spelled", ["s3://bucket", "s3a://bucket/", "S3N://bucket//"])
def test_a_whole_bucket_is_a_root_once_it_is_allowed(spelled: str) -> None:
    assert whole_store(spelled) == "s3://bucket"
    roots = Roots.of(["s3://bucket", "/t"], allowed=[spelled])
    assert set(roots.folders) == {"/t", "s3://bucket"}
    assert roots.own("s3://bucket/data/x")
    assert not roots.own("s3://bucket-2/data/x")


@pytest.mark.parametrize("spelled", ["/", "//", "file:///", "file:/"])
def test_a_whole_disk_is_never_allowed(spelled: str) -> None:
    assert whole_store(spelled) == "/"
    assert Roots.of([spelled], allowed=[spelled]).folders == ()


@pytest.mark.parametrize("spelled", ["s3://b/t", "/t", "t", "", "s3://", "s3:"])
def test_a_folder_is_no_whole_bucket(spelled: str) -> None:
    assert whole_store(spelled) is None


def test_the_deepest_folder_that_holds_all_is_told_for_each_bucket_and_disk() -> None:
    folders = ["/a/b/k=1", "/a/b/k=2/x", "s3://b/t", "/a/b", "s3://c", "s3://b/t/u"]
    assert common_folders(folders) == ("/a/b", "s3://b/t", "s3://c")
    assert common_folders(["/a", "/b"]) == ("/",)
    assert common_folders(["/ab", "/abc"]) == ("/",)
    assert common_folders([]) == ()


def test_locations_that_are_the_same_folder_count_once() -> None:
    assert Roots.of(["file:/a/t/", "/a/t", "/a//t"]).folders == ("/a/t",)


@given(st.lists(PATHS, max_size=6))
def test_columns_answer_as_single_paths_do(paths: list[str]) -> None:
    column = pa.array(paths, pa.string())
    assert canonical_column(column).to_pylist() == [canonical(path) for path in paths]
    assert path_key_column(column).to_pylist() == [path_key(path) for path in paths]
    roots = Roots.of(["/a", "s3://bucket/a"])
    assert roots.own_column(column).to_pylist() == [roots.own(path) for path in paths]
    roots = Roots.of(["/a", "s3://bucket/a", "hdfs://nn:8020/a"])
    assert roots.own_column(column).to_pylist() == [roots.own(path) for path in paths]


@given(WHOLE_PATHS)
def test_a_canonical_path_is_its_own_canonical_path_and_keeps_its_liveness(path: str) -> None:
    assert canonical(canonical(path)) == canonical(path)
    assert path_key(canonical(path)) == path_key(path)


MIXED = [
    "s3://lake/t/a",
    "s3://lake-data/t/a",
    "s3a://lake/t/a",
    "file:/t/a",
    "file:///t/a",
    "file://localhost/t/a",
    "/t/a",
    "/t//a",
    "/t/./a",
    "hdfs:/t/a",
    "hdfs://nn:8020/t/a",
    "abfss://c@a.dfs.core.windows.net/t\\a",
    "wasbs://c@a.blob.core.windows.net/t/a",
    "abfss://c@a.dfs.core.windows.net/t./a",
    "abfss://c@a.dfs.core.windows.net/t/a[[.]]",
    "abfss://c@a.dfs.core.windows.net/t/a.",
    "t/a",
]


@given(st.lists(st.sampled_from(MIXED), min_size=1, max_size=6))
def test_a_liveness_key_does_not_depend_on_what_else_is_in_its_batch(paths: list[str]) -> None:
    expected = [path_key(path) for path in paths]
    assert path_key_column(pa.array(paths, pa.string())).to_pylist() == expected


@pytest.mark.parametrize(
    "odd",
    [
        "/t/../u",
        "/t/.",
        "/t/%2e%2e/u",
        "/t/a\\b",
        "/t/a\nb",
        "/t/a\x7f",
        "/t/a\u2215b",
        "/t/metadata/version-hint.text",
        "/t/_iceberg_cli/ops/1/plan.json",
        "/t/_delta_log/0.json",
        "/t/.hidden",
        "/t/k=50%25/é",
        "/u/data/x",
    ],
)
def test_one_odd_path_in_a_column_of_plain_ones_is_judged_as_it_is_alone(odd: str) -> None:
    paths = ["/t/data/1.parquet", odd, "/t/data/2.parquet"]
    roots = Roots.of(["/t"])
    for kind in (pa.string(), pa.large_string()):
        column = pa.array(paths, kind)
        expected = [roots.own(path) for path in paths]
        assert roots.own_column(column).to_pylist() == expected
        assert roots.own_column(column.slice(1)).to_pylist() == expected[1:]
        assert roots.own_column(column.slice(2)).to_pylist() == [True]


def test_noise_in_one_path_of_a_column_is_found_wherever_the_column_begins() -> None:
    paths = ["/t/a/", "/t/b", "/t//c", "/t/./d", "/t/e"]
    for kind in (pa.string(), pa.large_string()):
        for first in range(len(paths)):
            column = pa.array(paths, kind).slice(first)
            assert path_key_column(column).to_pylist() == [path_key(path) for path in paths[first:]]
            assert canonical_column(column).to_pylist() == [canonical(path) for path in paths[first:]]


@given(st.lists(PATHS, max_size=6), st.integers(0, 3))
def test_folders_of_a_column_are_what_stands_before_the_last_slash(paths: list[str], first: int) -> None:
    column = pa.array(paths, pa.string()).slice(first)
    expected = [path.rpartition("/")[0] if "/" in path else path for path in paths[first:]]
    assert folder_column(column).to_pylist() == expected


@given(st.lists(PATHS, max_size=6), st.integers(0, 3))
def test_a_column_that_cannot_have_a_character_has_it_nowhere(paths: list[str], first: int) -> None:
    for kind in (pa.string(), pa.large_string()):
        column = pa.array(paths, kind).slice(first)
        assert may_have(column, b"%:") == any("%" in path or ":" in path for path in paths[first:])
        names = [name for path in paths[first:] for name in path.split("/")]
        assert may_begin_with(column, b".?") or not any(name.startswith((".", "?")) for name in names)


def test_names_that_begin_plainly_are_not_looked_at_again() -> None:
    paths = pa.array(["k=1/part-0.parquet", "k_1/x._", "a"])
    assert not may_begin_with(paths, b"._")
    assert may_begin_with(pa.array(["k=1/_x", "a"]), b"._")
    assert may_begin_with(pa.array(["a", ".x"]), b"._")
