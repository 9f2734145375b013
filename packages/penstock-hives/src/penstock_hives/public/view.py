"""What the public sees now: the latest edition, with live figures in it as they are heard.

`page` is an answer from what is at hand: it asks nobody, and so takes no time to speak of. A page
is kept until what is on it changes, or, where it lists many hives, for a moment: figures in a list
may be that much older than those of a single hive. What cannot be answered because there is no
edition yet is `NotReady`; what is not here is not here, and the database is not asked for it.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from penstock.core.errors import NotFound
from penstock_hives.deals.models import Deal
from penstock_hives.encoding import encode_json
from penstock_hives.errors import NotReady
from penstock_hives.images.models import HiveImage
from penstock_hives.live.change_feed import EncodedOccupancy
from penstock_hives.live.subscriber import Document
from penstock_hives.occupancy.models import (
    Forecast,
    Occupancy,
    TypicalWeek,
    compare_with_usual,
)
from penstock_hives.places.models import HiveDetail, HiveSummary, is_open, next_change
from penstock_hives.public.snapshot import PublicSnapshot
from penstock_hives.server.asgi import Headers, Message, Send

#: How old a list may grow.
LIST_SECONDS: Final = 2.0
#: How old the page of one hive may grow while nothing is heard of it: it may have opened or closed.
HIVE_SECONDS: Final = 30.0
#: Pages kept; beyond them all are made anew. A page of a hive is about 3 KB.
MAX_PAGES: Final = 20_000


class PublicView:
    """Belongs to one event loop."""

    def __init__(
        self,
        told: Callable[[EncodedOccupancy], object] = lambda figure: None,
        withdrawn: Callable[[Iterable[int]], object] = lambda hives: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._told = told
        self._withdrawn = withdrawn
        self._clock = clock
        self._edition: PublicSnapshot | None = None
        self._details: dict[int, HiveDetail] = {}
        self._weeks: dict[int, TypicalWeek] = {}
        self._forecasts: dict[int, Forecast] = {}
        self._summaries: dict[int, HiveSummary] = {}
        self._occupancies: dict[int, Occupancy] = {}
        self._images: dict[int, HiveImage] = {}
        self._pages: dict[str, CachedPage] = {}
        self._pages_of: dict[int, set[str]] = {}

    @property
    def edition(self) -> PublicSnapshot:
        if self._edition is None:
            raise NotReady("nothing to show yet; ask again in a moment")
        return self._edition

    @property
    def shows(self) -> bool:
        """Whether there is anything to show."""
        return self._edition is not None

    @property
    def hives(self) -> list[int]:
        return list(self._details)

    @property
    def now(self) -> datetime:
        return self._clock()

    def show(self, edition: PublicSnapshot) -> None:
        """Another edition, whole."""
        self._edition = edition
        snapshot = edition.snapshot
        self._details = {each.id: each for each in snapshot.details}
        self._weeks = {each.hive_id: each for each in snapshot.weeks}
        self._forecasts = {each.hive_id: each for each in snapshot.forecasts}
        self._summaries = {each.id: each for each in snapshot.summaries}
        self._images = {image.id: image for each in snapshot.details for image in each.images}
        heard, self._occupancies = self._occupancies, {}
        self._withdrawn(heard.keys() - self._details.keys())
        for hive, detail in self._details.items():
            known, read = heard.get(hive), detail.occupancy
            if known is not None and (read is None or known.version >= read.version):
                self._put(known)
            elif read is not None:
                self._put(read)
                self._told(_figure(read))
        self._pages.clear()
        self._pages_of.clear()

    def heard(self, document: Document) -> None:
        """How a hive stands, from the pipeline. Hives that are not public stay so."""
        hive = int(document["hive"])
        known = self._occupancies.get(hive)
        if hive not in self._details or (known and known.version >= int(document["version"])):
            return
        occupancy = self._read(hive, document)
        self._put(occupancy)
        for path in self._pages_of.pop(hive, ()):
            self._pages.pop(path, None)
        self._told(_figure(occupancy))

    def figures(self) -> list[EncodedOccupancy]:
        return [_figure(each) for each in self._occupancies.values()]

    def detail(self, hive: int) -> HiveDetail:
        detail = self._details.get(hive)
        if detail is None:
            raise NotFound(f"there is no hive {hive}")
        hours, zone, now = detail.opening_hours, detail.time_zone, self.now
        return replace(
            detail,
            occupancy=self._occupancies.get(hive),
            open_now=is_open(hours, zone, now),
            changes_at=next_change(hours, zone, now),
        )

    def occupancy(self, hive: int) -> Occupancy:
        self._known(hive)
        found = self._occupancies.get(hive)
        if found is None:
            raise NotReady(f"nothing was counted at hive {hive} yet")
        return found

    def week(self, hive: int) -> TypicalWeek:
        return self._weeks.get(self._known(hive)) or TypicalWeek(hive, None, ())

    def forecast(self, hive: int, day: date | None = None) -> Forecast:
        """Of today; of other days the public has none."""
        found = self._forecasts.get(self._known(hive))
        zone = ZoneInfo(self._details[hive].time_zone)
        wanted = day or self.now.astimezone(zone).date()
        if found is not None and found.day == wanted:
            return found
        return Forecast(hive, wanted, None, None, (), None)

    def image(self, number: int) -> HiveImage | None:
        return self._images.get(number)

    def deals(self) -> list[Deal]:
        """Those that can be used now, the first to end first."""
        now = self.now
        return [
            each for each in self.edition.snapshot.deals if each.starts_at <= now < each.expires_at
        ]

    def summaries(self) -> list[HiveSummary]:
        """Whether they are open is as old as the edition: there may be thousands."""
        self.edition  # noqa: B018 - nothing can be said without one
        return list(self._summaries.values())

    def page(self, key: str, value: Callable[[], Any], hive: int | None = None) -> CachedPage:
        """The page kept under this key, or one made of the value."""
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
        """A page for this once."""
        as_of = self.edition.as_of
        return CachedPage(encode_json(value()), as_of, until=until)

    def kept(self, key: str) -> CachedPage | None:
        """A page that needs not be made."""
        page = self._pages.get(key)
        if page is None or asyncio.get_running_loop().time() >= page.until:
            return None
        return page

    def _known(self, hive: int) -> int:
        if hive not in self._details:
            raise NotFound(f"there is no hive {hive}")
        return hive

    def _put(self, occupancy: Occupancy) -> None:
        hive = occupancy.hive_id
        self._occupancies[hive] = occupancy
        if hive in self._summaries:
            self._summaries[hive] = replace(self._summaries[hive], occupancy=occupancy)

    def _read(self, hive: int, document: Document) -> Occupancy:
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


def _figure(occupancy: Occupancy) -> EncodedOccupancy:
    return EncodedOccupancy(occupancy.hive_id, occupancy.version, encode_json(occupancy))


# A rendered answer: made once, handed out to all who ask for the same.
#
# Its headers and its tag are made with it, and its compressed form when the first asks who can read
# that. Handing it out is two messages, whatever it took to make.

#: Smaller ones fit a packet anyway.
_COMPRESSED_FROM: Final = 1200
_JSON: Final = b"application/json"


class CachedPage:
    """One answer to one question."""

    __slots__ = ("_plain", "_same", "_zipped", "body", "headers", "status", "tag", "until")

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
        self.until = until  #: by the loop's clock; made anew after that
        self.tag = b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()
        self.headers = [
            (b"content-type", content_type),
            (b"x-as-of", as_of.isoformat().replace("+00:00", "Z").encode()),
            (b"cache-control", caching),
            (b"etag", self.tag),
            (b"vary", b"accept-encoding, authorization, x-api-key"),
            (b"access-control-allow-origin", b"*"),
            (b"x-content-type-options", b"nosniff"),
            *more,
        ]
        length = (b"content-length", str(len(body)).encode())
        self._plain = _messages(status, [*self.headers, length], body)
        self._same = _messages(304, self.headers, b"")
        self._zipped: tuple[Message, Message] | None = None

    async def send(self, send: Send, known: bytes | None, zipped: bool) -> None:
        """To one who has the tags in `known`, and may be able to read it compressed."""
        if known is not None and self.tag in known:
            start, end = self._same
        elif zipped and len(self.body) >= _COMPRESSED_FROM:
            start, end = self._compressed()
        else:
            start, end = self._plain
        await send(start)
        await send(end)

    def _compressed(self) -> tuple[Message, Message]:
        if self._zipped is None:
            body = gzip.compress(self.body, 5, mtime=0)
            length = (b"content-length", str(len(body)).encode())
            headers = [*self.headers, (b"content-encoding", b"gzip"), length]
            self._zipped = _messages(self.status, headers, body)
        return self._zipped


def _messages(
    status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[Message, Message]:
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )
