"""The load generator: every protocol and pattern, its histogram, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.cli import app
from penstock.perf.histogram import GROWTH, LEAST_SECONDS, LatencyHistogram
from pytest_penstock import BrokerFixture
from tests.fixtures import running
from tests.padres import PadresBroker


def perf(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["perf", *words])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ("amqp", ("--pattern", "queue")),
        ("amqp", ("--pattern", "stream", "--size", "1KiB")),
        (
            "amqp+1.0",
            (
                "--pattern",
                "queue",
            ),
        ),
        ("mqtt", ("--qos", "0")),
    ],
)
def test_every_message_is_sent_confirmed_and_received(
    penstock_broker: BrokerFixture, protocol: str, words: tuple[str, ...]
) -> None:
    url = penstock_broker.url
    if protocol == "amqp+1.0":
        url = url.replace("amqp://", "amqp+1.0://")
    elif protocol == "mqtt":
        url = penstock_broker.mqtt_url
    check_load("--url", url, *words)


def check_load(*words: str) -> None:
    load = ("--time", "300ms", "--rate", "200", "--publishers", "2", "--json")

    status, output = perf(*load, *words)

    assert status == 0, output
    found = json.loads(output)
    assert 80 <= found["sent"] <= 122
    assert found["sent"] == found["confirmed"] == found["received"]
    latency = found["latency_seconds"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]


def test_publications_of_padres_are_sent_and_received(tmp_path: Path) -> None:
    with running(PadresBroker(tmp_path)) as broker:
        check_load("--url", broker.url, "--address", "any 'text' in \"quotes\"")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--url", "amqp://127.0.0.1:9"), "no broker at 127.0.0.1:9"),
        (("--pattern", "cloud"), "should be queue, topic or stream"),
        (("--url", "mqtt://127.0.0.1", "--pattern", "queue"), "MQTT has topics only"),
        (("--url", "padres://127.0.0.1", "--pattern", "stream"), "PADRES has topics only"),
        (("--publishers", "0", "--consumers", "0"), "nothing to do"),
        (("--size", "2Q"), "should be a size"),
    ],
)
def test_what_cannot_be_done_is_refused(words: tuple[str, ...], reason: str) -> None:
    status, output = perf("--time", "100ms", *words)
    assert status != 0
    assert reason in " ".join(output.replace("│", " ").split())


@given(st.lists(st.floats(1e-5, 100), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_exact_within_a_bucket(seconds: list[float], share: float) -> None:
    histogram = LatencyHistogram()
    for each in seconds:
        histogram.add(each)
    ordered = sorted(seconds)
    exact = next(each for number, each in enumerate(ordered, 1) if number >= share * len(ordered))
    assert exact / GROWTH**1.01 <= histogram.quantile(share) <= exact * GROWTH**1.01


def test_ranges_cover_every_message() -> None:
    histogram, other = LatencyHistogram(), LatencyHistogram()
    for each in (0.0, 0.001, 0.002):
        histogram.add(each)
    other.add(7000.0)  # longer than the last bucket
    histogram.merge(other)
    ranges = histogram.ranges(8)
    assert (len(ranges) <= 8, sum(count for *_, count in ranges)) == (True, 4)
    assert ranges[0][0] == LEAST_SECONDS
    assert histogram.longest == 7000.0
    assert LatencyHistogram().ranges(8) == []
