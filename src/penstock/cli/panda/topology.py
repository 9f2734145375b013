"""What is to run where and when: the lines of a topology file.

    # time  what    id  machine    command
    0       ADD     B1  127.0.0.1  startbroker -uri padres://127.0.0.1:7001/B1
    0       ADD     B2  10.0.0.2   startbroker -uri padres://10.0.0.2:7001/B2 -n padres://…/B1
    5       ADD     s   10.0.0.2   penstock sub 'padres://10.0.0.2:7001/B2' '[class,eq,stock]'
    60      REMOVE  s   10.0.0.2

Words are split as a shell does. Everything at time 0 is the first phase, brokers usually; the times
of the second are seconds from when the first is seen to be complete.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from penstock.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Step:
    time: float
    adds: bool
    id: str
    host: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    steps: tuple[Step, ...]  #: in the order of time, and of the file where that is the same

    @property
    def first_phase(self) -> list[Step]:
        return [step for step in self.steps if not step.time]

    @property
    def second_phase(self) -> list[Step]:
        return [step for step in self.steps if step.time]

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(step.host for step in self.steps))


def parse_topology(text: str, name: str = "topology") -> Topology:
    """Raises `ConfigurationError` with the line of the mistake."""
    steps = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            step = _step(line)
        except ValueError as error:
            raise ConfigurationError(f"{name}, line {number}: {error}") from None
        if step is not None:
            steps.append((number, step))
    steps.sort(key=lambda one: one[1].time)
    _check(steps, name)
    return Topology(tuple(step for _, step in steps))


def _step(line: str) -> Step | None:
    words = shlex.split(line, comments=True)
    if not words:
        return None
    if len(words) < 4:
        raise ValueError("should be: TIME ADD ID MACHINE COMMAND…, or TIME REMOVE ID MACHINE")
    when, what, identity, host, *command = words
    try:
        time = float(when)
    except ValueError:
        time = -1.0
    if not 0 <= time < float("inf"):
        raise ValueError(f"{when!r} is no time: seconds, 0 or more")
    match what.upper():
        case "ADD" if command:
            return Step(time, True, identity, host, tuple(command))
        case "ADD":
            raise ValueError(f"what is {identity} to run?")
        case "REMOVE" if not command:
            return Step(time, False, identity, host)
        case "REMOVE":
            raise ValueError("REMOVE takes an id and a machine, and nothing more")
        case _:
            raise ValueError(f"{what!r} should be ADD or REMOVE")


def _check(steps: list[tuple[int, Step]], name: str) -> None:
    """Nothing is added twice, nor removed before it is there."""
    there: set[tuple[str, str]] = set()
    for number, step in steps:
        who = (step.id, step.host)
        if step.adds and any(step.id == other for other, _ in there):
            raise ConfigurationError(f"{name}, line {number}: {step.id} is there already")
        if not step.adds and who not in there:
            raise ConfigurationError(
                f"{name}, line {number}: {step.id} is not on {step.host} at that time"
            )
        if step.adds:
            there.add(who)
        else:
            there.remove(who)
