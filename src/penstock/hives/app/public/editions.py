"""Editions in the cache: one worker makes them, all of them show them.

An edition is written in pieces that memcached takes, then its head, which names them: who reads
finds all of an edition or takes none. What is read is checked as if a stranger had written it.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from penstock.core.compression import inflate
from penstock.core.errors import ContentTooLarge
from penstock.core.logs import get_logger
from penstock.core.units import KiB, MiB
from penstock.hives.app.domain.analytics import Popularity
from penstock.hives.app.domain.hives import Snapshot
from penstock.hives.app.domain.plans import Plan
from penstock.hives.publications import KEYS
from penstock.store.cache import Cache

log = get_logger(__name__)

#: memcached takes a mebibyte with the key and what it needs itself.
PIECE_BYTES: Final = 900 * KiB
#: Of an edition that is read, as JSON: a hundred thousand hives have less.
EDITION_BYTES: Final = 256 * MiB
_HEAD: Final = KEYS.key("edition", "head")


@dataclass(frozen=True, slots=True)
class Edition:
    """All that anybody may see, at one moment."""

    snapshot: Snapshot
    plans: tuple[Plan, ...] = ()
    popular: tuple[Popularity, ...] = ()  #: of every window, by rank: the first by each interest

    @property
    def as_of(self) -> datetime:
        return self.snapshot.as_of


_EDITION: Final = TypeAdapter(Edition)


@dataclass(frozen=True, slots=True)
class Head:
    """Names an edition."""

    made_at: float
    pieces: int
    check: int

    @property
    def keys(self) -> list[str]:
        return [KEYS.key("edition", f"{self.check:08x}", n) for n in range(self.pieces)]


class Editions:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def latest(self) -> Head | None:
        text = await self._cache.get(_HEAD)
        if text is None:
            return None
        try:
            found = json.loads(text)
            return Head(float(found["made_at"]), int(found["pieces"]), int(found["check"]))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("no head of an edition", reason=str(error))
            return None

    async def read(self, head: Head) -> Edition | None:
        """The edition, if all of it is still there."""
        found = await self._cache.get_many(head.keys)
        if len(found) != head.pieces:
            return None
        packed = b"".join(found[key] for key in head.keys)
        if zlib.crc32(packed) != head.check:
            return None
        try:
            return await asyncio.to_thread(_unpacked, packed)
        except (ValidationError, ContentTooLarge, zlib.error) as error:
            log.warning("no edition", reason=str(error)[:200])
            return None

    async def write(self, edition: Edition) -> Head:
        packed = await asyncio.to_thread(_packed, edition)
        pieces = [packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES)]
        head = Head(edition.as_of.timestamp(), len(pieces), zlib.crc32(packed))
        await self._cache.set_many(dict(zip(head.keys, pieces, strict=True)))
        await self._cache.set(_HEAD, json.dumps(asdict(head)).encode())
        return head


def _packed(edition: Edition) -> bytes:
    return zlib.compress(_EDITION.dump_json(edition), 3)


def _unpacked(packed: bytes) -> Edition:
    return _EDITION.validate_json(inflate(packed, EDITION_BYTES))


def age(head: Head, now: datetime) -> float:
    """Seconds."""
    return now.timestamp() - head.made_at
