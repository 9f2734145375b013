"""What a cache is to those who use it.

Values are bytes; what they mean is the caller's. A cache may forget anything at any time and never
fails: what cannot be had is a miss, what cannot be kept is dropped, and both are counted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

#: How long a value may be served after it was written, unless it is said.
DEFAULT_TTL_SECONDS: Final = 600.0


@dataclass(slots=True)
class CacheStatistics:
    """What a cache has done so far."""

    hits: int = 0
    misses: int = 0
    #: Requests that the cache's server did not answer, or answered with an error.
    failures: int = 0
    #: Reads answered from this process's own copy, because the server was away.
    fallbacks: int = 0


class Cache(Protocol):
    """Keys are text (`CacheKeys`); a time to live is in seconds."""

    figures: CacheStatistics

    async def get(self, key: str) -> bytes | None: ...

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Those there are, in one round trip."""
        ...

    def kept(self, key: str) -> bytes | None:
        """What this process itself last saw and may still serve; nobody is asked."""
        ...

    async def set(self, key: str, value: bytes, ttl: float = DEFAULT_TTL_SECONDS) -> None: ...

    async def set_many(
        self, values: Mapping[str, bytes], ttl: float = DEFAULT_TTL_SECONDS
    ) -> None: ...

    async def delete(self, key: str) -> None: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


# Names of cached values, with the version of their form in them.
#
# `Keys("h", 1).key("hive", 7)` is `h1:hive:7`. A release that writes another form counts the
# version up: old and new processes then run side by side without reading each other's values.

#: What memcached takes as a key; one of ours that is not so gets a digest instead.
MAX_KEY_BYTES: Final = 250
VALID_KEY: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class CacheKeys:
    """The keys of one application, in one version of its values."""

    application: str
    version: int

    def key(self, kind: str, *names: object) -> str:
        prefix = f"{self.application}{self.version}:{kind}:"
        name = ":".join(str(name) for name in names)
        whole = prefix + name
        if len(whole) <= MAX_KEY_BYTES and VALID_KEY.fullmatch(whole):
            return whole
        # A tilde says so: no plain name of ours has one.
        return f"{prefix}~{hashlib.sha256(name.encode()).hexdigest()}"
