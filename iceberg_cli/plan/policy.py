"""The policy of a verb: a frozen dataclass, each field with the option that gives it, its limits and its JSON form.

Command line, manual pages, completions and JSON Schema are made from these fields. What the text of an option means and
which values are allowed is decided here, for the command line and for saved plans alike.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import duration_ms, size_bytes, time_ms
from iceberg_cli.plan.verb_place import VerbPlace

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Option, Plan

_MIN_TARGET_BYTES: Final = 4 << 10
_MAX_TARGET_BYTES: Final = 1 << 40
_OPTION: Final = "option"
DEFAULT: Final = "default"  # the source of a value that nobody gave
_KEEPS_LESS: Final = ", which may keep less than the table's properties"  # a source ends so, in plans too
_T = TypeVar("_T")


class Kind(ABC):
    """A kind of values: how the text of an option is read, which values are allowed, and their JSON form."""

    takes: ClassVar[type] = str  # what the command line hands over: str, int or bool
    repeatable: ClassVar[bool] = False
    metavar: str = "TEXT"

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

    metavar = "DURATION"

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
            *others, last = self.values
            raise UsageError(f"{flag} must be {', '.join(others)} or {last}, not {value!r}")

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

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """The words."""
        return ",".join(self.values)

    def read(self, given: str | Iterable[str], flag: str) -> tuple[str, ...]:
        """As `Kind`: words in any order, or a text with commas between them."""
        if isinstance(given, str):
            words = {part.strip() for part in given.split(",")} - {""}
            if not words:
                raise UsageError(f"{flag} takes {', '.join(self.values)}; it names none")
        else:
            words = set(given)
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
    """Values of one kind, each by a flag, each once; `ordered`: from the least to the greatest."""

    each: Kind
    ordered: bool = False
    repeatable: ClassVar[bool] = True

    @property
    def takes(self) -> type:  # type: ignore[override]
        """As each."""
        return self.each.takes

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """As each."""
        return self.each.metavar

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


@dataclass(kw_only=True, eq=False, repr=False)
class PolicyOption:
    """A field of a policy, as the option that gives it.

    Args:
        name: of the field.
        json_name: of the field in JSON.
        kind: of its values.
        default: its value where the option is not given.
        help_of: what each of its flags does; most have one.
        elsewhere: the option that may be meant where the table has the other format, or "".
        omitted: left out of the JSON form where it has its default.
        in_policy_files: its value for tables for which a policy file does not have it; None: the default.
    """

    name: str
    json_name: str
    kind: Kind
    default: Any
    help_of: Mapping[str, str]
    elsewhere: str = ""
    omitted: bool = False
    in_policy_files: Any = None

    @property
    def flag(self) -> str:
        """The first of its flags."""
        return next(iter(self.help_of))

    def flag_of(self, value: Any) -> str:
        """The flag that gives this value; most options have one for all."""
        if not isinstance(self.kind, Switches):
            return self.flag
        return next((flag for flag, (each, _) in self.kind.flags.items() if each == value), self.flag)

    def choose(self, given: Mapping[str, Any]) -> Any:
        """What the command line has for the field, by flag; a switch that is False was not given.

        Raises:
            UsageError: flags exclude each other.
        """
        # 0 is a number that was given.
        flags = [flag for flag in self.help_of if flag in given and given[flag] is not False]
        if not flags:
            return self.default
        if isinstance(self.kind, Switches):
            if len(flags) > 1:
                raise UsageError(f"{' and '.join(flags)} exclude each other")
            return self.kind.flags[flags[0]][0]
        return given[self.flag]


def option(
    kind: Kind,
    text: str = "",
    *,
    default: Any = None,
    flag: str = "",
    json_name: str = "",
    elsewhere: str = "",
    omitted: bool = False,
    in_policy_files: Any = None,
) -> Any:
    """A field of a policy.

    Args:
        kind: of its values.
        text: the option's help.
        default: the value where the option is not given.
        flag: of the option; by default the field's name.
        json_name: in JSON; by default the field's name.
        elsewhere: see `PolicyOption`.
        omitted: see `PolicyOption`.
        in_policy_files: see `PolicyOption`.
    """
    rest = {"kind": kind, "text": text, "flag": flag, "json_name": json_name, "elsewhere": elsewhere}
    more = {"omitted": omitted, "in_policy_files": in_policy_files}
    return field(default=default, metadata={_OPTION: {**rest, **more}})


class Policy:
    """What an operator asks of a verb. A subclass is a frozen dataclass of `option` fields.

    It compares and prints itself by methods of this class (`eq=False, repr=False`): making them for each subclass takes
    time at every start that shows options.

    Times and sizes are numbers of ms and of bytes, or texts as on the command line: "7d", "8MiB".

    Args:
        verb: whose it is.
        place: where that stands among others. It is one field, for options are fields too.
        about: the help of the verb's command, where this format's policy tells it.
        preflight: the help of `--check`, where the verb can look without a plan for what stands in its way.
        examples: of its command lines: a description, and the words after `iceberg-cli`.
    """

    verb: ClassVar[str]
    place: ClassVar[VerbPlace]
    about: ClassVar[str] = ""
    preflight: ClassVar[str] = ""
    examples: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __post_init__(self) -> None:
        """Read texts, and refuse values that are out of range.

        Raises:
            UsageError: they are.
        """
        for item in self.options():
            value = getattr(self, item.name)
            if value is not None:
                value = item.kind.read(value, item.flag)
                item.kind.check(value, item.flag)
                object.__setattr__(self, item.name, value)
        self.check_together()

    def _values(self) -> tuple[tuple[str, Any], ...]:
        return tuple((item.name, getattr(self, item.name)) for item in fields(self))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        """Whether it asks the same of the same verb."""
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        """As equality wants it."""
        return hash(self._values())

    def __repr__(self) -> str:
        """As Python would make it."""
        return (
            f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in self._values())})"
        )

    def at(self, now_ms: int) -> Self:
        """The same policy with points in time in place of "how long ago".

        Raises:
            UsageError: a text is no time, or one in the future.
        """
        times = {
            item.name: item.kind.at(value, item.flag, now_ms=now_ms)
            for item in self.options()
            for value in [getattr(self, item.name)]
            if isinstance(item.kind, Moment) and isinstance(value, str)
        }
        return self.but(**times) if times else self

    def but(self, **values: Any) -> Self:
        """The same policy with other values of some fields; the sources of all stay."""
        return replace(self, **values).with_sources(self.sources)  # type: ignore[type-var]

    def without(self, names: Collection[str], instead: Mapping[str, str]) -> Self:
        """The same policy without the values of some fields, which may be None.

        Args:
            names: of the fields.
            instead: by name of a field the source of what decides in its place.
        """
        if not names and not instead:
            return self
        sources = {name: source for name, source in self.sources.items() if name not in names}
        return replace(self, **dict.fromkeys(names)).with_sources({**sources, **instead})  # type: ignore[type-var]

    # -- where values come from: no part of equality, of the JSON form or of its schema -----------------------------

    @property
    def sources(self) -> Mapping[str, str]:
        """By name of a field where its value comes from, in words; fields that the program's caller gave have none."""
        found: Mapping[str, str] = self.__dict__.get("_sources", {})
        return found

    def with_sources(self, sources: Mapping[str, str]) -> Self:
        """The same policy, whose values come from elsewhere.

        Args:
            sources: see `sources`; an option of the command line is named by its flag.
        """
        same = copy(self)
        object.__setattr__(same, "_sources", dict(sources))
        return same

    def source_of(self, name: str) -> str:
        """Where the value of a field comes from, in words: "--older-than", "default"."""
        item, value = self._option(name), getattr(self, name)
        return self.sources.get(name) or (DEFAULT if value == item.default else item.flag_of(value))

    def is_explicit(self, name: str) -> bool:
        """Whether a field was given by the command line or by a program, and not by a file or variable for all tables.

        Only what is explicit may keep less than the table's own properties ask for. So is what a policy file has for
        tables for which it says so.
        """
        source = self.source_of(name)
        return source in self._option(name).help_of or source.endswith(_KEEPS_LESS)

    def chosen(self, name: str, otherwise: Any = None) -> Option:
        """The value of a field with its source, as `Plan.options` holds it.

        Args:
            name: of the field.
            otherwise: the value where the field is None.
        """
        from iceberg_cli.plan.plan import Option  # help and completions make no plan

        value = getattr(self, name)
        if value is None:
            return Option(value=otherwise, source=DEFAULT)
        return Option(value=self._option(name).kind.to_json(value), source=self.source_of(name))

    def chosen_or_none(self, name: str) -> Mapping[str, Option]:
        """As `chosen`, by the field's name in JSON; nothing where a field that may be `omitted` has its default."""
        item = self._option(name)
        left_out = item.omitted and getattr(self, name) == item.default
        return {} if left_out else {item.json_name: self.chosen(name)}

    def _option(self, name: str) -> PolicyOption:
        return next(each for each in self.options() if each.name == name)

    def check_together(self) -> None:
        """Refuse values that are out of range together, or that only this verb can read; UsageError."""

    @classmethod
    def options(cls) -> Iterator[PolicyOption]:
        """The fields as options, in their order."""
        for item in fields(cls):  # type: ignore[arg-type]
            about = dict(item.metadata[_OPTION])
            kind, text, flag = about.pop("kind"), about.pop("text"), about.pop("flag")
            if isinstance(kind, Switches):
                help_of = {each: words for each, (_, words) in kind.flags.items()}
            else:
                help_of = {flag or f"--{item.name.replace('_', '-')}": text}
            assert item.default is not MISSING
            json_name = about.pop("json_name") or item.name
            yield PolicyOption(
                name=item.name, json_name=json_name, kind=kind, default=item.default, help_of=help_of, **about
            )

    @classmethod
    def from_options(
        cls, given: Mapping[str, Any], *, now_ms: int, sources: Mapping[str, str] | None = None
    ) -> Self:
        """The policy that options spell.

        Args:
            given: by flag: texts, numbers, switches and lists of them; others than this policy's have no effect.
            now_ms: the "now" of every age.
            sources: by flag where its value comes from; None: all from the command line.

        Raises:
            UsageError: an option has no meaning.
        """
        sources = {flag: flag for flag in given} if sources is None else sources
        policy = cls(**{item.name: item.choose(given) for item in cls.options()})
        named = {
            item.name: sources[flag] for item in cls.options() for flag in item.help_of if flag in sources
        }
        return policy.with_sources(named).at(now_ms)

    def to_json(self) -> dict[str, Any]:
        """As `Plan.policy` holds it."""
        return {
            item.json_name: None if value is None else item.kind.to_json(value)
            for item in self.options()
            for value in [getattr(self, item.name)]
            if not (item.omitted and value == item.default)
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`.

        Raises:
            UsageError: a field is missing, unknown, of another type or out of range.
        """
        options = {item.json_name: item for item in cls.options()}
        if unknown := sorted(value.keys() - options):
            raise _unusable(f"it has {', '.join(unknown)}, which this verb does not know")
        if missing := [name for name, item in options.items() if name not in value and not item.omitted]:
            raise _unusable(f"it has no {', '.join(missing)}")
        values = {}
        for name, content in value.items():
            item = options[name]
            try:
                nothing = content is None and item.default is None
                values[item.name] = None if nothing else item.kind.from_json(content)
            except (TypeError, ValueError) as error:
                raise _unusable(f"{name} is {content!r}") from error
        try:
            return cls(**values)
        except UsageError as error:
            raise _unusable(error.message) from error

    @classmethod
    def of_plan(cls, plan: Plan) -> Self:
        """The policy that a plan was made by, to make it again; its values come from where the plan says.

        Raises:
            UsageError: see `from_json`.
        """
        policy = cls.from_json(plan.policy)
        return policy.with_sources(
            {
                item.name: plan.options[item.json_name].source
                for item in cls.options()
                if item.json_name in plan.options and getattr(policy, item.name) != item.default
            }
        )

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The JSON Schema of the JSON form."""
        every = list(cls.options())
        return {
            "type": "object",
            "properties": {
                item.json_name: {"anyOf": [item.kind.schema(), {"type": "null"}]}
                if item.default is None
                else item.kind.schema()
                for item in every
            },
            "required": [item.json_name for item in every if not item.omitted],
            "additionalProperties": False,
        }


def keeps_more(own: Option, general: str) -> str:
    """The source of a table property that decides in place of a file or variable for all tables.

    Args:
        own: the property's value and source.
        general: the source of the value that would keep less.
    """
    return f"{own.source}, which keeps more than {general}"


def may_keep_less(source: str) -> str:
    """A file's source whose value counts as explicit; see `Policy.is_explicit`."""
    return f"{source}{_KEEPS_LESS}"


def _unusable(why: str) -> UsageError:
    return UsageError(f"Cannot plan again from this policy: {why}")


def _typed(value: Any, kind: type[_T]) -> _T:
    """`value`, which is of exactly this type: true is no number."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} in the place of {kind.__name__}")
    return value


def _one_of(value: Any, values: Sequence[str]) -> str:
    if value not in values:
        raise ValueError(f"{value!r} is none of {', '.join(values)}")
    return _typed(value, str)
