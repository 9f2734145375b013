"""The panel of `penstock up` as a Rich renderable, a pure function of a `Scene`.

It fits the terminal: a wide one has parts and addresses side by side, a tall one more figures, a
small one no hints. Text to copy (addresses, passwords, commands, paths) is never truncated: long
lines are wrapped, and what has no room is printed once above the panel (`left_off`).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, chop_cells
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock import __version__
from penstock.cli.table import new_table
from penstock.cli.up.extension import BROKER, Shell
from penstock.cli.up.monitor import View
from penstock.cli.up.plan import Plan
from penstock.cli.up.supervisor import PartRunner, State

if TYPE_CHECKING:
    from rich.console import RenderableType

_STATES: Final = {
    State.WAITING: ("○", "dim"),
    State.STARTING: ("◐", "yellow"),
    State.RUNNING: ("●", "green"),
    State.PAUSING: ("✗", "red"),
    State.STOPPING: ("◐", "yellow"),
    State.STOPPED: ("○", "dim"),
    State.FAILED: ("✗", "bold red"),
}
_LEAVING: Final = (State.STOPPING, State.STOPPED)
_CURVE: Final = "▁▂▃▄▅▆▇█"
#: Descriptions of the broker's addresses, by scheme.
_REACH: Final = {
    "amqp": "AMQP, guest/guest",
    "amqps": "AMQP over TLS",
    "mqtt": "MQTT, guest/guest or no name",
    "mqtts": "MQTT over TLS",
    "ws": "MQTT over WebSocket, guest/guest",
    "wss": "MQTT over WebSocket and TLS",
    "padres": "PADRES",
    "padress": "PADRES over TLS",
    "http": "console, guest/guest",
    "https": "console over TLS",
}
_WIDE: Final = 104
#: Width of the table of parts beside the addresses.
_PARTS: Final = 54
#: Columns between an address and its remark, and before a remark on its own line.
_GAP: Final = 2
_INDENT: Final = 5
#: Minimum and maximum rows of figures.
_FEWEST: Final = 3
_MOST: Final = 16
#: Lines of the panel other than parts, addresses, hints and figures.
_REST: Final = 10


@dataclass(frozen=True, slots=True)
class Scene:
    runners: Sequence[PartRunner]
    ready: bool  #: all parts
    view: View
    rates: Sequence[float]
    plan: Plan
    data: Path
    data_flags: Sequence[str]  #: options that name it
    elapsed: float  #: seconds since the start
    now: float  #: seconds since 1970


def draw(scene: Scene, width: int, height: int) -> RenderableType:
    if any(runner.state in _LEAVING for runner in scene.runners):
        return _stopping(scene, width, height)
    addresses, steps = _to_copy(scene)
    longest = max((cell_len(url) for url, _ in addresses), default=0)
    wide = width >= _WIDE and longest <= width - _PARTS
    reached = _lines(addresses, width - _PARTS if wide else width)
    hints = [line for each in _lines(steps, width - 2, "dim") for line in each]
    foot = _foot(scene, "Ctrl-C stops everything", width)
    rest = _REST + len(foot) - 1 + 3 * len(scene.plan.left_out)
    tall = (len(scene.runners) + 1, sum(map(len, reached)))
    above = max(tall) if wide else sum(tall) + 1
    shortly = height - rest - above < _FEWEST
    if shortly:
        names = sum(len(each.part.name) + 4 for each in scene.runners)
        above = -(-names // max(width - 16, 1)) + 1
        reached = _first(_lines(addresses, width), height - rest - above - _FEWEST)
        above += sum(map(len, reached))
    room = height - rest - above
    hinted = scene.ready and room - len(hints) - 2 >= _FEWEST
    rows = min(_MOST, max(_FEWEST, room - (len(hints) + 2 if hinted else 0)))
    blocks: list[RenderableType] = [_above(scene, reached, wide, shortly)]
    if scene.plan.left_out:
        blocks += ["", *(_left_out(part, why) for part, why in scene.plan.left_out.items())]
    blocks += ["", _flow(scene)]
    for figures in scene.view.figures:
        blocks += ["", *figures.draw(rows, width)]
    if hinted:
        shown = Padding(Group(*hints), (0, 0, 0, 2))
        blocks += ["", Text("In another terminal", style="bold"), shown]
    return Group(_title(scene), "", *blocks, "", *foot)


def left_off(scene: Scene, width: int, height: int) -> list[tuple[str, str]]:
    """Addresses and commands for which the panel has no room."""
    console = Console(file=io.StringIO(), width=width, height=height)
    with console.capture() as capture:
        console.print(draw(scene, width, height))
    shown = "".join(capture.get().split())  # long lines are wrapped
    addresses, steps = _to_copy(scene)
    return [row for row in (*addresses, *steps) if "".join(row[0].split()) not in shown]


def _to_copy(scene: Scene) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Addresses, and commands to try."""
    by_part = {each.part.name: each.addresses for each in scene.runners}
    extensions = scene.plan.extensions
    addresses = [line for each in extensions for line in each.addresses(by_part)]
    addresses += [(url, _REACH.get(url.partition("://")[0], "")) for url in by_part.get(BROKER, ())]
    shell = Shell(by_part, scene.data_flags)
    steps = [*_broker_steps(shell), *(step for each in extensions for step in each.steps(shell))]
    return addresses, steps


