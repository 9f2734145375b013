"""What exactly-once delivery remembers, and what of it survives."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.destinations.session.inflight import COMPACT_RECORDS, ExactlyOnceState
from tests.destinations.session.given import (
    Subscriber,
    found_session,
    new_session,
    publication,
    publish,
    subscribe,
)
from tests.doubles import Stand

#: Of one fact in the journal.
RECORD = 13


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session" / "once"


async def test_it_remembers_across_a_restart(stand: Stand, path: Path) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, path)
    for number in (1, 2, 65535):
        exactly_once.add_received(number)
    exactly_once.release_received(2)
    exactly_once.release(1 << 40)
    exactly_once.release(7)
    exactly_once.complete(7)
    exactly_once.close()
    again = ExactlyOnceState(stand.kernel, path)
    assert again.received == {1, 65535}
    assert again.released == {1 << 40}
    again.close()


async def test_it_is_written_in_the_turn_that_changes_it(stand: Stand, path: Path) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, path)
    exactly_once.add_received(1)
    assert not path.exists()
    stand.kernel.write_batch.flush()
    assert path.stat().st_size == RECORD
    exactly_once.close()


async def test_what_is_forgotten_was_known(stand: Stand, path: Path) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, path)
    exactly_once.release_received(5)
    exactly_once.complete(5)
    stand.kernel.write_batch.flush()
    assert not path.exists()


@pytest.mark.parametrize("cut", range(1, RECORD))
async def test_a_torn_tail_is_cut(stand: Stand, path: Path, cut: int) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, path)
    exactly_once.add_received(1)
    exactly_once.add_received(2)
    exactly_once.close()
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    again = ExactlyOnceState(stand.kernel, path)
    assert again.received == {1}
    again.add_received(3)
    again.close()
    assert len(stand.reports) == 1
    assert ExactlyOnceState(stand.kernel, path).received == {1, 3}
    assert len(stand.reports) == 1


async def test_a_damaged_record_is_not_believed(stand: Stand, path: Path) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, path)
    exactly_once.add_received(1)
    exactly_once.add_received(2)
    exactly_once.close()
    data = bytearray(path.read_bytes())
    data[RECORD + 1] ^= 1
    path.write_bytes(data)
    assert ExactlyOnceState(stand.kernel, path).received == {1}


async def test_the_journal_does_not_grow_with_its_history(stand: Stand, path: Path) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, path)
    exactly_once.add_received(65000)
    exactly_once.release(99)
    for number in range(1, COMPACT_RECORDS):
        exactly_once.add_received(number)
        exactly_once.release_received(number)
        if number % 100 == 0:
            await stand.synced()
    assert path.stat().st_size < (COMPACT_RECORDS + 500) * RECORD
    exactly_once.add_received(7)
    exactly_once.close()
    again = ExactlyOnceState(stand.kernel, path)
    assert (again.received, again.released) == ({65000, 7}, {99})
    assert [child.name for child in path.parent.iterdir()] == ["once"]
    again.close()


async def test_a_long_journal_is_replaced_when_its_copy_is_on_disk_and_has_all_that_came_meanwhile(
    tmp_path: Path, path: Path
) -> None:
    disk = threading.Event()

    def sync(_: int) -> None:
        assert disk.wait(60)

    stand = Stand(tmp_path / "log", sync=sync)
    exactly_once = ExactlyOnceState(stand.kernel, path)
    for number in range(COMPACT_RECORDS + 100):
        exactly_once.add_received(number % 10)
    stand.kernel.write_batch.flush()  # and does not wait for the disk
    exactly_once.add_received(77)
    stand.kernel.write_batch.flush()
    assert path.stat().st_size > COMPACT_RECORDS * RECORD

    disk.set()
    await stand.synced()

    assert path.stat().st_size == 11 * RECORD
    exactly_once.add_received(78)
    exactly_once.close()
    assert ExactlyOnceState(stand.kernel, path).received == {*range(10), 77, 78}
    await stand.close()


async def test_a_copy_a_killed_broker_left_is_not_taken_for_the_journal(
    stand: Stand, path: Path
) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, path)
    exactly_once.add_received(1)
    exactly_once.close()
    path.with_suffix(".new").write_bytes(b"half a copy")

    again = ExactlyOnceState(stand.kernel, path)

    assert again.received == {1}
    assert [child.name for child in path.parent.iterdir()] == ["once"]
    again.close()


async def test_nothing_is_written_for_what_does_not_last(stand: Stand) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, None)
    exactly_once.add_received(1)
    exactly_once.release(2)
    stand.kernel.write_batch.flush()
    assert (exactly_once.received, exactly_once.released) == ({1}, {2})
    exactly_once.close()


async def test_what_is_deleted_leaves_nothing(stand: Stand, path: Path) -> None:
    exactly_once = ExactlyOnceState(stand.kernel, path)
    exactly_once.add_received(1)
    stand.kernel.write_batch.flush()
    exactly_once.add_received(2)
    exactly_once.delete()
    stand.kernel.write_batch.flush()
    assert not path.exists()


facts = st.lists(
    st.tuples(
        st.sampled_from(["add_received", "release_received", "release", "complete"]),
        st.integers(1, 5),
    )
)


@settings(deadline=None, max_examples=30)
@given(facts=facts, data=st.data())
async def test_a_journal_cut_anywhere_is_a_state_it_was_once_in(
    tmp_path_factory: pytest.TempPathFactory,
    facts: list[tuple[str, int]],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("once")
    stand = Stand(folder / "log")
    path = folder / "journal"
    exactly_once = ExactlyOnceState(stand.kernel, path)
    states = [(set[int](), set[int]())]
    for verb, value in facts:
        before = len(exactly_once._pending)
        getattr(exactly_once, verb)(value)
        if len(exactly_once._pending) > before:
            states.append((set(exactly_once.received), set(exactly_once.released)))
    exactly_once.close()
    whole = path.read_bytes() if path.exists() else b""
    keep = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:keep])
    again = ExactlyOnceState(stand.kernel, path)
    assert (again.received, again.released) == states[keep // RECORD]
    again.close()
    await stand.close()


# In a session.


async def test_what_was_released_is_not_sent_again_though_the_log_knows_nothing_of_it(
    stand: Stand,
) -> None:
    """The power failed when the one file was on disk, and the other was not."""
    session = new_session(stand)
    subscribe(stand, session, "a", 2)
    client = Subscriber(session)
    publish(stand, publication(b"once", qos=2))
    client.confirm(client.inflight[0])
    await stand.close()
    for acks in (stand.kernel.directory / "queues").rglob("acks"):
        acks.unlink()
    after = await stand.reopened()
    again = Subscriber(found_session(after))
    (entry,) = again.inflight
    assert entry.released
    again.answer(entry)
    assert len(again.inflight) == 1
    assert found_session(after).message_count == 0
    await after.close()


async def test_a_session_that_only_received_leaves_no_folder(stand: Stand) -> None:
    session = new_session(stand)
    session.add_received(1)
    stand.kernel.write_batch.flush()
    stand.vhost.delete_queue(session.name)
    stand.kernel.write_batch.flush()
    assert not list((stand.kernel.directory / "queues").rglob("*once*"))
    folders = (stand.kernel.directory / "queues").glob("*/*")
    assert not list(folders)
