"""What `penstock up` shows: a table that lives in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock import __version__
from penstock.cli.next_steps import next_steps, reach
from penstock.cli.supervisor import Keeper, State
from penstock.core.logs import configure, get_logger

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.cli.supervisor import Addresses, Supervisor
    from penstock.core.config import Settings

_STYLE = {
    State.WAITING: "dim",
    State.RUNNING: "green",
    State.PAUSING: "red",
    State.STOPPED: "dim",
    State.FAILED: "bold red",
}
_SIGN = {State.RUNNING: "●", State.PAUSING: "✗", State.FAILED: "✗"}
#: A narrower terminal gets a table with less in it.
_WIDE = 104


class Panel(Protocol):
    def said(self, part: str, line: str) -> None:
        """A part wrote a line."""

    def watch(self, supervisor: Supervisor) -> None:
        """Show what it does from now on."""


@contextlib.contextmanager
def show(settings: Settings) -> Iterator[Panel]:
    console = Console()
    if not console.is_terminal:
        configure(settings.log)
        yield LinePanel()
        return
    panel = TablePanel(console, settings)
    # Live draws from a thread of its own; the table only reads what the keepers hold.
    with Live(get_renderable=panel.render, console=console, refresh_per_second=4, transient=True):
        yield panel
    console.print(f"Penstock has stopped; what it kept is in {settings.data}", highlight=False)


class LinePanel:
    """For logs: what parts write goes through as it is, what the supervisor does is an event.

    Standard output has one line, when all parts are ready.
    """

    def __init__(self) -> None:
        self._log = get_logger("penstock.up")

    def said(self, part: str, line: str) -> None:
        # A line of JSON says itself whose it is, and stays one a program can read.
        sys.stderr.write(f"{line}\n" if line.startswith("{") else f"{part}: {line}\n")
        sys.stderr.flush()

    def watch(self, supervisor: Supervisor) -> None:
        for keeper in supervisor.keepers:
            keeper.changed = self._changed
        supervisor.on_ready = lambda: _announce(supervisor)

    def _changed(self, keeper: Keeper) -> None:
        facts = {"pid": keeper.pid, "addresses": list(keeper.addresses)}
        self._log.info(
            keeper.state.value,
            part=keeper.part.name,
            **{name: fact for name, fact in facts.items() if fact},
        )


def _announce(supervisor: Supervisor) -> None:
    addresses = [address for keeper in supervisor.keepers for address in keeper.addresses]
    sys.stdout.write(f"penstock up ready: {' '.join(addresses)}\n")
    sys.stdout.flush()


class TablePanel:
    """For people."""

    def __init__(self, console: Console, settings: Settings) -> None:
        self._console = console
        self._settings = settings
        self._supervisor: Supervisor | None = None

    def said(self, part: str, line: str) -> None:
        self._console.print(Text(f"{part}: ", style="dim") + Text.from_ansi(line))

    def watch(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def render(self) -> RenderableType:
        if self._supervisor is None:
            return ""
        keepers = self._supervisor.keepers
        title = Text.assemble(("Penstock", "bold"), (f" {__version__}", "dim"))
        parts: list[RenderableType] = [title, _table(keepers, self._console.width >= _WIDE)]
        if self._supervisor.ready.is_set():
            parts.append(_steps({keeper.part.name: keeper.addresses for keeper in keepers}))
        data = f"Kept in {self._settings.data} · Ctrl-C stops everything"
        return Group("", *parts, "", Text(data, style="dim"))


def _table(keepers: list[Keeper], wide: bool) -> Table:
    style = box.ROUNDED if wide else box.SIMPLE_HEAD
    table = Table(box=style, border_style="dim", header_style="bold")
    for heading in ("part", "state", "address", "how to reach it"):
        table.add_column(heading, no_wrap=heading != "how to reach it")
    for heading in ("pid", "up for", "memory") if wide else ("memory",):
        table.add_column(heading, justify="right", no_wrap=True)
    for keeper in keepers:
        again = f" ({keeper.restarts})" if keeper.restarts else ""
        state = f"{_SIGN.get(keeper.state, '○')} {keeper.state.value}{again}"
        running = (str(keeper.pid or ""), _clock(keeper.uptime)) if wide else ()
        table.add_row(
            keeper.part.name,
            Text(state, style=_STYLE.get(keeper.state, "yellow")),
            Text("\n".join(keeper.addresses), style="cyan"),
            Text("\n".join(map(reach, keeper.addresses))),
            *running,
            f"{keeper.memory / 2**20:.0f} MiB" if keeper.memory else "",
        )
    return table


def _steps(addresses: Addresses) -> RenderableType:
    steps = next_steps(addresses)
    table = Table.grid(padding=(0, 2))
    # A command is there to be copied: what is short of room is the remark.
    table.add_column(
        style="cyan", overflow="fold", min_width=max(len(command) for command, _ in steps)
    )
    table.add_column(no_wrap=True, overflow="ellipsis")
    for command, what in steps:
        table.add_row(Text(command), what)
    return Group("", Text("In another terminal", style="bold"), Padding(table, (0, 0, 0, 2)))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if seconds else ""
