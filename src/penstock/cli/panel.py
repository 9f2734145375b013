"""What `penstock up` shows: a picture that lives in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.cli.lookout import View
from penstock.cli.parts import BROKER, DASHBOARDS, DATABASE, HIVES
from penstock.cli.picture import Scene, draw
from penstock.cli.supervisor import Keeper
from penstock.core.logs import configure, get_logger

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.cli.supervisor import Supervisor
    from penstock.core.config import Settings

#: Rates that are drawn side by side.
RATES: Final = 24


class Panel(Protocol):
    def said(self, part: str, line: str) -> None:
        """A part wrote a line."""

    def seen(self, view: View) -> None:
        """What the parts do now. Called from a thread."""

    def watch(self, supervisor: Supervisor) -> None:
        """Show what it does from now on."""


@contextlib.contextmanager
def show(
    settings: Settings, left_out: Mapping[str, str], where: Sequence[str], began: float
) -> Iterator[Panel]:
    """`left_out` is parts that cannot be run here, and why; `where` is flags that lead to the
    data; `began` is monotonic."""
    console = Console()
    if not console.is_terminal:
        configure(settings.log)
        yield LinePanel(left_out, began)
        return
    panel = TablePanel(console, settings, left_out, where, began)
    # Live draws from a thread of its own; the picture only reads what others hold.
    with Live(get_renderable=panel.render, console=console, refresh_per_second=4, transient=True):
        yield panel
    console.print(f"Penstock has stopped; what it kept is in {settings.data}", highlight=False)


class LinePanel:
    """For logs: what parts write goes through as it is, what the supervisor does is an event.

    Standard output has a line when all parts are ready, and one when the first figure of a sensor
    that reported after the start has come through.
    """

    def __init__(self, left_out: Mapping[str, str], began: float) -> None:
        self._log = get_logger("penstock.up")
        self._began = began
        self._was_ready = self._was_live = False
        for part, reason in left_out.items():
            self._log.warning("left out", part=part, reason=reason)

    def said(self, part: str, line: str) -> None:
        # A line of JSON says itself whose it is, and stays one a program can read.
        sys.stderr.write(f"{line}\n" if line.startswith("{") else f"{part}: {line}\n")
        sys.stderr.flush()

    def seen(self, view: View) -> None:
        if view.first is None or self._was_live or not self._was_ready:
            return
        self._was_live = True
        took = time.monotonic() - self._began
        figure = view.first
        full = "" if figure.percent is None else f", {figure.percent:.0f} % full"
        _tell(f"penstock up live: {figure.hive}: {figure.people} people{full}; after {took:.1f} s")

    def watch(self, supervisor: Supervisor) -> None:
        for keeper in supervisor.keepers:
            keeper.changed = self._changed
        supervisor.on_ready = lambda: self._ready(supervisor)

    def _changed(self, keeper: Keeper) -> None:
        facts = {"pid": keeper.pid, "addresses": list(keeper.addresses)}
        self._log.info(
            keeper.state.value,
            part=keeper.part.name,
            **{name: fact for name, fact in facts.items() if fact},
        )

    def _ready(self, supervisor: Supervisor) -> None:
        told = (BROKER, DATABASE, HIVES, DASHBOARDS)
        served = (each for each in supervisor.keepers if each.part.name in told)
        addresses = [address for keeper in served for address in keeper.addresses]
        _tell(f"penstock up ready: {' '.join(addresses)}")
        self._was_ready = True


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class TablePanel:
    """For people."""

    def __init__(
        self,
        console: Console,
        settings: Settings,
        left_out: Mapping[str, str],
        where: Sequence[str],
        began: float,
    ) -> None:
        self._console = console
        self._settings = settings
        self._left_out = left_out
        self._where = where
        self._began = began
        self._rates: deque[float] = deque(maxlen=RATES)
        self._view = View()
        self._supervisor: Supervisor | None = None

    def said(self, part: str, line: str) -> None:
        self._console.print(Text(f"{part}: ", style="dim") + Text.from_ansi(line))

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
            left_out=self._left_out,
            data=self._settings.data,
            where=self._where,
            elapsed=time.monotonic() - self._began,
            now=time.time(),
        )
        return draw(scene, self._console.width, self._console.height)
