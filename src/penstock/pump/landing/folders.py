"""Folders that files land in: made when they are missing, and known to lead where they seem to.

To be sure of a folder every word of its path has to be looked at. That is done once; afterwards it
is known by what it is, so that another one under the same name, or a symbolic link in its place, is
looked at anew. Blocking, and safe to call from several threads.
"""

from __future__ import annotations

import os
from typing import Final

from penstock.pump.landing.target import Target

#: More than that are forgotten, and looked at again.
REMEMBERED: Final = 4096


class Folders:
    def __init__(self, mode: int = 0o775) -> None:
        self._mode = mode
        self._known: dict[tuple[str, str], tuple[int, int]] = {}  #: device and inode

    def prepare(self, target: Target) -> None:
        """The folder is there, and inside the directory that may not be left."""
        parent = os.path.dirname(target.place)  # noqa: PTH120 - it is asked for every file
        key = (os.fspath(target.directory), parent)
        known = self._known.get(key)
        if known is not None and known == _identity(parent):
            return
        target.prepare(self._mode)
        found = _identity(parent)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        if found is not None:
            self._known[key] = found


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        there = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return there.st_dev, there.st_ino
