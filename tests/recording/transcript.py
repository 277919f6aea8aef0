"""What one test asks an engine, in its order: asked of the engine, or answered from what is on record."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

from tests.recording import archives
from tests.recording.answers import decoded, encoded
from tests.recording.canonical import TOKEN, Form, form_of, form_of_file, outline_of_answer, outline_of_file
from tests.recording.folder_state import State, TableFolder, digest_of, is_checksum
from tests.recording.moving import as_here, for_the_record, put_in, replaced

_AGE = re.compile(r" -?\d+ days$")
_CONTEXT = 80  # characters around a difference that is shown


class EngineFailed(Exception):
    """An engine refused, with its message."""


class NotOnRecord(AssertionError):
    """Nobody knows what the engine would answer."""


@dataclass
class Transcript:
    """The questions of one test and their answers.

    Args:
        path: of the archive.
        live: whether the engine is there.
    """

    path: Path
    live: bool
    _entries: list[dict[str, Any]] = field(default_factory=list)
    _contents: dict[str, bytes] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)  # digests that other archives hold
    _known: dict[tuple[str, str], str] = field(default_factory=dict)  # name and digest here: digest on record
    _tokens: set[str] = field(default_factory=set)  # of what is known
    _drawn: set[str] = field(default_factory=set)  # tokens of what is not
    _next: int = 0

    def __post_init__(self) -> None:
        if not self.live and self.path.exists():
            document, self._contents = archives.load(self.path)
            self._entries = document["entries"]

    # -- tables that are on record -------------------------------------------------------------------------------

    def place(self, folder: TableFolder, table: Path, document: Mapping[str, Any]) -> None:
        """Put a table that is on record where a test wants it; see `put_back`."""
        files, contents = _table_on_record(table, document)
        self._contents |= contents
        self._shared |= contents.keys()
        self._put(folder, files)
        for name, (digest, _, _) in files.items():
            self._tokens |= _tokens_of(name, contents[digest])

    # -- questions -----------------------------------------------------------------------------------------------

    def answer(self, folder: TableFolder, text: str, ask: Callable[[], Any]) -> Any:
        """What the engine says to a question about a table, which it may change.

        Args:
            folder: of the table.
            text: the question.
            ask: asks the engine.

        Raises:
            NotOnRecord: the question, or the table that it is asked of, is another one.
            EngineFailed: the engine refused.
        """
        question = form_of(replaced(text, folder.stand_ins)).text
        return self._from_engine(folder, question, ask) if self.live else self._from_record(folder, question)

    def _from_engine(self, folder: TableFolder, question: str, ask: Callable[[], Any]) -> Any:
        before = folder.state()
        given, table = self._given(folder, before), _outline_of_table(folder, before)
        answer, failed = None, None
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            failed = error
        found = json.dumps(None if failed else encoded(answer))
        text = replaced(found, folder.stand_ins)
        entry: dict[str, Any] = {
            "question": question,
            "given": given.digests,
            "table": table,
            "answer": text,
            "aliases": {token: place for token, place in given.places.items() if token in text},
        }
        if failed is not None:
            entry["failed"] = replaced(str(failed), folder.stand_ins)[:2000]
        if (after := folder.state()) != before:
            entry |= self._changed(folder, before, after, given)
        self._entries.append(entry)
        if failed is not None:
            raise failed
        return decoded(json.loads(found))

    def _changed(self, folder: TableFolder, before: State, after: State, given: _Given) -> dict[str, Any]:
        """What an engine wrote and removed, for the record.

        Files that are not the engine's have other names in each run. Where it named one of them in what it wrote, they
        all are on record with it; else those of the run stay beside what it wrote.
        """
        own = {name for name in after if before.get(name) != after[name]}
        tokens: set[str] = set()
        for name in own:
            tokens |= _tokens_of(name, folder.read(name))
        self._drawn |= given.places.keys()
        self._tokens |= tokens - self._drawn
        files = {}
        for name, data in _for_the_record(folder, after).items():
            digest, here = digest_of(data), after[name]
            self._contents[digest] = data
            if name in own:
                self._known[name, here.digest] = digest
            files[name] = [digest, here.days, (name, here.digest) in self._known]
        return {
            "files": files,
            "tokens": sorted(tokens - self._drawn),
            "beside": None
            if tokens & given.places.keys()
            else [sorted(own), sorted(before.keys() - after.keys())],
        }

    def _from_record(self, folder: TableFolder, question: str) -> Any:
        if not self._entries:
            raise NotOnRecord(f"nothing is on record in {self.path.name}: run the live test with --record")
        if self._next == len(self._entries):
            raise NotOnRecord(f"the record ends before: {question}")
        entry = self._entries[self._next]
        self._next += 1
        if entry["question"] != question:
            raise NotOnRecord(f"on record is: {entry['question']}\nasked is: {question}")
        given = self._given(folder, folder.state())
        was, now = _that_count(entry["given"], question), _that_count(given.digests, question)
        if was != now:
            raise NotOnRecord(_difference(was, now, given.forms, question))
        text = entry["answer"]
        for token, place in entry["aliases"].items():
            text = text.replace(token, given.token_at[place])
        if "files" in entry:
            self._put(folder, entry["files"], beside=entry["beside"])
            self._tokens |= set(entry["tokens"])
        if "failed" in entry:
            raise EngineFailed(put_in(entry["failed"], folder.stand_ins))
        return decoded(json.loads(put_in(text, folder.stand_ins)))

    # -- what is known of a table ----------------------------------------------------------------------------------

    def _given(self, folder: TableFolder, state: State) -> _Given:
        """A table as it is, in terms that do not depend on what was drawn since the last answer."""
        digests, unknown = [], []
        for name, content in state.items():
            if is_checksum(name):
                continue
            age = f" {content.days} days" if content.days else ""
            on_record = self._known.get((name, content.digest))
            if on_record is None:
                unknown.append((name, age))
            else:
                digests.append(f"{name} {on_record}{age}")
        sizes = {state[name].size for name, _ in unknown}
        forms, places, token_at = {}, {}, {}
        for name, age in unknown:
            form = form_of_file(
                name, folder.read(name), known=self._tokens, sizes=sizes, stand_ins=folder.stand_ins
            )
            line = f"* {form.digest}{age}"
            digests.append(line)
            forms[line] = form
            for number, token in enumerate(form.tokens):
                places.setdefault(token, f"{form.digest}:{number}")
                token_at[f"{form.digest}:{number}"] = token
        return _Given(sorted(digests), forms, places, token_at)

    def _put(
        self, folder: TableFolder, files: Mapping[str, list[Any]], *, beside: list[list[str]] | None = None
    ) -> None:
        written, removed = ([*files], None) if beside is None else beside
        here = _as_here({name: files[name] for name in written}, self._contents, folder.stand_ins)
        for name, (data, _) in here.items():
            digest, _, by_engine = files[name]
            if by_engine:
                self._known[name, digest_of(data)] = digest
        empty = [name for name in files if name.endswith("/")]
        folder.put(here, removed=removed, empty=empty)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self, *, record: bool) -> None:
        """The test has passed: see that all was asked, or compare what the engine answered with what is on record.

        Args:
            record: write what differs instead of failing.

        Raises:
            NotOnRecord: it differs.
        """
        if not self.live:
            if self._next < len(self._entries):
                raise NotOnRecord(f"not asked any more: {self._entries[self._next]['question']}")
            return
        if not self._entries:
            return
        known = archives.load(self.path)[0]["entries"] if self.path.exists() else []
        if record and [*map(_all_of, known)] != [*map(_all_of, self._entries)]:
            named = {digest for entry in self._entries for digest, _, _ in entry.get("files", {}).values()}
            own = {each: self._contents[each] for each in named - self._shared}
            archives.save(self.path, {"entries": self._entries}, own)
        elif not record:
            for was, now in zip(known, self._entries, strict=False):
                if (one := _answer_of(was)) != (other := _answer_of(now)):
                    parts = "\n".join(_where_they_part(str(one), str(other)))
                    raise NotOnRecord(f"the engine says something else (+) than on record (-):\n{parts}")
            if known and len(known) != len(self._entries):
                raise NotOnRecord(f"{len(known)} questions are on record, {len(self._entries)} were asked")


def _that_count(lines: list[str], question: str) -> list[str]:
    """Files with their ages where an engine goes by them; a test may write some with times that never change."""
    return lines if "VACUUM" in question else sorted(_AGE.sub("", line) for line in lines)


@dataclass(frozen=True)
class _Given:
    digests: list[str]
    forms: Mapping[str, Form]
    places: Mapping[str, str]  # of tokens in what is unknown
    token_at: Mapping[str, str]


def record_or_check(folder: TableFolder, path: Path, document: Mapping[str, Any], *, record: bool) -> None:
    """Of a table that an engine has just written: see that it is the one on record, or put it there.

    Args:
        folder: of the table.
        path: of its archive; there may be none.
        document: what else is to be known of it.
        record: write what is missing or has another outline instead of failing.

    Raises:
        NotOnRecord: another one is on record.
    """
    is_there = path.exists()
    other = _difference_from_record(folder, path) if is_there else ""
    if record and (other or not is_there or not _is_of(archives.load(path)[0], document)):
        state = folder.state()
        data = _for_the_record(folder, state)
        files = {name: [digest_of(data[name]), content.days, True] for name, content in state.items()}
        contents = {digest: data[name] for name, (digest, _, _) in files.items()}
        archives.save(path, {**document, "files": files}, contents)
    elif other:
        raise NotOnRecord(f"the engine writes another {path.name} than the one on record:\n{other}")


def put_back(folder: TableFolder, path: Path, document: Mapping[str, Any]) -> None:
    """Put a table that is on record where it was, for a test that has no transcript.

    Args:
        folder: where.
        path: of its archive.
        document: what is known of it, as it was recorded.

    Raises:
        NotOnRecord: there is none, or another one.
    """
    files, contents = _table_on_record(path, document)
    folder.put(_as_here(files, contents, folder.stand_ins))


def _table_on_record(
    path: Path, document: Mapping[str, Any]
) -> tuple[Mapping[str, list[Any]], Mapping[str, bytes]]:
    if not path.exists():
        raise NotOnRecord(f"{path.name} is not on record: run a live test with --record")
    known, contents = archives.load(path)
    if not _is_of(known, document):
        raise NotOnRecord(f"another {path.name} is on record: run a live test with --record")
    return known["files"], contents


def _is_of(known: dict[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether a record has all that is known of a table."""
    return {**known, **document} == known


