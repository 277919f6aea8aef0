"""Completion scripts of three shells. TAB starts the program only for what a table has, and for names of catalogs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from command_tree import NAME, WRITTEN_BY, Command, Parameter

from iceberg_cli.plan.option_kinds import COMMAS


def _value_options(root: Command, commands: Iterable[Command]) -> dict[str, Parameter]:
    """Every option that takes a value, by each of its names. A name means the same in all commands.

    What stands before the command takes no value: --version there is a flag.
    """
    found: dict[str, Parameter] = {}
    if any(option.metavar for option in root.options):
        raise SystemExit("an option before the command takes a value")
    for option in (option for one in commands for option in one.options):
        for name in option.names:
            before = found.get(name, option)
            # One command may take several of what another takes one of.
            if (_one(before), before.choices, before.asks) != (_one(option), option.choices, option.asks):
                raise SystemExit(
                    f"{name} means {before.metavar!r} in one command and {option.metavar!r} in another"
                )
            found[name] = option
    return {name: option for name, option in found.items() if option.metavar}


def _one(option: Parameter) -> str:
    return option.metavar.removesuffix(COMMAS)


def bash(root: Command, commands: tuple[Command, ...]) -> str:
    """The completion script of bash."""
    valued = _value_options(root, commands)
    values = [line for name, option in valued.items() for line in _bash_values(name, option, commands)]
    files = [f'*" {name}"' for name, option in valued.items() if option.is_path]
    values.append(f"{' | '.join(files)}) _iceberg_cli_files ;;")
    positions = []
    for one in commands:
        for number, argument in enumerate(one.arguments):
            if argument.is_path and argument.asks:
                act = f"_iceberg_cli_places {argument.asks}"
            elif argument.asks:
                act = f'_iceberg_cli_ask {argument.asks} "{" ".join(argument.choices)}"'
            elif argument.choices:
                act = f'_iceberg_cli_words "{" ".join(argument.choices)}"'
            elif argument.is_path:
                act = "_iceberg_cli_files"
            else:
                continue
            where = f'"{one.name} "*' if argument.repeatable else f'"{one.name} {number}"'
            positions.append(f"{where}) {act} ;;")
    options = [
        f'"{one.name}") _iceberg_cli_words "{" ".join(name for option in one.options for name in option.names)}" ;;'
        for one in (root, *commands)
    ]
    fill = {
        "VALUED": " | ".join(valued),
        "VALUES": "\n".join(f"            {line}" for line in values),
        "OPTIONS": "\n".join(f"            {line}" for line in options),
        "POSITIONS": "\n".join(f"            {line}" for line in positions),
        "COMMANDS": " ".join(one.name for one in commands),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: fill[match[1]], BASH)


def _bash_values(name: str, option: Parameter, commands: Iterable[Command]) -> Iterable[str]:
    """The cases for the value of an option: of commands where it takes several values, and of the others."""
    if option.choices:
        act = f'_iceberg_cli_words "{" ".join(option.choices)}"'
    elif option.asks:
        act = f"_iceberg_cli_ask {option.asks}"
    else:
        return
    takes_several = {
        one.name: each.is_comma_separated for one in commands for each in one.options if name in each.names
    }
    several = [command for command, takes in takes_several.items() if takes]
    if several and len(several) < len(takes_several):
        where = " | ".join(f'"{command} {name}"' for command in several)
        yield f"{where}) _iceberg_cli_several {act} ;;"
    elif several:
        act = f"_iceberg_cli_several {act}"
    yield f'*" {name}") {act} ;;'


BASH = f"""# bash completion for {NAME}, {WRITTEN_BY}; needs bash 4
_iceberg_cli_words() {{
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}}

_iceberg_cli_files() {{
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
}}

# _iceberg_cli_several ACTION [WORD...]: the action for the last of several values with commas between them.
_iceberg_cli_several() {{
    local begun="" several=1 pattern='^(.*[^\\],)(.*)$'
    if [[ $current =~ $pattern ]]; then
        begun=${{BASH_REMATCH[1]}} current=${{BASH_REMATCH[2]}}
    fi
    "$@"
    COMPREPLY=("${{COMPREPLY[@]/#/$begun}}")
}}

