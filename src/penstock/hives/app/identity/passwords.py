"""Passwords of the local issuer: argon2id, checked in a thread, few at a time.

A check takes tens of milliseconds and 19 MiB on purpose. Somebody who does not exist is refused as
slowly as somebody who does. How often a login may fail is `attempts.py`'s to say.
"""

from __future__ import annotations

import asyncio
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from penstock.hives.app.domain.errors import Fault, Invalid

SHORTEST: Final = 10
LONGEST: Final = 256
_AT_ONCE: Final = 2


class Passwords:
    """Hashes and checks, for one process."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._nobody: str | None = None

    async def hash(self, password: str) -> str:
        async with self._at_once:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def check(self, stored: str | None, password: str) -> bool:
        """Whether it is the one; nobody's is None, and takes as long."""
        async with self._at_once:
            return await asyncio.to_thread(self._check, stored, password)

    def _check(self, stored: str | None, password: str) -> bool:
        if stored is None:
            if self._nobody is None:
                self._nobody = self._hasher.hash("nobody's password")
            self._matches(self._nobody, password)
            return False
        return self._matches(stored, password)

    def _matches(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (Argon2Error, InvalidHashError):
            return False


def acceptable(login: str, password: str) -> None:
    """Raises for a password that would be guessed at once, or is no line of text."""
    reason = None
    if not SHORTEST <= len(password) <= LONGEST:
        reason = f"has {SHORTEST} to {LONGEST} characters"
    elif password.lower() in (login, login.partition("@")[0]):
        reason = "should not be the login"
    elif len(set(password)) < 5:
        reason = "has at least five different characters"
    if reason is not None:
        raise Invalid("this password cannot be used", [Fault("password", reason)])
