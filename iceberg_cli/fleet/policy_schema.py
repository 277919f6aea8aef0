"""Checks of policy files against their JSON Schema, and by what the options of verbs accept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date, time
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.encoding.toml_file import parse_toml
from iceberg_cli.errors import UsageError, how_to_install
from iceberg_cli.fleet.thresholds import EVERY, OF_EVERY_VERB, OF_REMOVALS, usual_thresholds
from iceberg_cli.formats import maintenance_verbs, policies_of
from iceberg_cli.plan.option_kinds import Kind
from iceberg_cli.plan.policy import Moment, PolicyOption
from iceberg_cli.plan.text import age, comma_separated, did_you_mean, listed, time_ms

if TYPE_CHECKING:
    from jsonschema import ValidationError

_FOR_EVER_MS: Final = 10**17  # a "now" after which no time can be
_TYPES: Final = {
    "array": "array", "boolean": "true or false", "integer": "whole number", "number": "number", "object": "table",
    "string": "text",
}  # fmt: skip


def read_document(path: str, data: bytes) -> dict[str, Any]:
    """The document of a policy file, checked; dates and times as text.

    Raises:
        UsageError: the bytes are not TOML in UTF-8, or the document breaks the schema.
    """
    document: dict[str, Any] = _plain(parse_toml(path, data))
    _check(path, document)
    return document


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case date() | time():
            return value.isoformat()
        case _:
            return value


def _check(path: str, document: Mapping[str, Any]) -> None:
    """Hold a policy file against its JSON Schema.

    Raises:
        UsageError: it breaks it; about the first place in the file that does.
    """
    try:
        from jsonschema import Draft202012Validator
    except ImportError as error:
        raise UsageError(
            f"Cannot check the policy file {path}: {error}", next_step=how_to_install(error)
        ) from error
    schema = json.loads((files("iceberg_cli") / "schemas" / "policy-1.json").read_text(encoding="utf-8"))
    found = list(Draft202012Validator(schema).iter_errors(document))
    if found:
        raise _usage_error(path, min(found, key=lambda error: _place(document, error)))


def _place(document: Any, error: ValidationError) -> tuple[int, ...]:
    """How far down a document an error is, to be compared with others."""
    place = []
    keys = [*error.absolute_path, *_unknown(error)[:1]]
    for key in keys:
        place.append(list(document).index(key) if isinstance(document, dict) else int(key))
        document = document[key]
    return tuple(place)


def _unknown(error: ValidationError) -> list[str]:
    """The keys that no schema has, for an error about such."""
    if error.validator != "additionalProperties":
        return []
    return [key for key in error.instance if key not in error.schema["properties"]]


def _usage_error(path: str, error: ValidationError) -> UsageError:
    source = f"{path}: {key_path(error.absolute_path)}".removesuffix(": ")
    value, limit = error.instance, error.validator_value
    match error.validator:
        case "additionalProperties":
            return _unknown_key(source, _unknown(error)[0], error)
        case "required":
            missing = next(each for each in limit if each not in value)
            return UsageError(f"{source}: {missing} is missing")
        case "type":
            types = [limit] if isinstance(limit, str) else limit
            return UsageError(
                f"{source}: {_shown(value)} is no {listed([_TYPES[each] for each in types], last='or')}"
            )
        case "const":
            return UsageError(f"{source} must be {limit!r}, not {_shown(value)}")
        case "enum":
            near = did_you_mean(value, limit) if isinstance(value, str) else ""
            return UsageError(
                f"{source} must be {listed(limit, last='or')}, not {_shown(value)}.{near}".rstrip(".")
            )
        case "minItems":
            return UsageError(f"{source} is empty")
        case "minimum":
            return UsageError(f"{source} must be at least {limit}, not {_shown(value)}")
        case "exclusiveMinimum":
            return UsageError(f"{source} must be above {limit}, not {_shown(value)}")
        case "maximum":
            return UsageError(f"{source} must be at most {limit}, not {_shown(value)}")
    raise AssertionError(f"the schema of policy files has {error.validator}, which no message tells")


def _unknown_key(source: str, key: str, error: ValidationError) -> UsageError:
    known = error.schema["properties"]
    where = f"{source}.{key}" if error.absolute_path else f"{source}: {key}"
    flag = f"--{key}"
    if flag == "--yes" or flag.startswith("--unsafe-"):
        return UsageError(
            f"{where}: {flag} is taken from the command line alone", next_step="Remove it from the file."
        )
    near = did_you_mean(key, known)
    if not near and not error.absolute_path and key in (*maintenance_verbs(), "window"):
        near = " Write it below [defaults] or [[tables]]."
    if not near and error.absolute_path and error.absolute_path[-1] in maintenance_verbs():
        having = [verb for verb in maintenance_verbs() if flag in options_of_verb(verb)]
        near = f" It is one of {listed(having)}." if having else ""
    return UsageError(f"{where} is not known.{near}", next_step=f"Keys are: {', '.join(known)}.")


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "a table"
        case list():
            return "an array"
        case _:
            return repr(value)


def key_path(keys: Iterable[str | int]) -> str:
    """The path of a key: `tables[2].merge-dvs.when`, entries counted from 0."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.removeprefix(".")