def _for_the_record(folder: TableFolder, state: State) -> dict[str, bytes]:
    """What the files of a table hold, with what stands for their places."""
    return {name: for_the_record(name, folder.read(name), folder.stand_ins) for name in state}


def _as_here(
    files: Mapping[str, list[Any]], contents: Mapping[str, bytes], stand_ins: Mapping[str, str]
) -> dict[str, tuple[bytes, int]]:
    """Contents and ages of files, without Hadoop's checksums of those in which places are other ones here."""
    here = {
        name: (as_here(name, contents[digest], stand_ins), days) for name, (digest, days, _) in files.items()
    }
    moved = {name for name, (data, _) in here.items() if digest_of(data) != files[name][0]}
    stale = {"{}/.{}.crc".format(*name.rsplit("/", 1)) for name in moved}
    return {name: file for name, file in here.items() if name not in stale}


def _difference_from_record(folder: TableFolder, path: Path) -> str:
    """What a table and the one on record do not have in common; nothing where both have the same outline."""
    document, contents = archives.load(path)
    recorded = {name: contents[digest] for name, (digest, _, _) in document["files"].items()}
    was, now = _outline(recorded, {}), _outline(_contents_of(folder, folder.state()), folder.stand_ins)
    pairs = zip_longest(sorted(was - now), sorted(now - was), fillvalue="")
    return "\n".join(line for one, other in pairs for line in _where_they_part(one, other))


