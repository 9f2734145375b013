"""What exactly-once delivery remembers, and what of it survives."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.drivers.session.once import HISTORY, Once
from tests.doubles import Stand
from tests.drivers.session.given import (
    Subscriber,
    found_session,
    new_session,
    publication,
    publish,
    subscribe,
)

#: Of one fact in the journal.
RECORD = 13


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session" / "once"


async def test_it_remembers_across_a_restart(stand: Stand, path: Path) -> None:
    once = Once(stand.kernel, path)
    for number in (1, 2, 65535):
        once.remember(number)
    once.forget(2)
    once.release(1 << 40)
    once.release(7)
    once.complete(7)
    once.close()
    again = Once(stand.kernel, path)
    assert again.received == {1, 65535}
    assert again.released == {1 << 40}
    again.close()


async def test_it_is_written_in_the_turn_that_changes_it(stand: Stand, path: Path) -> None:
    once = Once(stand.kernel, path)
    once.remember(1)
    assert not path.exists()
    stand.kernel.turn.end()
    assert path.stat().st_size == RECORD
    once.close()


async def test_what_is_forgotten_was_known(stand: Stand, path: Path) -> None:
    once = Once(stand.kernel, path)
    once.forget(5)
    once.complete(5)
    stand.kernel.turn.end()
    assert not path.exists()


@pytest.mark.parametrize("cut", range(1, RECORD))
async def test_a_torn_tail_is_cut(stand: Stand, path: Path, cut: int) -> None:
    once = Once(stand.kernel, path)
    once.remember(1)
    once.remember(2)
    once.close()
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    again = Once(stand.kernel, path)
    assert again.received == {1}
    again.remember(3)
    again.close()
    assert len(stand.reports) == 1
    assert Once(stand.kernel, path).received == {1, 3}
    assert len(stand.reports) == 1


async def test_a_damaged_record_is_not_believed(stand: Stand, path: Path) -> None:
    once = Once(stand.kernel, path)
    once.remember(1)
    once.remember(2)
    once.close()
    data = bytearray(path.read_bytes())
    data[RECORD + 1] ^= 1
    path.write_bytes(data)
    assert Once(stand.kernel, path).received == {1}


async def test_the_journal_does_not_grow_with_its_history(stand: Stand, path: Path) -> None:
    once = Once(stand.kernel, path)
    once.remember(65000)
    once.release(99)
    for number in range(1, HISTORY):
        once.remember(number)
        once.forget(number)
        if number % 100 == 0:
            await stand.synced()
    assert path.stat().st_size < (HISTORY + 500) * RECORD
    once.remember(7)
    once.close()
    again = Once(stand.kernel, path)
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
    once = Once(stand.kernel, path)
    for number in range(HISTORY + 100):
        once.remember(number % 10)
    stand.kernel.turn.end()  # and does not wait for the disk
    once.remember(77)
    stand.kernel.turn.end()
    assert path.stat().st_size > HISTORY * RECORD

    disk.set()
    await stand.synced()

    assert path.stat().st_size == 11 * RECORD
    once.remember(78)
    once.close()
    assert Once(stand.kernel, path).received == {*range(10), 77, 78}
    await stand.close()


async def test_a_copy_a_killed_broker_left_is_not_taken_for_the_journal(
    stand: Stand, path: Path
) -> None:
    once = Once(stand.kernel, path)
    once.remember(1)
    once.close()
    path.with_suffix(".new").write_bytes(b"half a copy")

    again = Once(stand.kernel, path)

    assert again.received == {1}
    assert [child.name for child in path.parent.iterdir()] == ["once"]
    again.close()


async def test_nothing_is_written_for_what_does_not_last(stand: Stand) -> None:
    once = Once(stand.kernel, None)
    once.remember(1)
    once.release(2)
    stand.kernel.turn.end()
    assert (once.received, once.released) == ({1}, {2})
    once.close()


async def test_what_is_deleted_leaves_nothing(stand: Stand, path: Path) -> None:
    once = Once(stand.kernel, path)
    once.remember(1)
    stand.kernel.turn.end()
    once.remember(2)
    once.delete()
    stand.kernel.turn.end()
    assert not path.exists()


facts = st.lists(
    st.tuples(st.sampled_from(["remember", "forget", "release", "complete"]), st.integers(1, 5))
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
    once = Once(stand.kernel, path)
    states = [(set[int](), set[int]())]
    for verb, value in facts:
        before = len(once._pending)
        getattr(once, verb)(value)
        if len(once._pending) > before:
            states.append((set(once.received), set(once.released)))
    once.close()
    whole = path.read_bytes() if path.exists() else b""
    keep = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:keep])
    again = Once(stand.kernel, path)
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
    client.confirm(client.letters[0])
    await stand.close()
    for acks in (stand.kernel.directory / "queues").rglob("acks"):
        acks.unlink()
    after = await stand.reopened()
    again = Subscriber(found_session(after))
    (letter,) = again.letters
    assert letter.released
    again.answer(letter)
    assert len(again.letters) == 1
    assert found_session(after).message_count == 0
    await after.close()


async def test_a_session_that_only_received_leaves_no_folder(stand: Stand) -> None:
    session = new_session(stand)
    session.remember(1)
    stand.kernel.turn.end()
    stand.vhost.delete_queue(session.name)
    stand.kernel.turn.end()
    assert not list((stand.kernel.directory / "queues").rglob("*once*"))
    folders = (stand.kernel.directory / "queues").glob("*/*")
    assert not list(folders)
