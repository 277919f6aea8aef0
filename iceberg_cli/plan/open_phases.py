"""The phases of a run that have begun and not ended, of each of its threads by itself."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

Value = TypeVar("Value")


class OpenPhases(Generic[Value]):
    """Phases by name, each with a value; those of one thread lie in each other."""

    def __init__(self) -> None:
        self._of_thread: dict[int, list[tuple[str, Value]]] = {}

    def begin(self, name: str, value: Value) -> None:
        """Record that a phase begins in this thread."""
        self._of_thread.setdefault(threading.get_ident(), []).append((name, value))

    def end(self, name: str) -> Value | None:
        """Record that a phase ends in this thread, and give its value; None where it had not begun.

        Where a signal struck, the ends of phases in it may be missing: they end with it.
        """
        thread = threading.get_ident()
        phases = self._of_thread.get(thread, [])
        found: Value | None = None
        while phases and found is None:
            begun, value = phases.pop()
            found = value if begun == name else None
        if not phases:
            self._of_thread.pop(thread, None)
        return found

    @property
    def values(self) -> list[Value]:
        """Those of this thread, the innermost last."""
        return [value for _, value in self._of_thread.get(threading.get_ident(), [])]

    def clear(self) -> None:
        """Forget all."""
        self._of_thread.clear()
