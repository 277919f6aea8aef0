"""Pages of `--report`: a document as one HTML file that needs no network, no server and, but to sort, no script.

`write_page` takes the document that the command prints. HTML is one more rendering: nothing below the command line
knows of it. Whatever comes from a table is escaped by the template, control characters are spelled out, and secrets in
locations are left out; and if any of that should fail, the page's own policy lets no script, style or address in.

`jinja2` and `matplotlib` come with the extra `report` and are imported when a page is asked for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_cli.errors import UsageError, how_to_install

if TYPE_CHECKING:
    from iceberg_cli.api import Plan
    from iceberg_cli.cli.page.table_content import TableContent

ENDINGS = (".html", ".htm")


def check_target(path: str) -> None:
    """Refuse a page that cannot be written, before the table is looked at.

    Raises:
        UsageError: the name is not that of a page, its folder is not there, or a library is not installed.
    """
    if not path.endswith(ENDINGS):
        raise UsageError(f"--report: {path!r} must end in .html")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UsageError(f"--report: the folder {folder} is not there")
    if os.path.isdir(path):
        raise UsageError(f"--report: {path} is a folder")
    try:
        import jinja2  # noqa: F401 - a run is not to fail for it once it has done its work
        import matplotlib as mpl  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--report needs the Python package {error.name}, which is not installed",
            next_step=how_to_install(error, extra="report"),
        ) from error


def write_page(
    document: Mapping[str, Any],
    path: str,
    *,
    content: TableContent | None = None,
    plans: Sequence[Plan] = (),
    commands: Sequence[str] = (),
) -> None:
    """Write the page of a document; a file that is there is replaced, and is whole at any moment.

    Args:
        document: `fleet/1` or `maintenance/1`; or, of one table, `inspection/2` of a summary or a check, `plan/2` or
            `survey/1`.
        path: of the file.
        content: of one table.
        plans: of one table: those of the document, as values.
        commands: for `survey/1`: the command line of each plan.

    Raises:
        UsageError: the file cannot be written, or no page is known for the document.
    """
    check_target(path)
    text = page_of(document, content=content, plans=plans, commands=commands)
    try:
        _replace(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(
            f"Cannot write the page to {error.filename or path}: {error.strerror or error}"
        ) from error


def page_of(
    document: Mapping[str, Any],
    *,
    content: TableContent | None = None,
    plans: Sequence[Plan] = (),
    commands: Sequence[str] = (),
) -> str:
    """The page of a document as text; arguments are those of `write_page`."""
    match document.get("schema"):
        case "iceberg-cli/fleet/1":
            from iceberg_cli.cli.page.fleet_page import fleet_page

            return fleet_page(document)
        case "iceberg-cli/maintenance/1":
            from iceberg_cli.cli.page.maintenance_page import maintenance_page

            return maintenance_page(document)
        case "iceberg-cli/inspection/2" | "iceberg-cli/plan/2" | "iceberg-cli/survey/1" if (
            content is not None
        ):
            from iceberg_cli.cli.page.table_page import table_page

            return table_page(document, content, plans=plans, commands=commands)
    raise UsageError(f"--report: no page is known for {document.get('schema')!r}")


def _replace(path: str, data: bytes) -> None:
    """Write a file beside another one, durably, and give it the other one's name."""
    path = os.path.realpath(path)  # a link stays one
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
