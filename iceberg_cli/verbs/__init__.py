"""The verbs by name: how each reads what it plans on, and how it writes what it stages.

A verb's rules are pure and in `iceberg/`; here is the shell around them. A verb's module is imported when it is asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from iceberg_cli.apply import Verb

_MODULES: Final = {
    "expire-snapshots": "expire_snapshots",
    "rewrite-manifests": "rewrite_manifests",
    "merge-dvs": "merge_dvs",
    "upgrade-v3": "upgrade_v3",
    "assign-row-ids": "assign_row_ids",
}


class _Verbs(Mapping[str, Verb]):
    def __getitem__(self, operation: str) -> Verb:
        module = import_module(f"iceberg_cli.verbs.{_MODULES[operation]}")
        verb: Verb = module.VERB
        return verb

    def __contains__(self, operation: object) -> bool:
        return operation in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


VERBS: Final[Mapping[str, Verb]] = _Verbs()
