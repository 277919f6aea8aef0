"""What a file or an answer says, apart from what is drawn or measured anew each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import fastavro
import pyarrow.parquet as pq

from tests.delta_spark import plain
from tests.recording.moving import replaced

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?|(?<![\w.])1\d{12}(?!\w)"
TOKEN = re.compile(
    rf"{_UUID}|{_TIME}|(?<![\w.])(?:\d{{12,}}(?!\w)|[0-9a-f]{{32}}(?!\w)|[0-9A-Za-z]{{2}}(?=/part-))"
)
"""A UUID, a time, a number of as many digits as a time in ms or an id has, an MD5, a folder that Delta drew."""
_IS_TIME = re.compile(_TIME)
_PROGRAM = re.compile(r"(iceberg-cli[ /]v?)\d+(?:\.\w+)+")
_SIZES = frozenset({
    "content_offset", "file_size_in_bytes", "length", "manifest_length", "offset", "size", "size_in_bytes",
    "sizeInBytes",
})  # fmt: skip
# Of a summary, where paths in position deletes are of any length, and of a checkpoint and its sidecars.
_SUM_OF_SIZES = re.compile(r"files-size$|^sidecarSizeInBytes$")
_IS_SIZE = re.compile(r"[sS]ize|[bB]ytes|length|offset")
_NUMBER_OF_SPARK = re.compile(
    r"(?<=#)\d+L?|(?<=/)\d{5}(?=-\d+-<drawn>)|(?<=\d{5}-)\d+(?=-<drawn>)|(?<=<drawn>-)\d{5}(?=-deletes)|(?<=part-)\d{5}|(?<=-0-)\d{5}(?=\.)"
    r"|(?<=-)[0-9a-f]{16}(?=-)"
)
# Names of files of vectors, the test that began the session, and which of several files a commit lists first.
_CHANCE = frozenset({"pathOrInlineDv", "app-name", "first_row_id", "_row_id"})
_MEASURED = re.compile(r"(?:Time|Duration|Ms)(?:Ms)?$|duration")


@dataclass(frozen=True)
class Form:
    """The canonical form of something.

    Args:
        text: with `<n>` for the token that appeared as the n-th one, and `<time>` for times, as two may be equal.
        tokens: the former, in the order in which they appeared first.
    """

    text: str
    tokens: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Short, and the same for equal texts."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:20]


def form_of(text: str, *, known: Collection[str] = ()) -> Form:
    """Number the tokens of a text, but for those that are known."""
    tokens: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        token = found[0]
        if token in known:
            return token
        return "<time>" if _IS_TIME.fullmatch(token) else f"<{tokens.setdefault(token, len(tokens))}>"

    return Form(TOKEN.sub(number, _PROGRAM.sub(r"\1<version>", text)), tuple(tokens))


def form_of_file(
    name: str,
    data: bytes,
    *,
    known: Collection[str] = (),
    sizes: Collection[int] = (),
    stand_ins: Mapping[str, str] = MappingProxyType({}),
) -> Form:
    """That of a file's name and what it holds.

    Args:
        name: its ending says how it is read.
        data: its bytes; what cannot be read so is taken as it is.
        known: tokens that are as good as words.
        sizes: of files that are not the same each time: where a number says such a size it does not count.
        stand_ins: parts of texts that are other ones in each run, by what stands for them.
    """
    text = json.dumps(_without_measures(_content(name, data), sizes), default=_plain)
    return form_of(replaced(f"{name}: {text}", stand_ins), known=known)


def outline_of_file(name: str, data: bytes, stand_ins: Mapping[str, str]) -> set[str]:
    """What two runs of an engine have in common where its tasks share out rows in another way, item by item.

    Args:
        name: of the file.
        data: its bytes.
        stand_ins: parts of texts that are other ones in each run, by what stands for them.
    """
    if name.endswith(".bin"):
        return set()  # which tasks share a file of deletion vectors is chance
    ending = name.rpartition("/")[2].rpartition(".")[2]
    match _content(name, data):
        case {"schema": _, "rows": items} | {"header": _, "records": items} | [*items]:
            pass
        case document:
            items = [document]
    texts = (json.dumps(_outline(json.loads(json.dumps(item, default=_legible)))) for item in items)
    return {outline_of(replaced(f"{ending}: {text}", stand_ins)) for text in texts}


def outline_of_answer(answer: Any) -> str:
    """The same of an encoded answer, whose rows may come in any order."""
    return outline_of(json.dumps(_outline(_with_names(answer))))


def _with_names(answer: Any) -> Any:
    match answer:
        case {"row": [names, values]}:
            return dict(zip(names, map(_with_names, values), strict=True))
        case {"map": pairs}:
            return {str(key): _with_names(value) for key, value in pairs}
        case {**tagged} if len(tagged) == 1:
            [(kind, value)] = tagged.items()
            return {kind: _with_names(value)}
        case list():
            return [_with_names(each) for each in answer]
    return answer


def outline_of(text: str) -> str:
    """A text without anything that is drawn, counted by Spark's session, or measured."""
    return _NUMBER_OF_SPARK.sub("<number>", TOKEN.sub("<drawn>", text))


