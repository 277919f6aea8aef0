"""Files of `--metrics` as a collector reads them: by the parser of Prometheus' own client library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "iceberg_cli_"


class Series(NamedTuple):
    """One sample: its name without the prefix, its labels, and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass
class Samples:
    """All samples of some files, of which no two are of one series."""

    found: list[Series] = field(default_factory=list)

    @classmethod
    def of(cls, *paths: Path) -> Samples:
        """Those of files that one collector reads; each name has one help and the type gauge in each."""
        samples, seen = cls(), set()
        for path in paths:
            families = list(text_string_to_metric_families(path.read_bytes().decode()))
            assert len({family.name for family in families}) == len(families)
            for family in families:
                assert (family.type, bool(family.documentation)) == ("gauge", True)
                for sample in family.samples:
                    assert sample.name.startswith(PREFIX)
                    assert all(sample.labels.values()), "a label that is empty is none"
                    key = sample.name, frozenset(sample.labels.items())
                    assert key not in seen, f"twice: {key}"
                    seen.add(key)
                    name = sample.name.removeprefix(PREFIX)
                    samples.found.append(Series(name, dict(sample.labels), sample.value))
        return samples

    def of_tables(self, name: str, verb: str) -> dict[str, float]:
        """The values of a name by table."""
        return {
            each.labels["table"]: each.value
            for each in self._called(name)
            if "table" in each.labels and each.labels["verb"] == verb
        }

    def of_run(self, name: str, **labels: str) -> float | None:
        """The value of a name for the whole run; None where there is none."""
        found = [
            each.value
            for each in self._called(name)
            if "table" not in each.labels and labels.items() <= each.labels.items()
        ]
        assert len(found) < 2, f"{len(found)} series of {name}"
        return found[0] if found else None

    def by(self, name: str, label: str) -> dict[str, float]:
        """The values of a name for the whole run by one of its labels."""
        return {each.labels[label]: each.value for each in self._called(name) if "table" not in each.labels}

    def names(self) -> dict[str, set[str]]:
        """Every name, with the prefix, and the labels that its samples have."""
        found: dict[str, set[str]] = {}
        for each in self.found:
            found.setdefault(PREFIX + each.name, set()).update(each.labels)
        return found

    def _called(self, name: str) -> Iterator[Series]:
        return (each for each in self.found if each.name == name)
