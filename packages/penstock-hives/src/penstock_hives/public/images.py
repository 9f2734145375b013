"""Pictures for the public, from a cache on disk: as they are, or scaled to a width pages want.

Only pictures of the edition are answered, so that nobody can have the database asked, or the disk
filled, by making up numbers. A picture's number is never given to another, so browsers may keep it
for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Final
from urllib.parse import parse_qs

from PIL import Image as Pillow

from penstock.core.errors import PenstockError
from penstock_hives.api.problems import PROBLEMS
from penstock_hives.images.models import HiveImage
from penstock_hives.public.reader import parse_number
from penstock_hives.server.asgi import AsgiApplication, Receive, Scope, Send, send_response
from penstock_hives.server.disk_cache import DiskCache

PREFIX: Final = "/v1/images/"
#: What a page may ask for; others would only fill the disk.
WIDTHS: Final = frozenset({320, 640, 1280})
_QUALITY: Final = 80

#: The bytes of a picture, by its number, from where it is kept.
Fetch = Callable[[int], Awaitable[tuple[bytes, str]]]


def image_endpoint(
    shown: Callable[[int], HiveImage | None], fetch: Fetch, disk: DiskCache, others: AsgiApplication
) -> AsgiApplication:
    """Reads of pictures; what is none goes on to others."""

    async def content(image: HiveImage, width: int | None) -> bytes:
        async def whole() -> bytes:
            return (await fetch(image.id))[0]

        async def scaled() -> bytes:
            original = await disk.find(f"picture:{image.id}", whole)
            assert width is not None
            return await asyncio.to_thread(lambda: scale_image(original.read_bytes(), width))

        if width is None or width >= image.width:
            path = await disk.find(f"picture:{image.id}", whole)
        else:
            path = await disk.find(f"picture:{image.id}:{width}", scaled)
        return await asyncio.to_thread(path.read_bytes)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        which = parse_number(scope["path"].removeprefix(PREFIX))
        if which is None or scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await others(scope, receive, send)
            return
        image, width = shown(which), _width(scope["query_string"])
        if image is None:
            await others(scope, receive, send)  # a business's own, perhaps
        elif width is not None and width not in WIDTHS:
            detail = f"width should be one of {sorted(WIDTHS)}"
            await PROBLEMS.response(422, detail)(scope, receive, send)
        else:
            await answer(image, width, scope, receive, send)

    async def answer(
        image: HiveImage, width: int | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            body = await content(image, width)
        except (PenstockError, OSError) as error:
            await PROBLEMS.from_error(error)(scope, receive, send)
            return
        smaller = width is not None and width < image.width
        kind = b"image/webp" if smaller else image.mime.encode()
        headers = [
            (b"content-type", kind),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"public, max-age=31536000, immutable"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send_response(send, 200, headers, body)

    return application


def scale_image(content: bytes, width: int) -> bytes:
    with Pillow.open(BytesIO(content)) as picture:
        height = max(1, round(picture.height * width / picture.width))
        smaller = picture.convert("RGB").resize((width, height), Pillow.Resampling.LANCZOS)
    made = BytesIO()
    smaller.save(made, "WEBP", quality=_QUALITY)
    return made.getvalue()


def _width(query: bytes) -> int | None:
    """None as it is; zero for what is no width."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("width")
    return None if given is None else parse_number(given[-1]) or 0
