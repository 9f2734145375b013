"""The log of retained messages stays small, and nothing is lost on the way."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.core.basic_properties import decode_header
from penstock.destinations.retained import RetainedStore
from penstock.destinations.retained.compaction import MAX_SIZE_FACTOR
from tests.destinations.retained.given import contents, killed, large, note, reopened, retained
from tests.doubles import Stand

SEGMENT = 4096


class Disk:
    """Syncs, or refuses to."""

    def __init__(self) -> None:
        self.broken = False

    def sync(self, _: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "broken")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def stand(tmp_path: Path, disk: Disk) -> AsyncIterator[Stand]:
    stand = Stand(tmp_path / "log", sync=disk.sync, segment_bytes=SEGMENT)
    yield stand
    await stand.close()


@pytest.fixture
def store(stand: Stand) -> RetainedStore:
    return retained(stand)


def keep_many(stand: Stand, store: RetainedStore, count: int, *, each: int = 5) -> None:
    """One key changes so often, some turns long."""
    for number in range(count):
        store.retain(note("hot", b"%d" % number))
        if number % each == each - 1:
            stand.kernel.write_batch.flush()
    stand.kernel.write_batch.flush()


async def churn(stand: Stand, store: RetainedStore, rounds: int = 40) -> int:
    """Much more than the log has room for; returns how large it became."""
    most = 0
    for _ in range(rounds):
        keep_many(stand, store, 25)
        await stand.synced()
        most = max(most, store.log.bytes)
    return most


async def test_the_log_does_not_grow_with_the_changes(stand: Stand, store: RetainedStore) -> None:
    most = await churn(stand, store, rounds=200)
    assert store.log.next_offset >= 5000
    assert most < 5 * SEGMENT
    assert contents(store) == {b"hot": b"24"}


async def test_what_does_not_change_moves_on(stand: Stand, store: RetainedStore) -> None:
    cold = {b"cold.%d" % number: b"%d" % number for number in range(100)}
    for key, body in cold.items():
        store.retain(note(key, body))
        stand.kernel.write_batch.flush()
    most = await churn(stand, store, rounds=100)
    assert store.log.first_offset > 100
    assert most < (MAX_SIZE_FACTOR + 2) * store._index.weight + 4 * SEGMENT
    assert contents(store) == {**cold, b"hot": b"24"}
    again = await reopened(stand, store)
    assert contents(again) == {**cold, b"hot": b"24"}
    again.close()


async def test_a_log_of_which_all_is_live_is_left_alone(stand: Stand, store: RetainedStore) -> None:
    for number in range(500):
        store.retain(note(f"a.{number}", b"x"))
        stand.kernel.write_batch.flush()
    await stand.synced()
    assert store.log.next_offset == 500


async def test_what_was_forgotten_stays_forgotten(stand: Stand, store: RetainedStore) -> None:
    for number in range(100):
        store.retain(note(f"a.{number}"))
        stand.kernel.write_batch.flush()
    for number in range(99):
        store.remove(b"a.%d" % number)
        stand.kernel.write_batch.flush()
    for _ in range(20):
        await churn(stand, store, rounds=2)
        copy = killed(stand, store)
        assert contents(copy) == {b"a.99": b"it", b"hot": b"24"}
        copy.close()
    assert store.log.first_offset > 199


async def test_a_kill_at_any_turn_loses_nothing(stand: Stand, store: RetainedStore) -> None:
    kept = {b"cold.%d" % number: b"%d" % number for number in range(30)}
    for key, body in kept.items():
        store.retain(note(key, body))
        stand.kernel.write_batch.flush()
    for number in range(400):
        kept[b"hot"] = b"%d" % number
        store.retain(note("hot", kept[b"hot"]))
        stand.kernel.write_batch.flush()
        if number % 3 == 0:
            await stand.synced()
        if number % 5 == 0:
            copy = killed(stand, store)
            assert contents(copy) == kept
            copy.close()
    assert store.log.first_offset > 30


async def test_nothing_goes_before_its_copy_is_on_disk(
    stand: Stand, store: RetainedStore, disk: Disk
) -> None:
    store.retain(note("cold"))
    await stand.synced()
    disk.broken = True
    keep_many(stand, store, 1000)
    with pytest.raises(OSError, match="broken"):
        await stand.synced()
    assert store._index.offset(b"cold") > 0, "it has been copied"
    assert store.log.first_offset == 0


async def test_copies_the_disk_may_have_lost_are_made_again(
    stand: Stand, store: RetainedStore, disk: Disk
) -> None:
    store.retain(note("cold"))
    store.retain(large(stand, "large", b"x" * 1000))
    await stand.synced()
    disk.broken = True
    keep_many(stand, store, 1000)
    copied = store._index.offset(b"cold")
    with pytest.raises(OSError, match="broken"):
        await stand.synced()
    disk.broken = False
    await stand.synced()
    assert store._index.offset(b"cold") > copied > 0
    await churn(stand, store)
    assert store.log.first_offset > 0
    copy = killed(stand, store)
    assert contents(copy) == {b"cold": b"it", b"large": b"x" * 1000, b"hot": b"24"}
    assert len(list((stand.directory / "retained").glob("*.body"))) == 1
    copy.close()


async def test_a_large_body_moves_with_its_record(stand: Stand, store: RetainedStore) -> None:
    store.retain(large(stand, "large", b"x" * 1000))
    await churn(stand, store)
    offset = store._index.offset(b"large")
    assert offset > 0
    assert [path.stem for path in (stand.directory / "retained").glob("*.body")] == [
        f"{offset:020d}"
    ]
    again = await reopened(stand, store)
    assert contents(again) == {b"large": b"x" * 1000, b"hot": b"24"}
    again.close()


async def test_a_time_to_live_goes_on_in_the_copy(stand: Stand, store: RetainedStore) -> None:
    began = store.log.now()
    store.retain(note("mortal", expiration="100000"))
    store.retain(note("ended", expiration="1"))
    store.log.now = lambda: began + 40_000
    await churn(stand, store)
    assert store._index.offset(b"mortal") > 0
    again = await reopened(stand, store)
    again.log.now = lambda: began + 70_000
    kept = again.get(b"mortal")
    assert kept is not None
    assert 29_000 < int(decode_header(kept.header).expiration or 0) <= 30_100
    assert again.get(b"ended") is None
    again.close()


async def test_a_closed_store_deletes_nothing(stand: Stand, store: RetainedStore) -> None:
    """Another may have been opened in the same place meanwhile."""
    store.retain(note("cold"))
    keep_many(stand, store, 1000)
    first = store.log.first_offset
    store.close()
    await stand.synced()
    assert store.log.first_offset == first
