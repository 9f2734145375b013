"""The gallery of a hive: one cover, others in order."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageOps, UnidentifiedImageError

from penstock.core.errors import ContentTooLarge, NotFound
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.errors import RequestConflict, UnsupportedImage
from penstock_hives.images.models import HiveImage, ImageKind
from penstock_hives.images.repository import ImageRepository
from penstock_hives.occupancy.service import require_owned_hive
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository

#: Pictures of one hive.
MAX_IMAGES: Final = 30


class ImageService:
    def __init__(self, pool: DatabasePool, pictures: ImageStore) -> None:
        self._pool = pool
        self._pictures = pictures

    async def of_hive(self, hive: int) -> list[HiveImage]:
        async with self._pool.reading() as connection:
            return await ImageRepository(connection).of_hive(hive)

    async def content(self, image: int) -> tuple[bytes, str]:
        """The file of a picture, and its media type."""
        async with self._pool.reading() as connection:
            found = await ImageRepository(connection).file_of(image)
        if found is None:
            raise NotFound(f"there is no picture {image}")
        return await self._pictures.read(found[0]), found[1]

    async def add(
        self, caller: Caller, hive: int, content: bytes, kind: ImageKind, caption: str
    ) -> HiveImage:
        """The first one is the cover whatever was asked."""
        async with self._pool.reading() as connection:  # before the work of decoding
            await require_owned_hive(connection, caller, hive, AppPermission.EDIT_IMAGES)
        picture = await self._pictures.take(content)
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(connection, caller, hive, AppPermission.EDIT_IMAGES)
            await connection.execute("SELECT FROM hive WHERE id = %s FOR UPDATE", (hive,))
            images = ImageRepository(connection)
            position, held, covered = await images.place(hive)
            if held >= MAX_IMAGES:
                raise RequestConflict(f"at most {MAX_IMAGES} pictures of a hive: remove one first")
            cover = kind is ImageKind.COVER or not covered
            if cover and covered:
                await images.uncover(hive)
            number = await images.add(
                {
                    "hive_id": hive,
                    "kind": (ImageKind.COVER if cover else ImageKind.SECONDARY).value,
                    "path": picture.path,
                    "mime": picture.mime,
                    "width": picture.width,
                    "height": picture.height,
                    "bytes": picture.bytes,
                    "caption": caption,
                    "position": position,
                }
            )
            await AuditRepository(connection).record(caller, "add", "image", number, account)
            return _there(await images.get(number), number)

    async def edit(self, caller: Caller, image: int, values: Mapping[str, Any]) -> HiveImage:
        """A new cover takes the place of the old one; there is always one."""
        async with self._pool.transaction() as connection:
            images = ImageRepository(connection)
            held, account = await _mine(connection, caller, image)
            given = dict(values)
            if given.get("kind") == ImageKind.COVER and held.kind != ImageKind.COVER:
                await images.uncover(held.hive_id)
            elif given.get("kind") == ImageKind.SECONDARY and held.kind == ImageKind.COVER:
                raise RequestConflict("make another picture the cover instead")
            await images.change(image, given)
            await AuditRepository(connection).record(caller, "edit", "image", image, account)
            return _there(await images.get(image), image)

    async def remove(self, caller: Caller, image: int) -> None:
        """When the cover goes, the next one is it. Its file goes later (`sweep`)."""
        async with self._pool.transaction() as connection:
            images = ImageRepository(connection)
            held, account = await _mine(connection, caller, image)
            await images.remove(image)
            if held.kind == ImageKind.COVER:
                left = await images.of_hive(held.hive_id)
                if left:
                    await images.change(left[0].id, {"kind": ImageKind.COVER.value})
            await AuditRepository(connection).record(caller, "remove", "image", image, account)

    async def sweep(self) -> int:
        """Delete files that no picture has any more. How many."""
        held = await self._pictures.held()
        if not held:
            return 0
        async with self._pool.reading() as connection:
            unwanted = await ImageRepository(connection).unwanted(held)
        await self._pictures.remove(unwanted)
        return len(unwanted)


async def _mine(connection: Connection, caller: Caller, image: int) -> tuple[HiveImage, int]:
    held = await ImageRepository(connection).get(image)
    if held is None:
        raise NotFound(f"there is no picture {image}")
    account = await require_owned_hive(connection, caller, held.hive_id, AppPermission.EDIT_IMAGES)
    await connection.execute("SELECT FROM hive WHERE id = %s FOR UPDATE", (held.hive_id,))
    return held, account


def _there(found: HiveImage | None, image: int) -> HiveImage:
    if found is None:
        raise NotFound(f"there is no picture {image}")
    return found


# Pictures on disk: taken apart, made anew, written whole.
#
# What is uploaded is never kept or served. It is decoded within limits, turned upright, made
# smaller, and encoded again: whatever else was in the file, where it was taken or a script, is
# gone. A file is named by its digest and written beside its place, then renamed: it is there as a
# whole or not at all, never changes, and may be served by anybody who knows its name.

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
class StoredImage:
    path: str
    mime: str
    width: int
    height: int
    bytes: int


class ImageStore:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def take(self, content: bytes) -> StoredImage:
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

    def _take(self, content: bytes) -> StoredImage:
        made, width, height = reencode(content)
        digest = hashlib.sha256(made).hexdigest()
        path = f"{digest[:2]}/{digest[2:]}.jpg"
        write_atomically(self._folder / path, made)
        return StoredImage(path, "image/jpeg", width, height, len(made))


def reencode(content: bytes) -> tuple[bytes, int, int]:
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


def write_atomically(path: Path, content: bytes) -> None:
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
