"""Reads whole and counts, before a commit, every manifest list and manifest that the commit keeps.

An expiry and an upgrade cannot be taken back, and keep every snapshot that they do not remove: the manifest lists and
manifests of all of these. A commit that makes a snapshot keeps what its branch's head lists. One that only sets or
drops refs is taken back by another one, and nothing is read for it. A manifest that was read whole in this run, or that
the cache vouches for (`iceberg/reachability/cache.py`), is not read again.

Files are counted in every manifest, against its list and, where a list has no counts, against the snapshot's summary.
Rows are counted where row ids follow from them: every writer of a version 3 table gives a manifest as many ids as its
list says it has rows, so a wrong number would make two rows with one id.

Spec: "Manifests", "Manifest Lists", "First Row ID Assignment".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.commit.draft import SnapshotDraft
from iceberg_cli.iceberg.reachability.keys import live_files, live_rows
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.spec.manifests.manifest import DATA, waiting
from iceberg_cli.iceberg.spec.table_metadata.columns import WITH_ROW_IDS
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH
from iceberg_cli.plan.plan import Change, Plan

_OF_REFS: Final = ("set-snapshot-ref", "remove-snapshot-ref")  # actions of updates


def read_kept(reachability: Reachability, metadata: TableMetadata, plan: Plan) -> None:
    """Read and count what a plan's commits keep, unless it is blocked or commits nothing.

    Args:
        reachability: reads, and remembers what it read.
        metadata: of the table that the plan was made from.
        plan: of any verb.

    Raises:
        CorruptFile: something is missing, cannot be read whole, or is not what its manifest list says.
    """
    changes = [step.change for step in plan.steps if step.change is not None]
    if plan.blocked_by or not changes or all(_only_sets_refs(change) for change in changes):
        return
    drafts = [change.draft for change in changes if isinstance(change.draft, SnapshotDraft)]
    if len(drafts) < len(changes):
        _read_snapshots(reachability, metadata, plan)
    for draft in drafts:
        _read_head(reachability, metadata, draft, version=plan.format_version or metadata.format_version)


def _only_sets_refs(change: Change) -> bool:
    """Whether a commit makes, moves or drops refs and nothing else: it keeps all, and others put them back."""
    return change.draft is None and all(update["action"] in _OF_REFS for update in change.updates)


@contextmanager
def naming_the_way_out(metadata: TableMetadata, plan: Plan) -> Iterator[None]:
    """Add the way out to the error that a damaged file of a table raises."""
    try:
        yield
    except CorruptFile as error:
        if error.general:
            error.next_step = _way_out(metadata, plan, error.path)
        raise


def mended_lengths(plan: Plan, stale: Mapping[str, tuple[int, int]]) -> set[str]:
    """Those of `Reachability.stale_lengths` that a plan's commits list with their true length, or not again."""
    going = {verdict.id for verdict in plan.verdicts if not verdict.keep}
    mended = going.intersection(stale)
    for step in plan.steps:
        if stale and step.change is not None and isinstance(step.change.draft, SnapshotDraft):
            kept = step.change.draft.kept
            lengths = zip(kept["manifest_path"].to_pylist(), kept["manifest_length"].to_pylist(), strict=True)
            mended |= {path for path, length in lengths if path in stale and stale[path][1] == length}
    return mended


def _read_snapshots(reachability: Reachability, metadata: TableMetadata, plan: Plan) -> None:
    """Read every snapshot that no step removes; and count what each branch lists, from which its next commits start."""
    removed = plan.removed_snapshot_ids
    staying = [each for each in metadata.snapshots if each.snapshot_id not in removed]
    reachability.read_whole([snapshot_files(each) for each in staying])
    heads = {ref.snapshot_id for ref in metadata.refs.values() if ref.type == BRANCH}
    for head in staying:
        if head.snapshot_id in heads:
            listed = reachability.kept_manifests([snapshot_files(head)], phase="reading heads")
            _check_counts(reachability, listed.rows, with_rows=plan.format_version is not None)


def _read_head(
    reachability: Reachability, metadata: TableMetadata, draft: SnapshotDraft, *, version: int
) -> None:
    """Read what a branch lists before a commit that lists it again, and count rows that get ids by it."""
    head = metadata.snapshot(draft.parent_snapshot_id)
    assert head is not None  # the draft was made from it
    reachability.read_whole([snapshot_files(head)])
    if version >= WITH_ROW_IDS:
        _check_counts(reachability, draft.kept.filter(pa.array(waiting(draft.kept))), with_rows=True)


def _check_counts(reachability: Reachability, manifests: pa.Table, *, with_rows: bool) -> None:
    """Refuse manifests of which their list says another number of live files, or of rows of data, than they have.

    Another list may say the truth of a manifest, so that reading it by that one was no proof for this one.

    Args:
        reachability: has read them.
        manifests: rows of manifest lists; a number that is null says nothing.
        with_rows: hold rows of data manifests against their list too.
    """
    listed = zip(
        manifests["content"].to_pylist(),
        live_files(manifests).to_pylist(),
        live_rows(manifests).to_pylist(),
        reachability.contents(manifests),
        strict=True,
    )
    for content, files, rows, found in listed:
        if files not in {None, found.files}:
            reason = f"it has {found.files:,} live files, and its manifest list says {files:,}"
            raise CorruptFile(found.path, None, reason)
        if with_rows and content == DATA and rows not in {None, found.rows}:
            reason = f"it has {found.rows:,} rows, and its manifest list says {rows:,}"
            raise CorruptFile(found.path, "record_count", reason)


def _way_out(metadata: TableMetadata, plan: Plan, path: str) -> str:
    """The way out for a damaged file: to expire the snapshot whose list it is, unless a branch or tag has it."""
    name = shlex.quote(str(plan.table["name"]))
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    owners = [each.snapshot_id for each in metadata.snapshots if each.manifest_list == path]
    if owners and not heads.intersection(owners):
        return f"`iceberg-cli expire-snapshots {name} --snapshot-id {owners[0]}` forgets the snapshot that needs it."
    return (
        f"`iceberg-cli inspect {name} --check` shows what is broken. Restore the file, or, if only older snapshots "
        "need it, expire these."
    )


def length_notice(paths: Sequence[str], listed: int, size_bytes: int) -> str:
    """That manifests have other lengths than their lists say, for the operator.

    Args:
        paths: of the manifests.
        listed: the length of the first in its list, in bytes.
        size_bytes: what it has.
    """
    more = f", and {len(paths) - 1:,} more like it" if len(paths) > 1 else ""
    return (
        f"{paths[0]} has {size_bytes:,} bytes, and its manifest list says {listed:,}{more}. Its entries are all "
        "there, but other readers may fail. `rewrite-manifests` and `upgrade-v3 --with repair-manifests` list it "
        "again with its true length"
    )
