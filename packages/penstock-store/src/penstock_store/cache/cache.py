"""The interface of caches, and their keys.

Values are bytes. A cache may drop any value at any time and never raises: a failed read is a miss,
a failed write is dropped, and both are counted.

`CacheKeys("h", 1).key("hive", 7)` is `h1:hive:7`. A release that changes the format of values
increments the version, so that old and new processes do not read each other's values.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, Self

DEFAULT_TTL_SECONDS: Final = 600.0


@dataclass(slots=True)
class CacheStatistics:
    hits: int = 0
    misses: int = 0
    #: Requests without a response, or with an error.
    failures: int = 0
    #: Reads from the copy in this process, while the server was unavailable.
    fallbacks: int = 0


class Cache(Protocol):
    """Keys are from `CacheKeys`; a time to live is in seconds."""

    statistics: CacheStatistics

    async def get(self, key: str) -> bytes | None: ...

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The values found, in one round trip."""
        ...

    async def set(self, key: str, value: bytes, ttl: float = DEFAULT_TTL_SECONDS) -> None: ...

    async def set_many(
        self, values: Mapping[str, bytes], ttl: float = DEFAULT_TTL_SECONDS
    ) -> None: ...

    async def delete(self, key: str) -> None: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


#: The limit of memcached; longer or invalid names are replaced by a digest.
MAX_KEY_BYTES: Final = 250
VALID_KEY: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class CacheKeys:
    application: str
    version: int

    def key(self, kind: str, *names: object) -> str:
        prefix = f"{self.application}{self.version}:{kind}:"
        name = ":".join(str(name) for name in names)
        whole = prefix + name
        if len(whole) <= MAX_KEY_BYTES and VALID_KEY.fullmatch(whole):
            return whole
        # The tilde marks a digest.
        return f"{prefix}~{hashlib.sha256(name.encode()).hexdigest()}"
