"""Public images from a disk cache, in original size or scaled to one of a few widths.

Only images of the snapshot are served, so that made-up ids reach neither the database nor the disk.
An id is never reused, so browsers may cache an image forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Final
from urllib.parse import parse_qs

from PIL import Image as Pillow

from penstock.core.errors import PenstockError
from penstock.core.units import parse_count
from penstock_hives.api.problems import PROBLEMS
from penstock_hives.images.models import HiveImage
from penstock_hives.server.asgi import AsgiApplication, Receive, Scope, Send, send_response
from penstock_hives.server.disk_cache import DiskCache

PREFIX: Final = "/v1/images/"
#: Widths that pages use.
WIDTHS: Final = frozenset({320, 640, 1280})
_QUALITY: Final = 80

#: Bytes and media type of an image by its id.
Fetch = Callable[[int], Awaitable[tuple[bytes, str]]]


def image_endpoint(
    find: Callable[[int], HiveImage | None],
    fetch: Fetch,
    disk: DiskCache,
    fallback: AsgiApplication,
) -> AsgiApplication:
    """Serves images; passes other requests on to the fallback."""

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
        number = parse_count(scope["path"].removeprefix(PREFIX))
        if number is None or scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await fallback(scope, receive, send)
            return
        image, width = find(number), _width(scope["query_string"])
        if image is None:
            await fallback(scope, receive, send)  # perhaps of a hidden hive
        elif width is not None and width not in WIDTHS:
            detail = f"width must be one of {sorted(WIDTHS)}"
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
    encoded = BytesIO()
    smaller.save(encoded, "WEBP", quality=_QUALITY)
    return encoded.getvalue()


def _width(query: bytes) -> int | None:
    """None: the original size; 0 for an invalid width."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("width")
    return None if given is None else parse_count(given[-1]) or 0
