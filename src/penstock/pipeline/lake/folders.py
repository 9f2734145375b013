"""Where in a batch's folder rows lie: by day and, in bronze, by stream.

    _day=2026-11-15/_stream=sensors-0/….parquet

Files keep both columns, so that each can be read alone; that the folders' names differ from theirs
leaves readers that make columns of folders with one of each. Nothing is read off a path: what a
file has is said in the table's log.
"""

from __future__ import annotations

import hashlib
from typing import Final
from urllib.parse import quote

#: Every table has it: the UTC day a row belongs to.
DAY: Final = "day"
#: Tables whose streams lie apart have it.
STREAM: Final = "stream"
DAY_FOLDER: Final = "_day"
STREAM_FOLDER: Final = "_stream"
#: A stream's name may be longer than a file system lets a folder's be, once it is spelled out.
_LONGEST: Final = 120


def below(day: str, stream: str | None) -> str:
    """The folder of a day, or of a stream's day."""
    of_day = f"{DAY_FOLDER}={day}"
    return of_day if stream is None else f"{of_day}/{STREAM_FOLDER}={folder_of(stream)}"


def folder_of(stream: str) -> str:
    """The name in letters, digits and `-._~+`, which neither file systems nor Spark interpret."""
    spelled = quote(stream, safe="").replace("%", "+")
    if len(spelled) <= _LONGEST:
        return spelled
    return f"{spelled[:_LONGEST]}-{hashlib.sha256(stream.encode()).hexdigest()[:16]}"
