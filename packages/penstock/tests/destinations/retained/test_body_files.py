"""Large retained messages: their bodies stay in files, and the files go when they may."""

from __future__ import annotations

import gc

import pytest

from penstock.broker.contract import LOGGED
from penstock.destinations.retained import RetainedStore
from tests.destinations.retained.given import (
    body_of,
    contents,
    killed,
    large,
    note,
    reopened,
    retained,
)
from tests.doubles import Stand

BODY = bytes(range(256)) * 2000


@pytest.fixture
def store(stand: Stand) -> RetainedStore:
    return retained(stand)


def files(stand: Stand) -> list[int]:
    """The offsets of the records that have a file."""
    return sorted(int(path.stem) for path in (stand.directory / "retained").glob("*.body"))


async def test_a_large_body_stays_in_its_file(stand: Stand, store: RetainedStore) -> None:
    assert store.retain(large(stand, "a", BODY)) == LOGGED
    kept = store.get(b"a")
    assert kept is not None
    assert kept.spool is not None
    assert (kept.body, kept.size, kept.spool.read()) == (b"", len(BODY), BODY)
    assert store.bytes == len(BODY)
    assert store.log.bytes < 1000


async def test_a_large_body_outlives_the_broker(stand: Stand, store: RetainedStore) -> None:
    store.retain(large(stand, "a", BODY))
    again = await reopened(stand, store)
    assert contents(again) == {b"a": BODY}
    assert again.bytes == len(BODY)
    again.close()


@pytest.mark.parametrize("after", [b"small", b""])
async def test_a_body_goes_when_what_replaced_it_is_on_disk(
    stand: Stand, store: RetainedStore, after: bytes
) -> None:
    store.retain(large(stand, "a", BODY))
    stand.kernel.write_batch.flush()
    store.retain(note("a", after))
    assert contents(killed(stand, store)) == {b"a": BODY}, "nothing has been written yet"
    await stand.synced()
    assert files(stand) == []


async def test_a_reader_keeps_a_body_that_is_replaced(stand: Stand, store: RetainedStore) -> None:
    store.retain(large(stand, "a", BODY))
    reading = store.get(b"a")
    store.retain(note("a", b"small"))
    await stand.synced()
    assert body_of(reading) == BODY
    del reading
    gc.collect()
    assert stand.spooled == []


async def test_files_that_belong_to_no_record_are_swept(stand: Stand, store: RetainedStore) -> None:
    store.retain(large(stand, "a", BODY))
    store.retain(large(stand, "b", BODY))
    store.retain(note("b", b"small"))
    store.close()  # before anybody could take b's away
    (stand.directory / "retained" / f"{7:020d}.body").touch()
    again = retained(stand)
    assert files(stand) == [0]
    assert contents(again) == {b"a": BODY, b"b": b"small"}
    again.close()


@pytest.mark.parametrize("restart", [True, False])
async def test_a_body_that_is_missing_is_reported(
    stand: Stand, store: RetainedStore, restart: bool
) -> None:
    store.retain(large(stand, "a", BODY))
    store.retain(note("b"))
    await stand.synced()
    (stand.directory / "retained" / f"{0:020d}.body").unlink()
    again = await reopened(stand, store) if restart else store
    assert contents(again) == {b"b": b"it"}
    assert len(stand.reports) == 1
    assert "'a' has no body" in stand.reports[0]
    again.close()
