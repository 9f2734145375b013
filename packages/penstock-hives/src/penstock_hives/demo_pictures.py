"""Pictures of the demonstration's places: drawn here, a front as the cover and a room.

    create_demo_pictures(database, folder, hives)

They are stored as uploads are, once for each hive that has no picture.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw

from penstock_hives.images.service import reencode, write_atomically
from penstock_hives.sensors.fleet import SimulatedHive
from penstock_store import Connection, Database

#: Of a large fleet only the first have pictures.
MAX_HIVES: Final = 60
_SIZE: Final = (960, 540)
_SKY, _GROUND, _LIGHT, _DARK = "#bcd9e6", "#8d8577", "#ffe6a6", "#3b3128"
#: Walls and awnings.
_COLOURS: Final = (
    ("#d9a441", "#7a2f1d"),
    ("#c7d3c0", "#2f6b57"),
    ("#e3c9b3", "#8a4b2a"),
    ("#b7c4d6", "#2d4a73"),
    ("#d8b5bd", "#7b2d4e"),
    ("#cfc7a0", "#56602b"),
)
_WITHOUT: Final = """
    SELECT h.id, h.name, h.capacity FROM hive h WHERE h.id = ANY (%s)
        AND NOT EXISTS (SELECT FROM hive_image i WHERE i.hive_id = h.id) ORDER BY h.id
"""
_ADD: Final = """
    INSERT INTO hive_image
        (hive_id, kind, path, mime, width, height, bytes, caption, position)
    VALUES (%(hive)s, %(kind)s, %(path)s, 'image/jpeg', %(width)s, %(height)s, %(bytes)s,
            %(caption)s, %(position)s)
"""


def create_demo_pictures(database: Database, folder: Path, hives: Sequence[SimulatedHive]) -> None:
    wanted = [hive.id for hive in hives[:MAX_HIVES]]
    with database.transaction() as connection:
        for row in connection.execute(_WITHOUT, (wanted,)).fetchall():
            number, name = row["id"], row["name"]
            front, room = draw_front(number), draw_room(number, row["capacity"] or 40)
            _store(connection, folder, number, 0, front, f"{name} from the street")
            _store(connection, folder, number, 1, room, f"Inside {name}")


def _store(
    connection: Connection,
    folder: Path,
    hive: int,
    position: int,
    picture: Image.Image,
    caption: str,
) -> None:
    drawn = io.BytesIO()
    picture.save(drawn, "PNG", compress_level=1)
    content, width, height = reencode(drawn.getvalue())
    digest = hashlib.sha256(content).hexdigest()
    path = f"{digest[:2]}/{digest[2:]}.jpg"
    write_atomically(folder / path, content)
    given = {"hive": hive, "path": path, "width": width, "height": height, "bytes": len(content)}
    kind = "secondary" if position else "cover"
    connection.execute(_ADD, {**given, "kind": kind, "caption": caption, "position": position})


def draw_front(number: int) -> Image.Image:
    """A house with an awning, a door, and windows of which some are lit."""
    wall, awning = _COLOURS[number % len(_COLOURS)]
    picture = Image.new("RGB", _SIZE, _SKY)
    pen = ImageDraw.Draw(picture)
    left, top = 130 + 40 * (number % 3), 86 + 12 * (number % 3)
    right = _SIZE[0] - left
    pen.rectangle((0, 460, *_SIZE), fill=_GROUND)
    pen.rectangle((left, top, right, 470), fill=wall)
    pen.rectangle((left - 14, top - 16, right + 14, top), fill=_DARK)
    columns = 4 + number % 3
    step = (right - left) / columns
    for column in range(columns):
        x = left + column * step + step * 0.25
        colour = _LIGHT if (column * 7 + number) % 3 else "#6f8791"
        pen.rectangle((x, top + 30, x + step * 0.5, top + 110), fill=colour, outline=_DARK, width=4)
    for stripe in range(16):
        x, width = left + stripe * (right - left) / 16, (right - left) / 16
        colour = awning if stripe % 2 else "#f6efe2"
        pen.polygon(
            [(x, 250), (x + width, 250), (x + width * 1.1, 300), (x - width * 0.1, 300)],
            fill=colour,
        )
    door = left + (right - left) * (0.15 + 0.6 * (number % 2))
    pen.rectangle((left + 30, 310, right - 30, 440), fill=_LIGHT, outline=_DARK, width=5)
    pen.rectangle((door, 310, door + 90, 470), fill=awning, outline=_DARK, width=5)
    _comb(pen, (left + right) / 2, top - 40, 26, "#f3b53f")
    return picture


def draw_room(number: int, capacity: int) -> Image.Image:
    """Tables as cells of a comb; a larger place has more of them."""
    wall, accent = _COLOURS[number % len(_COLOURS)]
    picture = Image.new("RGB", _SIZE, "#efe6d6")
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 0, _SIZE[0], 190), fill=wall)
    pen.rectangle((0, 186, _SIZE[0], 196), fill=_DARK)
    for lamp in range(110, _SIZE[0], 185):
        pen.line((lamp, 0, lamp, 60), fill=_DARK, width=4)
        pen.ellipse((lamp - 24, 60, lamp + 24, 104), fill=_LIGHT, outline=_DARK, width=3)
    rows = 2 + (capacity > 60) + (capacity > 150)
    radius = 118 / rows
    for row in range(rows):
        for column in range(4 + 2 * rows):
            x = 90 + (column + row % 2 / 2) * 2.3 * radius
            y = 250 + row * 2.1 * radius
            if x < _SIZE[0] - radius:
                _comb(pen, x, y, radius * 0.8, accent if (row + column + number) % 3 else "#f3b53f")
    return picture


def _comb(pen: ImageDraw.ImageDraw, x: float, y: float, radius: float, colour: str) -> None:
    pen.regular_polygon((x, y, radius), 6, rotation=30, fill=colour, outline=_DARK, width=3)
