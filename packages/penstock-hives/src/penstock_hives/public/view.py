"""The public view: the latest snapshot, with live occupancy applied as it arrives.

Responses are rendered from memory; the database is never read. The page of one hive is cached until
its occupancy changes, a list for a few seconds. Without a snapshot every read raises `NotReady`.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from http import HTTPStatus
from typing import Any, Final
from zoneinfo import ZoneInfo

from penstock.core.errors import NotFound
from penstock_hives.billing.models import OTHER_DAYS, plan_required
from penstock_hives.deals.models import Deal
from penstock_hives.encoding import encode_json, etag_of, format_timestamp
from penstock_hives.errors import NotReady, require_found
from penstock_hives.images.models import HiveImage
from penstock_hives.live.change_feed import EncodedOccupancy
from penstock_hives.live.subscriber import Document
from penstock_hives.occupancy.models import (
    Forecast,
    HiveDay,
    Occupancy,
    TypicalWeek,
    compare_with_usual,
)
from penstock_hives.people.permissions import PlanFeatureCode
from penstock_hives.places.models import (
    HiveDetail,
    HiveSummary,
    is_open_or_unknown,
    next_change,
)
from penstock_hives.public.snapshot import PublicSnapshot
from penstock_hives.server.asgi import Headers, Send, send_response
from penstock_hives.server.http_protocol import ImmediateResponse

#: Lifetime of cached lists.
LIST_SECONDS: Final = 2.0
#: Lifetime of the cached page of a hive: it may have opened or closed.
HIVE_SECONDS: Final = 30.0
#: Cached pages; beyond that the cache is cleared. A page of a hive is about 3 KB.
MAX_PAGES: Final = 20_000


class PublicView:
    """For one event loop. `on_change` and `on_remove` feed the live streams."""

    def __init__(
        self,
        on_change: Callable[[EncodedOccupancy], object] = lambda occupancy: None,
        on_remove: Callable[[Iterable[int]], object] = lambda hives: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._on_change = on_change
        self._on_remove = on_remove
        self._clock = clock
        self._snapshot: PublicSnapshot | None = None
        self._details: dict[int, HiveDetail] = {}
        self._weeks: dict[int, TypicalWeek] = {}
        self._forecasts: dict[int, Forecast] = {}
        self._days: dict[int, HiveDay] = {}
        self._summaries: dict[int, HiveSummary] = {}
        self._occupancies: dict[int, Occupancy] = {}
        self._images: dict[int, HiveImage] = {}
        self._pages: dict[str, CachedPage] = {}
        self._pages_of: dict[int, set[str]] = {}

    @property
    def snapshot(self) -> PublicSnapshot:
        if self._snapshot is None:
            raise NotReady("no data yet; try again later")
        return self._snapshot

    @property
    def has_snapshot(self) -> bool:
        return self._snapshot is not None

    @property
    def hives(self) -> list[int]:
        return list(self._details)

    @property
    def now(self) -> datetime:
        return self._clock()

    def replace_snapshot(self, snapshot: PublicSnapshot) -> None:
        self._snapshot = snapshot
        hives = snapshot.hives
        self._details = {each.id: each for each in hives.details}
        self._weeks = {each.hive_id: each for each in hives.weeks}
        self._forecasts = {each.hive_id: each for each in hives.forecasts}
        self._days = {each.hive_id: each for each in hives.days}
        self._summaries = {each.id: each for each in hives.summaries}
        self._images = {image.id: image for each in hives.details for image in each.images}
        live, self._occupancies = self._occupancies, {}
        self._on_remove(live.keys() - self._details.keys())
        for hive, detail in self._details.items():
            known, read = live.get(hive), detail.occupancy
            if known is not None and (read is None or known.version >= read.version):
                self._set_occupancy(known)
            elif read is not None:
                self._set_occupancy(read)
                self._on_change(_encoded(read))
        self._pages.clear()
        self._pages_of.clear()

    def apply_live(self, document: Document) -> None:
        """An occupancy message of the pipeline; ignored for hives that are not public."""
        hive = int(document["hive"])
        known = self._occupancies.get(hive)
        if hive not in self._details or (known and known.version >= int(document["version"])):
            return
        occupancy = self._decode(hive, document)
        self._set_occupancy(occupancy)
        for path in self._pages_of.pop(hive, ()):
            self._pages.pop(path, None)
        self._on_change(_encoded(occupancy))

    def detail(self, hive: int) -> HiveDetail:
        detail = require_found(self._details.get(hive), f"hive {hive}")
        hours, zone, now = detail.opening_hours, detail.time_zone, self.now
        return replace(
            detail,
            occupancy=self._occupancies.get(hive),
            open_now=is_open_or_unknown(hours, zone, now),
            changes_at=next_change(hours, zone, now),
        )

    def occupancy(self, hive: int) -> Occupancy:
        self._require(hive)
        found = self._occupancies.get(hive)
        if found is None:
            raise NotReady(f"hive {hive} has no data yet")
        return found

    def week(self, hive: int) -> TypicalWeek:
        return self._weeks.get(self._require(hive)) or TypicalWeek(hive, None, ())

    def forecast(self, hive: int, day: date | None = None) -> Forecast:
        """Of today; other days are a feature of plans."""
        found = self._forecasts.get(self._require(hive))
        zone = ZoneInfo(self._details[hive].time_zone)
        wanted = self.now.astimezone(zone).date()
        if day not in (None, wanted):
            raise plan_required(self.snapshot.plans, PlanFeatureCode.FORECASTS, OTHER_DAYS)
        if found is not None and found.day == wanted:
            return found
        return Forecast(hive, wanted, None, None, (), None)

    def today(self, hive: int) -> HiveDay:
        found = self._days.get(self._require(hive))
        wanted = self.now.astimezone(ZoneInfo(self._details[hive].time_zone)).date()
        return found if found is not None and found.day == wanted else HiveDay(hive, wanted, ())

    def image(self, number: int) -> HiveImage | None:
        return self._images.get(number)

    def deals(self) -> list[Deal]:
        """The valid ones, sorted by their end."""
        now = self.now
        return [
            each for each in self.snapshot.hives.deals if each.starts_at <= now < each.expires_at
        ]

    def summary(self, hive: int) -> HiveSummary:
        return self._summaries[self._require(hive)]

    def summaries(self) -> list[HiveSummary]:
        """`open_now` is as old as the snapshot."""
        self.snapshot  # noqa: B018 - raises NotReady
        return list(self._summaries.values())

    def page(self, key: str, value: Callable[[], Any], hive: int | None = None) -> CachedPage:
        """The cached page of this key, or a new one of the value."""
        page = self._pages.get(key)
        now = asyncio.get_running_loop().time()
        if page is not None and now < page.until:
            return page
        until = now + (LIST_SECONDS if hive is None else HIVE_SECONDS)
        page = self.uncached_page(value, until)
        if len(self._pages) >= MAX_PAGES:
            self._pages.clear()
            self._pages_of.clear()
        self._pages[key] = page
        if hive is not None:
            self._pages_of.setdefault(hive, set()).add(key)
        return page

    def uncached_page(self, value: Callable[[], Any], until: float = 0.0) -> CachedPage:
        as_of = self.snapshot.as_of
        return CachedPage(encode_json(value()), as_of, until=until)

    def cached_page(self, key: str) -> CachedPage | None:
        page = self._pages.get(key)
        if page is None or asyncio.get_running_loop().time() >= page.until:
            return None
        return page

    def _require(self, hive: int) -> int:
        if hive not in self._details:
            raise NotFound(f"hive {hive} not found")
        return hive

    def _set_occupancy(self, occupancy: Occupancy) -> None:
        hive = occupancy.hive_id
        self._occupancies[hive] = occupancy
        if hive in self._summaries:
            self._summaries[hive] = replace(self._summaries[hive], occupancy=occupancy)

    def _decode(self, hive: int, document: Document) -> Occupancy:
        detail, quality = self._details[hive], str(document["quality"])
        at = datetime.fromisoformat(str(document["as_of"]))
        local = self.now.astimezone(ZoneInfo(detail.time_zone))
        hours = self._weeks[hive].hours if hive in self._weeks else ()
        typical = next(
            (h for h in hours if (h.weekday, h.hour) == (local.weekday(), local.hour)), None
        )
        return Occupancy(
            hive_id=hive,
            occupancy=int(document["occupancy"]),
            percent=document["percent"],
            level=document["level"],
            trend=str(document["trend"]),
            quality=quality,
            as_of=at,
            version=int(document["version"]),
            usual=compare_with_usual(
                int(document["occupancy"]),
                quality,
                typical.occupancy if typical else None,
                typical.weeks if typical else None,
            ),
        )


def _encoded(occupancy: Occupancy) -> EncodedOccupancy:
    return EncodedOccupancy(occupancy.hive_id, occupancy.version, encode_json(occupancy))


#: Smaller bodies are not compressed: they fit a packet.
_COMPRESSED_FROM: Final = 1200
_JSON: Final = b"application/json"


class CachedPage:
    """A rendered response with its headers and ETag; compressed on the first request for that."""

    __slots__ = ("_gzipped", "_not_modified", "_plain", "body", "headers", "status", "tag", "until")

    def __init__(
        self,
        body: bytes,
        as_of: datetime,
        *,
        status: int = 200,
        content_type: bytes = _JSON,
        caching: bytes = b"public, max-age=5",
        more: Headers = (),
        until: float = float("inf"),
    ) -> None:
        self.status = status
        self.body = body
        self.until = until  #: its expiry, by the clock of the event loop
        self.tag = etag_of(body).encode()
        self.headers = [
            (b"content-type", content_type),
            (b"x-as-of", format_timestamp(as_of).encode()),
            (b"cache-control", caching),
            (b"etag", self.tag),
            (b"vary", b"accept-encoding, authorization, x-api-key"),
            (b"access-control-allow-origin", b"*"),
            (b"x-content-type-options", b"nosniff"),
            *more,
        ]
        length = (b"content-length", str(len(body)).encode())
        self._plain = CachedResponse(status, [*self.headers, length], body)
        self._not_modified = CachedResponse(304, self.headers, b"")
        self._gzipped: CachedResponse | None = None

    def select(self, known: bytes | None, gzipped: bool) -> CachedResponse:
        """`known` is the client's If-None-Match."""
        if known is not None and self.tag in known:
            return self._not_modified
        if gzipped and len(self.body) >= _COMPRESSED_FROM:
            return self._compressed()
        return self._plain

    async def send(self, send: Send, known: bytes | None, gzipped: bool) -> None:
        found = self.select(known, gzipped)
        await send_response(send, found.status, found.headers, found.body)

    def _compressed(self) -> CachedResponse:
        if self._gzipped is None:
            body = gzip.compress(self.body, 5, mtime=0)
            length = (b"content-length", str(len(body)).encode())
            headers = [*self.headers, (b"content-encoding", b"gzip"), length]
            self._gzipped = CachedResponse(self.status, headers, body)
        return self._gzipped


class CachedResponse:
    __slots__ = ("_immediate", "body", "headers", "status")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self._immediate: ImmediateResponse | None = None

    def immediate(self, location: str) -> ImmediateResponse:
        if self._immediate is None:
            phrase = HTTPStatus(self.status).phrase.encode()
            lines = [b"HTTP/1.1 %d %b\r\n" % (self.status, phrase)]
            lines += [b"%b: %b\r\n" % header for header in self.headers]
            self._immediate = ImmediateResponse(location, self.status, b"".join(lines), self.body)
        return self._immediate
