"""The metadata file that a commit writes: its name and its bytes. For all catalogs that hold a pointer to one.

Nobody references the metadata file of a refused attempt; when its name is ours alone, the caller may delete
it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from iceberg_cli.encoding.strict_json import dumps
from iceberg_cli.errors import CommitConflict, InvalidMetadata
from iceberg_cli.iceberg.spec.table_metadata.file import encode_metadata_file
from iceberg_cli.operation.outcomes import Attempt, digest_of

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata

EXTENSIONS = {"none": ".metadata.json", "gzip": ".gz.metadata.json"}

_CATALOG_NAME = re.compile(r"(\d+)-[^/]*")
_CODEC = "write.metadata.compression-codec"


def prepare_named(commit: Commit, *, base_location: str) -> Attempt:
    """An attempt for catalogs: the file is `<V+1>-<commit_uuid>.metadata.json` in the metadata folder.

    Args:
        commit: its requirements are checked against its own base.
        base_location: where that base was read, as the catalog spells it.

    Raises:
        CommitConflict: a requirement does not hold.
        InvalidMetadata: the table asks for a compression that does not exist.

    Spec: Iceberg, "Metastore Tables".
    """
    after = _after(commit, base_location)
    match = _CATALOG_NAME.fullmatch(base_location.rpartition("/")[2])
    version = int(match[1]) + 1 if match else 0
    name = f"{version:05d}-{commit.commit_uuid}{extension(after, base_location)}"
    return _attempt(commit, after, base_location, f"{metadata_folder(after)}/{name}", name_is_unique=True)


def prepare_versioned(commit: Commit, *, base_location: str, version: int) -> Attempt:
    """An attempt for file system tables: the file is `v<version>.metadata.json` beside the base.

    The compression is the base's: a writer that races for the same version then competes for the same name.

    Raises:
        CommitConflict: a requirement does not hold.
        InvalidMetadata: the table asks for a compression that does not exist.

    Spec: Iceberg, "File System Tables".
    """
    after = _after(commit, base_location)
    folder = base_location.rpartition("/")[0]
    location = f"{folder}/v{version}{extension(commit.base, base_location)}"
    return _attempt(commit, after, base_location, location, name_is_unique=False)


def metadata_folder(metadata: TableMetadata) -> str:
    """Where the table's metadata files go: `write.metadata.path`, or `metadata` under its location."""
    folder = metadata.properties.get("write.metadata.path") or f"{metadata.location.rstrip('/')}/metadata"
    return folder.rstrip("/")


def extension(metadata: TableMetadata, path: str) -> str:
    """The ending that says how a metadata file is compressed.

    Raises:
        InvalidMetadata: `write.metadata.compression-codec` is neither none nor gzip; it names `path`.
    """
    codec = metadata.properties.get(_CODEC, "none")
    if ending := EXTENSIONS.get(codec.lower()):
        return ending
    raise InvalidMetadata(path, f"properties.{_CODEC}", f"{codec} is not one of {', '.join(EXTENSIONS)}")


def _after(commit: Commit, base_location: str) -> TableMetadata:
    from iceberg_cli.iceberg.commit.update import check, with_updates

    if reason := check(commit.requirements, commit.base):
        raise CommitConflict(f"Cannot commit on top of {base_location}: {reason}")
    return with_updates(
        commit.base, commit.updates, base_location=base_location, timestamp_ms=commit.timestamp_ms
    )


def _attempt(
    commit: Commit, after: TableMetadata, base_location: str, metadata_location: str, *, name_is_unique: bool
) -> Attempt:
    data = encode_metadata_file(dumps(after.to_json()), metadata_location.rpartition("/")[2])
    return Attempt(
        commit=commit,
        base=base_location,
        target=metadata_location,
        data=data,
        digest=digest_of(data),
        name_is_unique=name_is_unique,
    )
