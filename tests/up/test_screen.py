"""What a person sees of `penstock up` fits the terminal, whatever is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.up.extension import Extension, Shell, UpOptions
from penstock.cli.up.monitor import View
from penstock.cli.up.plan import Plan, installed_extensions
from penstock.cli.up.screen import Scene, draw, left_off
from penstock.cli.up.supervisor import Part, PartRunner, State
from penstock_hives.demo_account import LOGIN, PASSWORD
from penstock_hives.demo_data import DEMO_USERS
from penstock_hives.up import HivesFigures, LastBatch, VenueFigure

NOW = 1_800_000_000.0
SEEN = datetime.fromtimestamp(NOW, UTC)
ADDRESSES = {
    "broker": ["amqp://127.0.0.1:5672", "mqtt://127.0.0.1:1883", "http://127.0.0.1:15672"],
    "database": ["postgresql://penstock@/penstock?host=/somewhere/long/pg&port=5432"],
    "pipeline": ["hives", "amqp://guest:guest@127.0.0.1:5672/"],
    "demo": ["sensors/#"],
}
PAGES = {"hives": ["http://127.0.0.1:8000"], "dashboards": ["http://127.0.0.1:8080"]}
INBOX = {"pump": ["file:///somewhere/with%20room/inbox"]}
EVERYTHING = (*ADDRESSES, "hives", "alerts", "pump", "jobs", "history", "dashboards")
FIGURES = (
    VenueFigure("Cedar Supermarket", "Bucharest", 106, 34.0, "quiet", "rising", SEEN),
    VenueFigure(
        "A Name That Is Longer Than There Is Room For, Ever", "Rome", 48, 71.2, "busy", "", SEEN
    ),
    VenueFigure("Office", "London", 1106, None, None, "steady", SEEN),
) * 8
HIVES = HivesFigures(
    lag=3, batch=LastBatch(4, 0.62, NOW - 2), venues=FIGURES, hives=50, people=2314
)
VIEW = View(memory={"broker": 60 << 20}, rate=12.4, figures=(HIVES,))
EXTENSIONS = installed_extensions(UpOptions())


async def scene(
    *names: str,
    view: View = VIEW,
    addresses: Mapping[str, Sequence[str]] = {},
    **left_out: str,
) -> Scene:
    runners = []
    for name in names:
        known: dict[str, Sequence[str]] = {**ADDRESSES, **PAGES, **INBOX, **addresses}
        runner = PartRunner(Part(name, lambda _: []), known, lambda *_: None, 1.0)
        runner.state = State.RUNNING
        runners.append(runner)
    plan = Plan([], [*EXTENSIONS, Extension(left_out=left_out)])
    return Scene(runners, True, view, (1.0, 2.0), plan, Path("data"), (), 72.0, NOW)


def lines(shown: Scene, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height)
    with console.capture() as capture:
        console.print(draw(shown, width, height))
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (104, 24), (120, 40), (200, 60)])
async def test_it_fits(width: int, height: int) -> None:
    shown = lines(await scene(*ADDRESSES), width, height)
    assert len(shown) <= height
    assert all(len(line) <= width for line in shown)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 32), (104, 24), (120, 40)])
async def test_it_fits_with_all_parts_there_are(width: int, height: int) -> None:
    shown = lines(await scene(*EVERYTHING), width, height)
    assert len(shown) <= height
    assert all(len(line) <= width for line in shown)
    for part in EVERYTHING:
        assert any(part in line for line in shown), part
    assert any("http://127.0.0.1:8000" in line for line in shown)


async def test_it_tells_who_can_sign_in() -> None:
    shown = "\n".join(lines(await scene(*EVERYTHING), 140, 50))

    assert LOGIN in shown
    assert PASSWORD in shown
    assert LOGIN in {person.login for person in DEMO_USERS if person.account}


@pytest.mark.parametrize("width", range(60, 161, 5))
async def test_what_a_person_copies_is_never_cut(width: int) -> None:
    shown = lines(await scene(*EVERYTHING), width, 60)
    assert all(len(line) <= width for line in shown)
    steps = [step for each in EXTENSIONS for step in each.steps(Shell(ADDRESSES))]
    assert len(steps) > 2
    for whole in (LOGIN, PASSWORD, "AMQP, guest/guest", *(step for step, _ in steps)):
        assert any(whole in line for line in shown), whole
    assert any("'/somewhere/with room/inbox'" in line for line in shown)


@pytest.mark.parametrize(("width", "height"), [(80, 40), (110, 40)])
async def test_a_path_longer_than_the_terminal_goes_on_in_the_next_line(
    width: int, height: int
) -> None:
    long = f"/{'deep/' * 30}inbox"
    shown = await scene(*EVERYTHING, addresses={"pump": [f"file://{long}"]})
    found = lines(replace(shown, data=Path(long), data_flags=("--data", long)), width, height)
    assert len(found) <= height
    assert all(len(line) <= width for line in found)
    text = "".join(line.strip() for line in found)
    assert text.count(long) == 2
    assert f"data in {long}" in text


async def test_it_tells_rate_lag_and_how_full_hives_are() -> None:
    shown = "\n".join(lines(await scene(*ADDRESSES), 120, 40))
    assert "12.4 messages/s" in shown
    assert "lag 3" in shown
    assert "batch of 4 in 0.6 s, 2 s ago" in shown
    assert "2,314 people in 50 hives" in shown
    assert "Cedar Supermarket, Bucharest" in shown
    assert "34 % quiet" in shown


async def test_while_it_stops_it_shows_who_is_still_at_work_and_nothing_else() -> None:
    leaving = await scene(*EVERYTHING)
    for runner in leaving.runners[1:]:
        runner.state = State.STOPPED
    leaving.runners[0].state = State.STOPPING

    shown = lines(leaving, 120, 40)

    assert any("broker" in line and "stopping" in line and "60 MiB" in line for line in shown)
    assert any("dashboards" in line and "stopped" in line for line in shown)
    assert shown[-1] == "Stopping, in reverse order · data in data"
    assert not any(word in line for line in shown for word in ("http://", "Ctrl-C", "How full"))


async def test_hints_are_for_terminals_that_have_room() -> None:
    shown = await scene(*ADDRESSES)
    assert any("sub 'occupancy.#'" in line for line in lines(shown, 80, 50))
    assert not any("In another terminal" in line for line in lines(shown, 80, 24))


async def test_a_part_that_cannot_run_is_told_with_the_reason() -> None:
    shown = "\n".join(
        lines(await scene("broker", view=View(), pipeline="there is no Java"), 80, 30)
    )
    assert "! no pipeline: there is no Java" in shown
    assert "How full" not in shown


async def test_before_anything_is_known_nothing_is_made_up() -> None:
    shown = "\n".join(lines(await scene(*ADDRESSES, view=View(figures=(HivesFigures(),))), 80, 30))
    assert "– messages/s" in shown
    assert "No data yet" in shown


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (120, 40), (200, 80)])
async def test_what_has_no_room_is_left_off_and_nothing_else(width: int, height: int) -> None:
    """It is printed above the panel, so that everything to copy is seen once."""
    shown = await scene(*EVERYTHING)
    found = [text for text, _ in left_off(shown, width, height)]
    drawn = "".join("".join(lines(shown, width, height)).split())
    for url in (*ADDRESSES["broker"], *PAGES["hives"], *PAGES["dashboards"]):
        assert ("".join(url.split()) in drawn) != (url in found), url
    assert (found == []) == (height >= 40)
