"""Names of storage options: which of them no storage knows, so that they are slips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from iceberg_cli.storage.declarations import StorageDeclaration, declarations
from iceberg_cli.storage.file_io import OPTIONS as FILE_IO
from iceberg_cli.storage.plugins import entry_points_of

# What a section of a catalog has beside the options of its storage, by which whoever copies it whole is not warned.
_OF_CATALOGS: Final = (
    "auth.", "cache-enabled", "catalog-impl", "credential", "dynamodb.", "glue.", "header.", "hive.", "location",
    "oauth2-server-uri", "prefix", "rest.", "scope", "type", "uri", "warehouse",
)  # fmt: skip


def unknown_options(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """The names of options that no storage here has, nor one of an installed package; by each all that there are.

    They are given to storages as others are. A package's storage that does not say which options it has may have any:
    then none is unknown.

    Args:
        names: in any spelling.
    """
    known = {*_OF_CATALOGS, *FILE_IO, *(name for each in declarations() for name in each.option_names)}
    unknown = _not_among(known, names)
    if unknown:  # packages are looked through only for these: that takes longer than most commands
        for declaration in _of_packages():
            if declaration is None or not declaration.option_names:
                return {}
            known.update(declaration.option_names)
        unknown = _not_among(known, unknown)
    return dict.fromkeys(unknown, sorted(name for name in known if not name.endswith(".")))


def _not_among(known: Iterable[str], names: Iterable[str]) -> list[str]:
    families = tuple(name for name in known if name.endswith("."))
    return [name for name in names if name not in known and not name.startswith(families)]


def _of_packages() -> Iterable[StorageDeclaration | None]:
    """What the storages of installed packages say of themselves; None: nothing, or they cannot be loaded."""
    for entry in entry_points_of("iceberg_cli.storage").values():
        try:
            made_by = entry.load()
        except (ImportError, AttributeError):
            yield None
        else:
            found = getattr(made_by, "declaration", None)
            yield found if isinstance(found, StorageDeclaration) else None
