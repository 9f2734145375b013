"""Buckets and their budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.buckets import (
    BUCKET_BYTES,
    MAX_POOLED_BYTES,
    Bucket,
    BucketPool,
    MemoryAccount,
)


@given(st.integers(0, 1 << 20))
def test_a_bucket_is_the_next_power_of_two(size: int) -> None:
    length = len(BucketPool(1).take(size))
    assert length >= max(size, 2)
    assert length & (length - 1) == 0
    assert length <= max(2, 2 * size)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_a_bucket_takes_what_it_has_room_for(pieces: list[bytes]) -> None:
    account = MemoryAccount(BucketPool(1 << 20), 1 << 20, lambda: None)
    bucket = account.take(64)
    poured = b""
    for piece in pieces:
        taken = bucket.fill(memoryview(piece))
        poured += piece[:taken]
        assert taken == len(piece) or bucket.full
    assert bytes(bucket.content) == poured
    assert bucket.full == (len(poured) == 64)


@given(st.data())
def test_everything_taken_is_given_back_whoever_is_last(data: st.DataObject) -> None:
    pool = BucketPool(1 << 30)
    account = MemoryAccount(pool, 1 << 30, lambda: None)
    holders: list[Bucket] = []
    for size in data.draw(st.lists(st.integers(1, 5000), max_size=10)):
        bucket = account.take(size)
        holders.append(bucket)
        for _ in range(data.draw(st.integers(0, 3))):
            bucket.retain()
            holders.append(bucket)
    for bucket in data.draw(st.permutations(holders)):
        assert bucket.references > 0
        bucket.release()
    assert (pool.used, account.used) == (0, 0)


def test_a_bucket_that_came_back_is_used_again() -> None:
    pool = BucketPool(1 << 30)
    account = MemoryAccount(pool, 1 << 30, lambda: None)
    bucket = account.take()
    memory = bucket.memory
    bucket.release()
    again = account.take()
    assert again.memory is memory
    assert (again.filled, again.references) == (0, 1)


def test_the_pool_keeps_only_so_many_free_ones() -> None:
    pool = BucketPool(1 << 30)
    many = [pool.take(BUCKET_BYTES) for _ in range(2 * MAX_POOLED_BYTES // BUCKET_BYTES)]
    for memory in many:
        pool.put(memory)
    kept = {id(pool.take(BUCKET_BYTES)) for _ in many} & {id(memory) for memory in many}
    assert len(kept) == MAX_POOLED_BYTES // BUCKET_BYTES


def test_an_account_says_when_its_window_is_spent_and_when_something_came_back() -> None:
    relieved: list[int] = []
    account = MemoryAccount(BucketPool(1 << 30), 1024, lambda: relieved.append(account.used))
    first, second = account.take(512), account.take(512)
    spent = [account.spent]
    first.release()
    spent.append(account.spent)
    second.release()
    assert spent == [True, False]
    assert relieved == [512, 0]


def test_who_waits_for_the_budget_is_called_once_when_there_is_room() -> None:
    pool = BucketPool(100)
    called: list[str] = []
    pool.charge(150)
    assert pool.spent
    pool.when_relieved(lambda: called.append("a"))
    pool.when_relieved(lambda: called.append("b"))
    pool.discharge(50)
    assert (pool.spent, called) == (True, [])
    pool.discharge(1)
    assert (pool.spent, called) == (False, ["a", "b"])
    pool.charge(100)
    pool.discharge(100)
    assert called == ["a", "b"]


def test_who_finds_it_spent_again_waits_again() -> None:
    pool = BucketPool(100)
    called: list[int] = []

    def resume() -> None:
        called.append(pool.used)
        if len(called) == 1:
            pool.charge(100)
            pool.when_relieved(resume)

    pool.charge(100)
    pool.when_relieved(resume)
    pool.discharge(60)
    assert called == [40]
    pool.discharge(60)
    assert called == [40, 80]