def _lines(rows: Sequence[tuple[str, str]], width: int, remark: str = "") -> list[list[Text]]:
    """The lines of each row: text to copy, and a remark after it, or below it if it does not
    fit."""
    fitting = [cell_len(url) for url, how in rows if cell_len(url) + _GAP + cell_len(how) <= width]
    column = max(fitting, default=0)
    found = []
    for url, how in rows:
        pad = max(column - cell_len(url), 0) + _GAP
        if cell_len(url) + pad + cell_len(how) <= width:
            found.append([Text.assemble((url, "cyan"), " " * pad, (how, remark))])
            continue
        indent = " " * _INDENT
        below = [Text(indent + each, remark) for each in chop_cells(how, width - _INDENT)]
        found.append([*(Text(each, "cyan") for each in chop_cells(url, width)), *below])
    return found


def _first(reached: Sequence[list[Text]], height: int) -> list[list[Text]]:
    """The first rows that fit, at least one."""
    used = 0
    found: list[list[Text]] = []
    for row in reached:
        used += len(row)
        if found and used > height:
            break
        found.append(row)
    return found


def _stopping(scene: Scene, width: int, height: int) -> RenderableType:
    """Only the parts: their addresses cannot be reached any more."""
    parts = _parts(scene) if len(scene.runners) + 5 <= height else _signs(scene)
    foot = _foot(scene, "Stopping, in reverse order", width)
    return Group(_title(scene), "", parts, "", *foot)


def _foot(scene: Scene, text: str, width: int) -> list[Text]:
    return [Text(line, style="dim") for line in chop_cells(f"{text} · data in {scene.data}", width)]


def _title(scene: Scene) -> Table:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    name = Text.assemble(("Penstock", "bold"), (f" {__version__}", "dim"))
    line.add_row(name, Text(f"up {_clock(scene.elapsed)}", style="dim"))
    return line


def _above(
    scene: Scene, reached: Sequence[list[Text]], wide: bool, shortly: bool
) -> RenderableType:
    addresses = Group(*(line for each in reached for line in each))
    if shortly:
        return Group(_signs(scene), "", addresses)
    parts = _parts(scene)
    if not wide:
        return Group(parts, "", addresses)
    beside = Table.grid()
    beside.add_column(width=_PARTS)
    beside.add_row(parts, addresses)
    return beside


def _signs(scene: Scene) -> Text:
    """All parts in a line or two, for a small terminal."""
    line = Text()
    for runner in scene.runners:
        sign, style = _STATES[runner.state]
        line.append(f"{sign} ", style=style).append(f"{runner.part.name}  ")
    return line


def _parts(scene: Scene) -> Table:
    table = new_table("part", "state", ">up for", ">memory", no_wrap=True, padding=(0, 2, 0, 0))
    for runner in scene.runners:
        sign, style = _STATES[runner.state]
        again = f" ({runner.restarts})" if runner.restarts else ""
        gone = runner.state is State.STOPPED
        memory = 0 if gone else scene.view.memory.get(runner.part.name, 0)
        table.add_row(
            runner.part.name,
            Text(f"{sign} {runner.state.value}{again}", style=style),
            _clock(runner.uptime) if runner.uptime else "",
            f"{memory / 2**20:,.0f} MiB" if memory else "",
        )
    return table


def _left_out(part: str, why: str) -> Text:
    return Text.assemble((f"! no {part}: ", "bold yellow"), (why, "yellow"))


def _flow(scene: Scene) -> Text:
    """The message rate, and the status of the applications."""
    rate = "–" if scene.view.rate is None else f"{scene.view.rate:,.1f}"
    line = Text.assemble((rate, "bold"), " messages/s ", (_curve(scene.rates), "cyan"))
    for figures in scene.view.figures:
        line.append_text(figures.status(scene.now))
    return line


def _broker_steps(shell: Shell) -> list[tuple[str, str]]:
    if not any(url.startswith("http") for url in shell.addresses.get(BROKER, ())):
        return []
    return [(f"{shell.penstock} broker status{shell.url('http')}", "rates, queues")]


def _curve(rates: Sequence[float]) -> str:
    most = max(rates, default=0.0)
    steps = len(_CURVE) - 1
    return "".join(_CURVE[round(steps * rate / most)] if most else _CURVE[0] for rate in rates)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
