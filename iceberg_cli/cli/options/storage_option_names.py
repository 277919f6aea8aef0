"""Warnings of storage options that no storage knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from iceberg_cli.storage.option_names import unknown_options

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,23}(\.[\w-]{1,63})*")


def warnings_of(names: Iterable[str]) -> list[str]:
    """A line for each name of a storage option that no storage here knows, with the nearest that one does.

    A text that does not look like a name may be a secret before a mistyped `=`, and is not in the line.
    """
    return [_warning(name, known) for name, known in unknown_options(names).items()]


def _warning(name: str, known: Sequence[str]) -> str:
    import difflib  # most runs mistype nothing

    family = f"{name.partition('.')[0].lower()}."
    names = [each for each in known if each.startswith(family)] or known
    near = "".join(f" Did you mean {each}?" for each in difflib.get_close_matches(name.lower(), names, n=1))
    shown = name if near or _NAME.fullmatch(name) else "the name of one of the options"
    return f"--storage-option: no storage here knows {shown}.{near}"
