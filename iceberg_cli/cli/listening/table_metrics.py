"""The samples of each of many tables, and of each verb on one, in the file of `--metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from iceberg_cli.cli.listening import listeners
from iceberg_cli.cli.listening.exposition import Sample, escaped, labels_of, seconds
from iceberg_cli.plan.events import TableMeasured
from iceberg_cli.storage.redaction import redact


@dataclass(slots=True, eq=False)
class _Row:
    """What is known of a table, or of a verb on one, and its labels."""

    labels: str
    known: TableMeasured

    def add(self, measured: TableMeasured) -> None:
        """Take note of what was found; what is not known leaves what was known before."""
        self.known = self.known._replace(
            **{name: value for name, value in measured._asdict().items() if value is not None}
        )


class TableMetrics:
    """Rows of tables and of verbs on them, in the order of the tables' names.

    Args:
        command: the name of the command, which the series of a table as a whole have for a verb.
        run: tells the files of several runs apart that one collector reads.
    """

    def __init__(self, command: str, run: str) -> None:
        self._command, self.run = command, run
        self._names: dict[str, str] = {}  # of tables as labels have them
        self._rows: dict[str, dict[str, _Row]] = {}  # by these, and by verb
        self.formats: set[str] = set()

    def add(self, measured: TableMeasured) -> None:
        """Take note of what was found."""
        self.formats.add(measured.format)
        name, verb = measured.table, measured.verb or self._command
        if name not in self._names:
            self._names[name] = redact(name, listeners.hidden())
        table = self._names[name]
        rows = self._rows.setdefault(table, {})
        if verb in rows:
            rows[verb].add(measured)
        else:
            rows[verb] = _Row(self.labels(table, verb), measured)

    def labels(self, table: str, verb: str) -> str:
        """The labels of a row."""
        return labels_of({"table": table, "verb": verb, "run": self.run})

    def numbers(self, name: str) -> Iterator[Sample]:
        """The samples of a field that is a number, where it is known."""
        for row in self._each():
            if (value := getattr(row.known, name)) is not None:
                yield row.labels, str(value)

    def oldest_snapshots(self) -> Iterator[Sample]:
        """The times of the oldest snapshots, where they are known."""
        for row in self._each():
            if row.known.oldest_snapshot_ms is not None:
                yield row.labels, seconds(row.known.oldest_snapshot_ms)

    def successes(self, earlier: Mapping[str, str], ended: str | None, *, is_whole: bool) -> Iterator[Sample]:
        """When each verb on a table succeeded last.

        Args:
            earlier: by labels those that the file of an earlier run has.
            ended: when this run ended, or None where nothing in it counts as a success.
            is_whole: there are no tables but those of the rows: others keep nothing.
        """
        by_table: dict[str, dict[str, str]] = {}
        for labels, value in earlier.items():
            if (table := self._table_in(labels)) is not None:
                by_table.setdefault(table, {})[labels] = value
        found: dict[str, str] = {}
        for name, rows in sorted(self._rows.items()):
            before = by_table.pop(escaped(name), {})
            now: dict[str, str] = {}
            for verb, row in rows.items():
                if row.known.is_success and ended is not None:
                    now[row.labels] = ended
                elif row.known.is_success is not None:
                    is_all = verb == self._command  # none of its verbs was come to: each is as it was
                    found |= {key: value for key, value in before.items() if is_all or key == row.labels}
            found |= now
        for before in () if is_whole else by_table.values():
            found |= before
        yield from found.items()

    def _table_in(self, labels: str) -> str | None:
        """The table that labels of a verb on it name, as they have it; None where they are of another run or kind."""
        start, end = '{table="', self.labels("", "").replace("{", ",")
        if not (labels.startswith(start) and labels.endswith(end)):
            return None
        return labels.removeprefix(start).removesuffix(end).rpartition('",verb="')[0]

    def _each(self) -> Iterator[_Row]:
        for _, rows in sorted(self._rows.items()):
            yield from rows.values()