# -- what options accept ---------------------------------------------------------------------------------------------


def read_options(verb: str, content: Mapping[str, Any], source: str) -> dict[str, Any]:
    """What a table of a verb has, by key: for options what the command line would have given, and `when`.

    Args:
        verb: whose options they are.
        content: by key, as the schema wants it.
        source: the path of the table, for messages.

    Raises:
        UsageError: a value has no meaning, or is out of range, also together with others.
    """
    options, thresholds = options_of_verb(verb), thresholds_of(verb)
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key in thresholds:
            kind = thresholds[key][0]
            values[key] = kind.read(value, f"{source}.{key}")
            kind.check(values[key], f"{source}.{key}")
        else:
            values[key] = value if key == "when" else _read(options[f"--{key}"], value, f"{source}.{key}")
    given = {f"--{key}": value for key, value in values.items() if key != "when" and key not in thresholds}
    for policy in policies_of(verb).values():
        try:
            policy.from_options(given, now_ms=_FOR_EVER_MS)
        except UsageError as error:
            error.message = f"{source}: {error.message}"
            raise
    return values


def thresholds_of(verb: str) -> Mapping[str, tuple[Kind, str]]:
    """The thresholds of a verb, with what each means; those of which it has an option are none."""
    removes = any(policy.place.removes for policy in policies_of(verb).values())
    known = {**OF_REMOVALS, **OF_EVERY_VERB} if removes else dict(OF_EVERY_VERB)
    if (every_ms := usual_thresholds(verb).get(EVERY)) is not None:
        kind, text = known[EVERY]
        known[EVERY] = kind, f"{text}  [default: {age(every_ms)}]"
    options = options_of_verb(verb)
    return {name: found for name, found in known.items() if f"--{name}" not in options}


def options_of_verb(verb: str) -> dict[str, PolicyOption]:
    """The options of a verb by flag; of one that both formats have, the first."""
    found: dict[str, PolicyOption] = {}
    for policy in policies_of(verb).values():
        for each in policy.options():
            for flag in each.help_of:
                found.setdefault(flag, each)
    return found


def _read(option: PolicyOption, value: Any, source: str) -> Any:
    """A value as the command line would have given it.

    Raises:
        UsageError: the kind of the option does not take it.
    """
    kind = option.kind
    if kind.takes is bool:
        return value
    if kind.repeatable:
        each_value = value if isinstance(value, list) else [value]
        if isinstance(value, str) and "," in kind.metavar:  # as on the command line
            each_value = comma_separated(value)
        given: Any = [_as_given(kind.takes, each, source) for each in each_value]
    else:
        given = _as_given(kind.takes, value, source)
    kind.check(kind.read(given, source), source)
    if isinstance(kind, Moment):
        time_ms(given, source, now_ms=_FOR_EVER_MS)
    return given


def _as_given(takes: type, value: Any, source: str) -> Any:
    if takes is not int:
        return str(value)
    text = str(value)
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise UsageError(f"{source}: {value!r} is no whole number")
    return int(text)
