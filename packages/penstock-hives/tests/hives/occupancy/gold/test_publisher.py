"""Changes are told to the broker and to the cache, at least once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from penstock.client import BrokerUnreachable, blocking_client
from penstock_hives.occupancy.gold.ledger import HiveFacts
from penstock_hives.occupancy.gold.staging import GoldRows
from penstock_hives.occupancy.gold.status import HiveStatus
from penstock_hives.occupancy.publisher import (
    CACHE_KEYS,
    OccupancyPublisher,
    cache_statuses,
    status_document,
)
from penstock_hives.occupancy.writer import OccupancyWriter, ServiceUrls
from penstock_store import Database
from penstock_store.cache import BlockingCache
from tests.hives.occupancy.gold.ledger import Bookkeeper, clock
from tests.peers import Broker, Penstock, free_port

STANDING = HiveStatus(
    7, 42, 42, 52.5, "moderate", "rising", "good", datetime(2026, 3, 2, tzinfo=UTC), 3
)
DOCUMENT = {
    "hive": 7,
    "occupancy": 42,
    "percent": 52.5,
    "level": "moderate",
    "trend": "rising",
    "quality": "good",
    "as_of": "2026-03-02T00:00:00Z",
    "version": 3,
}


def test_a_change_goes_to_those_who_listen_for_the_hive(broker: Broker) -> None:
    publisher = OccupancyPublisher(broker.url)
    with blocking_client.connect(broker.url) as fabric:
        with fabric.subscribe("occupancy.7", exchange="occupancy") as one:
            publisher.publish([STANDING])
            message = one.receive(timeout=60)
    publisher.close()
    assert message.json() == DOCUMENT
    assert message.message_id == "7-3"


def test_a_change_is_a_topic_of_mqtt_too(penstock: Penstock) -> None:
    publisher = OccupancyPublisher(penstock.url)
    with (
        blocking_client.connect(penstock.mqtt_url) as fabric,
        fabric.subscribe("occupancy/7") as one,
    ):
        publisher.publish([STANDING])
        message = one.receive(timeout=60)
    publisher.close()
    assert message.json() == DOCUMENT


def test_a_broker_that_is_away_is_noticed_before_there_is_something_to_tell() -> None:
    publisher = OccupancyPublisher(f"amqp://127.0.0.1:{free_port()}")
    with pytest.raises(BrokerUnreachable):
        publisher.connect()
    publisher.close()


def test_the_cache_has_the_same_document() -> None:
    with BlockingCache(None) as cache:
        cache_statuses(cache, [STANDING])
        found = cache.get("h1:hive:7")
    assert CACHE_KEYS.key("hive", 7) == "h1:hive:7"
    assert found is not None
    assert json.loads(found) == DOCUMENT == status_document(STANDING)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Told(OccupancyPublisher):
    """Publications that fail when told to, of a desk with two hives."""

    def __init__(self, database: Database, books: Bookkeeper) -> None:
        books.hive(1)
        books.hive(2)
        super().__init__(None)
        self.versions: list[tuple[int, int]] = []
        self.failing = False
        self.clock = Clock()
        self.writer = OccupancyWriter("hives", ServiceUrls(database.url), self, self.clock)

    def connect(self) -> None:
        if self.failing:
            raise ConnectionError("no broker")

    def publish(self, statuses: Sequence[HiveStatus]) -> None:
        self.connect()
        self.versions += [(each.hive_id, each.version) for each in statuses]

    def close(self) -> None: ...

    def record(self, batch: int, facts: tuple[HiveFacts, GoldRows]) -> None:
        self.writer.record(0, batch, 1, *facts)


@pytest.fixture
def told(database: Database, books: Bookkeeper) -> Told:
    return Told(database, books)


def test_what_could_not_be_told_is_told_before_anything_new(told: Told, books: Bookkeeper) -> None:
    told.record(0, books.facts((1, clock(12), 5, 0)))
    told.failing = True
    with pytest.raises(ConnectionError):
        told.record(1, books.facts((2, clock(12), 5, 0)))
    told.failing = False
    told.record(2, books.facts((1, clock(12, 10), 5, 0)))
    assert told.versions == [(1, 1), (1, 2), (2, 1)]


def test_time_passes_with_nobody_sending(told: Told, books: Bookkeeper) -> None:
    told.record(0, books.facts((1, clock(12), 5, 0)))
    told.clock.now = 3601.0
    told.writer.advance_clock(None)
    assert books.status(1)["quality"] == "stale"
    assert told.versions == [(1, 1), (1, 2)]
    found = told.writer.cache.get("h1:hive:1")
    assert found is not None
    assert json.loads(found)["quality"] == "stale"


def test_a_process_that_has_entered_nothing_leaves_time_to_others(
    told: Told, books: Bookkeeper
) -> None:
    books.enter((1, clock(12), 5, 0))
    told.clock.now = 36_000.0
    told.writer.advance_clock(None)
    assert books.status(1)["quality"] == "good"
