"""Password hashes, and checks that do not block the broker.

New passwords are stored as argon2id. Hashes exported from RabbitMQ (a salt of four bytes and a
SHA-256 or SHA-512 digest, in base64) are accepted. A check takes tens of milliseconds and 19 MiB by
design, so it runs in a thread. A correct password is cached as a keyed digest, so a thousand
reconnects cost one check. A refusal takes equally long for unknown users. The library is loaded for
the first check: until then a broker takes half a megabyte less.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from penstock.core.errors import AuthenticationFailed, PreconditionFailed

if TYPE_CHECKING:
    from argon2 import PasswordHasher

#: Cached digests before the cache is cleared; each takes about 100 bytes.
_CACHED_DIGESTS: Final = 16_384
_SALT: Final = 4
_DIGESTS: Final = {32: "sha256", 64: "sha512"}


def argon2_hasher() -> PasswordHasher:
    """Argon2id with moderate memory, which the broker holds during a check."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class PasswordVerifier:
    __slots__ = ("_hasher", "_key", "_pool", "_right")

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher
        self._key = os.urandom(32)
        self._right: set[bytes] = set()
        self._pool = PasswordCheckPool()

    def hash(self, password: str) -> str:
        if not password:
            raise PreconditionFailed("a password must not be empty")
        return self._loaded_hasher().hash(_bytes(password))

    def _loaded_hasher(self) -> PasswordHasher:
        if self._hasher is None:
            self._hasher = argon2_hasher()
        return self._hasher

    async def check(self, stored: str | None, password: str | bytes, address: str) -> bool:
        """Whether the password matches the stored hash; `None` never matches.

        `address` is the peer's. Raises `AuthenticationFailed` if too many checks of it are waiting.
        """
        given = _bytes(password)
        digest = self._digest(_bytes(stored or ""), given)
        if digest in self._right:
            return True
        if not await self._pool.run(address, digest, partial(self._verify, stored, given)):
            return False
        if len(self._right) >= _CACHED_DIGESTS:
            self._right.clear()
        self._right.add(digest)
        return True

    def _digest(self, stored: bytes, password: bytes) -> bytes:
        # The digest includes the stored hash, so a changed password invalidates it.
        state = hashlib.blake2b(key=self._key, digest_size=32)
        state.update(len(stored).to_bytes(4, "big"))
        state.update(stored)
        state.update(password)
        return state.digest()

    def _verify(self, stored: str | None, password: bytes) -> bool:
        from argon2.exceptions import Argon2Error, InvalidHashError

        hasher = self._loaded_hasher()
        if stored and stored.startswith("$argon2"):
            try:
                return hasher.verify(stored, password)
            except (Argon2Error, InvalidHashError):
                return False
        if stored and password and _matches_salted(stored, password):
            return True
        hasher.hash(password)  # so that a refusal takes as long
        return False


def _bytes(text: str | bytes) -> bytes:
    # Text with lone surrogates is a wrong password, not an error.
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def validate_password_hash(stored: str) -> str:
    """The hash, if some password can match it."""
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


#: Concurrent checks: each takes memory and a core.
MAX_CONCURRENT_CHECKS: Final = 2
#: Waiting checks of one address.
MAX_WAITING_CHECKS: Final = 256
#: Rate limit of failed checks per address: burst, and refill per second.
CHECK_BURST: Final = 50.0
CHECKS_PER_SECOND: Final = 10.0
#: Addresses tracked before idle ones are removed.
MAX_TRACKED_ADDRESSES: Final = 1024


class _Check:
    __slots__ = ("future", "verify", "wanted")

    def __init__(self, future: asyncio.Future[bool], verify: Callable[[], bool]) -> None:
        self.future = future
        self.verify = verify
        self.wanted = 0  #: callers that wait for it


