"""A million retained topics in a laptop's memory."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from penstock.broker.contract import Message
from penstock.destinations.retained import RetainedStore
from tests.destinations.retained.given import body_of, note, reopened, retained
from tests.doubles import Stand

TOPICS = 1_000_000
BODY = b"{'occupancy': 61, 'battery': 3.71, 'at': '2024-05-01T12:00:00'}"[:60]


def resident() -> int:
    """The memory of this process, everything counted."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def reports(store: RetainedStore, stand: Stand) -> None:
    """A report of every sensor, as the MQTT terminal hands them over."""
    like = note("", BODY, headers={"x-mqtt-publish-qos": 1, "x-mqtt-dup": False})
    exchange = like.route[:-1]
    for number in range(TOPICS):
        key = b"sensors.%d.report" % number
        body = b"%06d" % number + BODY[6:]
        route = exchange + bytes((len(key),)) + key
        store.retain(Message(route, like.header, body, like.flags))
        if number % 1000 == 999:
            stand.kernel.write_batch.flush()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_million_topics_fit_and_come_back(stand: Stand) -> None:
    before = resident()
    store = retained(stand)
    reports(store, stand)
    await stand.synced()
    assert len(store) == TOPICS
    assert (resident() - before) / TOPICS < 450
    assert store.match(b"sensors.5.#") == [b"sensors.5.report"]

    again = await reopened(stand, store)
    assert len(again) == TOPICS
    assert body_of(again.get(b"sensors.123456.report")) == b"123456" + BODY[6:]
    again.close()
