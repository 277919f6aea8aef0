"""The reference pages of `docs/`: each command, the options of all, the policies of Python, and the JSON documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from command_tree import NAME, WRITTEN_BY, Command, Parameter, is_of_tables, shared_options

from iceberg_cli.cli.options.help_texts import GROUPS, examples_of, group_of
from iceberg_cli.formats import VERB_NAMES, policies_of
from iceberg_cli.plan.policy import Policy, Switches

_HEAD = f"<!-- {WRITTEN_BY} -->\n\n"
SHARED = "shared-options"
_OF_A_TABLE = {"iceberg": "an Iceberg table", "delta": "a Delta table", None: "a table of either format"}
_ABOUT_COMMANDS = (
    f"Options that several commands have alike are on a page of their own: [options of every command on tables]"
    f"({SHARED}.md). What `--format json` prints is described field by field: [JSON documents](documents.md). "
    "The manual pages say the same (`man iceberg-cli`)."
)
_ABOUT_POLICIES = (
    "What `Table.plan` wants is a policy: what an operator asks of a verb. Its arguments are the options of the "
    "command, all by keyword. Times and sizes are numbers of milliseconds and of bytes, or texts as on the command "
    "line (`7d`, `8MiB`). None leaves it to the table's property, or to the default that the meaning names."
)
_ABOUT_DOCUMENTS = (
    "With `--format json` a command prints one document. Its `schema` says which: the number rises where a field goes "
    "or means something else, and stays where fields are added. Ids of 64 bits are strings, for many readers of JSON "
    "lose digits of them; times have `_ms` with milliseconds since 1970 and, beside it, ISO 8601. The schemas "
    "themselves are in the package, in `iceberg_cli/schemas/`."
)
_ABOUT_WORDS = (
    "Screens and HTML pages use one word for a thing; documents have the names that Iceberg's procedures give in their "
    "results, where there is one, and keep them."
)
_WORDS = (
    ("verb", "`operation`"),
    ("operation", "`operation_id`"),
    ("files that were deleted", "`deleted_files_count`, of one kind `deleted_..._count`"),
    ("freed", "`reclaimed_bytes`; of many tables together `freed_bytes`"),
    ("frees", "`bytes`, of each element of `due`"),
    ("why", "`reason`; `rule` of a grade"),
    ("oldest", "`oldest_snapshot_ms`"),
    ("small", "`small_files`"),
)
_ABOUT_FIELDS = (
    "In these tables `a.b` is field `b` of the object `a`, `a[]` each element of the array `a`, and `a.*` each value "
    "of an object whose keys are names."
)


def reference_pages(
    root: Command, commands: Iterable[Command], schemas: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """The text of each page by its name, without folder and ending.

    Args:
        root: the program itself.
        commands: in the order of its help.
        schemas: of the documents.
    """
    commands = tuple(commands)
    shared = shared_options(commands)
    pages = {one.name: _command_page(one, shared) for one in commands}
    pages["index"] = _index(root, commands)
    pages[SHARED] = _shared_page(shared)
    pages["policies"] = _policies()
    pages["documents"] = _documents(schemas)
    return pages


def _text(text: str) -> str:
    """A text of the help as Markdown has it: no character of it is a mark, but for back quotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_<\[\]])", r"\\\1", part) for part in parts
    )


def _index(root: Command, commands: tuple[Command, ...]) -> str:
    lines = ["# Commands", *(_text(paragraph) for paragraph in root.description)]
    lines += ["| Command | What it does |\n|---|---|\n" + "\n".join(map(_row, commands))]
    lines += [_ABOUT_COMMANDS]
    return _HEAD + "\n\n".join(lines) + "\n"


def _row(command: Command) -> str:
    return f"| [`{command.name}`]({command.name}.md) | {_text(command.summary)}. |"


def _command_page(command: Command, shared: tuple[Parameter, ...]) -> str:
    words = [
        NAME,
        command.name,
        *(f"[{one.metavar}]" if one.optional else one.metavar for one in command.arguments),
    ]
    parts = [
        f"# {command.name}",
        *map(_text, command.description),
        f"```text\n{' '.join([*words, '[OPTIONS]'])}\n```",
    ]
    if command.arguments:
        parts += [
            "## Arguments",
            "\n".join(f"- `{one.metavar}`: {_text(one.help)}" for one in command.arguments),
        ]
    is_shared = shared if is_of_tables(command) else ()
    own = [option for option in command.options if option not in is_shared]
    parts += _grouped(own)
    if is_shared:
        parts += [f"Beside these it has the [options of every command on tables]({SHARED}.md)."]
    parts += ["## Examples", *_examples(command.name)]
    return _HEAD + "\n\n".join(parts) + "\n"


def _shared_page(shared: tuple[Parameter, ...]) -> str:
    parts = [
        "# Options of every command on tables",
        "Each command that opens a table has these.",
        *_grouped(shared),
    ]
    return _HEAD + "\n\n".join(parts) + "\n"


