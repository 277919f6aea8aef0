"""The verbs of a format by their names on the command line; none is loaded before it is looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli.operation.ports import Verb
    from iceberg_cli.plan.policy import Policy


class Verbs(Mapping[str, "Verb"]):
    """Verbs by name; each has a folder of its name, with `VERB` in `plan.py` and `POLICY` in `policy.py`.

    Args:
        package: of the folders.
        names: of the verbs.
    """

    def __init__(self, package: str, *names: str) -> None:
        self._package = package
        self._names = names

    def __getitem__(self, name: str) -> Verb:
        verb: Verb = self._module(name, "plan").VERB
        return verb

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def policy(self, name: str) -> type[Policy]:
        """The policy of a verb, with nothing else of it loaded.

        Raises:
            KeyError: there is no such verb.
        """
        policy: type[Policy] = self._module(name, "policy").POLICY
        return policy

    def policy_called(self, name: str) -> type[Policy]:
        """A policy by its class's name, which is the verb's: `MergeDvs` of `merge-dvs`.

        Raises:
            AttributeError: there is none.
        """
        for verb in self._names:
            if "".join(part.capitalize() for part in verb.split("-")) == name:
                return self.policy(verb)
        raise AttributeError(f"{self._package!r} has no policy {name!r}")

    def _module(self, name: str, module: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return import_module(f"{self._package}.{name.replace('-', '_')}.{module}")
