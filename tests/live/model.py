"""A table's rows as a Python dictionary, and the random statements that change both in the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

Values = tuple[str | None, int]  # k, n
COLUMNS = "id bigint, k string, n int"
_COMPACTION = "CALL {c}.system.rewrite_data_files(table => '{t}', "


@dataclass(kw_only=True)
class Model:
    """What the table holds. Each method but `statement` changes the model and returns the SQL that does the same.

    Args:
        draw: decides everything, so that a seed tells the whole story.
    """

    draw: Random
    rows: dict[int, Values] = field(default_factory=dict)  # by id
    written: set[int] = field(default_factory=set)  # ids of the rows that the last statement wrote anew
    next_id: int = 0
    kinds: list[Callable[[], str]] = field(default_factory=list)  # of statements that are still to come

    def statement(self) -> str:
        """One statement; all kinds have had their turn, in any order, before one comes again."""
        if not self.kinds:
            self.kinds = [self.insert, self.update, self.delete, self.merge, self.compact]
            self.draw.shuffle(self.kinds)
        return self.insert() if len(self.rows) < 15 else self.kinds.pop()()

    def insert(self, count: int | None = None, k: str | None = None) -> str:
        """New rows, in every partition or in one."""
        new = self._new_rows(count or self.draw.randint(6, 20))
        self._write({key: (k or value[0], value[1]) for key, value in new.items()})
        new = {key: self.rows[key] for key in new}
        return f"INSERT INTO {{t}} VALUES {_values(new)}"

    def update(self) -> str:
        """Some rows get another number, or go to another partition."""
        chosen = self._some()
        if self.draw.random() < 0.5:
            k = self._k()
            self._write({key: (k, self.rows[key][1]) for key in chosen})
            return f"UPDATE {{t}} SET k = {_literal(k)} WHERE {_in(chosen)}"
        self._write({key: (self.rows[key][0], self.rows[key][1] + 1000) for key in chosen})
        return f"UPDATE {{t}} SET n = n + 1000 WHERE {_in(chosen)}"

    def delete(self, keys: list[int] | None = None) -> str:
        """These or some rows, now and then all that an old partition field has in one partition."""
        if keys is None and self.draw.random() < 0.2 and len(self.rows) > 30:
            k = self._k()
            self._remove([key for key, values in self.rows.items() if values[0] == k])
            return f"DELETE FROM {{t}} WHERE k <=> {_literal(k)}"
        chosen = keys or self._some()
        self._remove(chosen)
        return f"DELETE FROM {{t}} WHERE {_in(chosen)}"

    def merge(self) -> str:
        """Rows that are deleted, rows that are changed and rows that are new, in one statement."""
        chosen = self._some()
        gone = [key for key in chosen if self.draw.random() < 0.3]
        changed = {key: (self._k(), self.draw.randint(0, 99)) for key in chosen if key not in gone}
        new = self._new_rows(self.draw.randint(1, 5))
        source = {**dict.fromkeys(gone, (None, -1)), **changed, **new}
        self._remove(gone)
        self._write({**changed, **new})
        return (
            f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {_values(source)} AS s(id, k, n)) s ON t.id = s.id"
            " WHEN MATCHED AND s.n < 0 THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET t.k = s.k, t.n = s.n"
            " WHEN NOT MATCHED THEN INSERT (id, k, n) VALUES (s.id, s.k, s.n)"
        )

    def compact(self) -> str:
        """New data files with the same rows, for all or for some of the old ones."""
        self.written = set()
        chosen = self.draw.choice(
            (
                "options => map('rewrite-all', 'true'))",
                f"where => 'k = \"{self.draw.choice('abc')}\"', options => map('rewrite-all', 'true'))",
                "options => map('min-input-files', '2', 'delete-file-threshold', '1'))",
            )
        )
        return _COMPACTION + chosen

    def _k(self) -> str | None:
        return self.draw.choice(["a", "b", "c", None])

    def _new_rows(self, count: int) -> dict[int, Values]:
        first, self.next_id = self.next_id, self.next_id + count
        return {key: (self._k(), self.draw.randint(0, 99)) for key in range(first, first + count)}

    def _some(self) -> list[int]:
        most = max(1, len(self.rows) // 5)
        return sorted(self.draw.sample(sorted(self.rows), self.draw.randint(1, most)))

    def _write(self, rows: dict[int, Values]) -> None:
        self.rows.update(rows)
        self.written = set(rows)

    def _remove(self, keys: list[int]) -> None:
        for key in keys:
            del self.rows[key]
        self.written = set()


def _literal(k: str | None) -> str:
    return "CAST(NULL AS STRING)" if k is None else f"'{k}'"


def _values(rows: dict[int, Values]) -> str:
    return ", ".join(f"({key}L, {_literal(k)}, {n})" for key, (k, n) in rows.items())


def _in(keys: list[int]) -> str:
    return f"id IN ({', '.join(map(str, keys))})"
