"""The verbs of a format by their names on the command line; none is loaded before it is looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iceberg_cli.operation.ports import Verb
    from iceberg_cli.plan.policy import Policy

VERB_NAMES: Final = ("expire-snapshots", "rewrite-manifests", "merge-dvs", "upgrade-v3", "assign-row-ids")


class Verbs(Mapping[str, "Verb"]):
    """Verbs by name; each is `VERB` of `plan.py` in the folder of its name, imported when it is looked up."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getitem__(self, name: str) -> Verb:
        if name not in VERB_NAMES:
            raise KeyError(name)
        module = import_module(f"{self._package}.{name.replace('-', '_')}.plan")
        verb: Verb = module.VERB
        return verb

    def __contains__(self, name: object) -> bool:
        return name in VERB_NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(VERB_NAMES)

    def __len__(self) -> int:
        return len(VERB_NAMES)


def policy_of(package: str, verb: str) -> type[Policy]:
    """The policy of a verb of a format: `POLICY` of `policy.py` in the folder of its name.

    Args:
        package: of the format.
        verb: its name on the command line.
    """
    policy: type[Policy] = import_module(f"{package}.verbs.{verb.replace('-', '_')}.policy").POLICY
    return policy


def policy_called(package: str, name: str) -> type[Policy]:
    """The policy of a format by its class's name, which is the verb's: `MergeDvs` of `merge-dvs`.

    Raises:
        AttributeError: there is none.
    """
    for verb in VERB_NAMES:
        if "".join(part.capitalize() for part in verb.split("-")) == name:
            return policy_of(package, verb)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
