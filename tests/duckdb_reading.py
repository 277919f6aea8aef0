"""DuckDB as a reader of Iceberg and Delta tables."""

from __future__ import annotations

import functools
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_delta
import duckdb_extension_iceberg


@functools.cache
def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    """The one connection of this process: to load the extensions takes ten times as long as to read a table of a test.

    It keeps nothing of what it has read: DuckDB 1.5.5 takes one deletion vector for another of the same Puffin file out
    of its cache of files. It starts no threads, which a process that is forked off would miss.
    """
    connection = duckdb.connect(config={"threads": 1})
    for module in (duckdb_extension_avro, duckdb_extension_iceberg):
        (file,) = Path(module.__path__[0]).rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    connection.execute("SET enable_external_file_cache = false")
    return connection


@functools.cache
def duckdb_with_delta() -> duckdb.DuckDBPyConnection:
    """Likewise."""
    connection = duckdb.connect(config={"threads": 1})
    (file,) = Path(duckdb_extension_delta.__path__[0]).rglob("*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
    return connection
