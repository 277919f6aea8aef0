"""The kinds of values that options of policies take: how a text is read, which are allowed, and their JSON form.

What the text of an option means and which values are allowed is decided here, for the command line and for saved plans
alike.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeVar

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.alarm import OFF
from iceberg_cli.plan.text import comma_separated, duration_ms, listed, size_bytes, time_ms
from iceberg_cli.plan.times import moment_ms, span_ms

_MIN_TARGET_BYTES: Final = 4 << 10
_MAX_TARGET_BYTES: Final = 1 << 40
COMMAS: Final = ",..."  # the end of a metavar: several values with commas between them
_T = TypeVar("_T")


class Kind(ABC):
    """A kind of values: how the text of an option is read, which values are allowed, and their JSON form."""

    takes: ClassVar[type] = str  # what the command line hands over: str, int or bool
    repeatable: ClassVar[bool] = False
    suffix: ClassVar[str] = ""  # of its name in documents: the unit of its values
    metavar: str = "TEXT"  # with a comma in it: a text may have several values, with commas between them

    def of_program(self, given: Any, flag: str) -> Any:  # noqa: ARG002 - most kinds take what is given as it is
        """What a program gives, as `read` takes it: a `timedelta` or `datetime` becomes ms.

        Raises:
            UsageError: it cannot be meant.
        """
        return given

    def read(self, given: Any, flag: str) -> Any:  # noqa: ARG002 - most kinds take what is given as it is
        """The value of what a command line or a program gives: a text is read, a value taken as it is.

        Raises:
            UsageError: it cannot be meant.
        """
        return given

    def check(self, value: Any, flag: str) -> None:  # noqa: B027 - most kinds allow every value
        """Refuse a value that is out of range.

        Raises:
            UsageError: it is.
        """

    def to_text(self, value: Any) -> str:
        """The text that gives a value on the command line."""
        return str(value)

    def to_json(self, value: Any) -> Any:
        """JSON form."""
        return value

    @abstractmethod
    def from_json(self, value: Any) -> Any:
        """Inverse of `to_json`; TypeError or ValueError for anything else."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the JSON form."""


class Switch(Kind):
    """True where the flag is given."""

    takes = bool

    def from_json(self, value: Any) -> bool:
        """As `Kind`."""
        return _typed(value, bool)

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"type": "boolean"}


# Nobody compares or prints a kind, and making the methods for that takes time at every start.
@dataclass(eq=False, repr=False)
class Switches(Kind):
    """One of several values, each but the default by a flag of its own.

    Args:
        flags: by flag its value and its help.
        otherwise: the default.
    """

    flags: Mapping[str, tuple[str, str]]
    otherwise: str
    takes: ClassVar[type] = bool

    def from_json(self, value: Any) -> str:
        """As `Kind`."""
        return _one_of(value, self._values())

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"enum": self._values()}

    def _values(self) -> list[str]:
        return [self.otherwise, *(value for value, _ in self.flags.values())]


@dataclass(eq=False, repr=False)
class Text(Kind):
    """Any text; `empty`: that of no characters too."""

    metavar: str = "TEXT"
    empty: bool = True

    def check(self, value: str, flag: str) -> None:
        """As `Kind`."""
        if not (value or self.empty):
            raise UsageError(f"{flag} is empty", next_step=f"Give it a {self.metavar}.")

    def from_json(self, value: Any) -> str:
        """As `Kind`."""
        return _typed(value, str)

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"type": "string"}


@dataclass(eq=False, repr=False)
class Whole(Kind):
    """A whole number, `least` or more; None: any."""

    least: int | None = 1
    metavar: str = "N"
    takes: ClassVar[type] = int

    def check(self, value: int, flag: str) -> None:
        """As `Kind`."""
        if self.least is not None and value < self.least:
            raise UsageError(f"{flag} must be at least {self.least}, not {value}")

    def from_json(self, value: Any) -> int:
        """As `Kind`."""
        return _typed(value, int)

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"type": "integer"} if self.least is None else {"type": "integer", "minimum": self.least}


class Id(Whole):
    """A 64-bit id, in JSON as text, for not all readers of JSON have so long numbers."""

    def __init__(self) -> None:
        super().__init__(least=None, metavar="ID")

    def to_json(self, value: int) -> str:
        """As `Kind`."""
        return str(value)

    def from_json(self, value: Any) -> int:
        """As `Kind`."""
        return int(_typed(value, str))

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"type": "string", "pattern": "^-?[0-9]+$"}


