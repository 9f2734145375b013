"""Passwords: how they are kept, and how one is checked without stopping the broker.

New passwords are kept as argon2id. Hashes exported from RabbitMQ (a salt of four bytes and a
SHA-256 or SHA-512 digest, in base64) are accepted as they are. Checking takes tens of milliseconds
and 19 MiB on purpose, so it happens in threads (`check_pool.py`); a password that was found right
is remembered for the life of the process as a keyed digest, so that a thousand reconnections cost
one check. A refusal takes as long for a user who does not exist as for one who does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from functools import partial
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from penstock.broker.check_pool import CheckPool
from penstock.core.errors import PreconditionFailed

#: Right passwords remembered before starting over; each takes about 100 bytes.
_REMEMBERED: Final = 16_384
_SALT: Final = 4
_DIGESTS: Final = {32: "sha256", 64: "sha512"}


def moderate_hasher() -> PasswordHasher:
    """Argon2id with moderate memory: the broker itself holds it while a check runs."""
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class Passwords:
    """Hashes passwords and checks them."""

    __slots__ = ("_hasher", "_key", "_pool", "_right")

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or moderate_hasher()
        self._key = os.urandom(32)
        self._right: set[bytes] = set()
        self._pool = CheckPool()

    def hash(self, password: str) -> str:
        if not password:
            raise PreconditionFailed("a password must not be empty")
        return self._hasher.hash(_bytes(password))

    async def check(self, stored: str | None, password: str | bytes, address: str) -> bool:
        """Whether the password is the one that was stored; no one's password is `None`.

        `address` is where it came from. Raises `AuthenticationFailed` when too many wait there.
        """
        given = _bytes(password)
        digest = self._digest(_bytes(stored or ""), given)
        if digest in self._right:
            return True
        if not await self._pool.run(address, digest, partial(self._verify, stored, given)):
            return False
        if len(self._right) >= _REMEMBERED:
            self._right.clear()
        self._right.add(digest)
        return True

    def _digest(self, stored: bytes, password: bytes) -> bytes:
        # The stored hash is part of it, so that a changed password is forgotten by itself.
        state = hashlib.blake2b(key=self._key, digest_size=32)
        state.update(len(stored).to_bytes(4, "big"))
        state.update(stored)
        state.update(password)
        return state.digest()

    def _verify(self, stored: str | None, password: bytes) -> bool:
        if stored and stored.startswith("$argon2"):
            try:
                return self._hasher.verify(stored, password)
            except (Argon2Error, InvalidHashError):
                return False
        if stored and password and _matches_salted(stored, password):
            return True
        self._hasher.hash(password)  # only for the time it takes
        return False


def _bytes(text: str | bytes) -> bytes:
    # A text that is not Unicode is a wrong password, not an error.
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def checked_hash(stored: str) -> str:
    """The stored form of a password, refused if no password could ever match it."""
    if stored.startswith("$argon2id$") or not stored or _salted(stored) is not None:
        return stored
    raise PreconditionFailed(
        "password_hash is neither an argon2id string nor RabbitMQ's salted SHA-256 or SHA-512 "
        "in base64"
    )


def _salted(stored: str) -> bytes | None:
    try:
        content = base64.b64decode(stored, validate=True)
    except (binascii.Error, ValueError):
        return None
    return content if len(content) - _SALT in _DIGESTS else None


def _matches_salted(stored: str, password: bytes) -> bool:
    content = _salted(stored)
    if content is None:
        return False
    salt, expected = content[:_SALT], content[_SALT:]
    digest = hashlib.new(_DIGESTS[len(expected)], salt + password).digest()
    return hmac.compare_digest(digest, expected)
