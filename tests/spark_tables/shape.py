"""The shape of a table, the steps of its history, and the function that makes Spark write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.recording.archives import ENDING, RECORDED
from tests.recording.transcript import put_back, record_or_check
from tests.spark_tables.lake import Lake, Saved

# A statement for `Lake.sql`, or what no statement can do, on a table of a lake.
Step = str | Callable[[Lake, str], object]

UPGRADE = "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')"
COMPACT = "CALL {c}.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"
_MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a table is created, and what is then done to it."""

    name: str = ""
    version: int  # the format version at first
    columns: str = "id bigint, k string"
    by: str = ""  # the partition fields at first
    properties: Mapping[str, str] = field(default_factory=dict)
    history: tuple[Step, ...] = ()

    def then(self, *steps: Step) -> Shape:
        """The same with more of a history."""
        return replace(self, history=(*self.history, *steps))


def write(lake: Lake, table: str, shape: Shape) -> None:
    """Make Spark write a new table; deletes leave delete files, not new data files, where its version has them."""
    lake.answer(table, f"write {described(shape)}", lambda: _write(lake, table, shape))


def described(shape: Shape) -> dict[str, Any]:
    """What makes it another table: as much as can be told of its history."""
    steps = [step if isinstance(step, str) else step.__qualname__.partition(".")[0] for step in shape.history]
    return {**asdict(replace(shape, history=())), "history": steps}


def _write(lake: Lake, table: str, shape: Shape) -> None:
    lake.table_folder(table).clear()
    given = {"format-version": str(shape.version), **(_MERGE_ON_READ if shape.version > 1 else {})}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in {**given, **shape.properties}.items())
    by = f" PARTITIONED BY ({shape.by})" if shape.by else ""
    lake.sql(table, f"CREATE TABLE {{t}} ({shape.columns}) USING iceberg{by} TBLPROPERTIES ({text})")
    for step in shape.history:
        if isinstance(step, str):
            lake.sql(table, step)
        else:
            step(lake, table)


@dataclass(frozen=True)
class Writing:
    """Has the table of each shape written once in each catalog; whoever asks next gets it back as it was.

    A table on record is put back as it is there, in live tests after Spark wrote one of the same canonical form.

    Args:
        folder: where tables that are not on record are set aside, a folder for each catalog.
    """

    folder: Path
    _known: dict[tuple[str, str], Saved | None] = field(default_factory=dict)

    def __call__(self, lake: Lake, shape: Shape) -> str:
        """The name of the table.

        Raises:
            NotOnRecord: another table is on record under this name.
        """
        assert shape.name, "a table that several tests use has a name"
        table = f"{shape.name}_{len(shape.history)}"
        transcript, on_record = (
            lake.recorder.transcript,
            RECORDED / "iceberg_tables" / lake.catalog / f"{table}{ENDING}",
        )
        document = {"shape": described(shape)}
        is_new = (lake.catalog, table) not in self._known
        if lake.recorder.live and is_new:
            with lake.recorder.off():
                _write(lake, table, shape)
            record = lake.recorder.record and transcript is not None
            record_or_check(lake.table_folder(table), on_record, document, record=record)
            self._known[lake.catalog, table] = (
                None if on_record.exists() else lake.save(table, self.folder / lake.catalog)
            )
        saved = self._known.get((lake.catalog, table))
        if saved is not None:
            lake.restore(table, saved)
        elif transcript is not None:
            transcript.place(lake.table_folder(table), on_record, document)
        else:
            put_back(lake.table_folder(table), on_record, document)
        return table


def insert(first: int, last: int, values: str = "concat('k', id % 2)", *, branch: str = "") -> str:
    """One snapshot with the rows `first` to `last`, in one file for each partition."""
    target = f"{{t}}.branch_{branch}" if branch else "{t}"
    return f"INSERT INTO {target} SELECT id, {values} FROM range({first}, {last + 1}, 1, 1)"


def of_snapshot(number: int, text: str) -> Step:
    """A statement in which `{s}` is the id of the snapshot with this number; the first one has 0."""
    return lambda lake, table: lake.sql(table, text.replace("{s}", str(lake.snapshot_ids(table)[number])))


def staged(wap_id: str, text: str) -> Step:
    """A statement whose snapshot is written aside for audit: no ref has it."""

    def step(lake: Lake, table: str) -> None:
        lake.spark.conf.set("spark.wap.id", f"{table}-{wap_id}")
        lake.sql(table, text)
        lake.spark.conf.unset("spark.wap.id")

    return step


def ref_ages(**max_ref_age_ms: int) -> Step:
    """Refs get a greatest age, which may be shorter than any that SQL can say."""

    def step(lake: Lake, table: str) -> None:
        manage = lake.java(table).manageSnapshots()
        for ref, age_ms in max_ref_age_ms.items():
            manage.setMaxRefAgeMs(ref, age_ms)
        manage.commit()

    return step
