"""TOML files of operators, with errors that name the line."""

from __future__ import annotations

from typing import Any

from iceberg_cli.errors import UsageError


def parse_toml(path: str, data: bytes) -> dict[str, Any]:
    """The document of these bytes.

    Args:
        path: of the file, for messages.
        data: all of it.

    Raises:
        UsageError: they are not TOML in UTF-8.
    """
    import tomllib  # most runs read no such file

    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"Cannot read {path}: line {line} is no UTF-8") from error
    except (ValueError, RecursionError) as error:
        lines = data.count(b"\n") + 1
        reason = " ".join(str(error).split()).replace("end of document", f"line {lines}, the last")
        raise UsageError(f"Cannot read {path}: {reason}") from error
