"""Table `hive_image`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock_hives.database import Connection, insert_row, update_row
from penstock_hives.images.models import HiveImage
from penstock_hives.places.repository import IMAGE_COLUMNS, VISIBLE_HIVE, image_from_row

_PLACED: Final = """
    SELECT coalesce(max(position) + 1, 0) AS position, count(*) AS held,
           bool_or(kind = 'cover') AS covered
    FROM hive_image WHERE hive_id = %s
"""


class ImageRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def of_hive(self, hive: int) -> list[HiveImage]:
        statement = f"""
            SELECT {IMAGE_COLUMNS} FROM hive_image WHERE hive_id = %s ORDER BY position, id
        """
        found = await self._connection.execute(statement, (hive,))
        return [image_from_row(row) async for row in found]

    async def get(self, image: int) -> HiveImage | None:
        statement = f"SELECT {IMAGE_COLUMNS} FROM hive_image WHERE id = %s"
        row = await (await self._connection.execute(statement, (image,))).fetchone()
        return None if row is None else image_from_row(row)

    async def file_of(self, image: int, *, hidden: bool = False) -> tuple[str, str] | None:
        """Path and media type, of public hives; `hidden`: of all."""
        statement = f"""
            SELECT i.path, i.mime FROM hive_image i JOIN hive h ON h.id = i.hive_id
            WHERE i.id = %s AND ({"TRUE" if hidden else VISIBLE_HIVE})
        """
        row = await (await self._connection.execute(statement, (image,))).fetchone()
        return None if row is None else (row["path"], row["mime"])

    async def place(self, hive: int) -> tuple[int, int, bool]:
        """The next position, how many there are, and whether one is the cover."""
        row = await (await self._connection.execute(_PLACED, (hive,))).fetchone()
        assert row is not None
        return row["position"], row["held"], bool(row["covered"])

    async def add(self, values: Mapping[str, Any]) -> int:
        return await insert_row(self._connection, "hive_image", values)

    async def change(self, image: int, values: Mapping[str, Any]) -> None:
        await update_row(self._connection, "hive_image", image, values)

    async def uncover(self, hive: int) -> None:
        statement = """
            UPDATE hive_image SET kind = 'secondary' WHERE hive_id = %s AND kind = 'cover'
        """
        await self._connection.execute(statement, (hive,))

    async def remove(self, image: int) -> None:
        await self._connection.execute("DELETE FROM hive_image WHERE id = %s", (image,))

    async def unused(self, paths: Sequence[str]) -> list[str]:
        """Files without an image."""
        statement = """
            SELECT path FROM unnest(%s::text[]) AS held (path)
            WHERE NOT EXISTS (SELECT FROM hive_image i WHERE i.path = held.path)
        """
        found = await self._connection.execute(statement, (list(paths),))
        return [row["path"] async for row in found]
