"""The supervisor, with parts that are a line of Python each."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.up.supervisor import Addresses, Part, PartRunner, State, Supervisor
from penstock.core.errors import ConfigurationError
from tests.cli.command import ended

SLEEP = "import signal; signal.sigwait([signal.SIGTERM])"


def part(name: str, code: str, *needs: str) -> Part:
    """A part that runs some Python; it is given what the others said as its arguments."""

    def command(addresses: Addresses) -> list[str]:
        said = [address for each in addresses.values() for address in each]
        return [sys.executable, "-u", "-c", code, *said]

    return Part(name, command, needs)


def ready(then: str = SLEEP, address: str = "here") -> str:
    # The signal is held before the line is out: a stop may come right behind it.
    hold = "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
    return f"{hold}; print('ready: {address}'); {then}"


class Journal:
    """Notes what runners go through and what parts say."""

    def __init__(self, *parts: Part, drain: float = 5.0) -> None:
        self.supervisor = Supervisor(parts, self._said, drain)
        self.steps: list[tuple[str, State]] = []
        self.lines: list[tuple[str, str]] = []
        self.stop = asyncio.Event()
        self._changed = asyncio.Event()
        for runner in self.supervisor.runners:
            runner.on_change = self._step

    def _step(self, runner: PartRunner) -> None:
        self.steps.append((runner.part.name, runner.state))
        self._changed.set()

    def _said(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        self._changed.set()

    async def until(self, name: str, state: State, times: int = 1) -> None:
        while self.steps.count((name, state)) < times:
            self._changed.clear()
            await self._changed.wait()

    async def said(self, word: str) -> list[str]:
        """Lines with the word in them, once there are some."""
        while not (found := [line for _, line in self.lines if word in line]):
            self._changed.clear()
            await self._changed.wait()
        return found

    async def run(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.supervisor.run(self.stop))


async def test_a_part_starts_when_what_it_needs_is_ready_and_stops_before_it() -> None:
    journal = Journal(part("one", ready()), part("two", ready(), "one"))
    running = await journal.run()
    await journal.supervisor.ready.wait()
    journal.stop.set()
    await running
    assert journal.steps == [
        ("one", State.STARTING),
        ("one", State.RUNNING),
        ("two", State.STARTING),
        ("two", State.RUNNING),
        ("two", State.STOPPING),
        ("two", State.STOPPED),
        ("one", State.STOPPING),
        ("one", State.STOPPED),
    ]


async def test_a_part_is_told_where_those_before_it_are() -> None:
    tell = ready("print('told', *sys.argv[1:]); " + SLEEP)
    journal = Journal(part("one", ready(address="a b")), part("two", tell, "one"))
    running = await journal.run()
    await journal.supervisor.ready.wait()
    journal.stop.set()
    await running
    assert ("two", "told a b") in journal.lines
    assert list(journal.supervisor.runners[0].addresses) == ["a", "b"]


async def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    once = tmp_path / "once"
    dies = (
        f"import pathlib; p = pathlib.Path({str(once)!r}); first = not p.exists(); p.touch(); "
        "first and sys.exit(7); " + SLEEP
    )
    journal = Journal(part("one", ready(dies)))
    running = await journal.run()
    await journal.until("one", State.RUNNING, times=2)
    assert ("one", "ended with status 7; restart in 0.5 s") in journal.lines
    assert journal.supervisor.runners[0].restarts == 1
    journal.stop.set()
    await running


@pytest.mark.parametrize("leaves_group", [False, True])
async def test_a_part_that_dies_is_started_again_although_its_child_holds_the_pipe(
    leaves_group: bool,
) -> None:
    child = "import subprocess; child = subprocess.Popen(['sleep', '600'], start_new_session={})"
    tell = f"{child}; print('child', child.pid); {SLEEP}".format(leaves_group)
    journal = Journal(part("one", ready(tell)))
    running = await journal.run()
    await journal.until("one", State.RUNNING)
    dead = journal.supervisor.runners[0].pid
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    await journal.until("one", State.RUNNING, times=2)
    journal.stop.set()
    await running
    for left in [int(line.split()[1]) for line in await journal.said("child")]:
        if leaves_group:
            os.kill(left, signal.SIGKILL)
        assert ended(left)


async def test_a_line_of_any_length_is_handed_on() -> None:
    journal = Journal(part("one", ready("print('x' * 3_000_000); print('after'); " + SLEEP)))
    running = await journal.run()
    await journal.said("after")
    journal.stop.set()
    await running
    assert sum(line.count("x") for _, line in journal.lines) == 3_000_000


def test_a_part_that_heeds_nothing_ends_with_a_supervisor_that_was_killed() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready: x'); " + (
        "signal.pause()"
    )
    supervise = f"""
