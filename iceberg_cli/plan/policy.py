"""The policy of a verb: a frozen dataclass, each field with the option that gives it, its limits and its JSON form.

Command line, manual pages, completions and JSON Schema are made from these fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.arguments import naming
from iceberg_cli.plan.option_kinds import (
    Choice,
    Duration,
    Id,
    Kind,
    Moment,
    Ratio,
    Selection,
    Several,
    Size,
    Switch,
    Switches,
    Text,
    VersionRange,
    Whole,
)
from iceberg_cli.plan.verb_place import VerbPlace

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Option, Plan

__all__ = [
    "DEFAULT",
    "Choice",
    "Duration",
    "Id",
    "Kind",
    "Moment",
    "Policy",
    "PolicyOption",
    "Ratio",
    "Selection",
    "Several",
    "Size",
    "Switch",
    "Switches",
    "Text",
    "VersionRange",
    "Whole",
    "keeps_more",
    "may_keep_less",
    "option",
]
_OPTION: Final = "option"
DEFAULT: Final = "default"  # the source of a value that nobody gave
OF_TABLE: Final = "table property "  # how the source of what a table says itself begins
_KEEPS_LESS: Final = ", which may keep less than the table's properties"  # a source ends so, in plans too


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
        not_in_policy_files: policy files do not have it: it is about the process that runs the verb, or they say it in
            another way.
        own: it means something else than other verbs' options of the same name: what a variable or a file gives all
            verbs by that name is not for it.
        positional: it is given by its place on the command line, behind TABLE, and not by a flag: its metavar stands
            for the flag in messages.
        required: the verb has nothing to do without it.
    """

    name: str
    json_name: str
    kind: Kind
    default: Any
    help_of: Mapping[str, str]
    elsewhere: str = ""
    omitted: bool = False
    in_policy_files: Any = None
    not_in_policy_files: bool = False
    own: bool = False
    positional: bool = False
    required: bool = False

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
    not_in_policy_files: bool = False,
    own: bool = False,
    positional: bool = False,
    required: bool = False,
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
        not_in_policy_files: see `PolicyOption`.
        own: see `PolicyOption`.
        positional: see `PolicyOption`.
        required: see `PolicyOption`.
    """
    rest = {"kind": kind, "text": text, "flag": flag, "json_name": json_name, "elsewhere": elsewhere}
    more = {
        "omitted": omitted,
        "in_policy_files": in_policy_files,
        "not_in_policy_files": not_in_policy_files,
        "own": own,
        "positional": positional,
        "required": required,
    }
    return field(default=default, metadata={_OPTION: {**rest, **more}})


class Policy:
    """What an operator asks of a verb. A subclass is a frozen dataclass of `option` fields.

    It compares and prints itself by methods of this class (`eq=False, repr=False`): making them for each subclass takes
    time at every start that shows options.

    Times, durations and sizes are texts as on the command line, "7d" or "8MiB"; or `datetime`, `timedelta`, or numbers
    of ms and of bytes.

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
        """Take what a program gives, read texts, and refuse values that are out of range.

        Raises:
            UsageError: they are; it names arguments.
        """
        with naming(self.argument_names()):
            for item in self.options():
                value = getattr(self, item.name)
                if value is not None:
                    object.__setattr__(self, item.name, item.kind.of_program(value, item.flag))
            self._read()

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        """The policy of values by name of a field, which no program gave: errors name options."""
        policy = object.__new__(cls)
        for item in fields(cls):  # type: ignore[arg-type]
            object.__setattr__(policy, item.name, values.get(item.name, item.default))
        policy._read()
        return policy

    def _read(self) -> None:
        for item in self.options():
            value = getattr(self, item.name)
            if value is not None:
                value = item.kind.read(value, item.flag)
                item.kind.check(value, item.flag)
                object.__setattr__(self, item.name, value)
        self.check_together()

    @classmethod
    def argument_names(cls) -> dict[str, str]:
        """By flag what a program gives in its place."""
        return {
            flag: f"{item.name}={item.kind.flags[flag][0]!r}"
            if isinstance(item.kind, Switches)
            else item.name
            for item in cls.options()
            for flag in item.help_of
        }

    @property
    def is_of_options(self) -> bool:
        """Whether options of a command line or keys of a file spell it; else a program made it."""
        return "_sources" in self.__dict__

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

    def within(self, table: Any) -> Self:  # noqa: ARG002 - of verbs that go by its properties
        """The same policy as far as properties of a table let it that stand for all verbs of a kind.

        Args:
            table: that is open; of verbs that go by some, `table.properties()` gives all that it has.

        Raises:
            UsageError: one has a value that is not understood.
        """
        return self

    def but(self, **values: Any) -> Self:
        """The same policy with other values of some fields; the sources of all stay."""
        return self._with(values, self.sources)

    def _with(self, values: Mapping[str, Any], sources: Mapping[str, str]) -> Self:
        same = self._of({**dict(self._values()), **values})
        return same.with_sources(sources) if self.is_of_options or sources else same

    def without(self, names: Collection[str], instead: Mapping[str, str]) -> Self:
        """The same policy without the values of some fields, which may be None.

        Args:
            names: of the fields.
            instead: by name of a field the source of what decides in its place.
        """
        if not names and not instead:
            return self
        sources = {name: source for name, source in self.sources.items() if name not in names}
        return self._with(dict.fromkeys(names), {**sources, **instead})

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

    def check_given(self) -> None:
        """Refuse a policy that lacks what its verb has nothing to do without.

        Raises:
            UsageError: a value that is required was not given.
        """
        for item in self.options():
            if item.required and getattr(self, item.name) is None:
                raise UsageError(
                    f"Cannot {self.verb} without {item.flag}: {item.help_of[item.flag]}",
                    next_step=f"Write `{self.verb} TABLE {self.required_words()}`.",
                )

    @classmethod
    def required_words(cls) -> str:
        """The words behind TABLE without which the verb has nothing to do, as usage lines have them; or ""."""
        return " ".join(
            item.flag if item.positional else f"{item.flag} {item.kind.metavar}"
            for item in cls.options()
            if item.required
        )

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
                spelled = kind.metavar if about["positional"] else f"--{item.name.replace('_', '-')}"
                help_of = {flag or spelled: text}
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
        policy = cls._of({item.name: item.choose(given) for item in cls.options()})
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
            return cls._of(values)
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
