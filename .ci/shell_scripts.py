"""Completion scripts of three shells. Only for refs, snapshots and WHAT of a table does TAB start the program."""

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
    listed = {name: option for name, option in valued.items() if option.choices}
    files = [name for name, option in valued.items() if option.is_path]
    values = [
        f'{name}) _iceberg_cli_words "{" ".join(option.choices)}" ;;' for name, option in listed.items()
    ]
    values += [f"{name}) _iceberg_cli_ask {option.asks} ;;" for name, option in valued.items() if option.asks]
    values.append(f"{' | '.join(files)}) _iceberg_cli_files ;;")
    positions = []
    for one in commands:
        for number, argument in enumerate(one.arguments):
            if argument.asks:
                act = f'_iceberg_cli_ask {argument.asks} "{" ".join(argument.choices)}"'
            elif argument.choices:
                act = f'_iceberg_cli_words "{" ".join(argument.choices)}"'
            elif argument.is_path:
                act = "_iceberg_cli_files"
            else:
                continue
            positions.append(f'"{one.name} {number}") {act} ;;')
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


BASH = f"""# bash completion for {NAME}, {WRITTEN_BY}; needs bash 4
_iceberg_cli_words() {{
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}}

_iceberg_cli_files() {{
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
}}

# _iceberg_cli_ask KIND [WORDS]: what the table that is typed has; the words where the program cannot say it.
_iceberg_cli_ask() {{
    local line value program=${{COMP_WORDS[0]/#\\~\\//$HOME/}}
    local -i answers=0
    while IFS= read -r line; do
        answers+=1
        value=${{line%%$'\\t'*}}
        if [[ $value == "$current"* ]]; then
            COMPREPLY+=("$(printf '%q' "$value")")
        fi
    done < <("$program" __complete "$1" "$table" 2>/dev/null </dev/null)
    if ((answers == 0 && $# > 1)); then
        _iceberg_cli_words "$2"
    fi
}}

_iceberg_cli() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} command="" option="" awaiting="" table="" word
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
            if ((position == 0)); then
                table=$word
            fi
            position+=1
        fi
    done
    if [[ $current == "=" ]]; then
        current=""
        awaiting=$option
    fi
    if [[ -n $awaiting ]]; then
        case $awaiting in
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
            _quoted(f"{number}:{argument.metavar}:{_zsh_action(argument)}")
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
# _iceberg_cli_ask KIND [WORD...]: what the table that is typed has; the words where the program cannot say it.
_iceberg_cli_ask() {
    local -a answers values shown
    answers=(${(f)"$(${${(Q)program}/#\\~\\//$HOME/} __complete $1 "${(Q)line[1]}" 2>/dev/null </dev/null)"})
    (( $#answers )) || answers=("${(@)argv[2,-1]}")
    (( $#answers )) || return 1
    values=("${(@)answers%%$'\\t'*}")
    shown=("${(@)answers//$'\\t'/  }")
    compadd -l -V answers -d shown -a values
}
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_action(parameter: Parameter) -> str:
    if parameter.asks:
        return " ".join([" _iceberg_cli_ask", parameter.asks, *parameter.choices])
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
        "function __iceberg_cli_at --description 'Is this the command, with at least so many words before the cursor?'",
        "    set -l words (string match -v -- '-*' (commandline -opc))",
        '    test "$words[2]" = "$argv[1]"; and test (count $words) -ge $argv[2]',
        "end",
        "",
        *FISH_ASK,
    ]
    lines += [_fish_option("__fish_use_subcommand", option) for option in root.options]
    for one in commands:
        lines += ["", f"complete -c {NAME} -n __fish_use_subcommand -f -a {one.name} -d {_fish(one.summary)}"]
        for number, argument in enumerate(one.arguments):
            if argument.choices:
                where = f"'__iceberg_cli_at {one.name} {2 + number}'"
                words = " ".join(argument.choices)
                offered = f"(__iceberg_cli_ask {argument.asks} {words})" if argument.asks else words
                lines.append(f"complete -c {NAME} -n {where} -f -a {_fish(offered)}")
        lines += [_fish_option(f"'__iceberg_cli_at {one.name} 2'", option) for option in one.options]
    return "\n".join(lines) + "\n"


FISH_ASK = (
    "function __iceberg_cli_ask --description 'What the typed table has; other words where the program cannot say it'",
    "    set -l words (string match -v -- '-*' (commandline -opc))",
    "    set -l answers",
    "    if test (count $words) -gt 2",
    "        set answers ($words[1] __complete $argv[1] $words[3..-1] 2>/dev/null </dev/null)",
    "    end",
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
    if option.asks:
        words.append(f"-x -k -a '(__iceberg_cli_ask {option.asks})'")
    elif option.choices:
        words.append(f"-x -a {_fish(' '.join(option.choices))}")
    elif option.metavar:
        words.append("-r -F" if option.is_path else "-x")
    return " ".join([*words, f"-d {_fish(option.help)}"])
