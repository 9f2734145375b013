"""Pictures on disk: taken apart, made anew, written whole.

What is uploaded is never kept or served. It is decoded within limits, turned upright, made smaller,
and encoded again: whatever else was in the file, where it was taken or a script, is gone. A file is
named by its digest and written beside its place, then renamed: it is there as a whole or not at
all, never changes, and may be served by anybody who knows its name.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import secrets
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image, ImageOps, UnidentifiedImageError

from penstock.core.errors import ContentTooLarge, NotFound
from penstock.hives.app.domain.errors import UnsupportedImage

FORMATS: Final = ("JPEG", "PNG", "WEBP")
#: What is decoded at most: a small file may hold a picture that fills the memory.
PIXELS: Final = 40_000_000
#: The longer side of what is kept.
SIDE: Final = 1600
QUALITY: Final = 82
#: Pictures decoded at once; each takes three bytes a pixel, and a core.
AT_ONCE: Final = 2
#: A file that no picture has is not deleted before it is so old: one may be about to.
GRACE_SECONDS: Final = 3600.0
_NAME: Final = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}\.jpg")


@dataclass(frozen=True, slots=True)
class Picture:
    path: str
    mime: str
    width: int
    height: int
    bytes: int


class Pictures:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def take(self, content: bytes) -> Picture:
        """Keep a picture, encoded anew."""
        async with self._turns:
            return await asyncio.to_thread(self._take, content)

    async def read(self, path: str) -> bytes:
        if not _NAME.fullmatch(path):
            raise NotFound("there is no such picture")
        try:
            return await asyncio.to_thread((self._folder / path).read_bytes)
        except FileNotFoundError:
            raise NotFound("this picture's file is gone") from None

    async def held(self) -> list[str]:
        """Files old enough that whoever wrote them has entered them, if they ever will."""
        return await asyncio.to_thread(self._held)

    async def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            if _NAME.fullmatch(path):
                await asyncio.to_thread((self._folder / path).unlink, missing_ok=True)

    def _held(self) -> list[str]:
        before = self._clock() - GRACE_SECONDS
        found = []
        for path in self._folder.glob("??/*.jpg"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    found.append(path.relative_to(self._folder).as_posix())
        return found

    def _take(self, content: bytes) -> Picture:
        made, width, height = encoded(content)
        digest = hashlib.sha256(made).hexdigest()
        path = f"{digest[:2]}/{digest[2:]}.jpg"
        write_whole(self._folder / path, made)
        return Picture(path, "image/jpeg", width, height, len(made))


def encoded(content: bytes) -> tuple[bytes, int, int]:
    """A JPEG of the picture, its width and its height."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                if picture.width * picture.height > PIXELS:
                    raise ContentTooLarge(f"a picture has at most {PIXELS:,} pixels")
                upright = ImageOps.exif_transpose(picture)
                upright.thumbnail((SIDE, SIDE))
                plain = _on_white(upright)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ContentTooLarge(f"a picture has at most {PIXELS:,} pixels") from None
    except ContentTooLarge:
        raise
    except UnidentifiedImageError:
        raise UnsupportedImage(f"this is no picture we know: {', '.join(FORMATS)}") from None
    except Exception as error:  # decoders raise whatever they like at what is broken
        raise UnsupportedImage("this picture is broken") from error
    out = io.BytesIO()
    plain.save(out, "JPEG", quality=QUALITY, optimize=True, progressive=True)
    return out.getvalue(), plain.width, plain.height


def write_whole(path: Path, content: bytes) -> None:
    """There as a whole, or not at all, even if the power goes."""
    if path.exists():
        path.touch()  # for who looks for files nobody wants
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _on_white(picture: Image.Image) -> Image.Image:
    """JPEG has no transparency."""
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        layered = picture.convert("RGBA")
        ground = Image.new("RGBA", layered.size, "white")
        ground.alpha_composite(layered)
        return ground.convert("RGB")
    return picture.convert("RGB")
