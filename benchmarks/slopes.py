"""How cost grows: fits over measured points, their table, and the plot."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.bench import Line

HEADER = "work | measure | slope | last three points | straight line | law | least | greatest"
# Processor time is what grows with the table, whatever else the machine does meanwhile.
MEASURES = ("cpu_seconds", "seconds", "peak_mb", "driver_mb", "requests", "bytes_read", "journal_bytes")
_LEVELS_OFF = ("peak_mb", "driver_mb")  # work is done in batches of a bounded size
_MOST = 1e15  # entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A measure against entries."""

    slope: float  # of the logarithms over all points: 1 is proportional, 0 flat
    late_slope: float  # over the last three points, where start-up weighs least
    base: float  # of the straight line, at no entries
    per_million: float  # what a million entries add
    law: str  # what the larger half of the points follows more closely, `line` or `power`
    last: tuple[float, float]  # the largest point, (entries, measure)

    def at(self, entries: float) -> float:
        """Extrapolated by the law; no less than what was measured last."""
        value: float = self.base + self.per_million * entries / 1e6
        if self.law == "power":
            value = self.last[1] * (entries / self.last[0]) ** self.late_slope
        return max(value, self.last[1])

    def reaching(self, budget: float) -> float:
        """The entries at which the measure reaches the budget; infinite where it does not."""
        if self.at(_MOST) <= budget:
            return float("inf")
        low, high = self.last[0], _MOST
        for _ in range(80):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if self.at(middle) < budget else (low, middle)
        return high


def fit(points: Sequence[Line], measure: str) -> Fit | None:
    """The growth of a measure; None where it has fewer than three positive points."""
    found = sorted((p["entries"], p[measure]) for p in points if p.get(measure, 0) > 0)
    if len(found) < 3:
        return None
    entries, values = np.array(found, float).T
    slope, late_slope = _slope(entries, values), _slope(entries[-3:], values[-3:])
    # Relative errors count: a percent of the smallest point weighs as much as one of the largest.
    rise, base = np.polyfit(entries, values, 1, w=1 / values)
    half = slice(-max(3, len(values) // 2), None)
    power = values[-1] * (entries[half] / entries[-1]) ** late_slope
    straight = base + rise * entries[half]
    # What adds up file by file cannot grow slower than in proportion; it only seems so while start-up weighs.
    may_be_power = late_slope > 1 or measure in _LEVELS_OFF
    misses = [float(np.sum((model / values[half] - 1) ** 2)) for model in (straight, power)]
    return Fit(
        slope=slope, late_slope=late_slope, base=float(base), per_million=float(rise) * 1e6,
        law="power" if misses[1] < misses[0] and may_be_power else "line",
        last=(float(entries[-1]), float(values[-1])),
    )  # fmt: skip


def _slope(entries: Any, values: Any) -> float:
    return float(np.polyfit(np.log(entries), np.log(values), 1)[0])


def by_work(points: Iterable[Line]) -> dict[str, list[Line]]:
    """The points of each work, smallest first, in the order in which the works come first."""
    found: dict[str, list[Line]] = {}
    for point in points:
        found.setdefault(point["work"], []).append(point)
    return {work: sorted(mine, key=lambda point: int(point["entries"])) for work, mine in found.items()}


def cells_of_fits(points: Iterable[Line]) -> Iterator[list[str]]:
    """The fits of each measure of each work in the columns of `HEADER`."""
    for work, mine in by_work(points).items():
        for measure in MEASURES:
            if found := fit(mine, measure):
                values = [point[measure] for point in mine]
                yield [
                    work, measure, f"{found.slope:.2f}", f"{found.late_slope:.2f}",
                    f"{found.base:,.3g} + {found.per_million:,.3g} a million", found.law,
                    f"{min(values):,g}", f"{max(values):,g}",
                ]  # fmt: skip


def plot(points: Iterable[Line]) -> bytes | None:
    """Processor time and memory against entries on linear and on logarithmic axes, as SVG; None without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        return None
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "iceberg-cli", "font.size": 8, "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    labels = {"cpu_seconds": "processor seconds", "peak_mb": "peak memory, MB"}
    for row, (measure, label) in enumerate(labels.items()):
        for panel, scale in zip(axes[row], ("linear", "log"), strict=True):
            for work, mine in by_work(points).items():
                values = ([point[name] for point in mine] for name in ("entries", measure))
                panel.plot(*values, marker="o", ms=3, label=work)
            title = f"{label}, {scale} axes"
            panel.set(xscale=scale, yscale=scale, xlabel="entries", ylabel=label, title=title)
            panel.grid(visible=True, alpha=0.3)
            if scale == "linear":
                panel.set_ylim(bottom=0)
    axes[0][0].legend()
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    plt.close(figure)
    return out.getvalue()