def _grouped(options: Iterable[Parameter]) -> Iterator[str]:
    options = tuple(options)
    for group in GROUPS:
        of_group = [option for option in options if group_of(option.names) == group]
        if of_group:
            yield f"## {group}"
            yield "\n".join(map(_option, of_group))


def _option(option: Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in option.names[:-1])
    last = f"`{option.names[-1]} {option.metavar}`".replace(" `", "`")
    again = f" {option.how_often}" if option.repeatable else ""
    return f"- {names}{', ' if names else ''}{last}: {_text(option.help)}{again}"


def _examples(name: str) -> Iterator[str]:
    for text, words in examples_of(name):
        yield f"{_text(text)}\n\n```sh\n{NAME} {words}\n```"


# -- Policies --------------------------------------------------------------------------------------------------


def _policies() -> str:
    parts = ["# Policies", _ABOUT_POLICIES]
    for verb in VERB_NAMES:
        parts += [f"## {verb}"]
        for name, policy in policies_of(verb).items():
            parts += [f"### `{name}.{policy.__name__}`", _arguments(policy)]
    return _HEAD + "\n\n".join(parts) + "\n"


def _arguments(policy: type[Policy]) -> str:
    rows = []
    for option in policy.options():
        meaning = " ".join(option.help_of.values())
        if isinstance(option.kind, Switches):
            values = (f"`{value}`: {text}" for value, text in option.kind.flags.values())
            meaning = " ".join(values)
        flags = " or ".join(f"`{flag}`" for flag in option.help_of)
        rows.append(f"| `{option.name}` | {flags} | `{option.default!r}` | {_text(meaning)} |")
    return "| Argument | Option | Default | Meaning |\n|---|---|---|---|\n" + "\n".join(rows)


# -- JSON documents --------------------------------------------------------------------------------------------


def _documents(schemas: Iterable[Mapping[str, Any]]) -> str:
    words = "\n".join(
        f"| {word} | {field} |" for word, field in (("On screens", "In documents"), ("---", "---"), *_WORDS)
    )
    parts = ["# JSON documents", _ABOUT_DOCUMENTS, _ABOUT_WORDS, words, _ABOUT_FIELDS]
    for schema in sorted(schemas, key=lambda one: str(one["$id"])):
        parts += [f"## `{schema['$id']}`", f"{schema['title']}."]
        parts += _tables(schema)
    return _HEAD + "\n\n".join(parts) + "\n"


def _tables(schema: Mapping[str, Any]) -> Iterator[str]:
    yield _table(_fields(schema, schema.get("$defs", {})))
    for kind in schema.get("allOf", ()):
        told_by = {name: value.get("const") for name, value in kind["if"]["properties"].items()}
        if "what" not in told_by:
            continue
        yield f"### `{told_by['what']}` of {_OF_A_TABLE[told_by.get('format')]}"
        yield _table(_fields(kind["then"], schema.get("$defs", {})))


def _table(fields: Iterable[tuple[str, str, str]]) -> str:
    rows = [f"| `{path}` | {kind} | {_text(text)} |" for path, kind, text in fields]
    return "| Field | Type | Meaning |\n|---|---|---|\n" + "\n".join(rows)


def _fields(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, str, str]]:
    """The path, type and description of each field below a schema."""
    for name, field in schema.get("properties", {}).items():
        yield from _field(f"{path}.{name}" if path else name, field, definitions)
    for pattern, field in schema.get("patternProperties", {}).items():
        name = f"*{pattern.strip('^$')}"
        yield from _field(f"{path}.{name}" if path else name, field, definitions)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping) and extra:
        yield from _field(f"{path}.*", extra, definitions)


def _field(
    path: str, field: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    whole = _resolved(field, definitions)
    yield path, _kind(whole, definitions), whole.get("description", "")
    for one in (whole, *(_resolved(each, definitions) for each in whole.get("anyOf", ()))):
        if one.get("title"):
            continue  # the arguments of a policy: they are the options of its command
        yield from _fields(one, definitions, path)
        items = _resolved(one.get("items", {}), definitions)
        yield from _fields(items, definitions, f"{path}[]")


def _resolved(field: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(field, Mapping):  # `true`: any value
        return {}
    name = str(field.get("$ref", "")).rpartition("/")[2]
    return {**definitions.get(name, {}), **field}


def _kind(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """The type of a field in words, or its values."""
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join("null" if value is None else f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        kinds = [_kind(_resolved(one, definitions), definitions) for one in field["anyOf"]]
        return " or ".join(sorted(set(kinds), key=lambda kind: kind == "null"))
    if str(field.get("$ref", "")).startswith("../"):
        return f"`iceberg-cli/{field['$ref'].removeprefix('../')}`"
    stated = field.get("type", "any")
    kinds = [stated] if isinstance(stated, str) else sorted(stated, key=lambda kind: kind == "null")
    items = _resolved(field.get("items", {}), definitions)
    return " or ".join(
        f"array of {_kind(items, definitions)}" if kind == "array" and items else kind for kind in kinds
    )
