"""The catalogs that PyIceberg's own configuration names: a file, and variables of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from iceberg_cli.errors import UsageError, how_to_install
from iceberg_cli.storage.redaction import redact
from iceberg_cli.storage.s3.options import TAGS

_FILE_NAME = ".pyiceberg.yaml"
_MEND = "Mend the file, or name another one with --catalog-config."
_ENVIRONMENT = "PYICEBERG_CATALOG__"


def catalog_names(config_file: str | None) -> list[str]:
    """The names of all catalogs that are configured, in their order.

    Args:
        config_file: a file like `.pyiceberg.yaml`; None for the one that PyIceberg finds by itself.

    Raises:
        UsageError: the configuration cannot be read.
    """
    path = config_file or _file_of_pyiceberg()
    configured = [] if path is None else list(_section(_read_file(path), "catalog"))
    # A variable's name is in capitals on most systems, and stands for the same name in lower case.
    by_variable = {
        variable[len(_ENVIRONMENT) :].partition("__")[0].lower()
        for variable in os.environ
        if variable.upper().startswith(_ENVIRONMENT)
    }
    known = {name.lower() for name in configured}
    return [*configured, *sorted(name for name in by_variable if name and name not in known)]


def properties_of(catalog: str, config_file: str | None) -> tuple[Mapping[str, Any], dict[str, str]]:
    """The sections of a catalog's configuration, such as `auth` and `ssl`; and its properties, keys in lower case.

    Args:
        catalog: its name.
        config_file: see `catalog_names`.

    Raises:
        UsageError: the configuration cannot be read, or has no such catalog.
    """
    path = config_file or _file_of_pyiceberg()
    configured = {} if path is None else _from_file(catalog, path)
    sections = {key: value for key, value in configured.items() if isinstance(value, dict)}
    properties = {key: str(value) for key, value in configured.items() if not isinstance(value, dict)}
    prefix = f"{_ENVIRONMENT}{catalog}__".lower()
    for variable, value in os.environ.items():
        if variable.lower().startswith(prefix):
            key = variable.lower().removeprefix(prefix)
            properties[key.replace("__", ".").replace("_", "-")] = value
    if not properties and not sections:
        raise UsageError(
            f"Cannot open the catalog {catalog}: it is not configured.",
            next_step=f"Add it to .pyiceberg.yaml, or set {_ENVIRONMENT}{catalog.upper()}__URI.",
        )
    return sections, properties


def _in_one_line(error: Exception) -> str:
    """The error of a configuration in one line; of YAML the line number and the parser's message."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return redact(" ".join(str(error).split()))
    context = getattr(error, "context", None)
    reason = ", ".join(" ".join(str(part).split()) for part in (problem, context) if part)
    return redact(f"line {mark.line + 1}: {reason}")


def _file_of_pyiceberg() -> str | None:
    """The configuration file that PyIceberg reads: the first that is there; None where there is none."""
    folders = (os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~"), os.getcwd())
    paths = (os.path.join(folder, _FILE_NAME) for folder in folders if folder)
    return next((path for path in paths if os.path.isfile(path) and os.path.getsize(path)), None)


def _from_file(catalog: str, config_file: str) -> Mapping[str, Any]:
    return _section(_section(_read_file(config_file), "catalog"), catalog)


def _read_file(config_file: str) -> Any:
    try:
        import strictyaml
    except ImportError as error:
        raise UsageError(
            f"Cannot read the configuration {config_file}: {error.name} is not installed.",
            # Which type of catalog it has nobody knows yet.
            next_step=f"{how_to_install(error, extra='rest')}, with glue, hive or sql for a catalog of that type.",
        ) from error
    try:
        with open(config_file, encoding="utf-8") as file:
            return _in_lower_case(strictyaml.load(file.read()).data)
    except (strictyaml.YAMLError, OSError, ValueError) as error:
        raise UsageError(
            f"Cannot read the configuration {config_file}: {_in_one_line(error)}", next_step=_MEND
        ) from None


def _in_lower_case(content: Any) -> Any:
    """The same with all keys in lower case, as PyIceberg reads them, but for names of tags."""
    if not isinstance(content, dict):
        return content
    return {_in_lower_case_but_tags(key): _in_lower_case(value) for key, value in content.items()}


def _in_lower_case_but_tags(key: str) -> str:
    """A key in lower case; the name of a tag, which a lifecycle rule compares letter for letter, as it is."""
    prefix = next((each for each in TAGS if key.lower().startswith(each)), key)
    return key[: len(prefix)].lower() + key[len(prefix) :]


def _section(content: Any, name: str) -> Mapping[str, Any]:
    """The mapping below a key; an empty one where there is none."""
    found = content.get(name.lower()) if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}
