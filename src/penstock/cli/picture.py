"""What a person sees of `penstock up`, as Rich draws it: a function of what is known.

It fits the terminal: a wide one has parts and addresses side by side, a tall one more hives; a
small one does without the hints. What a person copies (an address, a password, a command, a
path) is shown whole or not at all: a line that is too long goes on in the next one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from rich.cells import cell_len, chop_cells
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock import __version__
from penstock.cli.lookout import Figure, View
from penstock.cli.next_steps import next_steps, reach
from penstock.cli.parts import BROKER, DASHBOARDS, DEMO, HIVES, PIPELINE, PUMP
from penstock.cli.supervisor import Keeper, State

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
_LEVELS: Final = {"quiet": "green", "moderate": "cyan", "busy": "yellow", "full": "red"}
_TRENDS: Final = {"rising": "↗", "steady": "→", "falling": "↘"}
_CURVE: Final = "▁▂▃▄▅▆▇█"
#: Eighths of a block.
_ENDS: Final = " ▏▎▍▌▋▊▉"
#: What people look at first, by the part that serves it.
_PAGES: Final = {HIVES: "public page; API under /v1/docs", DASHBOARDS: "dashboards"}
_INBOX: Final = "drop a file in: it comes out in ../mirror"
#: Who the demonstration has made an owner of places (`hives/app/demonstration.py`).
DEMO_LOGIN: Final = "grace@hives.example"
DEMO_PASSWORD: Final = "nine green bottles"
_WIDE: Final = 104
#: Columns that the table of parts takes beside the addresses, with the gap.
_PARTS: Final = 54
#: Columns between an address and its remark, and before a remark in a line of its own.
_GAP: Final = 2
_INDENT: Final = 5
#: Hives that are shown at least, and at most.
_FEWEST: Final = 3
_MOST: Final = 16
#: Lines of the picture beside parts, addresses, hints and hives.
_REST: Final = 10


@dataclass(frozen=True, slots=True)
class Scene:
    keepers: Sequence[Keeper]
    ready: bool  #: all parts are
    view: View
    rates: Sequence[float]
    left_out: Mapping[str, str]
    data: Path
    where: Sequence[str]  #: flags that lead to it
    elapsed: float  #: seconds since the command
    now: float  #: seconds since 1970


def draw(scene: Scene, width: int, height: int) -> RenderableType:
    if any(keeper.state in _LEAVING for keeper in scene.keepers):
        return _farewell(scene, width, height)
    by_part = {each.part.name: each.addresses for each in scene.keepers}
    pages = [(url, words) for part, words in _PAGES.items() for url in by_part.get(part, ())]
    if pages and by_part.get(DEMO):
        pages.append((f"   {DEMO_LOGIN}", f"signs in there: {DEMO_PASSWORD}"))
    addresses = [*pages, *((url, reach(url)) for url in by_part.get(BROKER, ()))]
    addresses += [(_path(url), _INBOX) for url in by_part.get(PUMP, ())]
    longest = max((cell_len(url) for url, _ in addresses), default=0)
    wide = width >= _WIDE and longest <= width - _PARTS
    reached = _lines(addresses, width - _PARTS if wide else width)
    steps = next_steps(by_part, scene.where)
    hints = [line for each in _lines(steps, width - 2, "dim") for line in each]
    foot = _foot(scene, "Ctrl-C stops everything", width)
    rest = _REST + len(foot) - 1 + 3 * len(scene.left_out)
    tall = (len(scene.keepers) + 1, sum(map(len, reached)))
    above = max(tall) if wide else sum(tall) + 1
    shortly = height - rest - above < _FEWEST
    if shortly:
        names = sum(len(each.part.name) + 4 for each in scene.keepers)
        above = -(-names // max(width - 16, 1)) + 1
        reached = _first(_lines(addresses, width), height - rest - above - _FEWEST)
        above += sum(map(len, reached))
    room = height - rest - above
    hinted = scene.ready and room - len(hints) - 2 >= _FEWEST
    rows = min(_MOST, max(_FEWEST, room - (len(hints) + 2 if hinted else 0)))
    flows = any(each.part.name == PIPELINE for each in scene.keepers)
    blocks: list[RenderableType] = [_above(scene, reached, wide, shortly)]
    if scene.left_out:
        blocks += ["", *(_left_out(part, why) for part, why in scene.left_out.items())]
    blocks += ["", _flow(scene, flows)]
    if flows:
        blocks += ["", *_hives(scene.view, rows, width)]
    if hinted:
        shown = Padding(Group(*hints), (0, 0, 0, 2))
        blocks += ["", Text("In another terminal", style="bold"), shown]
    return Group(_title(scene), "", *blocks, "", *foot)


def _lines(rows: Sequence[tuple[str, str]], width: int, remark: str = "") -> list[list[Text]]:
    """The lines of each row: what is to be copied, and a remark behind it or, if that does not
    fit, below."""
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


def _first(reached: Sequence[list[Text]], room: int) -> list[list[Text]]:
    """As many of the first rows as there is room for, whole; one at least."""
    used = 0
    found: list[list[Text]] = []
    for row in reached:
        used += len(row)
        if found and used > room:
            break
        found.append(row)
    return found


def _farewell(scene: Scene, width: int, height: int) -> RenderableType:
    """Nothing can be reached any more; what matters is who is still at work."""
    parts = _parts(scene) if len(scene.keepers) + 5 <= height else _signs(scene)
    foot = _foot(scene, "Stopping, the last part first", width)
    return Group(_title(scene), "", parts, "", *foot)


def _foot(scene: Scene, said: str, width: int) -> list[Text]:
    return [Text(line, style="dim") for line in chop_cells(f"{said} · kept in {scene.data}", width)]


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
    """All parts in a line or two, for a terminal with no room for a table."""
    said = Text()
    for keeper in scene.keepers:
        sign, style = _STATES[keeper.state]
        said.append(f"{sign} ", style=style).append(f"{keeper.part.name}  ")
    return said


def _parts(scene: Scene) -> Table:
    table = _table("part", "state", ">up for", ">memory")
    for keeper in scene.keepers:
        sign, style = _STATES[keeper.state]
        again = f" ({keeper.restarts})" if keeper.restarts else ""
        gone = keeper.state is State.STOPPED
        memory = 0 if gone else scene.view.memory.get(keeper.part.name, 0)
        table.add_row(
            keeper.part.name,
            Text(f"{sign} {keeper.state.value}{again}", style=style),
            _clock(keeper.uptime) if keeper.uptime else "",
            f"{memory / 2**20:,.0f} MiB" if memory else "",
        )
    return table


def _left_out(part: str, why: str) -> Text:
    return Text.assemble((f"! no {part}: ", "bold yellow"), (why, "yellow"))


def _flow(scene: Scene, flows: bool) -> Text:
    """How much comes in, and how far behind the pipeline is."""
    view = scene.view
    rate = "–" if view.rate is None else f"{view.rate:,.1f}"
    said = Text.assemble((rate, "bold"), " messages/s ", (_curve(scene.rates), "cyan"))
    if view.waiting:
        return said.append("   pipeline waits: ").append(view.waiting, style="yellow")
    if not flows:
        return said
    if view.batch is None:
        return said.append("   the pipeline is starting", style="dim")
    lag = "–" if view.lag is None else f"{view.lag:,}"
    said.append("   lag ").append(lag, style="bold")
    ago = max(0.0, scene.now - view.batch.at)
    batch = f"   batch of {view.batch.rows:,} in {view.batch.seconds:.1f} s, {ago:.0f} s ago"
    return said.append(batch, style="dim")


def _hives(view: View, rows: int, width: int) -> list[RenderableType]:
    if not view.figures:
        return [Text("No figure yet", style="dim")]
    title = Text.assemble(("How full", "bold"), f"  {view.people:,} people in {view.hives:,} hives")
    bar = max(10, min(40, width - 58))
    table = Table.grid(padding=(0, 1))
    name = width - bar - 26
    for wrap in (name, 6, 1, bar, 5, 8):
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=wrap)
    table.columns[0].width = min(36, name)
    for index in (1, 4):
        table.columns[index].justify = "right"
    for figure in view.figures[:rows]:
        table.add_row(*_figure(figure, bar))
    return [title, Padding(table, (0, 0, 0, 2))]


def _figure(figure: Figure, bar: int) -> list[RenderableType]:
    level = figure.level or "unknown"
    style = _LEVELS.get(level, "dim")
    city = f", {figure.city}" if figure.city and figure.city not in figure.hive else ""
    return [
        Text.assemble(figure.hive, (city, "dim")),
        Text(f"{figure.people:,}", style="bold"),
        Text(_TRENDS.get(figure.trend, ""), style=style),
        Text(_bar(figure.percent or 0.0, bar), style=style),
        "" if figure.percent is None else f"{figure.percent:.0f} %",
        Text(level, style=style),
    ]


def _table(*headings: str) -> Table:
    """A heading that begins with > is of numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        number = heading.startswith(">")
        table.add_column(
            heading.removeprefix(">"), justify="right" if number else "left", no_wrap=True
        )
    return table


def _path(url: str) -> str:
    """Of a file's URL, as a shell takes it from here."""
    path = unquote(urlsplit(url).path)
    near = os.path.relpath(path)
    return quote(path if near.startswith("..") else near)


def _bar(percent: float, width: int) -> str:
    eighths = round(min(max(percent, 0.0), 100.0) / 100 * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_ENDS[rest] if rest else "")).ljust(width, "·")


def _curve(rates: Sequence[float]) -> str:
    most = max(rates, default=0.0)
    steps = len(_CURVE) - 1
    return "".join(_CURVE[round(steps * rate / most)] if most else _CURVE[0] for rate in rates)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
