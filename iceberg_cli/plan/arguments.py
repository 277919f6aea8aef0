"""Errors in the words of who called: the options of a command line are arguments for a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from iceberg_cli.errors import IcebergCliError, UsageError

# A command line in backticks is one to type, for programs' readers too.
_FLAG: Final = re.compile(r"`[^`]*`|(?<![\w-])--[a-z][a-z0-9-]*")
_NEXT_STEP: Final = "Correct the call: `help()` of what is called shows its arguments."

OPEN_ARGUMENTS: Final = {
    "--storage-option": "storage_options",
    "--catalog-config": "catalog_config",
    "--engine": "engine",
    "--unsafe-allow-root": "allow_roots",
    "--unsafe-trust-lists": "trust_lists",
    "--unsafe-conditional-writes": "conditional_writes",
    "--unsafe-single-writer": "single_writer",
    "--unsafe-forget-metadata": "forget_metadata",
}
"""What a program gives `open_table` where the command line has options."""


def name_arguments(error: IcebergCliError, names: Mapping[str, str]) -> None:
    """Have an error name arguments where it names options.

    Args:
        error: changed in place.
        names: of the arguments, by flag; other flags stay.
    """

    def named(text: str) -> str:
        return _FLAG.sub(lambda found: names.get(found[0], found[0]), text)

    if isinstance(error, UsageError) and error.general:
        error.next_step = _NEXT_STEP
    error.message, error.next_step = named(error.message), named(error.next_step)


@contextmanager
def naming(names: Mapping[str, str], *, names_options: bool = False) -> Iterator[None]:
    """Have the errors of a block name arguments.

    Args:
        names: see `name_arguments`.
        names_options: the command line called, whose errors are left as they are.
    """
    try:
        yield
    except IcebergCliError as error:
        if not names_options:
            name_arguments(error, names)
        raise
