"""The text that Prometheus reads. Spec: Prometheus text exposition format 0.0.4."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

Sample = tuple[str, str]  # its labels as they stand in the text, and its value
_LABELS: Final = r'\{[a-z_]+="(?:[^"\\\n]|\\.)*"(?:,[a-z_]+="(?:[^"\\\n]|\\.)*")*\}'


def lines_of(name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[str]:
    """The lines of a gauge; none where it has no samples."""
    is_first = True
    for labels, value in samples:
        if is_first:
            yield f"# HELP {name} {documentation}\n# TYPE {name} gauge\n"
            is_first = False
        yield f"{name}{labels} {value}\n"


def labels_of(labels: Mapping[str, str]) -> str:
    """Labels as they stand in the text; those that are empty are none."""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items() if value) + "}"


def escaped(value: str) -> str:
    """The value of a label as it stands between quotes."""
    text = value.encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def seconds(time_ms: int) -> str:
    """A time as a value."""
    return f"{time_ms / 1_000:.3f}"


def times_in(path: str, name: str) -> dict[str, str]:
    """The samples of a gauge of times in a file of an earlier run: values by labels; none where it cannot be read."""
    line_of = re.compile(rf"{name}({_LABELS}) (\d+\.\d{{3}})\n")
    found: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                if line.startswith(name) and (match := line_of.fullmatch(line)):
                    found[match[1]] = match[2]
    except (OSError, UnicodeError):
        return {}
    return found
