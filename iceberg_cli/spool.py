"""What is too much for memory, in a file of this machine without a name: it goes when the process ends, however."""

from __future__ import annotations

import os

from iceberg_cli.errors import unavailable

Place = tuple[int, int]  # [start, stop)


class Spool:
    """Bytes, piece by piece. They are not mapped: what was mapped counts as this process's memory."""

    def __init__(self) -> None:
        import tempfile  # with what it imports it takes longer than most commands have for it

        self._file = tempfile.TemporaryFile(prefix="iceberg-cli-", buffering=0)  # noqa: SIM115 - it lives as this does
        self._size_bytes = 0

    def add(self, data: bytes) -> Place:
        """Write a piece; where it is.

        Raises:
            BackendUnavailable: the disk is full, say.
        """
        start = self._size_bytes
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise unavailable(
                f"Cannot go on: the folder for temporary files takes no more than {start} bytes: {error.strerror}",
                error,
                next_step="Free space there, or name another one by TMPDIR.",
            ) from error
        self._size_bytes += len(data)
        return start, self._size_bytes

    def read(self, place: Place) -> bytes:
        """A piece."""
        start, stop = place
        return os.pread(self._file.fileno(), stop - start, start)