# _iceberg_cli_places KIND: files, and where the word is no path what the program knows.
_iceberg_cli_places() {{
    _iceberg_cli_files
    local -i files=${{#COMPREPLY[@]}}
    if [[ $current != */* && $current != [.~]* ]]; then
        _iceberg_cli_ask "$1"
        if [[ $1 == tables ]] && ((${{#COMPREPLY[@]}} > files)); then
            compopt -o nospace 2>/dev/null
        fi
    fi
}}

# _iceberg_cli_ask KIND [WORDS]: what the program knows of a kind; the words where it cannot say it.
_iceberg_cli_ask() {{
    local line value program=${{COMP_WORDS[0]/#\\~\\//$HOME/}}
    local -i answers=0
    while IFS= read -r line; do
        answers+=1
        value=${{line%%$'\\t'*}}
        if [[ -n ${{several-}} ]]; then
            value=${{value//,/\\\\,}}
        fi
        if [[ $value == "$current"* ]]; then
            COMPREPLY+=("$(printf '%q' "$value")")
        fi
    done < <("$program" __complete "$1" "${{COMP_WORDS[@]:2:COMP_CWORD-2}}" 2>/dev/null </dev/null)
    if ((answers == 0 && $# > 1)); then
        _iceberg_cli_words "$2"
    fi
}}

_iceberg_cli() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} command="" option="" awaiting="" word
    local -i position=0 i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        if [[ $word == "=" ]]; then
            awaiting=$option
        elif [[ -n $awaiting ]]; then
            awaiting=""
        elif [[ $word == -* ]]; then
            option=$word
            if [[ -n $command ]]; then
                case $word in
                    @VALUED@) awaiting=$word ;;
                esac
            fi
        elif [[ -z $command ]]; then
            command=$word
        else
            position+=1
        fi
    done
    if [[ $current == "=" ]]; then
        current=""
        awaiting=$option
    fi
    if [[ -n $awaiting ]]; then
        case "$command $awaiting" in
@VALUES@
        esac
    elif [[ $current == -* ]]; then
        case $command in
@OPTIONS@
        esac
    elif [[ -z $command ]]; then
        _iceberg_cli_words "@COMMANDS@"
    else
        case "$command $position" in
@POSITIONS@
        esac
    fi
}}

complete -F _iceberg_cli {NAME}
"""


def zsh(root: Command, commands: tuple[Command, ...]) -> str:
    """The completion script of zsh."""
    lines = [f"#compdef {NAME}", f"# {WRITTEN_BY}", "", ZSH_ASK, "_iceberg_cli() {"]
    lines += [
        "    local curcontext=$curcontext program=$words[1] state line",
        "    local -A opt_args",
        "    local -a commands",
    ]
    lines += ["    _arguments -C \\"]
    lines += [f"        {_zsh_option(option)} \\" for option in root.options]
    lines += ["        '1:command:->command' \\", "        '*::argument:->argument'"]
    lines += ["    case $state in", "        command)", "            commands=("]
    for one in commands:
        lines.append("                " + _quoted(f"{one.name}:{one.summary}"))
    lines += ["            )", "            _describe command commands", "            ;;"]
    lines += ["        argument)", "            case $line[1] in"]
    for one in commands:
        words = [_zsh_option(option) for option in one.options]
        words += [
            _quoted(f"{'*' if argument.repeatable else number}:{argument.metavar}:{_zsh_action(argument)}")
            for number, argument in enumerate(one.arguments, 1)
        ]
        lines += [f"                {one.name})", "                    _arguments -s \\"]
        lines += [
            "                        " + " \\\n                        ".join(words),
            "                    ;;",
        ]
    lines += ["            esac", "            ;;", "    esac", "}", "", '_iceberg_cli "$@"']
    return "\n".join(lines) + "\n"


ZSH_ASK = """\
# _iceberg_cli_several ACTION [WORD...]: the action for the last of several values with commas between them.
_iceberg_cli_several() {
    local several=1
    compset -P '*[^\\\\],'
    "$@"
}

# _iceberg_cli_places KIND: files, and where the word is no path what the program knows.
_iceberg_cli_places() {
    local -i found=1
    if [[ $PREFIX != */* && $PREFIX != [.~]* ]]; then
        _iceberg_cli_ask $1 && found=0
    fi
    _files && found=0
    return found
}

# _iceberg_cli_ask KIND [WORD...]: what the program knows of a kind; the words where it cannot say it.
_iceberg_cli_ask() {
    local -a answers values shown suffix
    local -a typed=("${(@Q)words[2,CURRENT-1]}")
    answers=(${(f)"$(${${(Q)program}/#\\~\\//$HOME/} __complete $1 "${(@)typed}" 2>/dev/null </dev/null)"})
    (( $#answers )) || answers=("${(@)argv[2,-1]}")
    (( $#answers )) || return 1
    values=("${(@)answers%%$'\\t'*}")
    [[ -z $several ]] || values=("${(@)values//,/\\\\,}")
    [[ $1 != tables ]] || suffix=(-S '')
    shown=("${(@)answers//$'\\t'/  }")
    compadd -l "${suffix[@]}" -V answers -d shown -a values
}
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_action(parameter: Parameter) -> str:
    if parameter.is_path and parameter.asks:
        return f" _iceberg_cli_places {parameter.asks}"
    if parameter.asks:
        several = " _iceberg_cli_several" if parameter.is_comma_separated else ""
        return " ".join([f"{several} _iceberg_cli_ask", parameter.asks, *parameter.choices])
    if parameter.choices and parameter.is_comma_separated:
        return f" _iceberg_cli_several compadd {' '.join(parameter.choices)}"
    if parameter.choices:
        return f"({' '.join(parameter.choices)})"
    return "_files" if parameter.is_path else " "


def _zsh_option(option: Parameter) -> str:
    text = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    value = f":{option.metavar}:{_zsh_action(option)}" if option.metavar else ""
    equals = {name: f"{name}=" if value and name.startswith("--") else name for name in option.names}
    if option.repeatable:
        return " ".join(_quoted(f"*{equals[name]}[{text}]{value}") for name in option.names)
    if len(option.names) == 1:
        return _quoted(f"{equals[option.names[0]]}[{text}]{value}")
    names = ",".join(equals.values())
    return f"'({' '.join(option.names)})'{{{names}}}{_quoted(f'[{text}]{value}')}"


def fish(root: Command, commands: tuple[Command, ...]) -> str:
    """The completion script of fish."""
    lines = [
        f"# fish completion for {NAME}, {WRITTEN_BY}",
        *_fish_at(" ".join(_value_options(root, commands))),
        *FISH_ASK,
    ]
    lines += [_fish_option("__fish_use_subcommand", option) for option in root.options]
    for one in commands:
        lines += ["", f"complete -c {NAME} -n __fish_use_subcommand -f -a {one.name} -d {_fish(one.summary)}"]
        for number, argument in enumerate(one.arguments):
            where = f"'__iceberg_cli_at {one.name} {number}{' more' * argument.repeatable}'"
            words = " ".join(argument.choices)
            if argument.is_path and argument.asks:
                lines.append(f"complete -c {NAME} -n {where} -a '(__iceberg_cli_places {argument.asks})'")
            elif argument.asks:
                offered = f"(__iceberg_cli_ask {argument.asks} {words})".replace(" )", ")")
                lines.append(f"complete -c {NAME} -n {where} -f -k -a {_fish(offered)}")
            elif words:
                lines.append(f"complete -c {NAME} -n {where} -f -a {_fish(words)}")
        lines += [_fish_option(f"'__iceberg_cli_at {one.name}'", option) for option in one.options]
    return "\n".join(lines) + "\n"


def _fish_at(valued: str) -> tuple[str, ...]:
    """The function that finds the command and the position; `valued`: the options that take a value."""
    return (
        "function __iceberg_cli_at --description 'Is it the command and the position, or with more a later one?'",
        "    set -l words (commandline -opc)",
        "    set -e words[1]",
        "    set -l command",
        "    set -l awaiting 0",
        "    set -l position 0",
        "    for word in $words",
        "        if test $awaiting = 1",
        "            set awaiting 0",
        "        else if string match -q -- '-*' $word",
        f'            if test -n "$command"; and contains -- $word {valued}',
        "                set awaiting 1",
        "            end",
        '        else if test -z "$command"',
        "            set command $word",
        "        else",
        "            set position (math $position + 1)",
        "        end",
        "    end",
        '    test "$command" = "$argv[1]"; or return 1',
        "    switch (count $argv)",
        "        case 2",
        "            test $position -eq $argv[2]",
        "        case 3",
        "            test $position -ge $argv[2]",
        "    end",
        "end",
        "",
    )


FISH_ASK = (
    "function __iceberg_cli_several --description 'The answers of a command, each behind the values that are typed'",
    "    set -l begun (string replace -r -- '^--[a-z-]*=' '' (commandline -ct) | string match -r -- '^.*[^\\\\\\\\],')",
    "    for line in ($argv)",
    "        set -l parts (string split -m 1 \\t -- $line)",
    "        set parts[1] \"$begun\"(string replace -a -- , '\\\\,' $parts[1])",
    "        string join \\t -- $parts",
    "    end",
    "end",
    "",
    "function __iceberg_cli_places --description 'What the program knows of a kind, where the word is no path'",
    "    string match -q -r -- '/|^[.~]' (commandline -ct); or __iceberg_cli_ask $argv",
    "end",
    "",
    "function __iceberg_cli_ask --description 'What the program knows of a kind; other words where it cannot say it'",
    "    set -l words (commandline -opc)",
    "    set -l program $words[1]",
    "    set -e words[1..2]",
    "    set -l answers ($program __complete $argv[1] $words 2>/dev/null </dev/null)",
    "    if test (count $answers) -eq 0",
    "        set answers $argv",
    "        set -e answers[1]",
    "    end",
    "    if test (count $answers) -gt 0",
    '        printf "%s\\n" $answers',
    "    end",
    "end",
    "",
)


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_option(where: str, option: Parameter) -> str:
    words = [f"complete -c {NAME} -n {where}"]
    words += [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    several = "__iceberg_cli_several " if option.is_comma_separated else ""
    if option.asks:
        words.append(f"-x -k -a '({several}__iceberg_cli_ask {option.asks})'")
    elif option.choices and several:
        choices = "/".join(option.choices)
        words.append(f"-x -a '({several}string split / {choices})'")
    elif option.choices:
        words.append(f"-x -a {_fish(' '.join(option.choices))}")
    elif option.metavar:
        words.append("-r -F" if option.is_path else "-x")
    return " ".join([*words, f"-d {_fish(option.help)}"])
