"""The errors of catalogs that cannot be used."""

from __future__ import annotations

from iceberg_cli.errors import BackendUnavailable, UsageError, how_to_install


def no_answer(name: str, reason: str) -> BackendUnavailable:
    """The error of a catalog that cannot be listed."""
    return BackendUnavailable(f"Cannot list the catalog {name}: {reason}")


def not_installed(name: str, error: ImportError) -> UsageError:
    """The error of a catalog whose type needs a package that is not there."""
    return UsageError(
        f"Cannot open the catalog {name}: {error.name} is not installed.",
        next_step=how_to_install(error),
    )
