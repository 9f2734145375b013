"""The output of `penstock up`: a live panel on a terminal, plain lines elsewhere.

Reports are queued, and a thread writes them, so callers never wait for a slow terminal or pipe. Of
too many queued lines the oldest are dropped and counted. The panel is drawn a few times a second,
less often where drawing takes long, with the new lines above it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final, Generic, Protocol, TextIO, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from penstock.cli.up.extension import BROKER, DATABASE
from penstock.cli.up.monitor import View
from penstock.cli.up.plan import Plan
from penstock.cli.up.screen import Scene, draw, left_off
from penstock.cli.up.supervisor import PartRunner
from penstock.core.logs import configure_logs, get_logger

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.cli.up.supervisor import Supervisor
    from penstock.core.config import Settings

T = TypeVar("T")

#: Rates in the curve.
RATES: Final = 24
MOST_REPORTS: Final = 10_000
#: Minimum time between two drawings, in seconds and in multiples of the drawing time.
REDRAW_SECONDS: Final = 0.25
REDRAW_SHARE: Final = 4.0
#: Time limit for the last reports.
FLUSH_SECONDS: Final = 5.0
#: The name of the supervisor's own process among the parts.
OWN: Final = "up"


class Panel(Protocol):
    """The methods do not block."""

    def add_line(self, part: str, line: str) -> None: ...

    def update(self, view: View) -> None:
        """Called from a thread."""

    def watch(self, supervisor: Supervisor) -> None: ...


class Reports(Generic[T]):
    def __init__(self, most: int = MOST_REPORTS) -> None:
        self.closed = threading.Event()
        self._waiting: deque[T] = deque()
        self._most = most
        self._dropped = 0
        self._changed = threading.Condition()

    def add(self, report: T) -> None:
        with self._changed:
            if len(self._waiting) == self._most:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(report)
            self._changed.notify()

    def take(self) -> tuple[list[T], int]:
        """All queued reports, oldest first, and how many were dropped before them."""
        with self._changed:
            taken, dropped = list(self._waiting), self._dropped
            self._waiting.clear()
            self._dropped = 0
            return taken, dropped

    def wait(self) -> None:
        """Until there is a report, or the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closed.is_set())

    def close(self) -> None:
        with self._changed:
            self.closed.set()
            self._changed.notify()


@contextlib.contextmanager
def show(
    settings: Settings, plan: Plan, data_flags: Sequence[str], started: float
) -> Iterator[Panel]:
    """`data_flags` name the data directory; `started` is monotonic."""
    console = Console(file=_own_file(sys.stdout))
    if not console.is_terminal:
        errors = _own_file(sys.stderr)
        configure_logs(settings.log, errors)
        lines = LinePanel(console.file, errors, plan, started)
        with _writing(lines.reports, lines.write):
            yield lines
        return
    table = TablePanel(console, settings, plan, data_flags, started)
    with (
        _writing(table.reports, table.write),
        contextlib.redirect_stderr(_StandardError(table.add_line)),
    ):
        yield table


