"""Who is this? Names, passwords, and what a check costs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.broker.users import DEFAULT_PASSWORD, Users, default_user
from penstock.core.errors import (
    AuthenticationFailed,
    PreconditionFailed,
)
from penstock.core.passwords import argon2_hasher
from tests.broker.users.ground import EVERYTHING, CountingHasher, salted


async def test_the_first_start_makes_guest_an_administrator_of_the_default_vhost(
    users: Users,
) -> None:
    guest = await users.authenticate("guest", "guest", address="127.0.0.1")

    assert guest.tags == ("administrator",)
    assert guest.permissions == {"/": EVERYTHING}


def test_the_hash_of_guest_is_as_slow_as_that_of_others() -> None:
    stored = default_user().password_hash

    assert stored is not None
    assert not argon2_hasher().check_needs_rehash(stored)
    assert argon2_hasher().verify(stored, DEFAULT_PASSWORD)


async def test_guest_comes_from_loopback_only(users: Users) -> None:
    with pytest.raises(AuthenticationFailed, match="'guest' can only connect via localhost"):
        await users.authenticate("guest", "guest", address="192.0.2.1")


async def test_another_user_comes_from_anywhere(users: Users) -> None:
    users.add("ana", "secret")

    assert (await users.authenticate("ana", b"secret", address="192.0.2.1")).name == "ana"


@pytest.mark.parametrize(
    ("name", "password"),
    [("ana", "wrong"), ("ana", ""), ("nobody", "secret"), ("", ""), ("ana", "\ud800")],
)
async def test_a_wrong_name_or_password_is_refused(users: Users, name: str, password: str) -> None:
    users.add("ana", "secret")

    with pytest.raises(AuthenticationFailed):
        await users.authenticate(name, password, address="127.0.0.1")


async def test_a_right_password_is_checked_once(users: Users, hasher: CountingHasher) -> None:
    before = hasher.worked

    for _ in range(3):
        await users.authenticate("guest", "guest", address="127.0.0.1")

    assert hasher.worked == before + 1


async def test_many_at_once_with_the_same_password_wait_for_few_checks(
    users: Users, hasher: CountingHasher
) -> None:
    before = hasher.worked

    logins = [users.authenticate("guest", "guest", address="127.0.0.1") for _ in range(50)]
    await asyncio.gather(*logins)

    assert hasher.worked - before <= 2


async def test_a_refusal_takes_the_same_work_for_any_user(
    users: Users, hasher: CountingHasher
) -> None:
    users.restore({"users": [{"name": "rabbit", "password_hash": salted("right")}]})
    work = []

    for name in ("guest", "nobody", "rabbit"):
        before = hasher.worked
        with pytest.raises(AuthenticationFailed):
            await users.authenticate(name, "wrong", address="127.0.0.1")
        work.append(hasher.worked - before)

    assert work == [1, 1, 1]


async def test_the_check_runs_beside_the_loop(users: Users, hasher: CountingHasher) -> None:
    threads: list[threading.Thread] = []
    hasher.checked = lambda: threads.append(threading.current_thread())

    await users.authenticate("guest", "guest", address="127.0.0.1")

    assert threads
    assert threading.current_thread() not in threads


async def test_a_changed_password_is_the_only_one(users: Users) -> None:
    await users.authenticate("guest", "guest", address="127.0.0.1")

    users.set_password("guest", "new")

    with pytest.raises(AuthenticationFailed):
        await users.authenticate("guest", "guest", address="127.0.0.1")
    await users.authenticate("guest", "new", address="127.0.0.1")


async def test_a_password_changed_during_the_check_does_not_let_in(
    users: Users, hasher: CountingHasher
) -> None:
    hasher.checked = lambda: users.set_password("guest", "new")

    with pytest.raises(AuthenticationFailed, match="was changed"):
        await users.authenticate("guest", "guest", address="127.0.0.1")


def test_an_empty_password_cannot_be_set(users: Users) -> None:
    with pytest.raises(PreconditionFailed, match="must not be empty"):
        users.add("ana", "")
