"""Metadata files beside a table's own that are neither current nor in its log: what they reach stays.

A clone by `register_table`, another catalog or branch, a commit whose outcome nobody knows: each has the table's UUID,
its folder and its snapshots, and no look at the table alone tells that it needs files of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.catalogs.files.versions import number_of
from iceberg_cli.iceberg.ownership import files_of_metadata
from iceberg_cli.iceberg.reachability.keys import KnownKeys, keys_of
from iceberg_cli.iceberg.reachability.question import SnapshotFiles, snapshot_files
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.paths import path_key
from iceberg_cli.plan.plan import Plan, Verdict
from iceberg_cli.plan.removal_rows import total_bytes
from iceberg_cli.storage import FileInfo, Storage

FORGET_METADATA = "--unsafe-forget-metadata"
_NAMED = 5  # files in words
_UNDER_WAY_MS = 600_000
_WAITS_S = (0.1, 0.4, 1.0)


def unlogged(
    files: Sequence[FileInfo],
    metadata: TableMetadata,
    location: str,
    *,
    updated_ms: Callable[[FileInfo], int],
) -> list[FileInfo]:
    """The metadata files that are neither current nor logged, and not of versions before the log.

    Of such a version both the number and the time are below those of the oldest one that is logged: another catalog may
    have begun to count again. A file of a logged name is that version by its path, or by its time where links or other
    spellings lead to it: in another folder of the table a copy of it may have gone on.

    Args:
        files: of the table's folder, or some of them.
        metadata: current.
        location: of `metadata`.
        updated_ms: when the version of a file was made, in ms since the epoch.
    """
    logged: dict[str, list[tuple[str, int]]] = {}
    known = [(each.metadata_file, each.timestamp_ms) for each in metadata.metadata_log]
    for path, time_ms in (*known, (location, metadata.last_updated_ms)):
        logged.setdefault(path.rpartition("/")[2], []).append((path_key(path), time_ms))
    oldest, oldest_ms = number_of(location), metadata.last_updated_ms
    if metadata.metadata_log:
        first = metadata.metadata_log[0]
        oldest, oldest_ms = number_of(first.metadata_file), first.timestamp_ms

    def is_logged(info: FileInfo) -> bool:
        named = logged.get(info.path.rpartition("/")[2], ())
        return any(key == path_key(info.path) or time_ms == updated_ms(info) for key, time_ms in named)

    return [
        info
        for info in files
        if not is_logged(info)
        and not (0 <= number_of(info.path) < oldest and 0 < updated_ms(info) < oldest_ms)
    ]


def _logged(metadata: TableMetadata) -> list[str]:
    return [entry.metadata_file for entry in metadata.metadata_log]


@dataclass(frozen=True, slots=True)
class UnknownMetadata:
    """A metadata file that is a root, and the keys of all that it reaches; `modified_ms` since the epoch."""

    path: str
    modified_ms: int
    keys: KnownKeys

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]

    def may_be_under_way(self, location: str, *, as_of_ms: int) -> bool:
        """Whether it may be of a commit that comes in at any moment: newer than the current version, and just written.

        Args:
            location: of the current metadata file.
            as_of_ms: now, in ms since the epoch.
        """
        return number_of(self.path) > number_of(location) and self.modified_ms > as_of_ms - _UNDER_WAY_MS


def read_unknown(
    files: Sequence[FileInfo],
    *,
    storage: Storage,
    reached: Callable[[Sequence[SnapshotFiles], Sequence[str]], KnownKeys],
) -> list[UnknownMetadata]:
    """The roots among some metadata files, each with what it reaches: of a lineage the newest stands for its log.

    What it names and is gone is needed by nobody any more: earlier runs may have deleted it.

    Args:
        files: that are neither current nor logged.
        storage: that has them.
        reached: gives the keys of what snapshots and the files that metadata names reach, as far as it is there.

    Raises:
        CorruptFile: one cannot be read, under a name that readers look for. Refused: it is of a newer version, or
            encrypted.
    """
    newest_first = sorted(files, key=lambda info: (number_of(info.path), info.modified_ms), reverse=True)
    logged: set[str] = set()
    found = []
    for info in newest_first:
        if info.path.rpartition("/")[2] in logged:
            continue
        try:
            metadata = _read(info.path, storage)
            if metadata is None:
                continue
            logged.update(path.rpartition("/")[2] for path in _logged(metadata))
            snapshots = [snapshot_files(snapshot) for snapshot in metadata.snapshots]
            named = files_of_metadata(metadata, info.path)
            found.append(UnknownMetadata(info.path, info.modified_ms, reached(snapshots, named)))
        except Refused as error:
            raise Refused(
                f"Cannot tell which files the metadata file {info.path} needs: {error.message}",
                next_step=_way_out(info.path),
            ) from error
        except CorruptFile as error:
            error.next_step = f"Restore {error.path} if a table needs it. {_way_out(info.path)}"
            raise
    return found


def _read(path: str, storage: Storage) -> TableMetadata | None:
    """The metadata of a file; None where it is gone, or no reader looks for its name and it cannot be read.

    On a disk a file that another writer has begun is there before its end is.
    """
    waits_s = iter(_WAITS_S)
    while True:
        try:
            return TableMetadata.from_json(decode_metadata_file(storage.read(path), path), path=path)
        except FileNotFoundError:
            return None
        except CorruptFile:
            # Of a writer that died, a file that cannot be read may be left under a name that no reader looks for.
            if number_of(path) < 0:
                return None
            if (wait_s := next(waits_s, None)) is None:
                raise
            time.sleep(wait_s)


def forgotten_metadata(plan: Plan) -> frozenset[str]:
    """The names of metadata files that a plan takes for none of any table."""
    option = plan.options.get(FORGET_METADATA.removeprefix("--").replace("-", "_"))
    return frozenset() if option is None else frozenset(str(option.value).split(", "))


def _way_out(path: str) -> str:
    name = path.rpartition("/")[2]
    return f"If no table needs it, move that file away, or say so by {FORGET_METADATA} {name}."


@dataclass
class FilesOfUnknownMetadata:
    """The files among planned removals that unknown metadata files reach, which stay.

    What is of a commit under way takes nothing out of a plan: when files are deleted, it is current, or gone, or a root
    by which they stay after all. Else a plan that is made again upon that commit would remove more than was shown.

    Args:
        roots: reads the unknown metadata files, once there is a removal.
        under_way: whether one may be of a commit under way.
    """

    roots: Callable[[], Sequence[UnknownMetadata]]
    under_way: Callable[[UnknownMetadata], bool]
    _totals: dict[str, tuple[int, int]] = field(default_factory=dict)  # by name: files and bytes
    _pending: dict[str, tuple[int, int]] = field(default_factory=dict)  # the same, of commits under way

    def left_out(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Removals table by table, columns `path`, `as_written` and `size_bytes` and others, without these files."""
        for rows in tables:
            going = rows
            for root in self.roots() if rows.num_rows else ():
                stays = reached(going, [root])
                if not stays.any():
                    continue
                pending = self.under_way(root)
                totals = self._pending if pending else self._totals
                sizes = going["size_bytes"].filter(pa.array(stays))
                count, size_bytes = totals.get(root.name, (0, 0))
                totals[root.name] = (count + len(sizes), total_bytes(sizes, size_bytes))
                if not pending:
                    going = going.filter(pa.array(~stays))
            yield going

    def verdicts(self) -> tuple[Verdict, ...]:
        """How many files stay for each of these metadata files; of many the last ones in one."""
        found = sorted(self._totals.items(), key=lambda item: -item[1][0])
        rows = [
            (f"the metadata file {name} beside the table's own reaches them", size) for name, size in found
        ]
        shown, rest = rows[:_NAMED], rows[_NAMED:]
        if rest:
            total = (sum(count for _, (count, _) in rest), sum(size for _, (_, size) in rest))
            shown.append((f"{len(rest)} more metadata files beside the table's own reach them", total))
        return tuple(
            Verdict(subject="files", id=f"{count} of {size_bytes} bytes", keep=True, reason=f"kept: {why}")
            for why, (count, size_bytes) in shown
        )

    def warnings(self) -> tuple[str, ...]:
        """Why they stay, and the way out; and which of those that go may stay."""
        pending = tuple(
            f"{count:,} files, {size_bytes:,} bytes, of those that go stay if the metadata file {name} is still beside "
            "the table's own when files are deleted: it was just written and is newer than the current one, so it may "
            "be of a commit under way, or of a clone"
            for name, (count, size_bytes) in sorted(self._pending.items())
        )
        names = sorted(self._totals)
        if not names:
            return pending
        count = sum(count for count, _ in self._totals.values())
        size_bytes = sum(size for _, size in self._totals.values())
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        forget = " ".join(f"{FORGET_METADATA} {name}" for name in names[:_NAMED])
        warning = (
            f"{count:,} files, {size_bytes:,} bytes, stay, for metadata files beside the table's own reach them, which "
            f"are neither current nor in its log: {', '.join(names[:_NAMED])}{more}. Each may be a clone, another "
            f"catalog's or a commit that never came in. If no table needs them, move them away, or say so by {forget}"
        )
        return (*pending, warning)


def reached(rows: pa.Table, roots: Sequence[UnknownMetadata]) -> npt.NDArray[np.bool_]:
    """Which of n removals, columns `path` and `as_written`, one of some metadata files reaches."""
    found = np.zeros(len(rows), np.bool_)
    if roots and len(rows):
        names = [keys_of(rows["as_written"].cast(pa.string())), keys_of(rows["path"].cast(pa.string()))]
        for root in roots:
            for keys in names:
                found |= root.keys.contains(keys)
    return found
