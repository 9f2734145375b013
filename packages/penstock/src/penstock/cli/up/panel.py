"""What `penstock up` shows: a picture that lives in a terminal, plain lines elsewhere.

Whoever reports to a panel never waits for it: reports are queued, and a thread of the panel writes
them. A terminal or a pipe that takes nothing holds up that thread alone; of the lines that pile up
meanwhile the oldest are dropped, and counted. The picture is drawn a few times a second, less
often where drawing takes long, with all lines since the last time above it.
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
from penstock.cli.up.screen import Scene, draw
from penstock.cli.up.supervisor import Keeper
from penstock.core.logs import configure_logs, get_logger

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.cli.up.supervisor import Supervisor
    from penstock.core.config import Settings

T = TypeVar("T")

#: Rates that are drawn side by side.
RATES: Final = 24
#: Reports that may wait to be shown.
MOST_REPORTS: Final = 10_000
#: Between two pictures at least, and in relation to the time that one took to draw.
REDRAW_SECONDS: Final = 0.25
REDRAW_SHARE: Final = 4.0
#: How long the last reports may take to be written when everything has stopped.
FLUSH_SECONDS: Final = 5.0
#: What the supervisor's own process writes is shown as a part's.
OWN: Final = "up"


class Panel(Protocol):
    """None of these block."""

    def said(self, part: str, line: str) -> None:
        """A part wrote a line."""

    def seen(self, view: View) -> None:
        """What the parts do now. Called from a thread."""

    def watch(self, supervisor: Supervisor) -> None:
        """Show what it does from now on."""


class Reports(Generic[T]):
    """A queue between those who report and the thread that writes."""

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
        """All that wait, oldest first, and how many before them were dropped."""
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
    settings: Settings, plan: Plan, data_flags: Sequence[str], began: float
) -> Iterator[Panel]:
    """`data_flags` name the data directory; `began` is monotonic."""
    console = Console(file=_own_file(sys.stdout))
    if not console.is_terminal:
        errors = _own_file(sys.stderr)
        configure_logs(settings.log, errors)
        lines = LinePanel(console.file, errors, plan, began)
        with _writing(lines.reports, lines.write):
            yield lines
        return
    table = TablePanel(console, settings, plan, data_flags, began)
    with (
        _writing(table.reports, table.write),
        contextlib.redirect_stderr(_StandardError(table.said)),
    ):
        yield table


@contextlib.contextmanager
def _writing(reports: Reports[T], write: Callable[[], None]) -> Iterator[None]:
    """A thread that writes until the reports are closed. One that is stuck is left behind."""
    thread = threading.Thread(target=write, name="panel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        reports.close()
        thread.join(FLUSH_SECONDS)


def _own_file(stream: TextIO) -> TextIO:
    """The same file with a buffer, and a lock, of its own: a thread that is stuck in a write must
    not keep the interpreter from flushing its own when it ends."""
    return os.fdopen(
        stream.fileno(), "w", buffering=1, encoding=stream.encoding, closefd=False, errors="replace"
    )


class _StandardError(io.TextIOBase):
    """Standard error of a process that has a picture on its terminal."""

    def __init__(self, said: Callable[[str, str], None]) -> None:
        self._said = said

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                self._said(OWN, line)
        return len(text)


class LinePanel:
    """For logs: what parts write goes through as it is, what the supervisor does is an event.

    Standard output has a line when all parts are ready, and one when the first figure of a sensor
    that reported after the start has come through.
    """

    def __init__(self, out: IO[str], errors: IO[str], plan: Plan, began: float) -> None:
        self.reports: Reports[Callable[[], None]] = Reports()
        self._log = get_logger("penstock.up")
        self._out = out
        self._errors = errors
        self._began = began
        self._was_ready = self._was_live = False
        self._plan = plan
        for part, reason in plan.left_out.items():
            self._event(self._log.warning, "left out", part=part, reason=reason)

    def write(self) -> None:
        """Until the reports are closed, and written."""
        while True:
            self.reports.wait()
            closed = self.reports.closed.is_set()
            reports, dropped = self.reports.take()
            if dropped:
                self._log.warning("lines dropped", lines=dropped)
            for report in reports:
                with contextlib.suppress(OSError):  # nobody reads it any more
                    report()
            if closed:
                return

    def said(self, part: str, line: str) -> None:
        # A line of JSON says itself whose it is, and stays one a program can read.
        text = f"{line}\n" if line.startswith("{") else f"{part}: {line}\n"
        self.reports.add(lambda: _write(self._errors, text))

    def seen(self, view: View) -> None:
        headline = view.headline
        if headline is None or self._was_live or not self._was_ready:
            return
        self._was_live = True
        took = time.monotonic() - self._began
        self._tell(f"live: {headline}; after {took:.1f} s")

    def watch(self, supervisor: Supervisor) -> None:
        for keeper in supervisor.keepers:
            keeper.changed = self._changed
        supervisor.on_ready = lambda: self._ready(supervisor)

    def _changed(self, keeper: Keeper) -> None:
        facts = {"pid": keeper.pid, "addresses": list(keeper.addresses)}
        self._event(
            self._log.info,
            keeper.state.value,
            part=keeper.part.name,
            **{name: fact for name, fact in facts.items() if fact},
        )

    def _event(self, tell: Callable[..., None], event: str, **facts: object) -> None:
        self.reports.add(lambda: tell(event, **facts))

    def _ready(self, supervisor: Supervisor) -> None:
        by_part = {each.part.name: each.addresses for each in supervisor.keepers}
        pages = [url for each in self._plan.extensions for url, _ in each.addresses(by_part)]
        served = [*by_part[BROKER], *by_part.get(DATABASE, ()), *pages]
        addresses = [address for address in served if "://" in address]
        self._tell(f"ready: {' '.join(addresses)}")
        self._was_ready = True

    def _tell(self, words: str) -> None:
        self.reports.add(lambda: _write(self._out, f"penstock up {words}\n"))


def _write(file: IO[str], text: str) -> None:
    file.write(text)
    file.flush()


class TablePanel:
    """For people."""

    def __init__(
        self,
        console: Console,
        settings: Settings,
        plan: Plan,
        data_flags: Sequence[str],
        began: float,
    ) -> None:
        self.reports: Reports[tuple[str, str]] = Reports()
        self._console = console
        self._settings = settings
        self._plan = plan
        self._data_flags = data_flags
        self._began = began
        self._rates: deque[float] = deque(maxlen=RATES)
        self._view = View()
        self._supervisor: Supervisor | None = None

    def write(self) -> None:
        """Draw until the reports are closed. The picture only reads what others hold."""
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
                pause = REDRAW_SECONDS
                while not self.reports.closed.wait(pause):
                    began = time.monotonic()
                    self._draw(live)
                    pause = max(REDRAW_SECONDS, REDRAW_SHARE * (time.monotonic() - began))
                self._draw(live)
            data = self._settings.data
            self._console.print(f"Penstock has stopped; what it kept is in {data}", highlight=False)

    def _draw(self, live: Live) -> None:
        """All lines since the last time, and the picture below them: once."""
        reports, dropped = self.reports.take()
        if dropped:
            reports.insert(0, (OWN, f"{dropped:,} lines dropped"))
        if not reports:
            live.refresh()
            return
        lines = (Text(f"{part}: ", style="dim") + Text.from_ansi(line) for part, line in reports)
        self._console.print(Group(*lines))

    def said(self, part: str, line: str) -> None:
        self.reports.add((part, line))

    def seen(self, view: View) -> None:
        self._view = view
        if view.rate is not None:
            self._rates.append(view.rate)

    def watch(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def render(self) -> RenderableType:
        if self._supervisor is None:
            return ""
        scene = Scene(
            keepers=self._supervisor.keepers,
            ready=self._supervisor.ready.is_set(),
            view=self._view,
            rates=tuple(self._rates),
            plan=self._plan,
            data=self._settings.data,
            data_flags=self._data_flags,
            elapsed=time.monotonic() - self._began,
            now=time.time(),
        )
        return draw(scene, self._console.width, self._console.height)