class _Queue:
    __slots__ = ("_allowance", "_since", "running", "waiting")

    def __init__(self, now: float) -> None:
        self.waiting: dict[bytes, _Check] = {}  #: by digest, the newest last
        self.running: dict[bytes, _Check] = {}
        self._allowance = CHECK_BURST
        self._since = now

    def allowance(self, now: float) -> float:
        self._allowance = min(
            CHECK_BURST, self._allowance + (now - self._since) * CHECKS_PER_SECOND
        )
        self._since = now
        return self._allowance

    def spend(self, checks: int) -> None:
        self._allowance -= checks

    def is_idle(self, now: float) -> bool:
        return not (self.waiting or self.running) and self.allowance(now) >= CHECK_BURST


class PasswordCheckPool:
    """Runs password checks in threads, with fair scheduling between addresses.

    Wrong passwords must not lock others out:

    * Each address has a queue, and the queues take turns. An IPv6 address counts as its /64
      network.
    * The newest check of an address runs first, so a burst delays its own sender. A full queue
      drops its oldest check.
    * Each address has a rate limit of failed checks.

    Callers that wait for the same check share it.
    """

    __slots__ = ("_clock", "_concurrent", "_queues", "_running", "_threads", "_timer")

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        concurrent: int = MAX_CONCURRENT_CHECKS,
    ) -> None:
        self._clock = clock
        self._concurrent = concurrent
        self._queues: dict[str, _Queue] = {}  # the next to run first
        self._running = 0
        self._threads: ThreadPoolExecutor | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, address: str, what: bytes, verify: Callable[[], bool]) -> bool:
        """The result of `verify`; `what` identifies the check among those of the address."""
        queue = self._queue(_network(address))
        check = queue.running.get(what) or queue.waiting.pop(what, None)
        if check is None:
            check = _Check(asyncio.get_running_loop().create_future(), verify)
        if what not in queue.running:
            queue.waiting[what] = check
            if len(queue.waiting) > MAX_WAITING_CHECKS:
                oldest = queue.waiting.pop(next(iter(queue.waiting)))
                oldest.future.set_exception(
                    AuthenticationFailed(f"too many pending logins from {address}")
                )
        check.wanted += 1
        self._run_next()
        try:
            return await asyncio.shield(check.future)
        finally:
            check.wanted -= 1
            if not check.wanted and queue.waiting.get(what) is check:
                del queue.waiting[what]

    def _queue(self, network: str) -> _Queue:
        queue = self._queues.get(network)
        if queue is None:
            now = self._clock()
            if len(self._queues) >= MAX_TRACKED_ADDRESSES:
                for known in [one for one, kept in self._queues.items() if kept.is_idle(now)]:
                    del self._queues[known]
            queue = self._queues[network] = _Queue(now)
        return queue

    def _run_next(self) -> None:
        """Start as many checks as may run."""
        now = self._clock()
        while self._running < self._concurrent:
            network = self._next(now)
            if network is None:
                self._wait(now)
                return
            queue = self._queues[network] = self._queues.pop(network)  # to the end of the round
            self._begin(queue)

    def _next(self, now: float) -> str | None:
        for network, queue in self._queues.items():
            if queue.waiting and queue.allowance(now) >= 1:
                return network
        return None

    def _begin(self, queue: _Queue) -> None:
        what, check = queue.waiting.popitem()
        queue.running[what] = check
        queue.spend(1)
        self._running += 1
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                self._concurrent, thread_name_prefix="penstock-password"
            )
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, check.verify)
        running.add_done_callback(lambda done: self._end(queue, what, check, done))

    def _end(self, queue: _Queue, what: bytes, check: _Check, done: asyncio.Future[bool]) -> None:
        self._running -= 1
        del queue.running[what]
        error = done.exception()
        if error is None and done.result():
            queue.spend(-1)  # only failures count
        if not check.future.done():
            if error is None:
                check.future.set_result(done.result())
            else:
                check.future.set_exception(error)
        self._run_next()

    def _wait(self, now: float) -> None:
        """Checks that wait for their rate limit run when it allows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        short = [1 - queue.allowance(now) for queue in self._queues.values() if queue.waiting]
        if short:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(short) / CHECKS_PER_SECOND, self._run_next)


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> 64:x}::/64"
