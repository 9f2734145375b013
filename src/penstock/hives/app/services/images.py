"""The gallery of a hive: one cover, others in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import NotFound
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import Conflict
from penstock.hives.app.domain.images import Image, ImageKind
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.images import ImageRepository
from penstock.hives.app.repositories.pool import Connection, Pool
from penstock.hives.app.services.occupancy import owned
from penstock.hives.app.services.pictures import Pictures

#: Pictures of one hive.
MOST: Final = 30


class Images:
    def __init__(self, pool: Pool, pictures: Pictures) -> None:
        self._pool = pool
        self._pictures = pictures

    async def of_hive(self, hive: int) -> list[Image]:
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
    ) -> Image:
        """The first one is the cover whatever was asked."""
        async with self._pool.reading() as connection:  # before the work of decoding
            await owned(connection, caller, hive, Permission.EDIT_IMAGES)
        picture = await self._pictures.take(content)
        async with self._pool.transaction() as connection:
            account = await owned(connection, caller, hive, Permission.EDIT_IMAGES)
            await connection.execute("SELECT FROM hive WHERE id = %s FOR UPDATE", (hive,))
            images = ImageRepository(connection)
            position, held, covered = await images.place(hive)
            if held >= MOST:
                raise Conflict(f"at most {MOST} pictures of a hive: remove one first")
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

    async def edit(self, caller: Caller, image: int, values: Mapping[str, Any]) -> Image:
        """A new cover takes the place of the old one; there is always one."""
        async with self._pool.transaction() as connection:
            images = ImageRepository(connection)
            held, account = await _mine(connection, caller, image)
            given = dict(values)
            if given.get("kind") == ImageKind.COVER and held.kind != ImageKind.COVER:
                await images.uncover(held.hive_id)
            elif given.get("kind") == ImageKind.SECONDARY and held.kind == ImageKind.COVER:
                raise Conflict("make another picture the cover instead")
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


async def _mine(connection: Connection, caller: Caller, image: int) -> tuple[Image, int]:
    held = await ImageRepository(connection).get(image)
    if held is None:
        raise NotFound(f"there is no picture {image}")
    account = await owned(connection, caller, held.hive_id, Permission.EDIT_IMAGES)
    await connection.execute("SELECT FROM hive WHERE id = %s FOR UPDATE", (held.hive_id,))
    return held, account


def _there(found: Image | None, image: int) -> Image:
    if found is None:
        raise NotFound(f"there is no picture {image}")
    return found
