"""Log cleanup: which commits, checkpoints and other files of the log no kept version needs.

The protocol's text, "Metadata Cleanup", is the rule. The cut-off is midnight UTC. The newest commit at or before it is
the oldest version that must stay readable, and the newest complete checkpoint at or before that one stays with every
commit after it. Delta Spark deletes more: to it a checkpoint after the cut-off is as good.

What stays is never less than this, whatever of the rest is deleted, and in which order. The order matters to the
versions that go: a version whose commit is there should be readable until its commit goes, for a reader that finds
commits without what is below them may replay them from nothing. So log compaction files and checksums go first, for
nothing needs them; then commits, the newest first, each before anything that it stands on; then checkpoints, each of
which is readable alone, and which must outlive their commits where they are protected; sidecars last, in a step of
their own that begins only when the checkpoints that name them are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from iceberg_cli.delta.spec.log import Listing, LogFile
from iceberg_cli.delta.spec.protocol import DAY_MS
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.vacuum import FILES

PROTECTION_FEATURE: Final = "checkpointProtection"
PROTECTION_PROPERTY: Final = "delta.requireCheckpointProtectionBeforeVersion"
_OF_HADOOP: Final = "Hadoop's checksum of a file that goes"
_Row: TypeAlias = tuple[str, str, int | None, str]


def cut_off_ms(as_of_ms: int, retention_ms: int) -> int:
    """The midnight, UTC, at or before the point in time from which on the log is kept."""
    return (as_of_ms - retention_ms) // DAY_MS * DAY_MS


def kept_checkpoints(listing: Listing, cutoff_version: int) -> list[int]:
    """The versions of complete checkpoints at or before the cut-off, the newest first; the first readable one stays."""
    return sorted({c.version for c in listing.checkpoints if c.version <= cutoff_version}, reverse=True)


def protected_before(kept_version: int, *, features: Collection[str], property_version: int) -> str | None:
    """Why checkpoint protection keeps everything before a version, or None.

    Checkpoints before the protected version may only go all at once, and where they stay, so do the commits on them.

    Args:
        kept_version: the version of the oldest checkpoint that would stay.
        features: the table's writer features.
        property_version: `delta.requireCheckpointProtectionBeforeVersion`, 0 where it is not set.
    """
    if PROTECTION_FEATURE not in features or kept_version >= property_version:
        return None
    return (
        f"{PROTECTION_PROPERTY}={property_version} keeps all checkpoints before that version until all can go, "
        f"and the log could be cleaned up to {kept_version} only"
    )


def new_checkpoint_frees_more(
    listing: Listing, kept_version: int | None, cutoff_version: int, *, interval: int
) -> bool:
    """Whether a checkpoint of the cut-off's own version is worth writing before the log is cleaned up.

    Args:
        listing: of the log.
        kept_version: of the checkpoint that would be the oldest without it; None: there is none.
        cutoff_version: the oldest version that must stay readable.
        interval: `delta.checkpointInterval`: after so many commits a writer pays for a checkpoint.
    """
    oldest = listing.commits[0].version if kept_version is None else kept_version
    return cutoff_version - oldest >= interval


def expired_files(listing: Listing, kept_version: int) -> pa.Table:
    """The files of the log that go when the checkpoint of a version is the oldest that stays.

    Args:
        listing: of the log.
        kept_version: of a complete checkpoint that was read.

    Returns:
        `vacuum.FILES`; sidecars are not in it.
    """
    rows: list[_Row] = []
    below = f"before checkpoint {kept_version}, which stands for it"

    def add(kind: str, files: Iterable[LogFile], reason: str) -> None:
        rows.extend((file.path, kind, file.size_bytes, reason) for file in files)

    def old(files: Iterable[LogFile]) -> list[LogFile]:
        return [file for file in files if file.version < kept_version]

    add("commit_file", old(listing.commits), below)
    add("checksum_file", old(listing.checksums), below)
    for checkpoint in (*listing.checkpoints, *listing.damaged):
        if checkpoint.version < kept_version:
            add("checkpoint_file", checkpoint.files, f"an older checkpoint than {kept_version}")
    add("checkpoint_file", old(listing.incomplete), "part of a checkpoint that lacks others")
    add(
        "compacted_file",
        _replaceable(listing, kept_version),
        f"begins at or before checkpoint {kept_version}",
    )
    return _with_companions(rows, listing, kept_version)


def _replaceable(listing: Listing, kept_version: int) -> list[LogFile]:
    """Log compaction files from at or before a checkpoint whose commits after it are all there."""
    there = {commit.version for commit in listing.commits}
    return [
        file
        for file, end_version in listing.compactions
        if file.version <= kept_version and there.issuperset(range(kept_version + 1, end_version + 1))
    ]


def _with_companions(rows: list[_Row], listing: Listing, kept_version: int) -> pa.Table:
    """The rows, and Hadoop's hidden checksums beside them or beside what went before them."""
    going = {path for path, *_ in rows}
    staying = {file.path for file in _all_files(listing)} - going
    for file in listing.others:
        if (owner := _checksummed(file.path)) is None or owner in staying:
            continue
        version = _version_of(owner)
        if owner in going or (version is not None and version < kept_version):
            rows.append((file.path, "checksum_file", file.size_bytes, _OF_HADOOP))
    return _table(rows)


def _table(rows: Sequence[_Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FILES, strict=True)]
    return pa.table(arrays, schema=FILES)


def _checksummed(path: str) -> str | None:
    """The file that a hidden checksum file of Hadoop belongs to, `.<name>.crc`; None for any other file."""
    folder, _, name = path.rpartition("/")
    is_companion = name.startswith(".") and name.endswith(".crc")
    return f"{folder}/{name[1:-4]}" if is_companion else None


def _version_of(path: str) -> int | None:
    """The version that a file's name in the log begins with."""
    digits, dot, _ = path.rpartition("/")[2].partition(".")
    return int(digits) if dot and len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def _all_files(listing: Listing) -> Iterable[LogFile]:
    yield from listing.commits
    yield from listing.checksums
    yield from listing.incomplete
    yield from listing.sidecars
    yield from listing.staged
    for checkpoint in (*listing.checkpoints, *listing.damaged):
        yield from checkpoint.files
    yield from (file for file, _ in listing.compactions)


# -- sidecars --------------------------------------------------------------------------------------------------


def expired_sidecars(listing: Listing, named: Collection[str], *, as_of_ms: int) -> pa.Table:
    """Sidecars that no remaining checkpoint names, and that were there a day before the midnight at or before now.

    Args:
        listing: of the log.
        named: the storage paths of the sidecars of all remaining checkpoints.
        as_of_ms: now. A checkpoint that is being written has its sidecars first.

    Returns:
        `vacuum.FILES`.
    """
    before_ms = as_of_ms // DAY_MS * DAY_MS - DAY_MS
    rows: list[_Row] = [
        (file.path, "sidecar_file", file.size_bytes, "no checkpoint that stays names it")
        for file in listing.sidecars
        if file.path not in named and file.modified_ms <= before_ms
    ]
    going = {path for path, *_ in rows}
    companions = (file for file in listing.others if _checksummed(file.path) in going)
    rows += [(file.path, "checksum_file", file.size_bytes, _OF_HADOOP) for file in companions]
    return _table(rows)


def protected(snapshot: Snapshot, kept_version: int) -> str | None:
    """Why checkpoint protection forbids that the checkpoint of a version becomes the oldest, or None."""
    return protected_before(
        kept_version,
        features=snapshot.protocol.writer_features or frozenset(),
        property_version=snapshot.metadata.property_int(PROTECTION_PROPERTY, 0),
    )
