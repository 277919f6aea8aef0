"""Deletion of local files, never through a symbolic link below the folders that the operator named."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat as stat_module
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from iceberg_cli.errors import UsageError
from iceberg_cli.storage import Obstacle
from iceberg_cli.storage.local.write import FOLDER, unlink_quietly

_NO_NAMES = {"", ".", ".."}
_A_FOLDER = "it is a folder"
_UNCLEAR = "the path contains '..' or a NUL character"
# Linux refuses to unlink a folder. Elsewhere it may be allowed to some, so its type is checked before.
_UNLINKS_FOLDERS = sys.platform != "linux"
# An attempt to unlink what is not there takes the time of some 16 entries of a listing.
_LOOK_ENTRIES = 16
_ENTRY_BYTES = 40  # or more, on most file systems, is what a file adds to the size of its folder
_FEW_FILES = 100
# A folder takes one deletion after another; of two folders, two threads delete in half the time.
_THREADS = 2
_MANY_FILES = 1_000

Name = tuple[str, str]
"""A path as the caller spells it, and the name of the file in its folder."""
Kept = dict[str, str]
"""Why files are still there, by the caller's spelling."""


class Deletions:
    """A deleter of local files, which remembers which folders have checksum files.

    Args:
        canonical: of a path, see `LocalStorage.canonical`.
        trusted: canonical folders, the longest first and `/` among them: links in and above them are followed.
        targets: canonical folders that links below a trusted folder may lead to.
    """

    def __init__(
        self, canonical: Callable[[str], str], trusted: Sequence[str], *, targets: Sequence[str] = ()
    ) -> None:
        self._canonical = canonical
        self._trusted = trusted
        self._targets = targets
        self._checksums: dict[str, bool] = {}
        self._files_since_look = Counter[str]()  # files of each folder, until its checksum files are known

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Unlink files and Hadoop's hidden checksum files beside them.

        Each folder is opened part by part without following links, and files are unlinked inside the open
        folder: a folder that is swapped for a link in the meantime leads nowhere.
        """
        failures: Kept = {}
        folders: dict[str, list[Name]] = {}
        for path in paths:
            folder, slash, name = path.rpartition("/")
            if not slash or name in _NO_NAMES:
                try:
                    folder, _, name = self._canonical(path).rpartition("/")
                except UsageError as error:
                    failures[path] = error.message
                    continue
                if name == "..":
                    failures[path] = _UNCLEAR
                    continue
            folders.setdefault(folder, []).append((path, name))
        waiting = deque(folders.items())

        def some_folders() -> Kept:
            still: Kept = {}
            while True:
                try:
                    folder, names = waiting.popleft()
                except IndexError:  # the other thread may have taken the last one
                    return still
                still |= self._delete_in(f"{folder}/", names)

        if len(folders) == 1 or len(paths) < _MANY_FILES:
            return failures | some_folders()
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_THREADS) as pool:
            for share in [pool.submit(some_folders) for _ in range(_THREADS)]:
                failures |= share.result()
        return failures

    def _delete_in(self, folder: str, names: Sequence[Name]) -> Kept:
        """Unlink files inside one folder of any spelling."""
        try:
            key = self._canonical(folder)
        except UsageError as error:
            return dict.fromkeys((path for path, _ in names), error.message)
        if "\0" in key or ".." in key.split("/"):
            return dict.fromkeys((path for path, _ in names), _UNCLEAR)
        try:
            parent = self.open_folder(key)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, UnicodeEncodeError) as error:
            return dict.fromkeys((path for path, _ in names), reason_of(error))
        try:
            checksums = self._may_hold_checksums(key, parent, len(names))
            return _unlink(names, parent, checksums=checksums)
        finally:
            os.close(parent)

    def _may_hold_checksums(self, folder: str, parent: int, files: int) -> bool:
        """Whether to try to delete a checksum file beside each of `files`: most folders have none, as a listing shows.

        The result is cached, for the files that are about to go are older than the listing. A listing ends where it
        would take longer than the attempts so far; where the folder's size shows that it will, it is not begun.
        """
        if folder not in self._checksums:
            self._files_since_look[folder] += files
            most_entries = _LOOK_ENTRIES * self._files_since_look[folder]
            if (
                self._files_since_look[folder] < _FEW_FILES
                or os.fstat(parent).st_size > _ENTRY_BYTES * most_entries
            ):
                return True
            try:
                with os.scandir(parent) as entries:
                    looked_at = itertools.islice(entries, most_entries)
                    found = any(entry.name.endswith(".crc") for entry in looked_at)
                    self._checksums[folder] = found or next(entries, None) is not None
            except OSError:
                self._checksums[folder] = True
        return self._checksums[folder]

    def open_folder(self, folder: str) -> int:
        """A descriptor of the folder; `OSError` with ELOOP when a link is met below the trusted folders.

        A link is followed if it leads to one of the targets: the folder is then opened from there, again without links.
        """
        inside = f"{folder.rstrip('/')}/"
        root = next(trusted for trusted in self._trusted if inside.startswith(f"{trusted.rstrip('/')}/"))
        try:
            return _open_below(root, inside[len(root) :])
        except OSError as error:
            if error.errno != errno.ELOOP or not self._targets:
                raise
            real = f"{os.path.realpath(folder)}/"
            for target in map(os.path.realpath, self._targets):
                if real.startswith(f"{target.rstrip('/')}/"):
                    return _open_below(target, real[len(target) :])
            raise

    def obstacle(self, folder: str) -> Obstacle | None:
        """The obstacle to deleting files in a canonical folder that is known without trying, or None."""
        try:
            descriptor = self.open_folder(folder)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # no file is there
            return None
        except OSError as error:
            if error.errno == errno.ELOOP and (link := _first_link(folder, self._trusted)) is not None:
                target = os.path.realpath(link)
                return Obstacle(reason=f"the symbolic link {link} leads to {target}", target=target)
            return Obstacle(reason=reason_of(error))
        try:
            effective = os.access in os.supports_effective_ids
            if os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor, effective_ids=effective):
                return None
            return Obstacle(reason="it may not be written to")
        finally:
            os.close(descriptor)


def _open_below(root: str, rest: str) -> int:
    """A descriptor of the folder `rest` below `root`, opened part by part; see `Deletions.open_folder`."""
    descriptor = os.open(root, FOLDER)
    for part in rest.split("/"):
        if not part:
            continue
        try:
            deeper = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                if stat_module.S_ISLNK(os.lstat(part, dir_fd=descriptor).st_mode):
                    text = f"it is reached through the symbolic link {part}"
                    raise OSError(errno.ELOOP, text) from None
            raise
        finally:
            os.close(descriptor)
        descriptor = deeper
    return descriptor


def _first_link(folder: str, trusted: Sequence[str]) -> str | None:
    """The symbolic link nearest to the trusted folder on the way to a canonical folder below it, or None."""
    inside = f"{folder.rstrip('/')}/"
    path = next(root for root in trusted if inside.startswith(f"{root.rstrip('/')}/")).rstrip("/")
    for part in inside[len(path) + 1 :].split("/"):
        path = f"{path}/{part}"
        if os.path.islink(path):
            return path
    return None


def reason_of(error: OSError | UnicodeEncodeError) -> str:
    """The reason of a system's error, in words."""
    text = error.strerror if isinstance(error, OSError) else error.reason
    return text or str(error)


def _unlink(names: Sequence[Name], parent: int, *, checksums: bool) -> Kept:
    """Unlink files, and their checksum companions, in an open folder; those that are still there, with the reason."""
    failures: Kept = {}
    for path, name in names:
        try:
            if _UNLINKS_FOLDERS and stat_module.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
                failures[path] = _A_FOLDER
                continue
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            failures[path] = _A_FOLDER
            continue
        except (OSError, ValueError) as error:
            failures[path] = reason_of(error) if isinstance(error, OSError) else str(error)
            continue
        if checksums:
            unlink_quietly(f".{name}.crc", parent)
    return failures
