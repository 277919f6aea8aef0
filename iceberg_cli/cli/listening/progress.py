"""The display of progress on standard error: a bar, a line every ten seconds, or `event/1` documents.

The bar is one line, which is written over and erased again. It is ASCII and fits whatever width there is; the cursor
stays visible. So whatever ends the process, there is at most this line to erase.

A phase that says nothing for a while is shown too: a thread looks at the clock. It is ended before a process forks.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TextIO

from iceberg_cli.cli import subject
from iceberg_cli.cli.render import printable
from iceberg_cli.cli.terminal import stopping
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.events import AnyEvent, Event, PhaseBegun, PhaseEnded
from iceberg_cli.plan.text import age, size

EVENT_SCHEMA: Final = "iceberg-cli/event/1"
MODES: Final = ("auto", "bar", "lines", "json", "none")
_ERASE: Final = "\r\x1b[K"
_SHOWN_AFTER_S: Final = 1.0
_LINE_S: Final = 10.0
_EVENT_S: Final = 0.1  # between two documents of one phase, but for its first and last
_TICK_S: Final = {"bar": 0.25, "lines": 1.0, "json": 1.0}
_JOIN_S: Final = 1.0  # it ends at once, unless a signal struck where the lock was taken and that is lost
_COLUMNS: Final = 80  # of a terminal that does not tell
_LONGEST_BAR: Final = 40
_SHORTEST_BAR: Final = 10
_SHORTEST_NAME: Final = 12  # that is shown of a longer one


def mode_of(requested: str | None, stream: TextIO, *, silent: bool) -> str:
    """How progress is shown: `bar`, `lines`, `json` or `none`.

    Args:
        requested: of `MODES`; None: not given.
        stream: where it is shown.
        silent: without `requested`, nothing is shown.

    Raises:
        UsageError: there is no such mode.
    """
    if requested not in (None, *MODES):
        raise UsageError(f"--progress must be auto, bar, lines, json or none, not {requested!r}")
    if requested is None and silent:
        return "none"
    if requested not in (None, "auto"):
        return requested
    return "bar" if stream.isatty() and os.environ.get("TERM") != "dumb" else "lines"


@dataclass(slots=True)
class _Track:
    """How far a phase is.

    Args:
        event: its last one; of a phase that tells no progress `unit` is "".
        since_s: when the phase began, by the monotonic clock.
        first: what was done already then.
        written_s: when a document was last written about it.
    """

    event: Event
    since_s: float
    first: int
    written_s: float = 0.0

    def rate(self, now_s: float) -> float | None:
        """Units a second; None where that is not known yet."""
        passed, done = now_s - self.since_s, self.event.done - self.first
        return done / passed if passed > 0 and done > 0 else None

    def left_ms(self, now_s: float) -> int | None:
        """How long it still takes at this rate; None where that is not known."""
        rate, total = self.rate(now_s), self.event.total
        if rate is None or total is None:
            return None
        return max(0, int((total - self.event.done) / rate * 1_000))


@dataclass
class Progress:
    """A listener that shows the progress of phases that take longer than a second.

    Args:
        stream: standard error.
        mode: see `mode_of`.
        clock: monotonic, in seconds.
        columns: the width of the terminal; None: that of `stream`.
        of_tables: show how many tables are done and which was begun last, and not the phases of those that are worked
            on side by side.
    """

    stream: TextIO
    mode: str
    clock: Callable[[], float] = time.monotonic
    columns: Callable[[], int] | None = None
    of_tables: bool = False
    _outer: list[_Track] = field(
        default_factory=list
    )  # phases that have begun and not ended, the innermost last
    _tracks: dict[str, _Track] = field(default_factory=dict)  # of phases inside the innermost of these
    _shown: _Track | None = None
    _table: str = ""  # which was begun last, of many
    _line_s: float | None = None
    _drawn: bool = False
    _ticker: _Ticker | None = None
    # A signal may strike between taking and releasing it: the thread that it strikes takes it once more.
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __call__(self, event: AnyEvent) -> None:
        """Take note of an event, and show it if it is time."""
        if self.mode == "none":
            return
        if self.of_tables and not isinstance(event, Event):
            if isinstance(event, PhaseBegun):
                self._table = event.table
            return
        now_s = self.clock()
        with self._lock:
            self._line_s = now_s if self._line_s is None else self._line_s
            match event:
                case Event():
                    self._shown = self._track_of(event, now_s)
                case PhaseBegun(phase=name):
                    self._shown = _Track(Event(phase=name, done=0, total=None, unit=""), now_s, 0)
                    self._outer.append(self._shown)
                    self._tracks.clear()
                case PhaseEnded(phase=name):
                    # Where a signal struck, the end of an inner phase may be missing.
                    while self._outer and self._outer.pop().event.phase != name:
                        pass
                    self._tracks.clear()
                    self._shown = self._outer[-1] if self._outer else None
                case _:
                    return
            self._show(now_s, tell=not isinstance(event, PhaseEnded))
            if isinstance(event, Event) and event.done == event.total:
                self._shown = self._unfinished()
        if self._ticker is None:
            self._ticker = _Ticker(self.tick, _TICK_S[self.mode])
            self._ticker.start()

    def _track_of(self, event: Event, now_s: float) -> _Track:
        track = self._tracks.get(event.phase)
        if track is None or event.done < track.event.done:
            track = self._tracks[event.phase] = _Track(event, now_s, event.done)
        track.event = event
        return track

    def _unfinished(self) -> _Track | None:
        """The phase that goes on where one inside it has come to its end: deletions, where the table was read again."""
        for track in reversed(self._tracks.values()):
            if track.event.done != track.event.total:
                return track
        return self._outer[-1] if self._outer else None

    def tick(self) -> None:
        """Show the phase that is under way as it is by now."""
        with self._lock:
            self._show(self.clock(), tell=False)

    def _show(self, now_s: float, *, tell: bool) -> None:
        track = self._shown
        long = track is not None and now_s - track.since_s >= _SHOWN_AFTER_S
        match self.mode:
            case "bar" if track is not None and long:
                self._write(_ERASE + self._with_table(bar_of(track, now_s, width=self._columns() - 1)))
                self._drawn = True
                stopping.erase(_ERASE)
            case "bar":
                self._erase()
            case "lines" if track is not None and long and self._line_is_due(now_s):
                now = f"; now {printable(self._table)}" if self._table else ""
                self._write(f"{line_of(track, now_s)}{now}\n")
            case "json" if track is not None and self._event_is_due(track, now_s, tell=tell):
                track.written_s = now_s
                self._write(json.dumps(document_of(track, now_s, table=self._table)) + "\n")

    def _with_table(self, bar: str) -> str:
        """A bar with the name of the table behind it, as much of its end as there is room for, in ASCII."""
        room = self._columns() - 1 - len(bar) - len("; ")
        name = printable(self._table).encode("ascii", "replace").decode()
        if not name or room < min(len(name), _SHORTEST_NAME):
            return bar
        return f"{bar}; {name if len(name) <= room else f'...{name[3 - room :]}'}"

    def _columns(self) -> int:
        if self.columns is not None:
            return self.columns()
        try:
            # Not that of standard output, which may be a file.
            return os.get_terminal_size(self.stream.fileno()).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def _line_is_due(self, now_s: float) -> bool:
        if self._line_s is None or now_s - self._line_s < _LINE_S:
            return False
        self._line_s = now_s
        return True

    def _event_is_due(self, track: _Track, now_s: float, *, tell: bool) -> bool:
        last = track.event.done == track.event.total
        passed = now_s - track.written_s
        return not track.written_s or (tell and (last or passed >= _EVENT_S)) or passed >= _LINE_S

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._write(_ERASE)
            self._drawn = False
            stopping.erase("")

    def close(self) -> None:
        """Erase the bar; nothing is shown before the next event, so that something else can be printed."""
        with self._lock:
            self._shown = None
            self._erase()

    def warned(self, text: str) -> None:
        """Nothing: whoever prints a warning closes the display first."""

    def end(self, exit_code: int, error: BaseException | None) -> None:  # noqa: ARG002 - the port's signature
        """Erase the bar and show nothing any more."""
        self.close()
        self.mode = "none"
        if self._ticker is not None:
            self._ticker.stop()


def bar_of(track: _Track, now_s: float, *, width: int) -> str:
    """A phase as one line of at most `width` characters, the more of it the wider it is."""
    event, left_ms, rate = track.event, track.left_ms(now_s), track.rate(now_s)
    if not event.unit:
        return f"{event.phase}, {age(_seconds_ms(now_s - track.since_s))}"[:width]
    number = size if event.unit == "bytes" else "{:,}".format
    unit = "" if event.unit == "bytes" else f" {event.unit}"
    done = f"{number(event.done)}{unit}"
    if event.total is None:
        texts = [f"{event.phase} {done}{_per_second(rate, event.unit)}", f"{event.phase} {done}"]
    else:
        done = f"{number(event.done)}/{number(event.total)}{unit}"
        left = "" if not left_ms else f", {age(_whole_seconds(left_ms))} left"
        whole = f"{done}{_per_second(rate, event.unit)}{left}"
        room = width - len(event.phase) - len(whole) - 4
        share = min(1.0, event.done / event.total) if event.total else 1.0
        texts = [
            *(
                [f"{event.phase} [{_bar(share, min(room, _LONGEST_BAR))}] {whole}"]
                if room >= _SHORTEST_BAR
                else []
            ),
            f"{event.phase} {whole}",
            f"{event.phase} {done}{left}",
            f"{event.phase} {share:.0%}{left}",
            f"{event.phase} {share:.0%}",
        ]
    return next((text for text in texts if len(text) <= width), event.phase[: max(width, 0)])


def _bar(share: float, cells: int) -> str:
    full = int(share * cells)
    return "#" * full + "." * (cells - full)


def line_of(track: _Track, now_s: float) -> str:
    """A phase as one line: done of total, rate, and the time that is left."""
    event, left_ms, rate = track.event, track.left_ms(now_s), track.rate(now_s)
    if not event.unit:
        return f"{event.phase}: {age(_seconds_ms(now_s - track.since_s))} so far"
    number = size if event.unit == "bytes" else "{:,}".format
    of = "" if event.total is None else f" of {number(event.total)}"
    unit = "" if event.unit == "bytes" else f" {event.unit}"
    left = "" if not left_ms else f", {age(_whole_seconds(left_ms))} left"
    return f"{event.phase}: {number(event.done)}{of}{unit}{_per_second(rate, event.unit)}{left}"


def _per_second(rate: float | None, unit: str) -> str:
    if rate is None:
        return ""
    return (
        f", {size(int(rate))}/s"
        if unit == "bytes"
        else f", {rate:,.0f}/s"
        if rate >= 10
        else f", {rate:.1f}/s"
    )


def _seconds_ms(seconds: float) -> int:
    return _whole_seconds(int(seconds * 1_000))


def _whole_seconds(duration_ms: int) -> int:
    """In ms; what is shorter than a second is one, so that no ms are shown."""
    return max(1, round(duration_ms / 1_000)) * 1_000


def document_of(track: _Track, now_s: float, *, table: str = "") -> dict[str, object]:
    """The `event/1` document of a phase; `table`: of many, which was begun last."""
    event, rate = track.event, track.rate(now_s)
    return {
        "schema": EVENT_SCHEMA,
        "phase": event.phase,
        "table": subject.name() or table or None,
        "done": event.done,
        "total": event.total,
        "unit": event.unit or None,
        "per_second": None if rate is None else round(rate, 3),
        "left_ms": track.left_ms(now_s),
    }


class _Ticker:
    """A thread that calls a function at an interval, and is not alive while this process forks.

    Args:
        tick: the function.
        interval_s: between two calls.
    """

    _running: _Ticker | None = None
    _registered = False

    def __init__(self, tick: Callable[[], None], interval_s: float) -> None:
        self._tick, self._interval_s = tick, interval_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, or go on."""
        if not _Ticker._registered:
            os.register_at_fork(before=_Ticker._pause_running, after_in_parent=_Ticker._start_running)
            _Ticker._registered = True
        _Ticker._running = self
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread for good."""
        self._pause()
        _Ticker._running = None

    def _pause(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
            self._thread = None

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._tick()

    @staticmethod
    def _pause_running() -> None:
        if _Ticker._running is not None:
            _Ticker._running._pause()  # noqa: SLF001 - of this class

    @staticmethod
    def _start_running() -> None:
        if _Ticker._running is not None:
            _Ticker._running.start()
