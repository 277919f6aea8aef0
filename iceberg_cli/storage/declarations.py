"""What each storage says of itself for others to know: schemes, options, secrets, needs, and what creates keep."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from iceberg_cli.paths import scheme_of

BUILT_IN: Final = ("local", "s3", "gcs", "azure", "hdfs")
"""The folders of storages here; each has its `DECLARATION` in `declaration.py`."""


class StorageOptions(ABC):
    """What the options of a storage mean beside opening it."""

    @abstractmethod
    def from_environment(self, options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
        """The options, completed from an environment. Credentials are taken together or not at all."""

    @abstractmethod
    def replaced_by(self, options: Collection[str], over: Collection[str]) -> Collection[str]:
        """The names of options that go where others come before them: a secret belongs to the key it came with."""

    @abstractmethod
    def unwritable_reason(
        self, options: Mapping[str, str], *, takes_soft_deletions: Callable[[], bool]
    ) -> str | None:
        """Why nothing may be written or deleted by these options, or None.

        Args:
            options: for the storage.
            takes_soft_deletions: whether the storage knows other ways than to delete.
        """


class KnownService(NamedTuple):
    """A service that documents that it keeps conditional creates.

    Args:
        name: of the service.
        source: the page that says so.
        hosts: its names, in lower case.
    """

    name: str
    source: str
    hosts: re.Pattern[str]


@dataclass(frozen=True, kw_only=True)
class StorageDeclaration:
    """What others must know of a storage.

    Args:
        title: in sentences.
        schemes: of its paths, in canonical spelling.
        spellings: of schemes, as an error lists them.
        adapter: the module and the class of its `Storage`.
        options: the module whose `OPTIONS` are its `StorageOptions`; empty: it has none.
        option_names: of the options that it reads, and that Iceberg and PyIceberg give it for their own use; one that
            ends with a dot stands for all that begin so. Without any, every name may be one of its options.
        extra: of this distribution, that brings all that it needs; empty for the storage of a package.
        requirements: of a package: what pip installs for a module that is missing, by the first name of the module.
        workers_need: modules that Spark's workers need for its paths.
        secret_words: in names of options whose values are secret.
        signed_parameters: patterns of names of parameters that sign a URL.
        container_schemes: in whose URLs a container stands where other URLs have a user.
        has_one_spelling: whether prefixes of credentials are compared in canonical spelling.
        takes_signer: whether a catalog may sign its requests.
        services: that are known to keep conditional creates.
        is_spoken_by_others: whether services that nobody here knows have its protocol.
        other_services: endings of buckets that lead to services that are not known, whatever the endpoint.
        why_read_only: why nothing can be created there on condition that it is not there, after "since"; else empty.
    """

    title: str
    schemes: tuple[str, ...]
    spellings: tuple[str, ...]
    adapter: tuple[str, str]
    options: str = ""
    option_names: tuple[str, ...] = ()
    extra: str = ""
    requirements: tuple[tuple[str, str], ...] = ()
    workers_need: frozenset[str] = frozenset()
    secret_words: tuple[str, ...] = ()
    signed_parameters: tuple[str, ...] = ()
    container_schemes: tuple[str, ...] = ()
    has_one_spelling: bool = False
    takes_signer: bool = False
    services: tuple[KnownService, ...] = ()
    is_spoken_by_others: bool = False
    other_services: tuple[str, ...] = ()
    why_read_only: str = ""

    def storage_options(self) -> StorageOptions | None:
        """What its options mean; None where it has none."""
        found: StorageOptions | None = import_module(self.options).OPTIONS if self.options else None
        return found


_brought: dict[str, StorageDeclaration] = {}  # by scheme


def declare(scheme: str, made_by: Any) -> None:
    """Know what an installed package brings for a scheme: by its `declaration`, where it has one."""
    found = getattr(made_by, "declaration", None)
    if isinstance(found, StorageDeclaration):
        _brought[scheme] = found


def declarations() -> tuple[StorageDeclaration, ...]:
    """Those of the storages here, and of packages that are in use."""
    return (*_built_in(), *_brought.values())


def declaration_of(path: str) -> StorageDeclaration | None:
    """That of the storage of a path; None where it says nothing of itself."""
    scheme = scheme_of(path)
    return _brought.get(scheme) or _by_scheme().get(scheme)


@cache
def _built_in() -> tuple[StorageDeclaration, ...]:
    return tuple(import_module(f"{__package__}.{name}.declaration").DECLARATION for name in BUILT_IN)


@cache
def _by_scheme() -> Mapping[str, StorageDeclaration]:
    return {scheme: each for each in _built_in() for scheme in each.schemes}