class Duration(Kind):
    """A time in ms."""

    suffix = "_ms"
    metavar = "DURATION"

    def of_program(self, given: object, flag: str) -> int | str:
        """As `Kind`: also a `timedelta`."""
        return given if isinstance(given, str) else span_ms(given, flag)

    def read(self, given: int | str, flag: str) -> int | str:
        """As `Kind`: `7d`, `12h`, `P7D`."""
        return duration_ms(given, flag) if isinstance(given, str) else given

    def to_text(self, value: int) -> str:
        """As `Kind`."""
        seconds, ms = divmod(value, 1_000)
        return f"{value}ms" if ms else f"{seconds}s"

    def check(self, value: int, flag: str) -> None:
        """As `Kind`."""
        if value < 0:
            raise UsageError(f"{flag} must not be negative, and is {value} ms")

    def from_json(self, value: Any) -> int:
        """As `Kind`."""
        return _typed(value, int)

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"type": "integer", "minimum": 0}


class Moment(Duration):
    """A point in time, in ms since the epoch; as a text also how long ago it was."""

    metavar = "TIME|DURATION"

    def of_program(self, given: object, flag: str) -> int | str:
        """As `Kind`: also a `datetime`, or a `timedelta` ago; no number of ms before the year 2000."""
        if isinstance(given, str):
            return given
        if isinstance(given, timedelta):
            return f"{span_ms(given, flag)}ms"
        return moment_ms(given, flag)

    def read(self, given: int | str, flag: str) -> int | str:  # noqa: ARG002 - the signature of all
        """As `Kind`; a text stays one until `at` reads it."""
        return given

    def at(self, given: int | str, flag: str, *, now_ms: int) -> int:
        """The point in time of ISO 8601 with a zone, epoch ms, or a duration ago.

        Raises:
            UsageError: it is none of these, or in the future.
        """
        return time_ms(given, flag, now_ms=now_ms) if isinstance(given, str) else given

    def check(self, value: int | str, flag: str) -> None:
        """As `Kind`."""
        if not isinstance(value, str):
            super().check(value, flag)


class Size(Whole):
    """A size in bytes."""

    takes: ClassVar[type] = str

    def __init__(self) -> None:
        super().__init__(metavar="SIZE")

    def read(self, given: int | str, flag: str) -> int:
        """As `Kind`: `8MiB`, `512MB`. A text that no file should have is refused: mostly its unit was forgotten."""
        if not isinstance(given, str):
            return given
        size = size_bytes(given, flag)
        if not _MIN_TARGET_BYTES <= size <= _MAX_TARGET_BYTES:
            raise UsageError(
                f"{flag} must be between 4KiB and 1TiB, not {given!r}, which is {size:,} bytes",
                next_step="Write the unit: 8MiB, 512MB.",
            )
        return size


@dataclass(eq=False, repr=False)
class Ratio(Kind):
    """A part of a whole, above 0 and at most 1.

    Args:
        from_zero: 0 in JSON stands for the least ratio: the first release took it, and what it began is resumed.
    """

    from_zero: bool = False
    metavar: ClassVar[str] = "R"  # type: ignore[misc]

    def read(self, given: float | str, flag: str) -> float:
        """As `Kind`."""
        try:
            return float(given)
        except ValueError:
            raise UsageError(f"{flag}: {given!r} is no number; write 0.3") from None

    def check(self, value: float, flag: str) -> None:
        """As `Kind`."""
        if not 0 < value <= 1:
            raise UsageError(f"{flag} must be above 0 and at most 1, not {value}")

    def from_json(self, value: Any) -> float:
        """As `Kind`."""
        ratio = float(value) if type(value) is int else _typed(value, float)
        return math.ulp(0.0) if self.from_zero and ratio == 0 else ratio

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"type": "number", "minimum" if self.from_zero else "exclusiveMinimum": 0, "maximum": 1}


class Factor(Kind):
    """How many times as much, above 0; or the word for "whatever it is"."""

    metavar = f"FACTOR|{OFF}"

    def read(self, given: float | str, flag: str) -> float | str:
        """As `Kind`."""
        if given == OFF:
            return OFF
        try:
            return float(given)
        except ValueError:
            raise UsageError(f"{flag}: {given!r} is no number; write 6 or {OFF}") from None

    def check(self, value: float | str, flag: str) -> None:
        """As `Kind`."""
        if value != OFF and not 0 < float(value) < math.inf:
            raise UsageError(f"{flag} must be a number above 0 or {OFF}, not {value:g}")

    def to_text(self, value: float | str) -> str:
        """As `Kind`."""
        return f"{value:g}" if isinstance(value, float) else value

    def from_json(self, value: Any) -> float | str:
        """As `Kind`."""
        if value == OFF:
            return OFF
        return float(value) if type(value) is int else _typed(value, float)

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": OFF}]}


