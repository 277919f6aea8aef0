"""Deletes that other writers committed for a data file after it had been rewritten: their rows are still there.

Such a writer did not check that the file was still live. Nothing can stop it, but as long as the delete is listed it
tells which rows were meant.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import VECTOR
from iceberg_cli.iceberg.verbs.rewrite_data_files.branch_files import BranchFiles
from iceberg_cli.iceberg.verbs.rewrite_data_files.rules import named_files
from iceberg_cli.plan.text import count


def lost_deletes(files: BranchFiles, replaced: pa.Table, *, until: int) -> tuple[str, ...]:
    """A sentence for each delete file or vector that names a replaced data file and is newer than what replaced it.

    Position deletes of a whole partition are not among them: only their rows tell which files they name.

    Args:
        files: of the branch's head.
        replaced: data files that were rewritten and committed before: `INPUTS_SCHEMA`.
        until: the sequence number that what replaced them has.
    """
    names = named_files(files.deletes)
    paths = replaced["path"].cast(pa.binary()).combine_chunks()
    live = files.data["path"].cast(pa.binary()).combine_chunks()
    mask = pc.and_(pc.is_in(names, value_set=paths), pc.greater(files.deletes["sequence_number"], until))
    mask = pc.and_(mask, pc.invert(pc.is_in(names, value_set=live)))
    lost = files.deletes.append_column("name", names).filter(mask)
    return tuple(
        f"Lost: {_what(each)} (sequence number {each['sequence_number']}) deletes"
        f" {count(each['record_count'], 'rows')} of {each['name'].decode()}, which had been rewritten before it was"
        " committed by a writer that did not look; these rows are still there, in the new files."
        for each in lost.select(
            ["kind", "path", "offset", "record_count", "sequence_number", "name"]
        ).to_pylist()
    )


def _what(delete: dict[str, object]) -> str:
    if delete["kind"] == VECTOR:
        return f"the deletion vector at byte {delete['offset']} of {delete['path']}"
    return f"{delete['path']}"
