"""The verbs of a format by their names on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from iceberg_cli.operation.ports import Verb

_NAMES: Final = ("expire-snapshots", "rewrite-manifests", "merge-dvs", "upgrade-v3", "assign-row-ids")


class Verbs(Mapping[str, Verb]):
    """Verbs by name; each is `VERB` of `plan.py` in the folder of its name, imported when it is looked up."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getitem__(self, name: str) -> Verb:
        if name not in _NAMES:
            raise KeyError(name)
        module = import_module(f"{self._package}.{name.replace('-', '_')}.plan")
        verb: Verb = module.VERB
        return verb

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)
