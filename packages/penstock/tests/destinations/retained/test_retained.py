"""Retained messages: the last of each key, over restarts, kills and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.contract import (
    ACCEPTED,
    EXPIRES,
    FROM_RETAINED,
    LOGGED,
    MANDATORY,
    PERSISTENT,
    RETAIN,
)
from penstock.core.basic_properties import decode_header
from penstock.destinations.retained import RetainedStore
from tests.destinations.retained.given import (
    body_of,
    contents,
    killed,
    note,
    reopened,
    retained,
)
from tests.doubles import Stand


@pytest.fixture
def store(stand: Stand) -> RetainedStore:
    return retained(stand)


def segment(stand: Stand) -> Path:
    (only,) = (stand.directory / "retained").glob("*.seg")
    return only


# Keeping and forgetting.


async def test_a_message_comes_back_as_it_was_published(store: RetainedStore) -> None:
    message = note("sensors.7.report", b"61", content_type="text/plain", headers={"room": "B"})
    message.flags |= MANDATORY
    assert store.retain(message) == LOGGED
    kept = store.get(b"sensors.7.report")
    assert kept is not None
    assert (kept.route, kept.header, kept.body) == (message.route, message.header, b"61")
    assert kept.flags == PERSISTENT | RETAIN | FROM_RETAINED, (
        "nobody is to be told if none takes it"
    )


async def test_the_last_message_of_a_key_is_kept(store: RetainedStore) -> None:
    store.retain(note("a.b", b"first"))
    store.retain(note("a.b", b"last"))
    assert contents(store) == {b"a.b": b"last"}
    assert (len(store), store.bytes) == (1, 4)


async def test_a_message_that_need_not_arrive_is_logged_too(store: RetainedStore) -> None:
    assert store.retain(note("a", delivery_mode=1)) == LOGGED


async def test_an_empty_message_forgets(store: RetainedStore) -> None:
    store.retain(note("a"))
    store.retain(note("b"))
    assert store.retain(note("a", b"")) == LOGGED
    assert store.get(b"a") is None
    assert contents(store) == {b"b": b"it"}
    assert (len(store), store.bytes) == (1, 2)


async def test_there_is_nothing_to_log_when_there_is_nothing_to_forget(
    store: RetainedStore,
) -> None:
    assert store.retain(note("a", b"")) == ACCEPTED
    assert store.remove(b"a") == ACCEPTED
    assert store.log.next_offset == 0


async def test_keys_match_by_levels(store: RetainedStore) -> None:
    for key in ("sensors.1.report", "sensors.2.report", "sensors.2.event", "$SYS.uptime"):
        store.retain(note(key))
    assert store.match(b"sensors.2.#") == [b"sensors.2.report", b"sensors.2.event"]
    assert store.match(b"sensors.*.report") == [b"sensors.1.report", b"sensors.2.report"]
    assert b"$SYS.uptime" not in store.match(b"#")
    assert store.match(b"$SYS.#") == [b"$SYS.uptime"]
    assert list(store.matching(b"sensors.*.event")) == [b"sensors.2.event"]


async def test_a_key_that_matched_may_be_gone_when_it_is_drawn(store: RetainedStore) -> None:
    store.retain(note("a"))
    (key,) = store.match(b"#")
    store.remove(b"a")
    assert store.get(key) is None


async def test_what_messages_have_in_common_is_kept_once(store: RetainedStore) -> None:
    for number in range(100):
        store.retain(note(f"a.{number}", b"%d" % number, content_type="text/plain"))
    store.retain(note("b", content_type="text/html"))
    envelopes = store._index._envelopes
    assert len(envelopes) == 2
    for number in range(100):
        store.remove(b"a.%d" % number)
    assert len(envelopes) == 1
    store.retain(note("c", content_type="image/png"))
    kept = store.get(b"c")
    assert kept is not None
    assert decode_header(kept.header).content_type == "image/png"


# Restarts.


async def test_a_restart_finds_the_last_messages(stand: Stand, store: RetainedStore) -> None:
    for key, body in (("a", b"1"), ("b", b"1"), ("c", b"1"), ("b", b"2"), ("c", b"")):
        store.retain(note(key, body, content_type="x/y"))
    before = store.get(b"b")
    again = await reopened(stand, store)
    assert contents(again) == {b"a": b"1", b"b": b"2"}
    after = again.get(b"b")
    assert before is not None
    assert after is not None
    assert (after.route, after.header, after.flags) == (before.route, before.header, before.flags)
    assert (len(again), again.bytes) == (len(store), store.bytes)
    again.close()


async def test_what_was_written_when_the_broker_was_killed_is_there(
    stand: Stand, store: RetainedStore
) -> None:
    store.retain(note("a", b"1"))
    store.retain(note("a", b"2"))
    store.retain(note("b", b"1"))
    store.retain(note("b", b""))
    stand.kernel.write_batch.flush()
    assert contents(killed(stand, store)) == {b"a": b"2"}


async def test_a_torn_tail_costs_what_was_never_acknowledged(
    stand: Stand, store: RetainedStore
) -> None:
    store.retain(note("a", b"1"))
    stand.kernel.write_batch.flush()
    whole = segment(stand).stat().st_size
    store.retain(note("a", b"2"))
    stand.kernel.write_batch.flush()
    for size in range(whole, segment(stand).stat().st_size, 16):
        copy = killed(stand, store)
        copy.close()
        (torn,) = (stand.directory / "copy").glob("*.seg")
        (stand.directory / "copy" / torn.with_suffix(".idx").name).unlink()
        torn.write_bytes(torn.read_bytes()[:size])
        again = retained(stand, "copy")
        assert contents(again) == {b"a": b"1"}
        assert again.retain(note("a", b"3")) == LOGGED
        again.close()


async def test_damage_is_reported_and_costs_no_other_record(
    stand: Stand, store: RetainedStore
) -> None:
    ends = []
    for key in ("a", "b", "c"):
        store.retain(note(key))
        stand.kernel.write_batch.flush()
        ends.append(segment(stand).stat().st_size)
    store.close()
    await stand.synced()
    data = bytearray(segment(stand).read_bytes())
    data[ends[1] - 20] ^= 0xFF
    segment(stand).write_bytes(data)

    again = retained(stand)
    assert contents(again) == {b"a": b"it", b"c": b"it"}
    assert len(stand.reports) == 1
    assert "damaged chunk with offsets 1 to 1" in stand.reports[0]
    again.close()


async def test_deleting_leaves_nothing(stand: Stand, store: RetainedStore) -> None:
    store.retain(note("a"))
    stand.kernel.write_batch.flush()
    store.retain(note("b"))
    store.delete()
    assert not (stand.directory / "retained").exists()


# Volatile ones.


async def test_what_is_volatile_does_not_outlive_the_broker(
    stand: Stand, store: RetainedStore
) -> None:
    assert store.retain(note("$SYS.uptime", b"1"), volatile=True) == ACCEPTED
    assert store.retain(note("$SYS.uptime", b"2"), volatile=True) == ACCEPTED
    store.retain(note("a"))
    assert contents(store) == {b"$SYS.uptime": b"2", b"a": b"it"}
    assert store.log.next_offset == 1
    again = await reopened(stand, store)
    assert contents(again) == {b"a": b"it"}
    again.close()


async def test_what_is_volatile_may_be_forgotten_without_a_word(store: RetainedStore) -> None:
    store.retain(note("a"), volatile=True)
    assert store.retain(note("a", b"")) == ACCEPTED
    assert len(store) == store.log.next_offset == 0


async def test_what_a_volatile_message_replaced_does_not_come_back(
    stand: Stand, store: RetainedStore
) -> None:
    store.retain(note("a", b"durable"))
    assert store.retain(note("a", b"volatile"), volatile=True) == LOGGED
    assert contents(store) == {b"a": b"volatile"}
    again = await reopened(stand, store)
    assert contents(again) == {}
    again.close()


async def test_a_durable_message_may_replace_a_volatile_one(
    stand: Stand, store: RetainedStore
) -> None:
    store.retain(note("a", b"volatile"), volatile=True)
    assert store.retain(note("a", b"durable")) == LOGGED
    again = await reopened(stand, store)
    assert contents(again) == {b"a": b"durable"}
    again.close()


# Time.


def at(store: RetainedStore, milliseconds: int) -> None:
    store.log.now = lambda: milliseconds


async def test_a_message_is_gone_when_its_time_is_over(store: RetainedStore) -> None:
    at(store, 1_000_000)
    store.retain(note("a", expiration="5000"))
    at(store, 1_004_999)
    assert store.get(b"a") is not None
    at(store, 1_005_000)
    assert store.get(b"a") is None
    assert (len(store), store.bytes) == (0, 0)


async def test_a_subscriber_is_told_what_is_left_of_the_time(store: RetainedStore) -> None:
    at(store, 1_000_000)
    store.retain(note("a", b"61", expiration="5000", content_type="text/plain"))
    at(store, 1_003_000)
    kept = store.get(b"a")
    assert kept is not None
    assert kept.flags & EXPIRES
    properties = decode_header(kept.header)
    assert (properties.expiration, properties.content_type) == ("2000", "text/plain")
    assert kept.size == 2


async def test_time_goes_on_while_the_broker_is_down(
    stand: Stand, store: RetainedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.retain(note("lasts", expiration="60000"))
    store.retain(note("ends", b"old"))
    store.retain(note("ends", expiration="10000"))
    now = store.log.now()
    store.close()
    await stand.synced()
    monkeypatch.setattr("time.time_ns", lambda: (now + 20_000) * 1_000_000)
    again = retained(stand)
    assert contents(again) == {b"lasts": b"it"}, "and what it had replaced stays replaced"
    kept = again.get(b"lasts")
    assert kept is not None
    assert 39_000 < int(decode_header(kept.header).expiration or 0) <= 40_000
    again.close()


async def test_what_expires_goes_though_nobody_asks_for_it(
    stand: Stand, store: RetainedStore
) -> None:
    at(store, 1_000_000)
    store.retain(note("stays"))
    for number in range(5000):
        store.retain(note(f"$hidden.{number}", expiration="1000"))
    at(store, 1_002_000)
    stand.clock.advance(10)
    assert len(store) == 1
    assert store._timer is None, "nothing is left to look after"


async def test_a_time_beyond_all_calendars_is_no_trouble(store: RetainedStore) -> None:
    store.retain(note("a", expiration="9" * 30))
    assert body_of(store.get(b"a")) == b"it"
