"""What `penstock up` shows: a table that lives in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.supervisor import Keeper, State
from penstock.core.config import Settings
from penstock.core.logs import configure, get_logger

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLE = {
    State.RUNNING: "green",
    State.PAUSING: "red",
    State.STOPPED: "dim",
}


class Panel(Protocol):
    def said(self, part: str, line: str) -> None:
        """A part wrote a line."""

    def watch(self, keepers: Sequence[Keeper]) -> None:
        """Show these from now on."""


@contextlib.contextmanager
def show(settings: Settings) -> Iterator[Panel]:
    console = Console()
    if not console.is_terminal:
        configure(settings.log)
        yield LinePanel()
        return
    panel = TablePanel(console, settings)
    # Live draws from a thread of its own; the table only reads what the keepers hold.
    with Live(get_renderable=panel.render, console=console, refresh_per_second=2):
        yield panel


class LinePanel:
    """For logs: what parts write goes through as it is, what the supervisor does is an event."""

    def __init__(self) -> None:
        self._log = get_logger("penstock.up")

    def said(self, part: str, line: str) -> None:
        # A line of JSON says itself whose it is, and stays one a program can read.
        sys.stderr.write(f"{line}\n" if line.startswith("{") else f"{part}: {line}\n")
        sys.stderr.flush()

    def watch(self, keepers: Sequence[Keeper]) -> None:
        for keeper in keepers:
            keeper.changed = self._changed

    def _changed(self, keeper: Keeper) -> None:
        self._log.info(
            keeper.state.value, part=keeper.part.name, pid=keeper.pid, address=keeper.address
        )


class TablePanel:
    """For people."""

    def __init__(self, console: Console, settings: Settings) -> None:
        self._console = console
        self._settings = settings
        self._keepers: Sequence[Keeper] = ()

    def said(self, part: str, line: str) -> None:
        self._console.print(Text(f"{part}: ", style="dim") + Text.from_ansi(line))

    def watch(self, keepers: Sequence[Keeper]) -> None:
        self._keepers = keepers

    def render(self) -> RenderableType:
        table = Table(
            title=Text("Penstock", style="bold"),
            caption=f"data in {self._settings.data} · Ctrl-C stops everything",
            header_style="bold",
            title_justify="left",
            caption_justify="left",
        )
        for heading in ("part", "state", "address", "how to reach it"):
            table.add_column(heading, overflow="fold")
        for heading in ("pid", "up for", "memory"):
            table.add_column(heading, justify="right", no_wrap=True)
        for keeper in self._keepers:
            again = f" ({keeper.restarts})" if keeper.restarts else ""
            table.add_row(
                keeper.part.name,
                Text(keeper.state.value + again, style=_STYLE.get(keeper.state, "yellow")),
                Text("\n".join(keeper.address.split())),
                Text(keeper.part.hint.replace(" · ", "\n")),
                str(keeper.pid or ""),
                _clock(keeper.uptime),
                f"{keeper.memory / 2**20:.0f} MiB" if keeper.memory else "",
            )
        return table


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if seconds else ""
