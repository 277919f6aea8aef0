"""The errors of catalogs that cannot be used."""

from __future__ import annotations

from iceberg_cli.errors import BackendUnavailable, UsageError, how_to_install


def no_database_file(path: str) -> BackendUnavailable:
    """There is no file of an SQLite database; SQLite would make an empty one of a mistyped name."""
    return BackendUnavailable(
        f"Cannot open the catalog: there is no database file {path}",
        next_step="Correct its uri, or mount what the file is on.",
    )


def no_answer(name: str, reason: str) -> BackendUnavailable:
    """The error of a catalog that cannot be listed."""
    return BackendUnavailable(f"Cannot list the catalog {name}: {reason}")


def not_installed(name: str, error: ImportError, *, extra: str) -> UsageError:
    """The error of a catalog whose type needs a package that is not there, and the extra that brings it."""
    return UsageError(
        f"Cannot open the catalog {name}: {error.name} is not installed.",
        next_step=how_to_install(error, extra=extra),
    )
