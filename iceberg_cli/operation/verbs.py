"""The verbs of a format by their names on the command line; none is loaded before it is looked up."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli.operation.ports import Verb
    from iceberg_cli.plan.policy import Policy


class FormatVerbs(Mapping[str, "Verb"]):
    """The verbs of a format by name."""

    @abstractmethod
    def policy(self, name: str) -> type[Policy]:
        """The policy of a verb, with nothing else of it loaded.

        Raises:
            KeyError: there is no such verb.
        """

    @abstractmethod
    def instead(self, name: str) -> str | None:
        """What does here what a verb of other formats does, as an error can advise it; None: nothing."""


class Verbs(FormatVerbs):
    """Verbs that are folders of a package by their names, each with `VERB` in `plan.py` and `POLICY` in `policy.py`.

    One that `inspect` can tell of has `suggestion` in `due.py`.

    Args:
        package: of the folders.
        names: of the verbs.
        instead: for verbs that other formats have, what does the same here, as an error can advise it.
        seen_by_inspect: those of the names that have a `suggestion`.
        unlisted: verbs that are found by their names, so that what they began is finished, and that no command has.
    """

    def __init__(
        self,
        package: str,
        *names: str,
        instead: Mapping[str, str] | None = None,
        seen_by_inspect: Sequence[str] = (),
        unlisted: Sequence[str] = (),
    ) -> None:
        self._package = package
        self._names = names
        self._unlisted = unlisted
        self._instead = instead or {}
        self._seen_by_inspect = seen_by_inspect

    def __getitem__(self, name: str) -> Verb:
        verb: Verb = self._module(name, "plan").VERB
        return verb

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._unlisted

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def policy(self, name: str) -> type[Policy]:
        """See `FormatVerbs`."""
        policy: type[Policy] = self._module(name, "policy").POLICY
        return policy

    def instead(self, name: str) -> str | None:
        """See `FormatVerbs`."""
        return self._instead.get(name)

    def suggestions(self, inspected: Any) -> Iterator[dict[str, Any]]:
        """The verbs that are due, or may be, as a summary's `suggestions` have them.

        Args:
            inspected: what was read of the table, in the format's own type.
        """
        for name in self._seen_by_inspect:
            found: dict[str, Any] | None = self._module(name, "due").suggestion(inspected)
            if found is not None:
                yield found

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
        if name not in self:
            raise KeyError(name)
        return import_module(f"{self._package}.{name.replace('-', '_')}.{module}")
