"""What a plan tells of others who write to a Delta table: that they compact it too, and that a compaction hurts them.

Delta's writers look at paths and not at `dataChange`: one that read a file which is rewritten meanwhile has to begin
anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from iceberg_cli.delta.spec.clients import is_own
from iceberg_cli.delta.spec.iceberg_compat import UNIFORM, uniform_formats
from iceberg_cli.delta.spec.protocol import Metadata
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.plan.text import count

_AUTO_COMPACT: Final = "delta.autoOptimize.autoCompact"
_TUNE: Final = "delta.tuneFileSizesForRewrites"
_COMPACTING: Final = ("OPTIMIZE", "REORG")
_CHANGING: Final = ("DELETE", "MERGE", "UPDATE")


def notes(table: DeltaTable, policy: RewriteDataFiles) -> Iterator[str]:
    """Sentences for a plan by which files are rewritten.

    Raises:
        CorruptFile: a commit cannot be read.
    """
    metadata = table.snapshot.metadata
    commits = table.recent_commits()
    others = [(version, info.get("operation")) for version, info in commits if not is_own(info)]
    compacted = [version for version, operation in others if operation in _COMPACTING]
    causes = [f"OPTIMIZE wrote version {compacted[-1]}"] if compacted else []
    causes += (
        [f"{_AUTO_COMPACT} is {metadata.configuration[_AUTO_COMPACT]}"]
        if _is_on(metadata, _AUTO_COMPACT)
        else []
    )
    if causes:
        yield f"Others compact the table too ({', '.join(causes)}): what they take meanwhile is left to the next run."
    changed = sum(operation in _CHANGING for _, operation in others)
    if changed and policy.older_than is None:
        lately = f"{changed} of the last {count(len(commits), 'commits')} changed rows"
        yield (
            f"{lately}: a DELETE, MERGE or UPDATE that reads a file which is rewritten meanwhile begins anew; "
            "--older-than leaves young files alone."
        )
    if uniform_formats(metadata.configuration):
        what = "stays at the version before this run until Delta Spark commits to the table again"
        yield f"What UniForm tells readers of {metadata.configuration[UNIFORM]} {what}."
    if policy.target_size is not None and _is_on(metadata, _TUNE):
        yield f"{_TUNE} is true: MERGE writes smaller files than --target-size says, which are rewritten again."


def _is_on(metadata: Metadata, name: str) -> bool:
    """Whether a writers' setting is on: `auto` and the like are so too."""
    return metadata.configuration.get(name, "false").lower() not in ("", "false", "disabled", "none")
