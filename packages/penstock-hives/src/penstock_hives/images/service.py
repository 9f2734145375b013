"""Images of a hive, and their files.

Uploads are never stored or served as they are. They are decoded within limits, turned upright,
scaled and encoded again, which removes metadata and anything else in the file. A file is named by
its digest and appears atomically; it never changes.
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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageOps, UnidentifiedImageError

from penstock.core.errors import ContentTooLarge, NotFound
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.errors import RequestConflict, UnsupportedImage, require_found
from penstock_hives.images.models import HiveImage, ImageKind
from penstock_hives.images.repository import ImageRepository
from penstock_hives.occupancy.service import require_owned_hive
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository

#: Of one hive.
MAX_IMAGES: Final = 30


class ImageService:
    def __init__(self, pool: DatabasePool, store: ImageStore) -> None:
        self._pool = pool
        self._store = store

    async def of_hive(self, hive: int) -> list[HiveImage]:
        async with self._pool.reading() as connection:
            return await ImageRepository(connection).of_hive(hive)

    async def content(self, image: int) -> tuple[bytes, str]:
        """The file of an image, and its media type."""
        async with self._pool.reading() as connection:
            found = await ImageRepository(connection).file_of(image)
        path, mime = require_found(found, f"image {image}")
        return await self._store.read(path), mime

    async def own_content(self, caller: Caller, image: int) -> tuple[bytes, str]:
        """As `content`, also of a hidden hive, for its business."""
        async with self._pool.reading() as connection:
            await _require_own(connection, caller, image)
            found = await ImageRepository(connection).file_of(image, hidden=True)
        path, mime = require_found(found, f"image {image}")
        return await self._store.read(path), mime

    async def add(
        self, caller: Caller, hive: int, content: bytes, kind: ImageKind, caption: str
    ) -> HiveImage:
        """The first image is always the cover."""
        async with self._pool.reading() as connection:  # before the work of decoding
            await require_owned_hive(connection, caller, hive, AppPermission.EDIT_IMAGES)
        stored = await self._store.add(content)
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(connection, caller, hive, AppPermission.EDIT_IMAGES)
            await connection.execute("SELECT FROM hive WHERE id = %s FOR UPDATE", (hive,))
            images = ImageRepository(connection)
            position, held, covered = await images.place(hive)
            if held >= MAX_IMAGES:
                raise RequestConflict(f"at most {MAX_IMAGES} images of a hive: remove one first")
            cover = kind is ImageKind.COVER or not covered
            if cover and covered:
                await images.uncover(hive)
            number = await images.add(
                {
                    "hive_id": hive,
                    "kind": (ImageKind.COVER if cover else ImageKind.SECONDARY).value,
                    "path": stored.path,
                    "mime": stored.mime,
                    "width": stored.width,
                    "height": stored.height,
                    "bytes": stored.bytes,
                    "caption": caption,
                    "position": position,
                }
            )
            await AuditRepository(connection).record(caller, "add", "image", number, account)
            return require_found(await images.get(number), f"image {number}")

    async def edit(self, caller: Caller, image: int, values: Mapping[str, Any]) -> HiveImage:
        """A new cover replaces the old one; there is always one."""
        async with self._pool.transaction() as connection:
            images = ImageRepository(connection)
            held, account = await _require_own(connection, caller, image)
            given = dict(values)
            if given.get("kind") == ImageKind.COVER and held.kind != ImageKind.COVER:
                await images.uncover(held.hive_id)
            elif given.get("kind") == ImageKind.SECONDARY and held.kind == ImageKind.COVER:
                raise RequestConflict("make another image the cover instead")
            await images.change(image, given)
            await AuditRepository(connection).record(caller, "edit", "image", image, account)
            return require_found(await images.get(image), f"image {image}")

    async def remove(self, caller: Caller, image: int) -> None:
        """The next image becomes the cover. `sweep` deletes the file."""
        async with self._pool.transaction() as connection:
            images = ImageRepository(connection)
            held, account = await _require_own(connection, caller, image)
            await images.remove(image)
            if held.kind == ImageKind.COVER:
                left = await images.of_hive(held.hive_id)
                if left:
                    await images.change(left[0].id, {"kind": ImageKind.COVER.value})
            await AuditRepository(connection).record(caller, "remove", "image", image, account)

    async def sweep(self) -> int:
        """Delete files without an image; returns their number."""
        held = await self._store.old_files()
        if not held:
            return 0
        async with self._pool.reading() as connection:
            unused = await ImageRepository(connection).unused(held)
        await self._store.remove(unused)
        return len(unused)


async def _require_own(connection: Connection, caller: Caller, image: int) -> tuple[HiveImage, int]:
    held = require_found(await ImageRepository(connection).get(image), f"image {image}")
    account = await require_owned_hive(connection, caller, held.hive_id, AppPermission.EDIT_IMAGES)
    await connection.execute("SELECT FROM hive WHERE id = %s FOR UPDATE", (held.hive_id,))
    return held, account


FORMATS: Final = ("JPEG", "PNG", "WEBP")
#: The limit of decoding: a small file may be a very large image.
PIXELS: Final = 40_000_000
#: The maximum width and height.
SIDE: Final = 1600
QUALITY: Final = 82
#: Images decoded at a time; each needs three bytes a pixel and a core.
MAX_CONCURRENT: Final = 2
#: Unused files are deleted after this time; newer ones may belong to a running upload.
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
        self._limit = asyncio.Semaphore(MAX_CONCURRENT)

    async def add(self, content: bytes) -> StoredImage:
        async with self._limit:
            return await asyncio.to_thread(self._add, content)

    async def read(self, path: str) -> bytes:
        if not _NAME.fullmatch(path):
            raise NotFound("image file not found")
        try:
            return await asyncio.to_thread((self._folder / path).read_bytes)
        except FileNotFoundError:
            raise NotFound("image file not found") from None

    async def old_files(self) -> list[str]:
        """Files that are old enough to be in the database, if they are used."""
        return await asyncio.to_thread(self._old_files)

    async def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            if _NAME.fullmatch(path):
                await asyncio.to_thread((self._folder / path).unlink, missing_ok=True)

    def _old_files(self) -> list[str]:
        before = self._clock() - GRACE_SECONDS
        found = []
        for path in self._folder.glob("??/*.jpg"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    found.append(path.relative_to(self._folder).as_posix())
        return found

    def _add(self, content: bytes) -> StoredImage:
        encoded, width, height = reencode(content)
        digest = hashlib.sha256(encoded).hexdigest()
        path = f"{digest[:2]}/{digest[2:]}.jpg"
        write_atomically(self._folder / path, encoded)
        return StoredImage(path, "image/jpeg", width, height, len(encoded))


def reencode(content: bytes) -> tuple[bytes, int, int]:
    """A JPEG with its width and height."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                if picture.width * picture.height > PIXELS:
                    raise ContentTooLarge(f"an image may have at most {PIXELS:,} pixels")
                upright = ImageOps.exif_transpose(picture)
                upright.thumbnail((SIDE, SIDE))
                plain = _on_white(upright)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ContentTooLarge(f"an image may have at most {PIXELS:,} pixels") from None
    except ContentTooLarge:
        raise
    except UnidentifiedImageError:
        raise UnsupportedImage(f"the image must be one of {', '.join(FORMATS)}") from None
    except Exception as error:  # decoders raise many types
        raise UnsupportedImage("the image cannot be decoded") from error
    out = io.BytesIO()
    plain.save(out, "JPEG", quality=QUALITY, optimize=True, progressive=True)
    return out.getvalue(), plain.width, plain.height


def write_atomically(path: Path, content: bytes) -> None:
    """Durable and complete, or not at all."""
    if path.exists():
        path.touch()  # so that `sweep` does not delete it yet
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
