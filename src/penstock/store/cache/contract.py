"""What a cache is to those who use it.

Values are bytes; what they mean is the caller's. A cache may forget anything at any time and never
fails: what cannot be had is a miss, what cannot be kept is dropped, and both are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

#: How long a value may be served after it was written, unless it is said.
TTL_SECONDS: Final = 600.0


@dataclass(slots=True)
class Figures:
    """What a cache has done so far."""

    hits: int = 0
    misses: int = 0
    #: Requests that the cache's server did not answer, or answered with an error.
    failures: int = 0
    #: Reads answered from this process's own copy, because the server was away.
    fallbacks: int = 0


class Cache(Protocol):
    """Keys are text (`keys.py`); a time to live is in seconds."""

    figures: Figures

    async def get(self, key: str) -> bytes | None: ...

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Those there are, in one round trip."""
        ...

    def kept(self, key: str) -> bytes | None:
        """What this process itself last saw and may still serve; nobody is asked."""
        ...

    async def set(self, key: str, value: bytes, ttl: float = TTL_SECONDS) -> None: ...

    async def set_many(self, values: Mapping[str, bytes], ttl: float = TTL_SECONDS) -> None: ...

    async def delete(self, key: str) -> None: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
