"""The output of rows by `inspect`: as a table, as one JSON document, as JSON lines, or into a file."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa

from iceberg_cli.cli.context import Run
from iceberg_cli.errors import UsageError
from iceberg_cli.formats import Inspector
from iceberg_cli.plan.inspection import Row

_BUFFER_BYTES = 32 << 20


def show(run: Run, shown: Inspector, what: str, *, limit: int | None) -> None:
    """Print rows as a table; without a limit, and unless --verbose, not more than fit a few screens."""
    from iceberg_cli.cli.render.inspection import read_rows, show_rows

    rows = read_rows(shown, what, limit=limit, verbose=run.verbose)
    run.progress.close()
    with run.paging():
        show_rows(run.out, rows, location=shown.location)


def print_document(run: Run, shown: Inspector, what: str, *, limit: int | None) -> None:
    """Print one JSON document on standard output, and none if a part of it cannot be read."""
    head = shown.header(what)
    if not shown.streams(what):
        from iceberg_cli.cli.render import print_json

        rows = shown.rows(what, limit=limit)
        run.progress.close()
        print_json({**head, "row_count": len(rows), "rows": rows})
        return
    head |= shown.head(what)
    # Rows wait until the last one is read: half a document followed by an error would be no document.
    with tempfile.SpooledTemporaryFile(_BUFFER_BYTES, mode="w+", encoding="ascii") as buffer:
        total = 0
        for part in shown.lines(what, limit=limit, before=",\n    "):
            text = str(_bytes_of(part), "ascii")
            buffer.write(text if total else text.removeprefix(","))
            total += len(part)
        run.progress.close()
        buffer.seek(0)
        sys.stdout.write(
            json.dumps({**head, "row_count": total}, indent=2).removesuffix("\n}") + ',\n  "rows": ['
        )
        shutil.copyfileobj(buffer, sys.stdout, 1 << 20)
        sys.stdout.write("\n  ]\n}\n" if total else "]\n}\n")


def _bytes_of(texts: pa.Array) -> memoryview:
    """The concatenated bytes of all strings, without a copy."""
    _, offsets, data = texts.buffers()
    if not len(texts):
        return memoryview(b"")
    ends = memoryview(offsets).cast("i")[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(data)[ends[0] : ends[-1]]


def save(run: Run, shown: Inspector, what: str, path: str, *, limit: int | None) -> None:
    """Write rows to a file, which is there whole or not at all.

    Raises:
        UsageError: the file cannot be written.
    """
    write = _write_parquet if path.endswith(".parquet") else _write_lines
    try:
        with _whole(path) as file:
            total = write(file, shown, what, limit)
    except OSError as error:
        raise UsageError(f"Cannot write {error.filename or path}: {error.strerror or error}") from error
    run.progress.close()
    from iceberg_cli.cli.render import print_json
    from iceberg_cli.plan.text import count

    if run.json:
        print_json({**shown.header(what), "row_count": total, "output": path})
    elif not run.quiet:
        run.out.line(f"{count(total, 'rows')} of {what} written to {path}")


@contextmanager
def _whole(path: str) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path`, which is renamed to it if the block succeeds."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "xb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise


def lines(shown: Inspector, what: str, *, limit: int | None) -> Iterator[pa.Array]:
    """Rows as JSON objects with a newline each, as many at a time as are known."""
    if shown.streams(what):
        return shown.lines(what, limit=limit, after="\n")
    return texts(shown.rows(what, limit=limit))


def texts(rows: Sequence[Row]) -> Iterator[pa.Array]:
    """Rows that are known already, as `lines` has them."""
    yield pa.array([f"{json.dumps(row)}\n" for row in rows], pa.string())


def print_lines(run: Run, parts: Iterable[pa.Array]) -> None:
    """Print rows on standard output, each part as soon as it is known."""
    for part in parts:
        run.progress.close()
        sys.stdout.write(str(_bytes_of(part), "ascii"))
        sys.stdout.flush()
    run.progress.close()


def _write_lines(file: IO[bytes], shown: Inspector, what: str, limit: int | None) -> int:
    total = 0
    for part in lines(shown, what, limit=limit):
        file.write(_bytes_of(part))
        total += len(part)
    return total


def _write_parquet(file: IO[bytes], shown: Inspector, what: str, limit: int | None) -> int:
    import pyarrow.parquet as pq

    if not shown.streams(what):
        # Objects and lists have another shape in every row: they are JSON text in a Parquet file.
        rows = [{key: _flat(value) for key, value in row.items()} for row in shown.rows(what, limit=limit)]
        pq.write_table(pa.Table.from_pylist(rows), file)
        return len(rows)
    total = 0
    # Paths and statistics are in no other row, and zstd finds what repeats as well as a dictionary does.
    with pq.ParquetWriter(file, shown.schema(what), compression="zstd", use_dictionary=False) as writer:
        for table in shown.tables(what, limit=limit):
            writer.write_table(table)
            total += table.num_rows
    return total


def _flat(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value
