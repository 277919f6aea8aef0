"""Charts as SVG that stands in a page: drawn by matplotlib, coloured by the page, and described in words.

No text that comes from a table is in a chart: numbers, units and dates alone are. The page's style says which colours
there are, for light, dark and paper; here they have names, for which matplotlib gets a colour of its own each.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from iceberg_cli.plan.text import day, moment, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from iceberg_cli.cli.page.distributions import SizeDistribution

_SVG: Final = "http://www.w3.org/2000/svg"
_XLINK: Final = "http://www.w3.org/1999/xlink"
_COLORS: Final = {
    "text": "#010101",
    "axis": "#020202",
    "bar": "#030303",
    "mark": "#040404",
    "paper": "#050505",
}
_VARIABLES: Final = {color: f"var(--{name})" for name, color in _COLORS.items()}
_WIDTH_INCHES: Final = 4.8
_FONT_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)px")
_KIB: Final = 1 << 10
_MOST_LABELS: Final = 7
_TIME_TICKS: Final = 4
_DAY_MS: Final = 86_400_000


def size_chart(
    distribution: SizeDistribution, *, chart_id: str, title: str, noun: str, marks: Mapping[str, int]
) -> str:
    """How many files, or tables, have which size, as SVG.

    Args:
        distribution: not empty.
        chart_id: unique in the page.
        title: what it shows.
        noun: what has these sizes.
        marks: sizes in bytes at which a line stands, such as a target, by their names.
    """
    figure, axes = _figure(height=2.2)
    bars = distribution.bars()
    axes.bar(range(len(bars)), [bar.files for bar in bars], color=_COLORS["bar"], width=0.86)
    every = -(-len(bars) // _MOST_LABELS)
    edges = [bars[0].low, *(bar.high for bar in bars)]
    places = range(0, len(edges), every)
    axes.set_xticks([place - 0.5 for place in places], [short_size(edges[place]) for place in places])
    axes.set_ylabel(noun)
    _whole_numbers(axes)
    shown = {name: at for name, at in marks.items() if edges[0] <= at <= edges[-1]}
    for name, at in shown.items():
        place = _place(edges, at)
        axes.axvline(place, color=_COLORS["mark"], linestyle=(0, (4, 3)), linewidth=1.4)
        axes.text(place, 1.02, name, color=_COLORS["text"], ha="center", transform=axes.get_xaxis_transform())
    most = max(bars, key=lambda bar: bar.files)
    words = (
        f"{distribution.files:,} {noun} of {size(distribution.size_bytes)}; "
        f"most, {most.files:,}, have {size(most.low)} to {size(most.high)}."
    )
    return _svg(figure, chart_id, title, words)


def growth_chart(
    times_ms: Sequence[int], values: Sequence[int], *, chart_id: str, title: str, unit: str
) -> str:
    """A total over time, as SVG.

    Args:
        times_ms: at least two, ascending, in ms since the epoch.
        values: the total from each of these on.
        chart_id: unique in the page.
        title: what it is the total of.
        unit: `bytes`, or what is counted.
    """
    import numpy as np

    figure, axes = _figure(height=2.0)
    times = np.array(times_ms, np.float64)
    name, scale = _unit_of(max(values)) if unit == "bytes" else ("", 1)
    scaled = np.array(values, np.float64) / scale
    axes.step(times, scaled, where="post", color=_COLORS["bar"], linewidth=2)
    axes.fill_between(times, scaled, step="post", color=_COLORS["bar"], alpha=0.15, linewidth=0)
    axes.set_ylim(bottom=0, top=max(scaled.max(), 1) * 1.08)
    _dates(axes, times_ms[0], times_ms[-1])
    if unit == "bytes":
        _fractions(axes, name)
        first, last = size(values[0]), size(values[-1])
    else:
        _whole_numbers(axes)
        first, last = f"{values[0]:,}", f"{values[-1]:,}"
    words = f"{first} on {day(times_ms[0])}, {last} on {day(times_ms[-1])}."
    return _svg(figure, chart_id, title, words)


def short_size(size_bytes: int) -> str:
    """A power of two in bytes, as the axis of a chart has it."""
    unit, scale = _unit_of(size_bytes)
    return f"{size_bytes // scale} {unit}"


def _unit_of(size_bytes: int) -> tuple[str, int]:
    unit, scale = "B", 1
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if size_bytes < scale * _KIB:
            break
        unit, scale = larger, scale * _KIB
    return unit, scale


def _place(edges: Sequence[int], at: int) -> float:
    """Where a size lies between bars that stand at 0, 1 and so on."""
    for place, (low, high) in enumerate(pairwise(edges)):
        if at <= high:
            return place - 0.5 + (at - low) / max(high - low, 1)
    return len(edges) - 1.5


def _figure(*, height: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; the user's own settings of matplotlib have no say, nor has its log."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Where it keeps its fonts, and that it looks for them, is no concern of who reads our messages.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with mpl.rc_context(mpl.rcParamsDefault):
        figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
    axes.patch.set_visible(False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_COLORS["axis"])
    axes.tick_params(colors=_COLORS["axis"], labelcolor=_COLORS["text"])
    axes.yaxis.label.set_color(_COLORS["text"])
    axes.grid(axis="y", color=_COLORS["axis"], alpha=0.25, linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _fractions(axes: Axes, unit: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g} {unit}"))


def _dates(axes: Axes, first_ms: int, last_ms: int) -> None:
    """Have a few ticks from the first to the last time; their labels have days, or times where it is all within two."""
    step = (last_ms - first_ms) / (_TIME_TICKS - 1)
    ticks = [round(first_ms + step * number) for number in range(_TIME_TICKS)]
    if last_ms - first_ms > 2 * _DAY_MS:
        labels = [day(tick) for tick in ticks]
    else:
        labels = [moment(tick).partition("T")[2].removesuffix("Z") or moment(tick) for tick in ticks]
        axes.set_xlabel(day(first_ms), loc="right")
        axes.xaxis.label.set_color(_COLORS["text"])
    axes.set_xticks(ticks, labels)


def _svg(figure: Figure, chart_id: str, title: str, words: str) -> str:
    """The figure as an element of a page, with its title and what it shows in words."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": chart_id}):
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    root = ET.fromstring(text.getvalue())  # noqa: S314 - just made, of numbers and dates alone
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for style in [(parent, each) for parent in root.iter() for each in parent if each.tag.endswith("}style")]:
        style[0].remove(style[1])
    for element in root.iter():
        _clean(element, chart_id)
    _, _, width, height = root.attrib["viewBox"].split()
    root.attrib = {
        "viewBox": f"0 0 {width} {height}",
        "class": "chart",
        "role": "img",
        "aria-labelledby": f"{chart_id}-title {chart_id}-words",
    }
    for place, (tag, content) in enumerate((("title", title), ("desc", words))):
        element = ET.Element(f"{{{_SVG}}}{tag}", {"id": f"{chart_id}-{('title', 'words')[place]}"})
        element.text = content
        root.insert(place, element)
    ET.register_namespace("", _SVG)
    return ET.tostring(root, encoding="unicode")


def _clean(element: ET.Element, chart_id: str) -> None:
    """Have attributes in the place of styles, colours by name, ids of this chart, and the page's font."""
    attributes: dict[str, Any] = {}
    for name, value in element.attrib.items():
        if name == "style":
            attributes |= _attributes(value)
        elif name == f"{{{_XLINK}}}href":
            attributes["href"] = value.replace("#", f"#{chart_id}-", 1)
        elif name == "id":
            attributes["id"] = f"{chart_id}-{value}"
        else:
            attributes[name] = value.replace("url(#", f"url(#{chart_id}-")
    element.attrib = {name: _VARIABLES.get(value, value) for name, value in attributes.items()}


def _attributes(style: str) -> dict[str, str]:
    """The presentation attributes that say what a style says."""
    found = {}
    for declaration in filter(None, map(str.strip, style.split(";"))):
        name, _, value = (each.strip() for each in declaration.partition(":"))
        if name == "font":
            match = _FONT_SIZE.search(value)
            name, value = "font-size", match[1] if match else "10"
        if name not in ("font-family", "font-variant", "font-stretch", "font-style", "font-weight"):
            found[name] = value
    return found
