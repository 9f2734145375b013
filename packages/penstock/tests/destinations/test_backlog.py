"""Messages that wait: those that came back, the fresh, those on disk."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.contract import Delivery
from penstock.destinations.backlog import Backlog
from penstock.destinations.message_log import LoggedMessage, MessageLog
from tests.doubles import Stand, message


def admit(record: LoggedMessage) -> Delivery:
    return Delivery(record.message, 1000 + record.offset, record.offset)


@pytest.fixture
async def store(stand: Stand) -> AsyncIterator[MessageLog]:
    store = MessageLog(stand.kernel, stand.directory / "store")
    yield store
    store.close()


def empty(backlog: Backlog, store: MessageLog | None) -> list[bytes]:
    taken = []
    while backlog.peek(store) is not None:
        taken.append(backlog.pop().message.body)
    return taken


@given(st.permutations(range(6)), st.integers(0, 6))
def test_what_comes_back_comes_first_in_its_old_order(order: list[int], back: int) -> None:
    backlog = Backlog(admit)
    backlog.fresh.extend(Delivery(message(b"%d" % n), n) for n in range(6, 9))
    for position in order[:back]:
        backlog.requeue(Delivery(message(b"%d" % position), position))
    returned = sorted(order[:back])
    assert len(backlog) == back + 3
    assert empty(backlog, None) == [b"%d" % n for n in [*returned, 6, 7, 8]]


async def test_what_is_on_disk_comes_last_a_chunk_at_a_time(
    stand: Stand, store: MessageLog
) -> None:
    backlog = Backlog(admit)
    backlog.fresh.append(Delivery(message(b"fresh"), 0))
    for number in range(6):
        backlog.page(store.append(message(b"%d" % number), transient=True))
        if number % 2:
            stand.kernel.write_batch.flush()  # a chunk of two
    assert (len(backlog), backlog.paged) == (7, 6)
    assert backlog.peek(store) is not None
    assert backlog.paged == 6, "nothing is read before it is needed"
    backlog.pop()
    assert backlog.peek(store) is not None
    assert backlog.paged == 4
    assert empty(backlog, store) == [b"%d" % number for number in range(6)]
    assert len(backlog) == 0


async def test_what_is_still_in_the_logs_memory_can_be_read_back(store: MessageLog) -> None:
    backlog = Backlog(admit)
    backlog.page(store.append(message(b"a"), transient=True))
    assert empty(backlog, store) == [b"a"]


async def test_a_damaged_chunk_costs_what_it_held_and_no_more(
    stand: Stand, store: MessageLog
) -> None:
    backlog = Backlog(admit)
    for number in range(6):
        backlog.page(store.append(message(b"%d" % number), transient=True))
        stand.kernel.write_batch.flush()
    (segment,) = store.directory.glob("*.seg")
    data = bytearray(segment.read_bytes())
    at = data.index(b"\x003") if b"\x003" in data else len(data) // 2
    data[at + 1] ^= 0xFF
    segment.write_bytes(data)
    left = empty(backlog, store)
    assert len(left) == 5
    assert len(backlog) == 0
    assert stand.reports
