from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.users import Users
from penstock.core.passwords import PasswordVerifier
from tests.broker.users.ground import Clock, CountingHasher


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "users.json"


@pytest.fixture
def hasher() -> CountingHasher:
    return CountingHasher()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_users(path: Path, hasher: CountingHasher, clock: Clock) -> Callable[[], Users]:
    """A broker's users, or another process's, on the same file."""

    def opened() -> Users:
        users = Users(path, passwords=PasswordVerifier(hasher), clock=clock)
        users.load()
        return users

    return opened


@pytest.fixture
def users(open_users: Callable[[], Users]) -> Users:
    return open_users()
