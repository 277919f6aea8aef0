"""A storage for all paths, which routes each to the adapter of its scheme.

Adapters of other packages join by the entry point group `iceberg_cli.storage`: the entry's name is the
scheme, its object is called with the mapping of storage options and returns a `Storage`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, TypeVar

from iceberg_cli.errors import UsageError, how_to_install
from iceberg_cli.paths import canonical, scheme_of
from iceberg_cli.plan.text import listed
from iceberg_cli.storage import (
    FileInfo,
    Obstacle,
    SoftDeletion,
    SoftStorage,
    Storage,
    StorageCredential,
    Writer,
    file_io,
)
from iceberg_cli.storage.conditional_create import EndpointStorage
from iceberg_cli.storage.credential_options import with_environment
from iceberg_cli.storage.declarations import declaration_of, declarations, declare
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.plugins import entry_points_of

Value = TypeVar("Value")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class RoutedStorage(Storage):
    """A storage of all schemes, each adapter made when its first path arrives: one for each scheme and credential.

    Args:
        options: passed to every adapter, which takes what it knows.
        trusted_folders: local folders that the operator named, see `LocalStorage`.
        link_targets: local folders to which links below these may lead.
        credentials: for the paths under their prefixes, in place of `options`; the longest prefix counts. Sent along to
            other processes.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        trusted_folders: Sequence[str] = (),
        link_targets: Sequence[str] = (),
        credentials: Sequence[StorageCredential] = (),
    ) -> None:
        everywhere = StorageCredential(prefix="", options=dict(options))
        spelled = [replace(each, prefix=_with_one_scheme(each.prefix)) for each in (*credentials, everywhere)]
        # The last one is for all paths that none before it is for.
        self._credentials = sorted(spelled, key=lambda each: len(each.prefix), reverse=True)
        self._link_targets = tuple(link_targets)
        self._local = LocalStorage(trusted_folders=trusted_folders, link_targets=link_targets)
        self._adapters: dict[tuple[str, str], Storage] = {}  # by scheme and prefix
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """The state from which another process, maybe on another machine, makes the same storage; with credentials."""
        return {
            "_credentials": [
                replace(each, options=with_environment(each.options, os.environ))
                for each in self._credentials
            ],
            "_link_targets": self._link_targets,
            "_local": self._local,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the storage; its adapters are yet to be made."""
        self.__dict__.update(state)
        self._adapters = {}
        self._lock = threading.Lock()

    def trusting(self, *folders: str) -> RoutedStorage:
        """The same storage, whose deletions accept symbolic links in and above these local folders."""
        *credentials, everywhere = self._credentials
        return RoutedStorage(
            everywhere.options,
            trusted_folders=folders,
            link_targets=self._link_targets,
            credentials=credentials,
        )

    def adapter(self, path: str) -> Storage:
        """The adapter for the path's scheme, with the credentials for the path.

        Raises:
            UsageError: there is none for this scheme, or what it needs is not installed.
        """
        match = _SCHEME.match(path)
        scheme = match[1].lower() if match else "file"
        if scheme == "file":
            return self._local
        credential = self._credential(path)
        name = (scheme_of(f"{scheme}:"), credential.prefix)
        with self._lock:
            if name not in self._adapters:
                self._adapters[name] = self._open(scheme, path, credential)
            return self._adapters[name]

    def _credential(self, path: str) -> StorageCredential:
        spelled = _with_one_scheme(path)
        return next(each for each in self._credentials if spelled.startswith(each.prefix))

    def _adapter_under(self, folder: str) -> Storage:
        """The adapter for what is in a folder."""
        return self.adapter(folder if folder.endswith("/") else f"{folder}/")

    def _open(self, scheme: str, path: str, credential: StorageCredential) -> Storage:
        entry = entry_points_of("iceberg_cli.storage").get(scheme)
        if entry is not None:
            try:
                made_by = entry.load()
                declare(scheme, made_by)
                storage = made_by(credential.options)
            except ImportError as error:
                brought = declaration_of(path)
                raise _not_installed(
                    path, error, requirements=brought.requirements if brought else ()
                ) from error
            if not isinstance(storage, Storage):
                raise UsageError(
                    f"Cannot use {path}: what the entry point {entry.value} makes is no iceberg_cli.storage.Storage.",
                    next_step="Install a version of that package that is for this version of iceberg-cli.",
                )
            return storage
        own = declaration_of(path)
        if own is None:
            known = [f"{spelled}:" for each in declarations() for spelled in each.spellings]
            raise UsageError(
                f"Cannot use {path}: there is no storage for the scheme {scheme}.",
                next_step=f"Known are local paths, {listed(known)}; a package with an entry point"
                " iceberg_cli.storage can add others.",
            )
        module, name = own.adapter
        try:
            adapter = getattr(import_module(module), name)
        except ImportError as error:
            raise _not_installed(path, error, extra=own.extra) from error
        signer = {"signer": credential.signer} if own.takes_signer else {}
        storage = adapter(credential.options, renewal=credential.renewal, **signer)
        assert isinstance(storage, Storage)
        return storage

    def canonical(self, path: str) -> str:
        """The spelling that the scheme's adapter gives."""
        return self.adapter(path).canonical(path)

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole object, or a part of it."""
        return self.adapter(path).read(path, span)

    def stat(self, path: str) -> FileInfo:
        """Size and modification time."""
        return self.adapter(path).stat(path)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """What is known of objects of any schemes."""
        return self._each(paths, self.adapter, lambda adapter, own: adapter.stat_many(own, versions=versions))

    def _each(
        self,
        paths: Sequence[str],
        adapter_of: Callable[[str], Storage],
        ask: Callable[[Storage, Sequence[str]], list[Value | None]],
    ) -> list[Value | None]:
        """The answers of the adapters for objects or folders of any schemes, in the order of the paths."""
        if all(path.startswith("/") for path in paths):
            return ask(self._local, paths)
        adapters = [adapter_of(path) for path in paths]
        values: list[Value | None] = [None] * len(paths)
        for adapter in {id(adapter): adapter for adapter in adapters}.values():
            places = [place for place, each in enumerate(adapters) if each is adapter]
            for place, answer in zip(places, ask(adapter, [paths[place] for place in places]), strict=True):
                values[place] = answer
        return values

    def endpoint(self, path: str) -> str | None:
        """The URL of the service that has the object, where its adapter tells."""
        adapter = self.adapter(path)
        return adapter.endpoint(path) if isinstance(adapter, EndpointStorage) else None

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create the object whole and durable, or raise `FileExistsError`."""
        self.adapter(path).put_if_absent(path, data)

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:
        """Create the object piece by piece."""
        return self.adapter(path).create(path, on_upload)

    def abort_upload(self, path: str, upload_id: str) -> None:
        """Remove what a process that is no more had sent for the object."""
        self.adapter(path).abort_upload(path, upload_id)

    def free_bytes(self, folder: str) -> int | None:
        """The room that is left below the folder."""
        return self._adapter_under(folder).free_bytes(folder)

    def replace(self, path: str, data: bytes) -> None:
        """Replace the object's bytes, or create it."""
        self.adapter(path).replace(path, data)

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every object under the folder by path."""
        return self._adapter_under(folder).list(folder)

    def paths(self, folder: str) -> Iterator[str]:
        """Every object's path under the folder."""
        return self._adapter_under(folder).paths(folder)

    def holds_any(self, folder: str) -> bool:
        """Whether there is an object under the folder."""
        return self._adapter_under(folder).holds_any(folder)

    def subfolders(self, folder: str) -> Iterator[str]:
        """The names of the folders directly in a folder."""
        return self._adapter_under(folder).subfolders(folder)

    def subfolders_many(self, folders: Sequence[str], names: Sequence[str]) -> Sequence[frozenset[str]]:
        """Which of some names are folders in each of n folders of any schemes."""
        answers = self._each(
            folders, self._adapter_under, lambda adapter, own: [*adapter.subfolders_many(own, names)]
        )
        return [found or frozenset() for found in answers]

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete objects of any schemes; those of unknown ones are reported."""
        return self._from_each(paths, lambda adapter, own: adapter.delete(own))

    def erase(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete objects of this program's own of any schemes; those of unknown ones are reported."""
        return self._from_each(paths, lambda adapter, own: adapter.erase(own))

    def _from_each(
        self, paths: Sequence[str], delete: Callable[[Storage, Sequence[str]], Mapping[str, str]]
    ) -> Mapping[str, str]:
        """What the adapters say of the objects that they could not delete."""
        if all(path.startswith("/") for path in paths):
            return delete(self._local, paths)
        failures: dict[str, str] = {}
        batches: dict[int, tuple[Storage, list[str]]] = {}
        for path in paths:
            try:
                adapter = self.adapter(path)
            except UsageError as error:
                failures[path] = error.message
                continue
            batches.setdefault(id(adapter), (adapter, []))[1].append(path)
        for adapter, batch in batches.values():
            failures.update(delete(adapter, batch))
        return failures

    def soft_deletion(self, path: str) -> SoftDeletion | None:
        """What is done in place of deleting the object at `path`, by the options for it."""
        adapter = self.adapter(path)
        return adapter.soft_deletion(path) if isinstance(adapter, SoftStorage) else None

    def unwritable_reason(self, path: str) -> str | None:
        """Why nothing may be written or deleted beside a path, by the options for it; None where it may."""
        options = self._credential(path).options
        if reason := file_io.unknown_reason(options):
            return reason
        own = declaration_of(path)
        about = None if own is None else own.storage_options()
        if about is None:
            return None
        return about.unwritable_reason(
            options, takes_soft_deletions=lambda: isinstance(self.adapter(path), SoftStorage)
        )

    def obstacles(self, folders: Sequence[str]) -> Mapping[str, Obstacle]:
        """Those of n local folders in which no file can be deleted, each with the reason."""
        return self._local.obstacles(folders)

    def prune(self, folder: str) -> None:
        """Remove empty folders."""
        self._adapter_under(folder).prune(folder)


def _not_installed(
    path: str, error: ImportError, *, extra: str = "", requirements: Iterable[tuple[str, str]] = ()
) -> UsageError:
    return UsageError(
        f"Cannot use {path}: {error.name} is not installed.",
        next_step=how_to_install(error, extra=extra, requirements=dict(requirements)),
    )


def _with_one_scheme(path: str) -> str:
    """A path or a prefix in the one spelling that its storage has; where it has several, as it is."""
    own = declaration_of(path)
    return canonical(path) if own is not None and own.has_one_spelling else path


@dataclass(frozen=True, kw_only=True)
class UnsafeOverrides:
    """The safety checks that the operator overrides; see `formats/open.py`."""

    allow_roots: tuple[str, ...] = ()
    trust_lists: bool = False
    conditional_writes: bool = False
    single_writer: bool = False
    forget_metadata: tuple[str, ...] = ()

    def local_folders(self, opened: str) -> tuple[str, ...]:
        """The local folders that the operator named, the table's among them: a folder or a file in one."""
        return tuple(path for path in (opened, *self.allow_roots) if scheme_of(path) == "file")


NO_OVERRIDES: Final = UnsafeOverrides()


def located(name: str) -> str:
    """A table's folder or metadata file as an absolute path.

    Args:
        name: as the operator typed it.

    Returns:
        A local path from `/` on, without `..`: what that means depends on the links before it. Any other name as it is.

    Raises:
        UsageError: it is empty, or names another host.
    """
    if scheme_of(name) != "file":
        return name.rstrip("/") or name
    path = LocalStorage().canonical(name)
    return os.path.realpath(path) if ".." in path.split("/") else path


def storage_of(
    opened: str,
    options: Mapping[str, str],
    overrides: UnsafeOverrides,
    *,
    credentials: Sequence[StorageCredential] = (),
) -> RoutedStorage:
    """The storage of the table at `opened`: links in and above local folders that the operator named are trusted.

    Links inside the table may lead to the folders that he allowed.
    """
    targets = tuple(path for path in overrides.allow_roots if scheme_of(path) == "file")
    return RoutedStorage(
        options,
        trusted_folders=overrides.local_folders(opened),
        link_targets=targets,
        credentials=credentials,
    )


def open_storage(
    options: Mapping[str, str] | None = None,
    *,
    trusted_folders: Sequence[str] = (),
    credentials: Sequence[StorageCredential] = (),
) -> Storage:
    """The storage for paths of all schemes, each handled by its adapter.

    Args:
        options: for the adapters, under their own names or PyIceberg's (`s3.endpoint` and the like).
        trusted_folders: local folders that the operator named. Deleting accepts symbolic links in and above
            them and none below; without any, no part of a deleted local path may be a symbolic link.
        credentials: see `RoutedStorage`.
    """
    return RoutedStorage(options or {}, trusted_folders=trusted_folders, credentials=credentials)
