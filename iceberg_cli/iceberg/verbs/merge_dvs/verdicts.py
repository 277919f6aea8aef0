"""Verdicts of merge-dvs on delete files and Puffin files, and warnings about data files that are left alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, POSITIONS, UNREADABLE, Bools, Ints
from iceberg_cli.iceberg.verbs.merge_dvs.choice import Conversion, Puffins
from iceberg_cli.iceberg.verbs.merge_dvs.index import BEHIND_END, FROZEN, SOUND, DeleteIndex
from iceberg_cli.iceberg.verbs.merge_dvs.rules import SUBJECTS, MergeSettings
from iceberg_cli.plan.plan import Verdict

_EXAMPLES = 3


def delete_file_verdicts(
    index: DeleteIndex, conversion: Conversion, may: Bools, idle: Bools, settings: MergeSettings
) -> Iterator[Verdict]:
    """One verdict for each position delete file and equality delete file."""
    gone, held, converted = _parts_by_file(index)
    first_frozen = _first_frozen(index) if settings.with_vectors else np.full(len(index.kinds), -1)
    rows = np.flatnonzero((index.kinds == POSITIONS) | (index.kinds == UNREADABLE))
    for row, path in zip(rows.tolist(), _paths(index, rows), strict=True):
        keep, gist = not conversion.leaving[row], ""
        if not may[row]:
            reason = "not asked for"
        elif first_frozen[row] >= 0:
            file = int(index.part_data[first_frozen[row]])
            gist = f"left alone: a data file of it {FROZEN[index.blocked[file]]}"
            reason = f"left alone: {index.data['path'][file].as_py()} {FROZEN[index.blocked[file]]}"
        elif index.kinds[row] == UNREADABLE:
            reason = "left alone: no Parquet file, encrypted, listed twice, or of another data file than its entry says"
        elif index.dangling[row]:
            reason = "no data file needs it" + ("; --keep-dangling" if settings.keep_dangling else "")
        elif not settings.with_vectors:
            gist = "before version 3 there are no deletion vectors"
            names = _names(((converted[row], "live and not newer"), (gone[row], "gone or newer")))
            reason = f"{names}; {gist}"
        else:
            reason = _names(
                (
                    (converted[row], "to get a deletion vector"),
                    (held[row], "with one that holds its deletes"),
                    (gone[row], "gone or newer"),
                )
            )
            gist = "its deletes become deletion vectors"
        yield Verdict(subject=SUBJECTS[POSITIONS], id=path, keep=keep, reason=reason, gist=gist)
    rows = np.flatnonzero(index.kinds == EQUALITY)
    for row, path in zip(rows.tolist(), _paths(index, rows), strict=True):
        going = bool(idle[row]) and not settings.keep_dangling
        reason = "no data file is older" if index.dangling[row] else "equality deletes are not merged"
        yield Verdict(subject=SUBJECTS[EQUALITY], id=path, keep=not going, reason=reason)


def _paths(index: DeleteIndex, rows: npt.NDArray[np.intp]) -> list[str]:
    paths: list[str] = index.deletes["path"].take(pa.array(rows)).to_pylist()
    return paths


def _names(numbers: Sequence[tuple[int, str]]) -> str:
    count = sum(number for number, _ in numbers)
    each = ", ".join(f"{number} {text}" for number, text in numbers if number)
    return f"names {count} data {'file' if count == 1 else 'files'}: {each}"


def _parts_by_file(index: DeleteIndex) -> tuple[Ints, Ints, Ints]:
    """For each delete how many of the data files that it names are gone, have a vector, get one."""
    applied = index.part_data >= 0
    has_vector = np.zeros(len(applied), np.bool_)
    has_vector[applied] = index.vector[index.part_data[applied]] >= 0
    count = len(index.kinds)
    return (
        np.bincount(index.part_delete[~applied], minlength=count),
        np.bincount(index.part_delete[has_vector], minlength=count),
        np.bincount(index.part_delete[applied & ~has_vector], minlength=count),
    )


def _first_frozen(index: DeleteIndex) -> Ints:
    """For each delete a row of `parts` whose data file is blocked, or -1."""
    found = np.full(len(index.kinds), -1, np.int64)
    applied = np.flatnonzero(index.part_data >= 0)
    blocked = applied[index.blocked[index.part_data[applied]] != SOUND]
    found[index.part_delete[blocked]] = blocked
    return found


def puffin_verdicts(
    found: Puffins, dead_bytes: Ints, due: Bools, small: Bools, held: Bools, settings: MergeSettings
) -> Iterator[Verdict]:
    """One verdict for each Puffin file.

    Args:
        found: n files.
        dead_bytes: of each, of deletion vectors that no data file uses; -1 where its footer was not read.
        due: written again because they are dead in good part.
        small: merged because they are small.
        held: some of its deletion vectors may not be moved.
        settings: the limits.
    """
    for place, path in enumerate(found.paths.to_pylist()):
        vectors, dangling = int(found.vectors[place]), int(found.dangling[place])
        gist = ""
        size, live = int(found.file_bytes[place]), int(found.live_bytes[place])
        if due[place]:
            reason = f"{dead_bytes[place] * 100 // max(size, 1)} % of its {size:,} bytes are dead"
            gist = "a good part of its bytes is dead"
        elif small[place]:
            reason, gist = f"small: {_vectors(vectors - dangling)} of {live:,} bytes", "small"
        elif dangling:
            verb = "has" if dangling == 1 else "have"
            reason = f"{dangling} of its {_vectors(vectors)} {verb} no data file any more"
            gist = "has deletion vectors without a data file"
        elif held[place]:
            reason = "left alone: not asked for, or a data file of it is left alone"
        elif found.weight[place] <= settings.target_bytes // 2:
            reason = f"small, but there are fewer than {settings.min_files} small Puffin files"
        else:
            reason, gist = f"{_vectors(vectors)} of {live:,} bytes", "large, and little of it is dead"
        going = bool(due[place] or small[place] or dangling)
        yield Verdict(subject=SUBJECTS[1], id=path, keep=not going, reason=reason, gist=gist)


def _vectors(count: int) -> str:
    return "1 deletion vector" if count == 1 else f"{count} deletion vectors"


def warnings_of(index: DeleteIndex, targets: Ints, cardinalities: Ints, outside: Ints) -> Iterator[str]:
    """Warnings about data files that are left alone, that have no live row, or whose deletes are behind their end.

    Args:
        index: of the base.
        targets: data files that get a deletion vector.
        cardinalities: of these.
        outside: those of these with position deletes behind their end, which are left out.
    """
    for code in np.unique(index.blocked[index.blocked != SOUND]).tolist():
        files = np.flatnonzero(index.blocked == code)
        what = "1 data file is" if len(files) == 1 else f"{len(files)} data files are"
        each = "it" if len(files) == 1 else "each"
        yield f"{what} left alone: {each} {FROZEN[code]}: {_examples(index, files)}"
    deleted = np.full(len(index.data), -1, np.int64)
    known = np.flatnonzero(index.vector >= 0)
    deleted[known] = index.column("record_count")[index.vector[known]]
    deleted[targets] = cardinalities
    deleted[index.blocked == BEHIND_END] = -1  # the vector has more positions than it deletes rows
    empty = np.flatnonzero(deleted == index.data["record_count"].to_numpy())
    if len(empty):
        what = "1 data file has" if len(empty) == 1 else f"{len(empty)} data files have"
        yield (
            f"{what} no live row left, which Spark's rewrite_data_files(table => ..., options => "
            f"map('delete-ratio-threshold', '1.0', 'min-input-files', '1')) drops: {_examples(index, empty)}"
        )
    if len(outside):
        what = "1 data file" if len(outside) == 1 else f"{len(outside)} data files"
        yield f"position deletes behind the end of {what} are left out: {_examples(index, outside)}"


def _examples(index: DeleteIndex, files: npt.NDArray[np.intp]) -> str:
    names = index.data["path"].take(pa.array(files[:_EXAMPLES])).to_pylist()
    return ", ".join(names) + (", ..." if len(files) > _EXAMPLES else "")
