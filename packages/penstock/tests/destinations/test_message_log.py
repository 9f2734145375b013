"""A queue's store: what is live of its log, over restarts, crashes and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.destinations import message_log as log_module
from penstock.destinations.message_log import MessageLog
from tests.doubles import Stand, message, persistent


@pytest.fixture
def store(stand: Stand) -> MessageLog:
    return MessageLog(stand.kernel, stand.directory / "store")


def live(store: MessageLog) -> list[tuple[int, bytes, bool]]:
    return [(one.offset, one.message.body, one.transient) for one in store.records()]


async def reopened(stand: Stand, store: MessageLog) -> MessageLog:
    store.close()
    await stand.synced()
    return MessageLog(stand.kernel, store.directory)


async def test_what_is_appended_is_live_until_it_is_done(stand: Stand, store: MessageLog) -> None:
    offsets = [store.append(persistent(body)) for body in (b"a", b"b", b"c")]
    assert offsets == [0, 1, 2]
    store.acknowledge(1, spooled=False)
    assert live(store) == [(0, b"a", False), (2, b"c", False)]
    again = await reopened(stand, store)
    assert live(again) == [(0, b"a", False), (2, b"c", False)]
    again.close()


async def test_what_was_only_paged_says_so(store: MessageLog) -> None:
    store.append(message(b"a"), transient=True)
    assert live(store) == [(0, b"a", True)]
    store.close()


async def test_everything_may_be_done_at_once(stand: Stand, store: MessageLog) -> None:
    for body in (b"a", b"b", b"c"):
        store.append(persistent(body))
    store.acknowledge_all()
    assert live(store) == []
    assert store.append(persistent(b"d")) == 3
    again = await reopened(stand, store)
    assert live(again) == [(3, b"d", False)]
    again.close()


async def test_acknowledgements_of_messages_a_crash_took_do_not_cost_their_successors(
    stand: Stand, store: MessageLog
) -> None:
    """A power failure may keep the one and lose the other; the offset is used again."""
    for body in (b"a", b"b"):
        store.append(persistent(body))
    stand.kernel.write_batch.flush()
    (segment,) = store.directory.glob("*.seg")
    whole = segment.read_bytes()
    for body in (b"c", b"d"):
        store.append(persistent(body))
    store.acknowledge(2, spooled=False)
    store.acknowledge(3, spooled=False)
    store.close()
    await stand.synced()
    segment.write_bytes(whole)
    for index in store.directory.glob("*.idx"):
        index.unlink()

    again = MessageLog(stand.kernel, store.directory)
    assert again.append(persistent(b"new")) == 2
    assert live(again) == [(0, b"a", False), (1, b"b", False), (2, b"new", False)]
    again.close()


async def test_segments_that_are_done_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "TRIM_INTERVAL", 10)
    stand = Stand(tmp_path, segment_bytes=4096)
    store = MessageLog(stand.kernel, tmp_path / "store")
    for number in range(200):
        store.append(persistent(b"%d" % number * 50))
        stand.kernel.write_batch.flush()
    before = len(list(store.directory.glob("*.seg")))
    for number in range(200):
        store.acknowledge(number, spooled=False)
    assert before > 5
    assert len(list(store.directory.glob("*.seg"))) <= 2
    store.close()
    await stand.close()


async def test_messages_that_damage_took_do_not_keep_their_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody will ever acknowledge them."""
    monkeypatch.setattr(log_module, "TRIM_INTERVAL", 10)
    stand = Stand(tmp_path, segment_bytes=4096)
    store = MessageLog(stand.kernel, tmp_path / "store")
    for number in range(100):
        store.append(persistent(b"%d" % number * 50))
        stand.kernel.write_batch.flush()
    store.close()
    await stand.synced()
    second = sorted(store.directory.glob("*.seg"))[1]
    second.write_bytes(b"\0" * second.stat().st_size)

    again = MessageLog(stand.kernel, store.directory)
    left = [record.offset for record in again.records()]
    assert 0 < len(left) < 100
    for offset in left:
        again.acknowledge(offset, spooled=False)
    assert again.acks.floor == 100
    assert len(list(store.directory.glob("*.seg"))) <= 2
    again.close()
    await stand.close()


async def test_bodies_nobody_wants_any_more_are_swept(stand: Stand, store: MessageLog) -> None:
    store.append(persistent(b"a"))
    store.append(persistent(b"b"))
    store.acknowledge(0, spooled=False)
    for offset in (0, 1, 7):  # done; live; of a message that never reached the log
        (store.directory / f"{offset:020d}.body").touch()
    again = await reopened(stand, store)
    assert [body.stem for body in store.directory.glob("*.body")] == [f"{1:020d}"]
    again.close()


async def test_deleting_leaves_nothing(store: MessageLog) -> None:
    store.append(persistent(b"a"))
    store.acknowledge(0, spooled=False)
    store.delete()
    assert not store.directory.exists()