import asyncio, sys
from penstock.cli.up.supervisor import Part, Supervisor

async def run():
    part = Part("deaf", lambda _: [sys.executable, "-uc", {deaf!r}])
    supervisor = Supervisor([part], print, drain=-4.9)
    supervisor.on_ready = lambda: print(supervisor.runners[0].pid, flush=True)
    await supervisor.run(asyncio.Event())

asyncio.run(run())
"""
    command = [sys.executable, "-c", supervise]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        supervisor.kill()
    assert ended(pid)


async def test_a_stop_need_not_wait_for_the_next_start() -> None:
    journal = Journal(part("one", "raise SystemExit(1)"))
    running = await journal.run()
    await journal.until("one", State.PAUSING)
    journal.stop.set()
    async with asyncio.timeout(5):
        await running
    assert journal.steps[-1] == ("one", State.STOPPED)


async def test_noise_is_not_told() -> None:
    noisy = ready("print('picked up'); print('bad news'); " + SLEEP)
    quiet = replace(part("one", noisy), noise=("picked",))
    journal = Journal(quiet)
    running = await journal.run()
    await journal.supervisor.ready.wait()
    journal.stop.set()
    await running
    assert journal.lines == [("one", "bad news")]


async def test_parts_that_need_nothing_of_each_other_start_at_once() -> None:
    never = part("one", SLEEP)
    journal = Journal(never, part("two", ready()), part("three", ready(), "one"))
    running = await journal.run()
    await journal.until("two", State.RUNNING)
    assert [runner.state for runner in journal.supervisor.runners] == [
        State.STARTING,
        State.RUNNING,
        State.WAITING,
    ]
    journal.stop.set()
    await running
    assert ("three", State.STARTING) not in journal.steps


async def test_a_part_that_will_not_stop_is_killed() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + (
        "print('ready: x'); signal.pause()"
    )
    journal = Journal(part("one", deaf), drain=-4.9)
    running = await journal.run()
    await journal.supervisor.ready.wait()
    journal.stop.set()
    await running
    assert ("one", "did not stop in time; killed") in journal.lines


async def test_a_part_that_cannot_be_configured_ends_everything() -> None:
    journal = Journal(
        part("one", ready()), part("two", "print('bad key'); raise SystemExit(2)", "one")
    )
    running = await journal.run()
    with pytest.raises(ConfigurationError, match="two"):
        await running
    assert ("two", "bad key") in journal.lines
    assert ("two", State.FAILED) in journal.steps
    assert journal.steps[-1] == ("one", State.STOPPED)


async def test_command_lines_of_parts_have_no_secrets() -> None:
    secret = "http://ada:lovelace@127.0.0.1:1"
    program = (
        "import os; variable = sys.argv[1].removeprefix('env:');"
        f"print(os.environ[variable] == '{secret[:11]}' + 'lovelace' + '{secret[19:]}');"
        "print('words', sys.argv[1:])"
    )
    whole = Part("one", lambda _: [sys.executable, "-uc", ready(program), secret])
    journal = Journal(whole)
    running = await journal.run()
    (words,) = await journal.said("words")
    journal.stop.set()
    await running
    assert "lovelace" not in words
    assert ("one", "True") in journal.lines
