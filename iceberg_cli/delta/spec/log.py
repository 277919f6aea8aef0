"""Which files of `_delta_log` make up the table at a version. Names only; nothing is read.

Spec: "File Types", "Checkpoint Naming Scheme".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from iceberg_cli.errors import CorruptFile, UsageError

LOG: Final = "_delta_log"
SIDECARS: Final = "_sidecars"
CLASSIC: Final = "classic"
MULTI_PART: Final = "multi-part"
V2: Final = "v2"
Kind = Literal["classic", "multi-part", "v2"]

_NAME: Final = re.compile(
    r"(?P<version>\d{20})\.(?:"
    r"(?P<commit>json)|(?P<checksum>crc)|(?P<end>\d{20})\.compacted\.json|checkpoint\.(?:"
    r"(?P<classic>parquet)|(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|(?P<unique>[^./]+)\.(?:json|parquet)))",
    re.ASCII,
)
_STAGED_NAME: Final = re.compile(r"_staged_commits/(\d{20})\.[^./]+\.json", re.ASCII)
_PREFERENCE: Final[Mapping[str, int]] = {CLASSIC: 0, MULTI_PART: 1, V2: 2}
_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log; a version of -1 where its name has none."""

    path: str  # storage path
    version: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint all of whose top-level files are there."""

    version: int
    kind: Kind
    files: tuple[LogFile, ...]  # one, or all parts in their order


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files in `_delta_log` by kind, each kind by version.

    Args:
        checkpoints: complete ones.
        damaged: complete ones that were read and are not whole; nothing is read from them.
        incomplete: files of multi-part checkpoints some of whose parts are not there.
        compactions: with the last version that each stands for.
        sidecars: by path.
        staged: commits that a catalog has not published.
        others: hidden files, `_last_checkpoint` and whatever else there is, by path.
    """

    commits: tuple[LogFile, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    damaged: tuple[Checkpoint, ...] = ()
    incomplete: tuple[LogFile, ...] = ()
    compactions: tuple[tuple[LogFile, int], ...] = ()
    checksums: tuple[LogFile, ...] = ()
    sidecars: tuple[LogFile, ...] = ()
    staged: tuple[LogFile, ...] = ()
    others: tuple[LogFile, ...] = ()

    @property
    def latest(self) -> int:
        """The newest version, -1 where there is none."""
        return max(
            self.commits[-1].version if self.commits else -1,
            self.checkpoints[-1].version if self.checkpoints else -1,
        )

    def without(self, damaged: Collection[Checkpoint]) -> Listing:
        """The same, some checkpoints being known as damaged; those that are not listed any more are left out."""
        now_damaged = tuple(each for each in self.checkpoints if each in damaged)
        if not now_damaged:
            return self
        whole = tuple(each for each in self.checkpoints if each not in now_damaged)
        return replace(self, checkpoints=whole, damaged=(*self.damaged, *now_damaged))

    def commit_times_ms(self) -> dict[int, int]:
        """When each version was made, by its commit file, at least 1 ms after the version before, as Delta has it."""
        order = np.arange(len(self.commits), dtype=np.int64)
        modified = np.array([file.modified_ms for file in self.commits], np.int64)
        raised = np.maximum.accumulate(modified - order) + order if len(order) else modified
        return dict(zip((file.version for file in self.commits), raised.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The files that the table at `version` is read from.

    Args:
        checkpoint: the newest one at or before the version.
        commits: all from the version after the checkpoint up to `version`.
        replayed: what is read in their place: themselves, or log compactions. By version; compactions with their last.
    """

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[LogFile, ...]
    replayed: tuple[LogFile, ...]


def listing_of(folder: str, files: Iterable[tuple[str, int, int]]) -> Listing:
    """Group the files of a log by their names.

    Args:
        folder: storage path of `_delta_log`, without a slash at its end.
        files: storage path, size and modification time of everything below it.
    """
    groups: dict[str, list[LogFile]] = defaultdict(list)
    checkpoints: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, LogFile]] = defaultdict(dict)
    compactions: list[tuple[LogFile, int]] = []
    for path, size_bytes, modified_ms in files:
        name = path[len(folder) + 1 :]
        match = _NAME.fullmatch(name)
        version = int(match["version"]) if match else -1
        if match is None or version > _HIGHEST:
            staged = _STAGED_NAME.fullmatch(name)
            sidecar = name.startswith(f"{SIDECARS}/") and name.endswith(".parquet") and "/." not in name
            group = "staged" if staged else "sidecars" if sidecar else "others"
            number = int(staged[1]) if staged else -1
            groups[group].append(LogFile(path, number, size_bytes, modified_ms))
            continue
        file = LogFile(path, version, size_bytes, modified_ms)
        if match["commit"] or match["checksum"]:
            groups["commits" if match["commit"] else "checksums"].append(file)
        elif match["end"]:
            if version <= int(match["end"]) <= _HIGHEST:
                compactions.append((file, int(match["end"])))
            else:
                groups["others"].append(file)
        elif match["part"]:
            parts[version, int(match["parts"])][int(match["part"])] = file
        else:
            kind: Kind = "classic" if match["classic"] else "v2"
            checkpoints.append(Checkpoint(version=version, kind=kind, files=(file,)))
    incomplete = _add_multi_part(checkpoints, parts)
    return Listing(
        commits=_by_version(groups["commits"]),
        checkpoints=tuple(sorted(checkpoints, key=_preference)),
        incomplete=_by_version(incomplete),
        compactions=tuple(sorted(compactions, key=lambda item: (item[0].version, item[1]))),
        checksums=_by_version(groups["checksums"]),
        sidecars=tuple(groups["sidecars"]),
        staged=_by_version(groups["staged"]),
        others=tuple(groups["others"]),
    )


def segment(listing: Listing, folder: str, version: int | None = None) -> Segment:
    """The files to read for a version, the newest one by default.

    Args:
        listing: of the log.
        folder: of the log, for messages.
        version: of the table.

    Raises:
        UsageError: the table has no such version, or its log has it no more.
        CorruptFile: commits between the checkpoint and the version are not there.
    """
    target = listing.latest if version is None else version
    if target > listing.latest or target < 0:
        raise UsageError(f"Cannot read version {target} of {folder}: the newest version is {listing.latest}")
    checkpoint = newest_checkpoint(listing, target)
    first = checkpoint.version + 1 if checkpoint else 0
    if (
        checkpoint is None
        and listing.checkpoints
        and not (listing.commits and listing.commits[0].version == 0)
    ):
        oldest = listing.checkpoints[0].version
        raise UsageError(
            f"Cannot read version {target} of {folder}: the log was cleaned up to version {oldest}"
        )
    commits = commits_between(listing, folder, first, target)
    return Segment(
        version=target,
        checkpoint=checkpoint,
        commits=commits,
        replayed=_compacted(listing, commits),
    )


def newest_checkpoint(listing: Listing, version: int) -> Checkpoint | None:
    """The newest checkpoint at or before a version."""
    return next((each for each in reversed(listing.checkpoints) if each.version <= version), None)


def commits_between(listing: Listing, folder: str, first: int, last: int) -> tuple[LogFile, ...]:
    """The commits of all versions from `first` to `last`, both included.

    Raises:
        CorruptFile: one is not there.
    """
    commits = tuple(file for file in listing.commits if first <= file.version <= last)
    for expected, file in enumerate(commits, first):
        if file.version != expected:
            raise _gap(folder, expected, listing)
    if len(commits) != max(0, last - first + 1):
        raise _gap(folder, first + len(commits), listing)
    return commits


def _gap(folder: str, version: int, listing: Listing) -> CorruptFile:
    later = next((file.version for file in listing.commits if file.version > version), None)
    found = "nothing" if later is None else f"version {later}"
    before = f"version {version - 1} is followed by" if version else "the log begins with"
    reason = f"the versions are not contiguous: {before} {found}, and no checkpoint bridges the gap"
    return CorruptFile(f"{folder}/{version:020}.json", None, reason)


def _compacted(listing: Listing, commits: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """Commits, runs of them replaced by the longest compactions that stand for them."""
    if not commits or not listing.compactions:
        return tuple(commits)
    first, last = commits[0].version, commits[-1].version
    longest: dict[int, tuple[LogFile, int]] = {}
    for file, end in listing.compactions:  # by version and end: the longest comes last
        if first <= file.version < end <= last:
            longest[file.version] = (file, end)
    replayed: list[LogFile] = []
    version = first
    while version <= last:
        if version in longest:
            file, end = longest[version]
            replayed.append(LogFile(file.path, end, file.size_bytes, file.modified_ms))
            version = end + 1
        else:
            replayed.append(commits[version - first])
            version += 1
    return tuple(replayed)


def _add_multi_part(
    checkpoints: list[Checkpoint], parts: Mapping[tuple[int, int], Mapping[int, LogFile]]
) -> list[LogFile]:
    """Add the complete multi-part checkpoints; the files of the others."""
    incomplete: list[LogFile] = []
    for (version, count), found in parts.items():
        if count and found.keys() == set(range(1, count + 1)):
            files = tuple(found[number] for number in range(1, count + 1))
            checkpoints.append(Checkpoint(version=version, kind="multi-part", files=files))
        else:
            incomplete.extend(found.values())
    return incomplete


def _preference(checkpoint: Checkpoint) -> tuple[int, int, int, str]:
    """By version; of those of one version the one that Delta prefers comes last."""
    preference = _PREFERENCE[checkpoint.kind]
    return checkpoint.version, preference, len(checkpoint.files), checkpoint.files[0].path


def _by_version(files: Iterable[LogFile]) -> tuple[LogFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.version, file.path)))
