"""rewrite-manifests: a new manifest, put together from its parts: here, or on workers that hand the parts over.

What travels to workers holds values only. Parts are handed over with their places in the order of what was read, so
that a manifest is the same in whatever order they arrive.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from iceberg_cli.engines import Made, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import SYNC_BYTES, container_header
from iceberg_cli.iceberg.spec.field_summaries import FieldSummary
from iceberg_cli.iceberg.spec.manifest import ManifestSource, open_manifest
from iceberg_cli.iceberg.verbs.rewrite_manifests.identities import Identities
from iceberg_cli.iceberg.verbs.rewrite_manifests.placement import Placement, Target
from iceberg_cli.iceberg.verbs.rewrite_manifests.regroup import Part, Regroup
from iceberg_cli.iceberg.verbs.rewrite_manifests.rules import Rewrite

Item = tuple[int, ManifestSource]  # an old manifest with its number


@dataclass(frozen=True, slots=True)
class Joined:
    """A new manifest.

    `row` is what the manifest list must say of it, but for its path; `identities` are those of its entries.
    """

    data: bytes
    row: dict[str, Any]
    identities: Identities


@dataclass(frozen=True, slots=True)
class Joining:
    """Puts parts together.

    Args:
        target: what new manifests are written as.
        spec_id: of all of them.
        syncs: of each.
        schema_text: their Avro schema.
        header: their key-value metadata.
    """

    target: Target
    spec_id: int
    syncs: Sequence[bytes]
    schema_text: str
    header: Mapping[str, bytes]

    @classmethod
    def of(cls, rewrite: Rewrite) -> Joining:
        """What puts new manifests together; their sync markers come from the names of their tasks."""
        target = rewrite.group.target
        assert target is not None
        syncs = [hashlib.sha256(task.name.encode()).digest()[:SYNC_BYTES] for task in rewrite.tasks]
        return cls(target, rewrite.group.spec_id, syncs, *target.header())

    def regroup(self, placement: Placement, first: int, last: int) -> Regroup:
        """What makes the parts of the new manifests `first` to `last`."""
        return Regroup(target=self.target, placement=placement, syncs=self.syncs, first=first, last=last)

    def joined(self, output: int, parts: Sequence[Part]) -> Joined:
        """The new manifest `output`.

        Args:
            output: its number.
            parts: all of them, in the order of what was read; at least one.
        """
        target = self.target
        start = container_header(self.schema_text, self.header, codec=target.codec, sync=self.syncs[output])
        data = b"".join([start, *(part.blocks for part in parts)])
        columns = zip(*(part.summaries for part in parts), strict=True)
        row = {
            "manifest_length": len(data),
            "partition_spec_id": self.spec_id,
            "content": target.content,
            "min_sequence_number": min(part.min_sequence_number for part in parts),
            "added_files_count": 0,
            "existing_files_count": sum(part.files for part in parts),
            "deleted_files_count": 0,
            "added_rows_count": 0,
            "existing_rows_count": sum(part.rows for part in parts),
            "deleted_rows_count": 0,
            "partitions": [
                _united(column).to_row(type_name)
                for column, type_name in zip(columns, target.types, strict=True)
            ],
            "all_rows_have_ids": all(part.all_rows_have_ids for part in parts),
        }
        return Joined(data, row, Identities.together(part.identities for part in parts))


def _united(summaries: Sequence[FieldSummary]) -> FieldSummary:
    found = FieldSummary()
    for each in summaries:
        found = found.united(each)
    return found


# -- on workers ----------------------------------------------------------------------------------------------------


def source_of(item: Item) -> Source:
    """The file of an old manifest."""
    return Source(item[1].path, item[1].length or 0)


def opened(item: Item, data: bytes) -> ManifestSource:
    """See `open_manifest`."""
    return open_manifest(item[1], data)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Shares out what a batch of old manifests becomes, by new manifests.

    Args:
        regroup: makes the parts.
        wanted: numbers of the new manifests.
    """

    regroup: Regroup
    wanted: frozenset[int]

    def __call__(self, batch: Sequence[tuple[Item, ManifestSource | None]]) -> dict[int, bytes]:
        """Of each new manifest: its parts with their places, pickled.

        Raises:
            CorruptFile: a manifest is gone or cannot be read whole.
        """
        found: list[tuple[int, ManifestSource]] = []
        for (number, source), manifest in batch:
            if manifest is None:
                raise CorruptFile(source.path, None, "the table needs this file and it is not there")
            found.append((number, manifest))
        first = found[0][0]
        shares: dict[int, list[tuple[tuple[int, int], Part]]] = {}
        for place, part in enumerate(self.regroup(found)):
            if part.output in self.wanted:
                shares.setdefault(part.output, []).append(((first, place), part))
        return {output: pickle.dumps(parts, 5) for output, parts in shares.items()}


@dataclass(frozen=True, slots=True)
class Writing:
    """Makes the file of a new manifest from all that was shared out to it.

    Args:
        joining: puts it together.
        paths: of the new manifests by their numbers.
    """

    joining: Joining
    paths: Mapping[int, str]

    def __call__(self, output: int, contents: Sequence[bytes]) -> Made:
        """The file; its result is the number, the row without the path, and the identities."""
        parts = [each for content in contents for each in pickle.loads(content)]  # noqa: S301 - our own workers wrote it
        made = self.joining.joined(output, [part for _, part in sorted(parts, key=itemgetter(0))])
        return Made(self.paths[output], made.data, (output, made.row, made.identities))
