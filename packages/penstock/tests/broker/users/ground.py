"""What the tests of users stand on: a hasher that counts, a clock that stands still."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Literal

from argon2 import PasswordHasher

from penstock.broker.permissions import Permission

EVERYTHING = Permission(".*", ".*", ".*")


class CountingHasher(PasswordHasher):
    """A hasher that is quick, for tests, counts how often it worked, and tells when it checked."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.worked = 0
        self.checked: Callable[[], None] = lambda: None

    def hash(self, password: str | bytes, **options: Any) -> str:
        self.worked += 1
        return super().hash(password, **options)

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002
        self.worked += 1
        super().verify(hash, password)
        self.checked()
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def salted(password: str, algorithm: str = "sha256") -> str:
    """A password as RabbitMQ keeps it."""
    salt = b"\x90\x8d\xc6\x0a"
    digest = hashlib.new(algorithm, salt + password.encode()).digest()
    return base64.b64encode(salt + digest).decode()