@dataclass(eq=False, repr=False)
class Choice(Kind):
    """One of a few words."""

    values: tuple[str, ...]

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """The words."""
        return "|".join(self.values)

    def check(self, value: str, flag: str) -> None:
        """As `Kind`."""
        if value not in self.values:
            raise UsageError(f"{flag} must be {listed(self.values, last='or')}, not {value!r}")

    def from_json(self, value: Any) -> str:
        """As `Kind`."""
        return _one_of(value, self.values)

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"enum": list(self.values)}


@dataclass(eq=False, repr=False)
class Selection(Kind):
    """Some of a few words, with commas between them; they run in the order of `values`."""

    values: tuple[str, ...]
    repeatable: ClassVar[bool] = True

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """The words."""
        return ",".join(self.values)

    def read(self, given: str | Iterable[str], flag: str) -> tuple[str, ...]:
        """As `Kind`: words in any order, or a text with commas between them."""
        given = comma_separated(given) if isinstance(given, str) else list(given)
        words = set(given) - {""}
        if given and not words:
            raise UsageError(f"{flag} takes {', '.join(self.values)}; it names none")
        if unknown := sorted(words - set(self.values)):
            raise UsageError(f"{flag} takes {', '.join(self.values)}, not {', '.join(unknown)}")
        return tuple(word for word in self.values if word in words)

    def to_json(self, value: tuple[str, ...]) -> list[str]:
        """As `Kind`."""
        return list(value)

    def from_json(self, value: Any) -> tuple[str, ...]:
        """As `Kind`."""
        return tuple(_one_of(word, self.values) for word in _typed(value, list))

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"type": "array", "items": {"enum": list(self.values)}}


@dataclass(eq=False, repr=False)
class Several(Kind):
    """Values of one kind, by one flag or several, each once.

    Args:
        each: the kind of each.
        ordered: from the least to the greatest.
        by_commas: whether a text may have several, with commas between them. Not where others chose the texts and a
            comma means nothing: paths, and what programs call themselves.
    """

    each: Kind
    ordered: bool = False
    by_commas: bool = True
    repeatable: ClassVar[bool] = True

    @property
    def takes(self) -> type:  # type: ignore[override]
        """As each."""
        return self.each.takes

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """As each; several by commas have one."""
        return f"{self.each.metavar}{COMMAS}" if self.by_commas else self.each.metavar

    def read(self, given: Iterable[Any], flag: str) -> tuple[Any, ...]:
        """As `Kind`."""
        values = dict.fromkeys(self.each.read(item, flag) for item in given)
        return tuple(sorted(values) if self.ordered else values)

    def check(self, value: tuple[Any, ...], flag: str) -> None:
        """As `Kind`."""
        for item in value:
            self.each.check(item, flag)

    def to_json(self, value: tuple[Any, ...]) -> list[Any]:
        """As `Kind`."""
        return [self.each.to_json(item) for item in value]

    def from_json(self, value: Any) -> tuple[Any, ...]:
        """As `Kind`."""
        return tuple(self.each.from_json(item) for item in _typed(value, list))

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        return {"type": "array", "items": self.each.schema()}


class VersionRange(Kind):
    """Two versions of a table, the first below the second, both included."""

    metavar = "FROM..TO"

    def read(self, given: tuple[int, int] | str, flag: str) -> tuple[int, int]:
        """As `Kind`."""
        if not isinstance(given, str):
            return given
        match = re.fullmatch(r"([0-9]{1,18})\.\.([0-9]{1,18})", given)
        if match is None:
            raise UsageError(f"{flag}: {given!r} is no range of versions; write 10..19")
        return int(match[1]), int(match[2])

    def check(self, value: tuple[int, int], flag: str) -> None:
        """As `Kind`."""
        first, last = value
        if not 0 <= first < last:
            raise UsageError(f"{flag}: '{first}..{last}' is no range of versions; write 10..19")

    def to_json(self, value: tuple[int, int]) -> list[int]:
        """As `Kind`."""
        return list(value)

    def from_json(self, value: Any) -> tuple[int, int]:
        """As `Kind`."""
        first, last = _typed(value, list)
        return _typed(first, int), _typed(last, int)

    def schema(self) -> dict[str, Any]:
        """As `Kind`."""
        item = {"type": "integer", "minimum": 0}
        return {"type": "array", "items": item, "minItems": 2, "maxItems": 2}


def _typed(value: Any, kind: type[_T]) -> _T:
    """`value`, which is of exactly this type: true is no number."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} in the place of {kind.__name__}")
    return value


def _one_of(value: Any, values: Sequence[str]) -> str:
    if value not in values:
        raise ValueError(f"{value!r} is none of {', '.join(values)}")
    return _typed(value, str)
