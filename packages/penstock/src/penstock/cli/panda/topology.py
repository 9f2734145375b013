"""Topology files: which command runs on which machine, and when.

    # time  what    id  machine    command
    0       ADD     B1  127.0.0.1  startbroker -uri padres://127.0.0.1:7001/B1
    0       ADD     B2  10.0.0.2   startbroker -uri padres://10.0.0.2:7001/B2 -n padres://…/B1
    5       ADD     s   10.0.0.2   penstock sub 'padres://10.0.0.2:7001/B2' '[class,eq,stock]'
    60      REMOVE  s   10.0.0.2

Words are split as in a shell. Steps at time 0 are the first phase, usually brokers; the times of
the second phase are seconds after the first is complete. PADRES' `startbroker`, with the flags of
its guide, becomes `penstock broker`; other commands are run as they are.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.overlay.broker_uri import BrokerUri, parse_uri


@dataclass(frozen=True, slots=True)
class TopologyStep:
    time: float
    adds: bool
    id: str
    host: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeploymentTopology:
    steps: tuple[TopologyStep, ...]  #: by time, then by line

    @property
    def first_phase(self) -> list[TopologyStep]:
        return [step for step in self.steps if not step.time]

    @property
    def second_phase(self) -> list[TopologyStep]:
        return [step for step in self.steps if step.time]

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(step.host for step in self.steps))


def parse_topology(text: str, name: str = "topology") -> DeploymentTopology:
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
    _check_steps(steps, name)
    return DeploymentTopology(tuple(step for _, step in steps))


def _step(line: str) -> TopologyStep | None:
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
        raise ValueError(f"{when!r} is not a time: should be seconds, 0 or more")
    match what.upper():
        case "ADD" if command:
            return TopologyStep(time, True, identity, host, tuple(command))
        case "ADD":
            raise ValueError(f"{identity} has no command")
        case "REMOVE" if not command:
            return TopologyStep(time, False, identity, host)
        case "REMOVE":
            raise ValueError("REMOVE takes an id and a machine only")
        case _:
            raise ValueError(f"{what!r} should be ADD or REMOVE")


def _check_steps(steps: list[tuple[int, TopologyStep]], name: str) -> None:
    """No id is added twice, or removed before it was added."""
    added: set[tuple[str, str]] = set()
    for number, step in steps:
        who = (step.id, step.host)
        if step.adds and any(step.id == other for other, _ in added):
            raise ConfigurationError(f"{name}, line {number}: {step.id} was added before")
        if not step.adds and who not in added:
            raise ConfigurationError(
                f"{name}, line {number}: {step.id} is not on {step.host} at that time"
            )
        if step.adds:
            added.add(who)
        else:
            added.remove(who)


#: PADRES' flags and our settings.
_SETTING_FLAGS: Final[dict[str, str]] = {
    "-rl": "broker.overlay.retry_limit",
    "-rp": "broker.overlay.retry_pause",
    "-cy": "broker.overlay.cycles",
    "-s": "broker.overlay.subscription_covering",
}
_SWITCH_FLAGS: Final[dict[str, str]] = {
    "-h": "broker.overlay.heartbeat",
    "-pubc": "broker.padres.conformance",
}


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    words: tuple[str, ...]
    broker: BrokerUri | None = None  #: of a broker
    neighbours: tuple[str, ...] = ()  #: their ids

    def has(self, setting: str) -> bool:
        """Whether the command sets it."""
        return any(word.startswith(f"{setting}=") for word in self.words)


def parse_launch_command(command: tuple[str, ...]) -> LaunchCommand:
    if command[0] == "startbroker":
        return _startbroker(command[1:])
    if command[:2] == ("penstock", "broker"):
        return _penstock_broker(command)
    return LaunchCommand(command)


def _startbroker(flags: tuple[str, ...]) -> LaunchCommand:
    uri: BrokerUri | None = None
    neighbours: list[BrokerUri] = []
    settings: list[str] = []
    for flag, value in _pairs(flags):
        if flag == "-uri":
            uri = _uri(value)
        elif flag == "-n":
            neighbours = [_uri(one) for one in value.split(",") if one]
        elif flag in _SETTING_FLAGS:
            settings.append(f"{_SETTING_FLAGS[flag]}={value}")
        elif flag in _SWITCH_FLAGS:
            settings.append(f"{_SWITCH_FLAGS[flag]}={_on(flag, value)}")
        else:
            settings.append(_other(flag, value))
    if uri is None:
        raise ConfigurationError("startbroker: -uri, the address of the broker, is missing")
    settings += [f"broker.overlay.id={uri.id}", f"broker.overlay.uri={uri}"]
    if neighbours:
        settings.append(f"broker.overlay.neighbours={','.join(map(str, neighbours))}")
    words = ["penstock", "broker", "--listen", f"{uri.scheme}://{uri.host}:{uri.port}"]
    words += [word for setting in settings for word in ("--set", setting)]
    return LaunchCommand(tuple(words), uri, tuple(one.id for one in neighbours))


def _pairs(flags: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if len(flags) % 2:
        raise ConfigurationError(f"startbroker: {flags[-1]} has no value")
    return zip(flags[::2], flags[1::2], strict=True)


def _uri(text: str) -> BrokerUri:
    """PADRES' own schemes mean padres://."""
    for scheme in ("socket", "rmi"):
        text = text.replace(f"{scheme}://", "padres://", 1)
    return parse_uri(text)


def _on(flag: str, value: str) -> str:
    if value.upper() not in ("ON", "OFF"):
        raise ConfigurationError(f"startbroker: {flag} should be ON or OFF, not {value!r}")
    return "true" if value.upper() == "ON" else "false"


def _other(flag: str, value: str) -> str:
    meanings: dict[str, Callable[[], str]] = {
        "-a": lambda: (
            "broker.overlay.advertisement_covering=" + ("OFF" if value.upper() == "OFF" else "LAZY")
        ),
        "-mon.bi": lambda: (
            "broker.overlay.info_interval=" + ("20" if _on(flag, value) == "true" else "0")
        ),
        "-mon.bi.advsubinfo": lambda: (
            "broker.overlay.info_full=" + ("true" if value.upper() == "FULL" else "false")
        ),
    }
    if flag not in meanings:
        known = " ".join(["-uri", "-n", *_SETTING_FLAGS, *_SWITCH_FLAGS, *meanings])
        raise ConfigurationError(f"startbroker: unknown flag {flag}: should be one of {known}")
    return meanings[flag]()


def _penstock_broker(command: tuple[str, ...]) -> LaunchCommand:
    settings = dict(
        value.split("=", 1) for flag, value in pairwise(command) if flag == "--set" and "=" in value
    )
    listening = [
        value
        for flag, value in pairwise(command)
        if flag == "--listen" and value.startswith("padres")
    ]
    identity = settings.get("broker.overlay.id")
    if identity is None or not listening:
        return LaunchCommand(command)
    named = settings.get("broker.overlay.neighbours", "").split(",")
    neighbours = tuple(parse_uri(one).id for one in named if one)
    return LaunchCommand(command, parse_uri(f"{listening[0]}/{identity}"), neighbours)
