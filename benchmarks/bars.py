"""`python -m benchmarks.bars`: every row that performance is held to, with its bar, in one run.

CPU figures are seconds of the broker per million messages, measured beside the newest RabbitMQ and
mosquitto that the machine has. The fastest peers, LavinMQ 2.9 and FlashMQ 1.26, are not run: their
figures are computed from those of RabbitMQ 4.3 and mosquitto 2.1, by the factor between them on one
quiet machine in one round. Beside an older peer there is no ratio.

Brokers do not gain alike from another machine, so the factor to RabbitMQ is one way to compute
what the fastest peer would need here. The other is Penstock 0.1.0, measured in that round, too:
the ratio then, times what Penstock needs now over what 0.1.0 needed on this machine
(`benchmarks/previous.json`). Both ratios are printed; a bar is held to the first.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer

from benchmarks import scale, startup
from benchmarks.amqp10 import load as amqp10_load
from benchmarks.amqp10 import scenarios as amqp10_scenarios
from benchmarks.broker import load as broker_load
from benchmarks.broker import memory as broker_memory
from benchmarks.broker import scenarios as broker_scenarios
from benchmarks.content import headers
from benchmarks.content.measuring import compiled_kernel
from benchmarks.content.measuring import measure as measure_matching
from benchmarks.harness import command, memory
from benchmarks.harness.comparison import PREVIOUS
from benchmarks.harness.page import put_chapter
from benchmarks.harness.rounds import Announce, Trial, footprints, loads
from benchmarks.mqtt import load as mqtt_load
from benchmarks.mqtt import memory as mqtt_memory
from benchmarks.mqtt import scenarios as mqtt_scenarios
from benchmarks.peers import (
    AMQP10_STARTERS,
    AMQP_STARTERS,
    MQTT_STARTERS,
    Starter,
    available,
    start_rabbitmq,
)

#: Peers get this share of a scenario's messages: most take many times as long for one.
_PEER_SHARE: Final = 5
_SUBSCRIPTIONS: Final = 1_000_000
_COLUMNS: Final = ("row", "Penstock", "peer", "fastest", "ratio", "by 0.1.0", "bar", "met")
_ACCOUNT: Final = """# Bars

`{command}`, {rounds} rounds; {peers}. The load average of the machine ({cores} cores) was
{load:.1f} at the start and {then:.1f} at the end. Loads are in broker CPU seconds per million
messages. *Fastest* is LavinMQ 2.9 or FlashMQ 1.26, computed from the peer; *ratio* is Penstock's
figure divided by it. *By 0.1.0* is that ratio computed through Penstock 0.1.0 instead of the peer:
its ratio to the fastest peer in one round, times Penstock's figure divided by that of 0.1.0 on a
machine like this.

