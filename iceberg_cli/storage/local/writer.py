"""New local files that are written piece by piece."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import Final

from iceberg_cli.storage import Writer
from iceberg_cli.storage.local.failures import translated
from iceberg_cli.storage.local.write import (
    FOLDER,
    in_its_folder,
    link_descriptor,
    link_temporary,
    open_named,
    open_unnamed,
    temporary_name,
    unlink_quietly,
)

_COPIED_BYTES: Final = 8 << 20  # at once


class LocalWriter(Writer):
    """A new file: one without a name, or a hidden temporary one beside its name, until it is linked to that.

    Args:
        path: of the file, as the caller spells it.
        key: the same in canonical spelling.
        unnamed: whether to try it without a name.
        on_upload: gets the name of the temporary file before there is one.
    """

    def __init__(
        self, path: str, key: str, *, unnamed: bool, on_upload: Callable[[str], None] | None
    ) -> None:
        super().__init__(path)
        self._key = key
        self._folder, _, self._name = key.rpartition("/")
        self._unnamed = unnamed
        self._on_upload = on_upload
        self._descriptor: int | None = None
        self._temporary: str | None = None

    def _write(self, data: memoryview) -> None:
        with translated("write", self._path, new=True):
            _write_all(self._begun(), data)

    def _begun(self) -> int:
        """The descriptor of the file, which is made by the first call."""
        if self._descriptor is None:
            if self._unnamed:
                in_its_folder(self._key, self._begin_unnamed)
            if self._descriptor is None:
                self._begin_named()
        assert self._descriptor is not None
        return self._descriptor

    def _begin_unnamed(self) -> None:
        with self._parent() as parent:
            self._descriptor = open_unnamed(parent)

    def _begin_named(self) -> None:
        temporary = temporary_name()
        if self._on_upload is not None:
            self._on_upload(temporary)

        def begin() -> None:
            with self._parent() as parent:
                self._descriptor = open_named(parent, temporary)
            self._temporary = temporary

        in_its_folder(self._key, begin)

    def _commit(self) -> None:
        with translated("write", self._path, new=True):
            os.fsync(self._begun())
            in_its_folder(self._key, self._link)
        with contextlib.suppress(OSError):  # the file is there
            self._end()

    def _link(self) -> None:
        """Link the file to its name, which replaces nothing, and flush the folder.

        The name may be that of this very file: a network file system can carry out what it has no answer to.
        """
        with self._parent() as parent:
            if os.path.lexists(self._key):
                self._refuse_another()
            else:
                # Hadoop would check the new content against the checksum of the file that had the name before.
                unlink_quietly(f".{self._name}.crc", parent)
                try:
                    self._link_once(parent)
                except FileExistsError:
                    self._refuse_another()
            os.fsync(parent)

    def _link_once(self, parent: int) -> None:
        assert self._descriptor is not None
        if self._temporary is None:
            if link_descriptor(self._descriptor, parent, self._name):
                return
            self._copy()
        assert self._temporary is not None
        link_temporary(self._temporary, parent, self._name)

    def _copy(self) -> None:
        """Go on with a temporary file, where the system makes files without a name and cannot give them one."""
        assert self._descriptor is not None
        source, self._descriptor = self._descriptor, None
        try:
            os.lseek(source, 0, os.SEEK_SET)
            self._begin_named()
            assert self._descriptor is not None
            while data := os.read(source, _COPIED_BYTES):
                _write_all(self._descriptor, memoryview(data))
            os.fsync(self._descriptor)
        finally:
            os.close(source)

    def _refuse_another(self) -> None:
        assert self._descriptor is not None
        there = os.stat(self._key, follow_symlinks=False)
        if not os.path.samestat(there, os.fstat(self._descriptor)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path)

    def _abort(self) -> None:
        with translated("clean up", self._path, new=True):
            self._end()

    def _end(self) -> None:
        """Close the file and unlink its temporary name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._folder}/{self._temporary}")
            self._temporary = None

    @contextlib.contextmanager
    def _parent(self) -> Iterator[int]:
        parent = os.open(self._folder or "/", FOLDER)
        try:
            yield parent
        finally:
            os.close(parent)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
