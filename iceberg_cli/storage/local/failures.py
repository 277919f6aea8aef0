"""What errors of the file system mean to callers of a storage."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from iceberg_cli.errors import BackendUnavailable, unavailable
from iceberg_cli.storage.local.delete import reason_of


@contextlib.contextmanager
def translated(verb: str, path: str, *, new: bool = False) -> Iterator[None]:
    """Turn errors of the file system into those of `Storage`; `new`: the path is about to be created."""
    try:
        yield
    except FileExistsError:
        raise
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError) as error:
        if new:
            raise unavailable(f"Cannot {verb} {path}: {reason_of(error)}.", error) from error
        raise FileNotFoundError(errno.ENOENT, reason_of(error), path) from error
    except OSError as error:
        raise unavailable(f"Cannot {verb} {path}: {reason_of(error)}.", error) from error
    except ValueError as error:  # a NUL character: no file can have that name
        if new:
            raise BackendUnavailable(f"Cannot {verb} {path!r}: {error}.") from error
        raise FileNotFoundError(errno.ENOENT, str(error), path) from error