{table}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A load, and how its peer relates to the fastest one."""

    scenario: str
    title: str
    most: float  #: the ratio that is wanted
    factor: float = 1.0  #: the fastest peer's figure over that of the one that is measured
    then: float = 0.0  #: the ratio of Penstock 0.1.0 to the fastest peer, in one round


@dataclass(frozen=True, slots=True)
class Protocol:
    starters: Mapping[str, Starter]
    newest: str  #: the peer that factors refer to
    oldest: str  #: the peer of a machine without it
    scenarios: Mapping[str, Any]
    measure: Callable[..., Any]
    bars: Sequence[Bar]


PROTOCOLS: Final = (
    Protocol(
        AMQP_STARTERS,
        "rabbitmq-4",
        "rabbitmq",
        broker_scenarios.SCENARIOS,
        broker_load.measure,
        (
            Bar("a", "AMQP transient 16 B", 2, 1.4 / 24, then=3.9),
            Bar("a1k", "AMQP transient 1 KiB", 1, 5.9 / 46, then=1.14),
            Bar("b", "AMQP persistent, confirms", 2, 3.3 / 37.5, then=3.4),
            Bar("c", "AMQP fanout × 5", 1.5, 5.4 / 79, then=2.4),
            Bar("d", "AMQP topic, 1,000 bindings", 0.5, 25 / 59, then=0.57),
            Bar("e", "AMQP ping-pong", 0.9, 76.5 / 164.5, then=1.0),
        ),
    ),
    Protocol(
        MQTT_STARTERS,
        "mosquitto-2.1",
        "mosquitto",
        mqtt_scenarios.SCENARIOS,
        mqtt_load.measure,
        (
            Bar("q0", "MQTT QoS 0, 1 → 1", 1.5, 1.5 / 8.5, then=2.2),
            Bar("q0-single", "MQTT QoS 0, a message a write", 1, then=1.26),
            Bar("q1", "MQTT QoS 1, 1 → 1", 2, 2.6 / 19.8, then=4.5),
            Bar("fan-q0", "MQTT QoS 0, 1 → 100", 0.22, 226 / 679, then=0.22),
            Bar("fan-q1", "MQTT QoS 1, 1 → 100", 2, 67 / 886, then=8.6),
            Bar("fleet-q0", "MQTT fleet of 1,000, QoS 0", 1, 10.7 / 11.6, then=1.24),
            Bar("fleet-q1", "MQTT fleet of 1,000, QoS 1", 1.1, 16.5 / 25.6, then=1.6),
        ),
    ),
    Protocol(
        AMQP10_STARTERS,
        "rabbitmq-4",
        "rabbitmq",
        amqp10_scenarios.SCENARIOS,
        amqp10_load.measure,
        (Bar("u", "AMQP 1.0, durable", 0.5),),
    ),
)
#: Milliseconds of the 99th percentile.
_FLEET_P99: Final = 40.0
_HEADERS_RATIO: Final = 0.1
_MATCHING: Final = {"W1": 12_000, "W2": 400}
_CONNECTION_KB: Final = 2.0
_START_SECONDS: Final = 0.5
_IDLE_MB: Final = 35.0

Row = tuple[str, ...]


def ratio_row(
    title: str, ours: float, peer: str, theirs: float, bar: Bar | None, before: float = 0.0
) -> Row:
    """Of two CPU figures, and of 0.1.0 `before`; without a bar the peer is not the one that factors
    refer to."""
    if bar is None:
        return (title, f"{ours:,.2f}", f"{theirs:,.2f} ({peer})", "", "", "", "", "")
    fastest = theirs * bar.factor
    ratio = ours / fastest if fastest else inf  # too few messages to be measured
    by_release = f"{bar.then * ours / before:.2f}" if before and bar.then else ""
    figures = (f"{ours:,.2f}", f"{theirs:,.2f} ({peer})", f"{fastest:,.2f}", f"{ratio:.2f}")
    return (title, *figures, by_release, f"{bar.most:g}", _met(ratio <= bar.most))


def limit_row(title: str, value: float, unit: str, most: float | None) -> Row:
    """Of a figure with a bar of its own."""
    bar, met = ("", "") if most is None else (f"≤ {most:,g} {unit}", _met(value <= most))
    return (title, f"{value:,.2f} {unit}", "", "", "", "", bar, met)


def _met(met: bool) -> str:
    return "yes" if met else "no"


def load_rows(protocol: Protocol, rounds: int, messages: int, announce: Announce) -> Iterator[Row]:
    newest = available(protocol.newest)
    other = protocol.newest if newest else protocol.oldest
    names = ["penstock", *([other] if available(other) else [])]
    bars = {bar.scenario: bar for bar in protocol.bars}
    programs = json.loads(PREVIOUS.read_text())["programs"].values()
    released = {name: figure for program in programs for name, figure in program.items()}
    trial = Trial(
        [protocol.scenarios[name] for name in bars],
        protocol.measure,
        lambda scenario, peer: (
            messages or scenario.messages // (1 if peer.name == "penstock" else _PEER_SHARE)
        ),
    )
    measured = loads(trial, [protocol.starters[name] for name in names], rounds, announce)
    for scenario, pairs in groupby(measured, key=lambda pair: pair[1].scenario):
        runs: dict[str, list[Any]] = {}
        for peer, run in pairs:
            runs.setdefault(peer.name, []).append(run)
        spent, *theirs = (
            median(run.broker_cpu_per_million for run in runs[name]) for name in names
        )
        bar = bars[scenario]
        if theirs:
            before = released.get(scenario, 0.0)
            yield ratio_row(bar.title, spent, other, theirs[0], bar if newest else None, before)
        else:
            yield limit_row(bar.title, spent, "CPU s", None)
        if scenario == "fleet-q1":
            p99 = median(run.latency_p99 for run in runs["penstock"]) * 1e3
            yield limit_row(f"{bar.title}, p99", p99, "ms", _FLEET_P99)


def memory_rows(announce: Announce) -> Iterator[Row]:
    for title, idleness, starters in (
        ("idle AMQP connection", broker_memory.IDLE, AMQP_STARTERS),
        ("idle MQTT connection", mqtt_memory.IDLE, MQTT_STARTERS),
    ):
        chosen = [starters["penstock"]]
        for _, found in footprints(idleness, chosen, memory.CONNECTIONS, announce):
            yield limit_row(title, found.bytes_per_connection / 1e3, "kB", _CONNECTION_KB)


def content_rows() -> Iterator[Row]:
    kernel = compiled_kernel() if shutil.which("cc") else None
    for workload, least in _MATCHING.items():
        found = measure_matching(workload, _SUBSCRIPTIONS, kernel=kernel)
        title = f"match {workload} at {_SUBSCRIPTIONS:,} ({'C' if kernel else 'NumPy'})"
        bar = (f"≥ {least:,} /s", _met(found.rate >= least))
        yield (title, f"{found.rate:,.0f} /s", "", "", "", "", *bar)
    spent = {
        way.name: headers.measure(way, 2000, 2000) * 1e6
        for way in headers.WAYS
        if way.start is not start_rabbitmq or available("rabbitmq")
    }
    title, ours, theirs = (
        "headers exchange, 2,000 bindings, µs",
        "Penstock, headers",
        "RabbitMQ, headers",
    )
    if theirs in spent:
        held_to = Bar("", title, _HEADERS_RATIO)
        yield ratio_row(title, spent[ours], "rabbitmq", spent[theirs], held_to)
    else:
        yield limit_row(title, spent[ours], "µs", None)


def start_rows(rounds: int) -> Iterator[Row]:
    starts = [startup.serve(startup.PROGRAMS[_IDLE][0]) for _ in range(rounds + 2)]
    ready = median(start.seconds for start in starts)
    yield limit_row(f"{_IDLE}: ready", ready, "s", _START_SECONDS)
    idle = median(start.rss_bytes for start in starts) / 1e6
    yield limit_row(f"{_IDLE}: idle", idle, "MB", _IDLE_MB)


_IDLE: Final = "penstock broker, all protocols"


def scale_rows() -> Iterator[Row]:
    for work in scale.WORKS.values():
        for figure in work():
            yield limit_row(f"{figure.work}: {figure.name}", figure.value, figure.unit, figure.bar)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds of loads.")] = 2,
    parts: Annotated[
        str, typer.Option(help="Comma-separated: loads, memory, content, start, scale; or all.")
    ] = "all",
    quick: command.Quick = False,
    markdown: Annotated[Path | None, typer.Option(help="A page to write the table to.")] = None,
) -> None:
    """Measure every row and print it with its bar."""
    wanted = command.names(parts, ["loads", "memory", "content", "start", "scale"], "--parts")
    load = os.getloadavg()[0]
    memory.raise_descriptor_limit(memory.CONNECTIONS)
    rows: list[Row] = []
    print(" | ".join(_COLUMNS), flush=True)
    with command.measuring() as announce:
        for row in _rows(wanted, rounds, command.QUICK_MESSAGES if quick else 0, announce):
            rows.append(row)
            print(" | ".join(row), flush=True)
    if markdown is not None:
        rule = ("---", *["--:"] * (len(_COLUMNS) - 1))
        table = "\n".join(f"| {' | '.join(row)} |" for row in (_COLUMNS, rule, *rows))
        account = _ACCOUNT.format(
            command="python -m benchmarks.bars",
            rounds=rounds,
            peers=", ".join(name for name in _PEERS if available(name)),
            cores=os.cpu_count(),
            load=load,
            then=os.getloadavg()[0],
            table=table,
        )
        put_chapter(markdown, account)


_PEERS: Final = ("rabbitmq-4", "rabbitmq", "mosquitto-2.1", "mosquitto")


def _rows(wanted: Sequence[str], rounds: int, messages: int, announce: Announce) -> Iterator[Row]:
    if "loads" in wanted:
        for protocol in PROTOCOLS:
            yield from load_rows(protocol, rounds, messages, announce)
    if "memory" in wanted:
        yield from memory_rows(announce)
    if "start" in wanted:
        yield from start_rows(rounds)
    if "scale" in wanted:
        yield from scale_rows()
    if "content" in wanted:
        yield from content_rows()


if __name__ == "__main__":
    typer.run(main)
