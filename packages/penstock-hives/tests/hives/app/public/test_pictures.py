"""Pictures: from the cache on disk, scaled to what pages want, and only those that are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import httpx
from PIL import Image as Pillow

from penstock_hives.images.models import HiveImage, image_url
from penstock_hives.public.images import image_endpoint
from penstock_hives.server.asgi import Receive, Scope, Send, send_response
from penstock_hives.server.disk_cache import DiskCache
from penstock_store.errors import StoreUnavailable
from tests.hives.app.public.snapshots import NOON
from tests.hives.app.serving import PATIENCE, served


def jpeg(width: int = 800, height: int = 400) -> bytes:
    made = BytesIO()
    Pillow.new("RGB", (width, height), "orange").save(made, "JPEG")
    return made.getvalue()


class Kept:
    """One picture, number 7, where pictures are kept."""

    def __init__(self) -> None:
        self.image = HiveImage(
            7, 1, "cover", image_url(7), "image/jpeg", 800, 400, len(jpeg()), "", 0, NOON
        )
        self.fetched = 0
        self.away = False

    def shown(self, number: int) -> HiveImage | None:
        return self.image if number == 7 else None

    async def fetch(self, number: int) -> tuple[bytes, str]:
        if self.away:
            raise StoreUnavailable("nobody answers")
        self.fetched += 1
        return jpeg(), "image/jpeg"


async def others(scope: Scope, receive: Receive, send: Send) -> None:
    await send_response(send, 418, [(b"content-length", b"0")])


@asynccontextmanager
async def gallery(kept: Kept, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        DiskCache(folder) as disk,
        served(image_endpoint(kept.shown, kept.fetch, disk, others)) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        yield client


async def test_a_picture_is_fetched_once_and_kept_for_good(tmp_path: Path) -> None:
    kept = Kept()
    async with gallery(kept, tmp_path) as client:
        answers = [await client.get("/v1/images/7") for _ in range(3)]
    assert {answer.content for answer in answers} == {jpeg()}
    assert "immutable" in answers[0].headers["cache-control"]
    assert kept.fetched == 1


async def test_a_picture_is_scaled_to_the_width_a_page_wants(tmp_path: Path) -> None:
    async with gallery(Kept(), tmp_path) as client:
        answer = await client.get("/v1/images/7?width=320")
        whole = await client.get("/v1/images/7?width=1280")  # never larger than it is
    with Pillow.open(BytesIO(answer.content)) as scaled:
        assert (scaled.format, scaled.size) == ("WEBP", (320, 160))
    assert whole.content == jpeg()


async def test_other_widths_are_refused(tmp_path: Path) -> None:
    async with gallery(Kept(), tmp_path) as client:
        for width in ("321", "0", "x", ""):
            assert (await client.get(f"/v1/images/7?width={width}")).status_code == 422


async def test_numbers_that_are_not_shown_are_for_others_to_answer(tmp_path: Path) -> None:
    async with gallery(Kept(), tmp_path) as client:
        for path in ("/v1/images/8", "/v1/images/seven", "/v1/images/7/8"):
            assert (await client.get(path)).status_code == 418


async def test_what_is_on_disk_is_answered_while_the_rest_is_away(tmp_path: Path) -> None:
    kept = Kept()
    async with gallery(kept, tmp_path) as client:
        await client.get("/v1/images/7")
        kept.away = True
        assert (await client.get("/v1/images/7?width=320")).status_code == 200
    async with gallery(kept, tmp_path / "empty") as client:
        assert (await client.get("/v1/images/7")).status_code == 503