def _where_they_part(one: str, other: str) -> tuple[str, ...]:
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    start = max(0, equal - _CONTEXT)
    return tuple(
        f"{sign} {text[:40]} ... {text[start:][: 3 * _CONTEXT]}" for sign, text in (("-", one), ("+", other))
    )


def _outline_of_table(folder: TableFolder, state: State) -> str:
    """The digest of what its files say."""
    texts = _outline(_contents_of(folder, state), folder.stand_ins)
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:20]


def _contents_of(folder: TableFolder, state: State) -> dict[str, bytes]:
    return {name: folder.read(name) for name in state}


def _outline(contents: Mapping[str, bytes], stand_ins: Mapping[str, str]) -> set[str]:
    texts: set[str] = set()
    for name, data in contents.items():
        if not is_checksum(name):
            texts |= outline_of_file(name, data, stand_ins)
    return texts


@lru_cache(maxsize=4096)  # many tests begin with the same tables
def _tokens_of(name: str, data: bytes) -> frozenset[str]:
    """Those in a file's name and in what it says."""
    return frozenset({*TOKEN.findall(name), *form_of_file(name, data).tokens})


def _answer_of(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """What an engine answered, in canonical form; rows in any order."""
    if "failed" in entry:
        return ("failed",)
    return (entry["question"], outline_of_answer(json.loads(entry["answer"])))


def _all_of(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return (_answer_of(entry), entry["table"], len(entry["given"]), "files" in entry)


def _difference(was: list[str], now: list[str], forms: Mapping[str, Form], question: str) -> str:
    gone = [line for line in was if line not in now]
    new = [line for line in now if line not in was]
    texts = [form.text[:3000] for line, form in forms.items() if line.removeprefix("* ")[:20] in "".join(new)]
    return "\n".join([
        f"the table is not the one of which the engine was asked {question}",
        f"on record only: {gone}", f"here only: {new}", *texts,
        "where that is meant: delete the record and run the live test with --record",
    ])  # fmt: skip
