"""Typer commands that parse texts and flags without pydantic.

Typer passes every value that is not a flag, also one that is absent, to pydantic, and importing pydantic takes longer
than importing typer. A text needs no conversion and a number has its parser, so pydantic is used only where typer
does more: for a mistake, a required value that is missing, a type that no option here has.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from iceberg_cli.cli import subject
from iceberg_cli.cli.options.arguments import Values
from iceberg_cli.cli.options.help_texts import GROUPS, group_of, in_few_words, is_among_own, is_own
from iceberg_cli.plan.option_kinds import COMMAS
from iceberg_cli.plan.text import comma_separated

HELP_ALL: Final = "--help-all"
_MOST_OWN: Final = 16  # options that brief help shows of a command
_ASK_TYPER: Final = object()


class PlainGroup(TyperGroup):
    """Typer's group of commands, for options that are flags."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        """The help option; not given, it is a flag that is off."""
        return _off(super().get_help_option(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of this name.

        Raises:
            UsageError: there is none.
        """
        if ctx.parent is None and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from iceberg_cli.cli.options.unknown_commands import unknown_command  # most runs mistype nothing

            raise unknown_command(args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class PlainCommand(TyperCommand):
    """Typer's command, for options that are texts, flags or have a parser, and lists of these."""

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """`--help-all` has every option, and `--help` those that are the command's own."""
        return [*super().get_help_option_names(ctx), HELP_ALL]

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        """The help option; not given, it is a flag that is off."""
        option = _off(super().get_help_option(ctx))
        if option is not None:
            option.help = f"Show this message and exit; {HELP_ALL}: with every option."
        return option

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """The text of the command; its first paragraph where help is brief."""
        text = self.help or ""
        if not _is_whole(ctx):
            text = text.partition("\n\n")[0]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(text))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What comes after its name in the usage line: `[OPTIONS] TABLE [WHAT] [PATTERN]...`."""
        arguments = [item for item in self.get_params(ctx) if item.param_type_name == "argument"]
        names = [str(item.metavar or item.name).upper().strip("[].") for item in arguments]
        return [
            "[OPTIONS]",
            *(
                f"{name if item.required else f'[{name}]'}{'...' if item.nargs == -1 else ''}"
                for name, item in zip(names, arguments, strict=True)
            ),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, then the options in their groups."""
        if not _is_whole(ctx):
            self._format_own_options(ctx, formatter)
            return
        shown = [(item, item.get_help_record(ctx)) for item in self.get_params(ctx)]
        parts = {
            "Arguments": [record for item, record in shown if item.param_type_name == "argument" and record]
        }
        for group in GROUPS:
            parts[group] = [
                record
                for item, record in shown
                if item.param_type_name == "option" and record and group_of(tuple(item.opts)) == group
            ]
        for title, records in parts.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        if several := _metavar_of_several(self.get_params(ctx)):
            _write_below(formatter, f"{several}: several by commas or repeated; a comma of a value is \\,")

    def _format_own_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments and the options that are the command's own, each in few words."""
        parameters = self.get_params(ctx)
        options = [item for item in parameters if item.param_type_name == "option"]
        own = [item for item in options if is_own(tuple(item.opts))]
        # `plan` has those of every verb.
        shown = own if len(own) <= _MOST_OWN else [item for item in own if is_among_own(tuple(item.opts))]
        arguments = [item for item in parameters if item.param_type_name == "argument"]
        for title, items in (("Arguments", arguments), ("Options", shown)):
            records = [record for item in items if (record := item.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(
                        [
                            (
                                names.partition(" <")[0],
                                in_few_words(text) if title == "Options" else text.partition("  [")[0],
                            )
                            for names, text in records
                        ]
                    )
        left, several = len(options) - len(shown), _metavar_of_several(shown)
        notes = [f"{left} more options: {HELP_ALL}"] if left else []
        notes += [f"{several}: several by commas or repeated"] if several else []
        if notes:
            _write_below(formatter, "; ".join(notes))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; from here on an error can name the table."""
        subject.called(ctx.info_name)
        if name := ctx.params.get("table"):
            subject.named(name)
        result = super().invoke(ctx)
        if not isinstance(result, Values):
            return result
        typed = {
            name
            for name in ctx.params
            if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"
        }
        return result.run(
            lambda parameters, values: ctx.obj.settings(ctx.command.name, parameters, values, typed)
        )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Fill the context with the values of all parameters.

        Returns:
            The arguments that are left: none.

        Raises:
            typer.TyperException: as typer's own.
        """
        ctx.meta[HELP_ALL] = HELP_ALL in args
        given, left, _ = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in self.get_params(ctx):
            texts = given.get(parameter.name)
            if isinstance(texts, list) and "," in (getattr(parameter, "metavar", "") or ""):
                given[parameter.name] = [value for text in texts for value in comma_separated(text)]
        if left or ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        # --help before all others: it ends the command whatever they are.
        for parameter in sorted(self.get_params(ctx), key=lambda each: not each.is_eager):
            value, source = parameter.consume_value(ctx, given)
            read = _read(parameter, value)
            if read is _ASK_TYPER:
                parameter.handle_parse_result(ctx, given, [])
            else:
                ctx.set_parameter_source(parameter.name, source)
                ctx.params[parameter.name] = read
        ctx.args = []
        return []


def _metavar_of_several(parameters: Iterable[Any]) -> str:
    """The first metavar of options that take several values by commas; empty where there is none."""
    metavars = [item.metavar or "" for item in parameters if item.param_type_name == "option"]
    return next((metavar for metavar in metavars if metavar.endswith(COMMAS)), "")


def _write_below(formatter: Any, text: str) -> None:
    """Write what stands below the options."""
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(text)


def _is_whole(ctx: Any) -> bool:
    """Whether help has every option: it is asked for, or made for the manual."""
    return bool(ctx.meta.get(HELP_ALL, True))


def _off(flag: TyperOption | None) -> TyperOption | None:
    if flag is not None:
        flag.default = False
    return flag


def _read(parameter: Any, value: Any) -> Any:
    """The value as typer would convert it, or `_ASK_TYPER` where typer itself has to."""
    described = getattr(parameter, "type_descriptor", None)  # typer 0.28 has none, and does not use pydantic
    if described is None or parameter.callback is not None:
        return _ASK_TYPER
    many = parameter.multiple or parameter.nargs == -1
    if value is None:
        return _ASK_TYPER if parameter.required else () if many else None
    kind, parser = described.annotation, described.parameter_info.parser
    if parser is not None:
        try:
            return [parser(each) for each in value] if many else parser(value)
        except typer.BadParameter:
            return _ASK_TYPER  # it names the option beside the mistake
    plain = kind == list[str] if many else kind in (str, bool) and isinstance(value, kind)
    return value if plain else _ASK_TYPER