@contextlib.contextmanager
def _writing(reports: Reports[T], write: Callable[[], None]) -> Iterator[None]:
    """Runs a thread that writes until the reports are closed; it is abandoned if it hangs."""
    thread = threading.Thread(target=write, name="panel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        reports.close()
        thread.join(FLUSH_SECONDS)


def _own_file(stream: TextIO) -> TextIO:
    """The same file with its own buffer and lock, so that a thread that hangs in a write does not
    block the interpreter's flush at exit."""
    return os.fdopen(
        stream.fileno(), "w", buffering=1, encoding=stream.encoding, closefd=False, errors="replace"
    )


class _StandardError(io.TextIOBase):
    """Standard error while a panel is on the terminal."""

    def __init__(self, add_line: Callable[[str, str], None]) -> None:
        self._add_line = add_line

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                self._add_line(OWN, line)
        return len(text)


class LinePanel:
    """For logs: lines of parts are passed through, changes of parts are log events. Standard output
    has a line when all parts are ready, and one with the first result of an application."""

    def __init__(self, out: IO[str], errors: IO[str], plan: Plan, started: float) -> None:
        self.reports: Reports[Callable[[], None]] = Reports()
        self._log = get_logger("penstock.up")
        self._out = out
        self._errors = errors
        self._started = started
        self._was_ready = self._was_live = False
        self._plan = plan
        for part, reason in plan.left_out.items():
            self._event(self._log.warning, "part left out", part=part, reason=reason)

    def write(self) -> None:
        """Until the reports are closed and written."""
        while True:
            self.reports.wait()
            closed = self.reports.closed.is_set()
            reports, dropped = self.reports.take()
            if dropped:
                self._log.warning("lines dropped", lines=dropped)
            for report in reports:
                with contextlib.suppress(OSError):  # the reader has ended
                    report()
            if closed:
                return

    def add_line(self, part: str, line: str) -> None:
        # A line of JSON names its part, and must stay JSON.
        text = f"{line}\n" if line.startswith("{") else f"{part}: {line}\n"
        self.reports.add(lambda: _write(self._errors, text))

    def update(self, view: View) -> None:
        headline = view.headline
        if headline is None or self._was_live or not self._was_ready:
            return
        self._was_live = True
        took = time.monotonic() - self._started
        self._print(f"live: {headline}; after {took:.1f} s")

    def watch(self, supervisor: Supervisor) -> None:
        for runner in supervisor.runners:
            runner.on_change = self._on_change
        supervisor.on_ready = lambda: self._ready(supervisor)

    def _on_change(self, runner: PartRunner) -> None:
        fields = {"pid": runner.pid, "addresses": list(runner.addresses)}
        self._event(
            self._log.info,
            runner.state.value,
            part=runner.part.name,
            **{name: value for name, value in fields.items() if value},
        )

    def _event(self, log: Callable[..., None], event: str, **fields: object) -> None:
        self.reports.add(lambda: log(event, **fields))

    def _ready(self, supervisor: Supervisor) -> None:
        by_part = {each.part.name: each.addresses for each in supervisor.runners}
        pages = [url for each in self._plan.extensions for url, _ in each.addresses(by_part)]
        all_addresses = [*by_part[BROKER], *by_part.get(DATABASE, ()), *pages]
        addresses = [address for address in all_addresses if "://" in address]
        self._print(f"ready: {' '.join(addresses)}")
        self._was_ready = True

    def _print(self, text: str) -> None:
        self.reports.add(lambda: _write(self._out, f"penstock up {text}\n"))


def _write(file: IO[str], text: str) -> None:
    file.write(text)
    file.flush()


class TablePanel:
    """For terminals."""

    def __init__(
        self,
        console: Console,
        settings: Settings,
        plan: Plan,
        data_flags: Sequence[str],
        started: float,
    ) -> None:
        self.reports: Reports[tuple[str, str]] = Reports()
        self._console = console
        self._settings = settings
        self._plan = plan
        self._data_flags = data_flags
        self._started = started
        self._rates: deque[float] = deque(maxlen=RATES)
        self._view = View()
        self._supervisor: Supervisor | None = None
        self._has_listed = False  #: what the panel has no room for

    def write(self) -> None:
        """Draws until the reports are closed."""
        live = Live(
            get_renderable=self.render,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with contextlib.suppress(OSError):  # the terminal is gone
            with live:
                delay = REDRAW_SECONDS
                while not self.reports.closed.wait(delay):
                    started = time.monotonic()
                    self._draw(live)
                    delay = max(REDRAW_SECONDS, REDRAW_SHARE * (time.monotonic() - started))
                self._draw(live)
            data = self._settings.data
            self._console.print(f"Penstock has stopped; its data are in {data}", highlight=False)

    def _draw(self, live: Live) -> None:
        """Prints the new lines, and the panel below them."""
        reports, dropped = self.reports.take()
        if dropped:
            reports.insert(0, (OWN, f"{dropped:,} lines dropped"))
        if not self._has_listed and (scene := self._scene()) is not None and scene.ready:
            self._has_listed = True
            for text, how in left_off(scene, self._console.width, self._console.height):
                reports.append((how or OWN, text))
        if not reports:
            live.refresh()
            return
        lines = (Text(f"{part}: ", style="dim") + Text.from_ansi(line) for part, line in reports)
        self._console.print(Group(*lines))

    def add_line(self, part: str, line: str) -> None:
        self.reports.add((part, line))

    def update(self, view: View) -> None:
        self._view = view
        if view.rate is not None:
            self._rates.append(view.rate)

    def watch(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def render(self) -> RenderableType:
        scene = self._scene()
        return "" if scene is None else draw(scene, self._console.width, self._console.height)

    def _scene(self) -> Scene | None:
        if self._supervisor is None:
            return None
        return Scene(
            runners=self._supervisor.runners,
            ready=self._supervisor.ready.is_set(),
            view=self._view,
            rates=tuple(self._rates),
            plan=self._plan,
            data=self._settings.data,
            data_flags=self._data_flags,
            elapsed=time.monotonic() - self._started,
            now=time.time(),
        )
