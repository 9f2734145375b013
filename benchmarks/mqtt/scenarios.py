"""What is measured, as data: the quality of service, who publishes to how many, and how.

`load` runs any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.harness.pump import BATCH, Window
from benchmarks.mqtt.layout import Layout, Turns
from benchmarks.mqtt.packets import V3, V5

_FLEET: Final = 1_000
_AUDIENCE: Final = 100
#: What a report of a sensor has, and what is next to nothing.
_REPORT: Final = 59
_SMALL: Final = 16
#: Unanswered publications of QoS 1.
_UNANSWERED: Final = 1_000
#: With many subscribers, the publisher is held back sooner: what waits, waits a hundred times.
_AHEAD_OF_AUDIENCE: Final = 2_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table. Rates and CPU are per message published, whatever its copies."""

    name: str
    title: str
    layout: Layout
    messages: int  #: of one run, unless the caller wants another number
    window: Window
    subscribers: int = 1


def _one_to_one(
    name: str,
    qos: int,
    messages: int,
    *,
    payload: int = _SMALL,
    batch: int = BATCH,
    version: int = V3,
) -> Scenario:
    layout = Layout(version, qos, payload, Turns(1, batch))
    window = Window(unconfirmed=_UNANSWERED if qos else 0)
    says = [f"QoS {qos}, 1 → 1, {payload} B"]
    if qos:
        says.append(f"≤ {_UNANSWERED:,} unanswered")
    if batch == 1:
        says.append("a message a write")
    if version == V5:
        says.append("MQTT 5.0")
    return Scenario(name, ", ".join(says), layout, messages, window)


def _fan_out(name: str, qos: int, messages: int) -> Scenario:
    layout = Layout(V3, qos, _SMALL, Turns(1, BATCH))
    window = Window(_AHEAD_OF_AUDIENCE, _UNANSWERED if qos else 0)
    title = f"QoS {qos}, 1 → {_AUDIENCE}, {_SMALL} B, ≤ {_AHEAD_OF_AUDIENCE:,} ahead"
    return Scenario(name, title, layout, messages, window, _AUDIENCE)


def _fleet(name: str, qos: int, batch: int, messages: int) -> Scenario:
    """A publisher writes again when about all have: the broker finds one write of each."""
    layout = Layout(V3, qos, _REPORT, Turns(_FLEET, batch))
    most = _FLEET * batch
    window = Window(most, most if qos else 0)
    writes = f"{batch} a write" if batch > 1 else "a message a write"
    title = f"QoS {qos}, {_FLEET:,} → 1, {_REPORT} B, {writes}, ≤ {most:,} ahead"
    return Scenario(name, title, layout, messages, window)


SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        _one_to_one("q0", 0, 1_000_000),
        _one_to_one("q0-59", 0, 1_000_000, payload=_REPORT),
        _one_to_one("q0-single", 0, 300_000, batch=1),
        _one_to_one("q0-v5", 0, 1_000_000, version=V5),
        _one_to_one("q1", 1, 500_000),
        _one_to_one("q1-59", 1, 500_000, payload=_REPORT),
        _one_to_one("q1-single", 1, 200_000, batch=1),
        _one_to_one("q1-v5", 1, 500_000, version=V5),
        _fan_out("fan-q0", 0, 20_000),
        _fan_out("fan-q1", 1, 10_000),
        _fleet("fleet-q0", 0, 1, 200_000),
        _fleet("fleet-q0-10", 0, 10, 400_000),
        _fleet("fleet-q1", 1, 1, 200_000),
        _fleet("fleet-q1-10", 1, 10, 300_000),
    )
}

#: What a process that runs any of them must be able to keep open.
MOST_CONNECTIONS: Final = max(
    scenario.subscribers + scenario.layout.turns.publishers for scenario in SCENARIOS.values()
)
