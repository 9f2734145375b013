"""Connections that nobody has logged in on are bounded, and leave descriptors to the log."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from penstock.broker.host import ConnectionLimiter

NEAR, FAR = "127.0.0.1", "192.0.2.1"


class Connection:
    """As much of a socket as an admission looks at, and its transport."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number

    def abort(self) -> None:
        self.number = -1

    def get_extra_info(self, name: str) -> Any:
        return self


@pytest.fixture
def numbers() -> Iterator[int]:
    return iter(range(10, 1000))


def come(connection_limiter: ConnectionLimiter, number: int, address: str = NEAR) -> Connection:
    connection = Connection(number)
    connection_limiter.register(cast(socket.socket, connection), address, connection.abort)
    return connection


def is_open(connection: Connection) -> bool:
    return connection.number >= 0


def test_the_oldest_goes_when_too_many_have_not_logged_in(numbers: Iterator[int]) -> None:
    connection_limiter = ConnectionLimiter(3, 1000)
    came = [come(connection_limiter, next(numbers)) for _ in range(5)]

    assert [is_open(one) for one in came] == [False, False, True, True, True]


def test_the_address_that_has_the_most_loses_one(numbers: Iterator[int]) -> None:
    connection_limiter = ConnectionLimiter(3, 1000)
    first = come(connection_limiter, next(numbers), FAR)
    crowd = [come(connection_limiter, next(numbers)) for _ in range(10)]

    assert is_open(first)
    assert [is_open(one) for one in crowd] == [False] * 8 + [True] * 2


def test_whoever_has_logged_in_stays(numbers: Iterator[int]) -> None:
    connection_limiter = ConnectionLimiter(3, 1000)
    known = [come(connection_limiter, next(numbers)) for _ in range(3)]
    for one in known:
        connection_limiter.mark_authenticated(cast(Any, one))
    for _ in range(10):
        come(connection_limiter, next(numbers))

    assert all(map(is_open, known))


def test_those_who_have_gone_do_not_count(numbers: Iterator[int]) -> None:
    connection_limiter = ConnectionLimiter(3, 1000)
    stays = come(connection_limiter, next(numbers))
    for _ in range(10):
        come(connection_limiter, next(numbers)).abort()

    assert is_open(stays)


def test_a_number_is_that_of_whoever_has_it_now() -> None:
    connection_limiter = ConnectionLimiter(2, 1000)
    come(connection_limiter, 10).abort()
    again = come(connection_limiter, 10)
    other = come(connection_limiter, 11)

    assert is_open(again)
    assert is_open(other)


def test_the_last_quarter_of_the_descriptors_is_for_the_log(numbers: Iterator[int]) -> None:
    connection_limiter = ConnectionLimiter(1000, 400)
    stranger = come(connection_limiter, 20)

    assert connection_limiter.has_room(cast(socket.socket, Connection(299)))
    assert is_open(stranger)
    assert not connection_limiter.has_room(cast(socket.socket, Connection(300)))
    assert not is_open(stranger)  # there is room for the next
