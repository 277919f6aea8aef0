"""Values of options in variables and configuration files, read by what the options themselves accept."""

from __future__ import annotations

import re
from datetime import date, time
from typing import Any, Final

import typer

from iceberg_cli.cli.options.arguments import Argument, key_value
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import comma_separated, duration_ms, size_bytes, time_ms

_SWITCH: Final = {
    "1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip
_PAIR: Final = "K=V"
_MAY_HOLD_SECRETS: Final = (_PAIR, "URL", "URI")
_BY_REFERENCE: Final = "--storage-option"  # takes K=@FILE and K=env:NAME


def read_text(argument: Argument, text: str, source: str, *, now_ms: int) -> Any:
    """The value that a variable gives an option.

    Args:
        argument: the option.
        text: for a switch 1, 0, true, false, yes, no, on or off; several values have newlines between them or, where
            there is none, white space, and where the command line takes commas these.
        source: for messages.
        now_ms: the time.

    Returns:
        What the command line would have given.

    Raises:
        UsageError: it has no meaning, is out of range, or is a secret in plain text.
    """
    if argument.is_switch:
        if text.lower() not in _SWITCH:
            raise UsageError(f"{source}: {text!r} is none of {', '.join(_SWITCH)}")
        return _SWITCH[text.lower()]
    if argument.is_repeatable:
        parts = [part.strip() for part in (text.split("\n") if "\n" in text else text.split())]
        texts = [each for part in parts if part for each in _several(argument, part)]
        return _checked(argument, texts, source, now_ms=now_ms)
    return _checked(argument, text, source, now_ms=now_ms)


def read_value(argument: Argument, value: Any, source: str, *, now_ms: int) -> Any:
    """The value that a configuration file gives an option.

    Args:
        argument: the option.
        value: true or false for a switch, else a text, number or time; for an option that may be repeated also an
            array of these. A text outside an array is read as on the command line.
        source: for messages.
        now_ms: the time.

    Returns:
        What the command line would have given.

    Raises:
        UsageError: it is of another type, has no meaning, is out of range, or is a secret in plain text.
    """
    shown = "this" if argument.metavar in _MAY_HOLD_SECRETS else repr(value)
    if argument.is_switch:
        if not isinstance(value, bool):
            raise UsageError(f"{source}: {shown} is not true or false")
        return value
    if argument.is_repeatable:
        if isinstance(value, list):
            texts = [_text(each, shown, source) for each in value]
        else:
            # One alone may stand for an array of it: another command may have the option for one value.
            texts = _several(argument, _text(value, shown, source))
        return _checked(argument, texts, source, now_ms=now_ms)
    return _checked(argument, _text(value, shown, source), source, now_ms=now_ms)


def _several(argument: Argument, text: str) -> list[str]:
    """The values of an option that may be repeated in one text."""
    return comma_separated(text) if argument.is_comma_separated else [text]


def _text(value: Any, shown: str, source: str) -> str:
    """A value as the command line has it; the option's own parser judges it."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    raise UsageError(f"{source}: {shown} is no text or number")


def _checked(argument: Argument, given: str | list[str], source: str, *, now_ms: int) -> Any:
    texts = given if isinstance(given, list) else [given]
    for text in texts:
        _refuse_secret(argument, text, source)
    if argument.parser is None:
        value: Any = given
    else:
        try:
            values = [argument.parser(text) for text in texts]
        except typer.BadParameter as error:
            raise UsageError(f"{source}: {error.message}") from error
        value = values if isinstance(given, list) else values[0]
    if argument.kind is not None:
        argument.kind.check(argument.kind.read(value, source), source)
    for text in texts:
        _check_text(argument.metavar, text, source, now_ms=now_ms)
    return value


def _check_text(metavar: str, text: str, source: str, *, now_ms: int) -> None:
    """Refuse a text that is not what the option's metavar stands for."""
    match metavar:
        case "DURATION":
            duration_ms(text, source)
        case "SIZE":
            size_bytes(text, source)
        case "TIME" | "TIME|DURATION":
            time_ms(text, source, now_ms=now_ms)
        case _ if metavar == _PAIR:
            key_value(text, source)
        case _ if re.fullmatch(r"[a-z0-9]+(\|[a-z0-9]+)+", metavar) and text not in metavar.split("|"):
            *others, last = metavar.split("|")
            raise UsageError(f"{source}: {text!r} is not {', '.join(others)} or {last}")


def _refuse_secret(argument: Argument, text: str, source: str) -> None:
    if not _holds_secret(argument, text):
        return
    if argument.metavar == _PAIR:
        key = re.match(r"[\w.-]*", text)
        what = f"{key[0] if key else ''} is a secret in plain text"
    else:
        what = "it has a secret in plain text"
    reference = ", K=@FILE or K=env:NAME" if argument.flag == _BY_REFERENCE else ""
    raise UsageError(
        f"{source}: {what}, which is taken from the command line alone",
        next_step=f"Give it as {argument.flag} on the command line{reference}.",
    )


def without_secrets(argument: Argument, value: Any) -> Any:
    """A value of an option as it may be shown."""
    if isinstance(value, list):
        return [without_secrets(argument, each) for each in value]
    if not isinstance(value, str) or not _holds_secret(argument, value):
        return value
    key, equals, _ = value.partition("=")
    return f"{key}=***" if equals and argument.metavar == _PAIR else "***"


def _holds_secret(argument: Argument, text: str) -> bool:
    """Whether a value of an option is a secret in plain text, or has one, by what it is called."""
    from iceberg_cli.storage.redaction import redact, secrets_of

    if argument.metavar not in _MAY_HOLD_SECRETS:
        return False
    key, _, value = text.partition("=")
    if argument.metavar == _PAIR:
        if not value or (argument.flag == _BY_REFERENCE and value.startswith(("@", "env:"))):
            return False
        # Spark's names have dots where ours have hyphens.
        if secrets_of({key: value}) or secrets_of({re.sub(r"[._]", "-", key): value}):
            return True
    return redact(text) != text