def _outline(node: Any) -> Any:
    match node:
        case {
            "manifest_path": _,
            "partition_spec_id": spec,
        }:  # which file is in which manifest is chance, too
            return {"content": node.get("content", 0), "partition_spec_id": spec}
        case {"content": 1, "record_count": _}:  # position deletes, of whichever data files
            return {key: _outline(node[key]) for key in ("content", "file_path", "partition") if key in node}
        case dict():
            return {
                key: "<size>" if _IS_SIZE.search(key)
                else "<measured>" if _MEASURED.search(key)
                else "<drawn>" if key in _CHANCE
                else _outline(value)
                for key, value in node.items()
            }  # fmt: skip
        case list():
            parts = [_outline(each) for each in node]
            return sorted(parts, key=lambda part: outline_of(json.dumps(part)))
        case str() if node.startswith(("{", "[")):
            return outline_of(node)
    return node


def _content(name: str, data: bytes) -> Any:
    try:
        return _parsed(name, data)
    except Exception:  # noqa: BLE001 - tests damage files on purpose: then their bytes count
        return hashlib.sha256(data).hexdigest()


def _parsed(name: str, data: bytes) -> Any:
    file = name.rpartition("/")[2]
    if name.endswith((".json", ".crc", "_last_checkpoint")):
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        try:
            document = json.loads(text)
        except ValueError:
            lines = [json.loads(line) for line in text.splitlines()]
            return _in_order(lines) if ".checkpoint." in name else lines
        return {**document, "sizeInBytes": "<size>"} if file == "_last_checkpoint" else document
    if name.endswith(".avro"):
        reader = fastavro.reader(io.BytesIO(data))
        header = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
        return {"header": header, "records": _in_order(list(reader))}
    if name.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(data))
        return {"schema": str(table.schema.remove_metadata()), "rows": _in_order(table.to_pylist())}
    if name.endswith((".puffin", ".stats")):  # which hold statistics, too
        return list(_puffin(data))
    return hashlib.sha256(data).hexdigest()


def _in_order(rows: list[Any]) -> list[Any]:
    """Rows in an order that what is drawn does not decide."""
    return sorted(rows, key=lambda row: form_of(json.dumps(row, default=_plain)).text)


def _puffin(data: bytes) -> Iterator[Any]:
    """Its footer, then its blobs."""
    length = int.from_bytes(data[-12:-8], "little")
    footer = json.loads(data[-12 - length : -12])
    yield footer
    for blob in footer["blobs"]:
        yield hashlib.sha256(data[blob["offset"] :][: blob["length"]]).hexdigest()


def _without_measures(node: Any, sizes: Collection[int]) -> Any:
    if isinstance(node, dict):
        return {
            key: "<drawn>" if key == "pathOrInlineDv" and node.get("storageType") == "u"
            else "<size>" if key in _SIZES and isinstance(value, int) and value in sizes
            else "<size>" if isinstance(key, str) and _SUM_OF_SIZES.search(key)
            else "<measured>" if isinstance(key, str) and _MEASURED.search(key) and isinstance(value, int | str)
            and not TOKEN.fullmatch(str(value))
            else _without_measures(value, sizes)
            for key, value in node.items()
        }  # fmt: skip
    if isinstance(node, list):
        return [_without_measures(each, sizes) for each in node]
    return node


def _legible(value: Any) -> Any:
    if isinstance(value, bytes) and value.isascii() and value.decode().isprintable():
        return value.decode()
    return _plain(value)


def _plain(value: Any) -> Any:
    kept = plain(value)
    return kept if kept is not value else repr(value)
