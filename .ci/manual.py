"""Manual pages in the macros of man(7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from command_tree import NAME, WRITTEN_BY, Command, Parameter, is_of_tables, shared_options

from iceberg_cli import __version__
from iceberg_cli.cli.app import EXIT_CODES
from iceberg_cli.cli.options.help_texts import examples_of

ENVIRONMENT = {
    "ICEBERG_CLI_OPTION": "The value of an option that is not on the command line, such as ICEBERG_CLI_OLDER_THAN for "
    "--older-than; 1, 0, true, false, yes, no, on or off for one without a value. Several values have newlines between "
    "them or, where there is none, white space. An empty one is not given. --yes, --unsafe-... and secrets in plain "
    "text are taken from the command line alone.",
    "ICEBERG_CLI_CONFIG": "The configuration file.",
    "PYICEBERG_HOME": "Folder of the .pyiceberg.yaml that names the catalogs; otherwise the home folder, then "
    "the working folder.",
    "PYICEBERG_CATALOG__NAME__KEY": "One setting of the catalog NAME, such as PYICEBERG_CATALOG__PROD__URI.",
    "NO_COLOR": "If it is set, the output has no colour.",
}
FILES = {
    "iceberg-cli.toml": "The configuration file, in the working folder, else in $XDG_CONFIG_HOME/iceberg-cli/, by "
    "default ~/.config/iceberg-cli/: TOML whose keys are options without the hyphens before them; a table such as "
    "[expire-snapshots] holds those of one command. `iceberg-cli config show` prints what it sets.",
    "TABLE/_iceberg_cli/ops/": "Journals of open operations, in the folder of the table; resume reads them.",
    "TABLE/_iceberg_cli/history/": "Records of operations that are over; history reads them.",
    ".pyiceberg.yaml": "The catalogs, as PyIceberg reads them: in $PYICEBERG_HOME, the home folder or the working "
    "folder.",
    "$XDG_CACHE_HOME/iceberg-cli/keys/": "What runs learn of immutable files, by default in ~/.cache; it may be "
    "deleted at any time.",
    "PLAN_FILE, PLAN_FILE.removals.parquet": "A saved plan, and what it removes; they belong together.",
}
FILES_OF_OTHERS = {
    "demo": {"DIR/db/events/, DIR/db/orders/, DIR/db/visits/": "The tables."},
    "completion": {
        "~/.zfunc/_iceberg-cli": "A place for the script of zsh, if the folder is in $fpath.",
        "~/.config/fish/completions/iceberg-cli.fish": "The place for the script of fish.",
    },
}
TABLE_FORMS = {
    "/data/wh/db/t, file:///data/wh/db/t, s3://bucket/wh/db/t": "The folder of a table.",
    ".../metadata/00012-....metadata.json": "That metadata, read-only.",
    "prod.sales.orders": "Table orders in namespace sales of catalog prod.",
}


def roff(text: str) -> str:
    """Text as a manual page spells it."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped)


def man_page(command: Command, root: Command, commands: Iterable[Command], date: str) -> str:
    """A manual page in the macros of man(7)."""
    commands = tuple(commands)
    shared = shared_options(commands) if is_of_tables(command) else ()
    lines = [
        f'.\\" {WRITTEN_BY}',
        f'.TH {roff(command.page.upper())} 1 {date} "{NAME} {__version__}" "{NAME}"',
        ".SH NAME",
        f"{roff(command.page)} \\- {roff(_lower(command.summary))}",
        ".SH SYNOPSIS",
        *_synopsis(command),
        ".SH DESCRIPTION",
    ]
    for number, paragraph in enumerate(command.description):
        lines += [".PP"] * bool(number) + _sentences(paragraph)
    if command is root:
        lines += [".SH COMMANDS"]
        for one in commands:
            lines += [".TP", f".BR {roff(one.page)} (1)", *_sentences(one.summary + ".")]
        lines += [".SH TABLES", *_definitions(TABLE_FORMS)]
    if command.arguments:
        lines += [".SH ARGUMENTS"]
        for argument in command.arguments:
            lines += [".TP", f".I {roff(argument.metavar)}", *_sentences(argument.help)]
    lines += [".SH OPTIONS", *_options(option for option in command.options if option not in shared)]
    if shared:
        lines += [".SH OPTIONS OF EVERY COMMAND ON TABLES", *_options(shared)]
    if command.name not in FILES_OF_OTHERS:
        lines += [".SH ENVIRONMENT", *_definitions(ENVIRONMENT)]
    lines += [".SH FILES", *_definitions(FILES_OF_OTHERS.get(command.name, FILES))]
    lines += [".SH EXIT STATUS", *_definitions({str(code): f"{text}." for code, text in EXIT_CODES.items()})]
    lines += [".SH EXAMPLES", *_examples(command.name)]
    others = [one.page for one in (root, *commands) if one is not command]
    lines += [".SH SEE ALSO", *(f".BR {roff(page)} (1){',' * (page != others[-1])}" for page in others)]
    return "\n".join(lines) + "\n"


def _examples(name: str) -> Iterator[str]:
    for number, (text, words) in enumerate(examples_of(name)):
        yield from [".PP"] * bool(number)
        yield from (roff(text), ".PP", ".RS 4", ".nf", roff(f"{NAME} {words}"), ".fi", ".RE")


def _lower(summary: str) -> str:
    return summary[0].lower() + summary[1:]


def _sentences(text: str) -> list[str]:
    return [roff(sentence) for sentence in re.split(r"(?<=[.;:]) ", text)]


def _synopsis(command: Command) -> list[str]:
    shown = (roff(argument.metavar) for argument in command.arguments)
    words = [
        f".RI [ {name} ]" if argument.optional else f".I {name}"
        for name, argument in zip(shown, command.arguments, strict=True)
    ]
    program = f".B {roff(f'{NAME} {command.name}'.strip())}"
    return [program, *words, *([] if command.name else [".I COMMAND"]), ".RI [ OPTIONS ]"]


def _options(options: Iterable[Parameter]) -> Iterator[str]:
    for option in options:
        names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option.names)
        value = f" \\fI{roff(option.metavar)}\\fR" if option.metavar else ""
        yield from (".TP", names + value, *_sentences(option.help))
        if option.how_often:
            yield from _sentences(option.how_often.replace("`", ""))


def _definitions(terms: dict[str, str]) -> Iterator[str]:
    for term, text in terms.items():
        yield from (".TP", f".B {roff(term)}", *_sentences(text))
