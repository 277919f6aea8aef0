"""An engine for simulated worlds that parses the same bytes once a process: files of a table never change."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any, Final, TypeVar

from iceberg_cli.engines import Item, Loaded, OnEvent, Parsed, Scan
from iceberg_cli.engines.local import LocalEngine

Result = TypeVar("Result")

_MOST: Final = 4_000  # results that are kept
_parsed: OrderedDict[Hashable, bytes] = OrderedDict()


@dataclass(frozen=True, slots=True)
class ParsedOnce(LocalEngine):
    """The local engine in one thread, where batches of the same items and contents have the result of the first.

    A function is the same where its code is and all values that it closes over are; what cannot be compared is parsed
    anew. Each caller gets a copy.
    """

    threads: int = 1

    def scan(
        self, scan: Scan[Item, Loaded, Parsed], items: Sequence[Item], *, on_event: OnEvent
    ) -> Iterator[Parsed]:
        """See `Engine.scan`."""
        known: Any = replace(scan, parse=partial(_once, scan.parse))
        return LocalEngine.scan(self, known, items, on_event=on_event)


def _once(parse: Callable[[Any], Result], batch: Sequence[Any]) -> Result:
    key = (_identity(parse), tuple(batch))
    try:
        kept = _parsed.get(key)
    except TypeError:  # something in it cannot be compared
        return parse(batch)
    if kept is None:
        result = parse(batch)
        _parsed[key] = pickle.dumps(result)
        if len(_parsed) > _MOST:
            _parsed.popitem(last=False)
        return result
    _parsed.move_to_end(key)
    copy: Result = pickle.loads(kept)  # noqa: S301 - our own, of this process
    return copy


def _identity(function: object) -> Hashable:
    """What tells a function from others; of values that it closes over or is bound to, these themselves."""
    if isinstance(function, partial):
        named = tuple(sorted(function.keywords.items()))
        return _identity(function.func), tuple(map(_identity, function.args)), named
    if isinstance(function, FunctionType):
        cells = tuple(_identity(cell.cell_contents) for cell in function.__closure__ or ())
        named = tuple(sorted((function.__kwdefaults__ or {}).items()))
        return function.__code__, cells, function.__defaults__, named
    return function
