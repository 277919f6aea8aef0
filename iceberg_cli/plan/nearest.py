"""Suggestions for a mistyped name."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 3


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A sentence with the nearest of some names, the best first, to be put behind another one; empty if none is near.

    Args:
        word: what was written.
        names: what there is.
    """
    import difflib  # most runs mistype nothing

    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), by_lower, n=_SHOWN)
    return f" Did you mean {' or '.join(repr(by_lower[name]) for name in found)}?" if found else ""
