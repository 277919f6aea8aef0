"""Where the command starts: beside the package, for others have a package of the same name.

The distribution `iceberg-cli` is another tool. Installed after this one it replaces `iceberg_cli/__init__.py`, removed
it takes that file away, and in a folder that comes earlier on the path it hides the whole package.
"""

from __future__ import annotations

import sys

DISTRIBUTION = "iceberg-table-maintenance"
USAGE = 2


def main() -> None:
    """Run the command line, if the package is the one that belongs to it."""
    try:
        import iceberg_cli
    except ImportError:  # the other one, without what it needs
        iceberg_cli = None  # type: ignore[assignment]
    if getattr(iceberg_cli, "DISTRIBUTION", None) != DISTRIBUTION:
        sys.stderr.write(_of_others(list(getattr(iceberg_cli, "__path__", ()))))
        raise SystemExit(USAGE)
    from iceberg_cli.cli.starting import main as program

    program()


def _of_others(places: list[str]) -> str:
    where = f" in {places[0]}" if places else ""
    return (
        f"error: Cannot start: the package iceberg_cli{where} is not that of {DISTRIBUTION}, or not all of it: "
        "another distribution with a package of this name, such as iceberg-cli, replaces or hides it.\n"
        "Nothing was changed.\n"
        "Remove the other one (pip uninstall iceberg-cli), then install this one again from its checkout "
        "(pip install --force-reinstall --no-deps CHECKOUT). To keep both, give each an environment of its own.\n"
    )
