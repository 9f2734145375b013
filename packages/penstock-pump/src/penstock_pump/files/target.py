"""Where a file will be, and what it is called until it is there.

A target is a path below a directory that may not be left: neither by its words, which placement has
refused, nor by a symbolic link that somebody has put on the way.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock_pump.errors import OutsideDirectory

#: Bytes of a name, on almost all file systems.
NAME_BYTES: Final = 255
#: Of them, for what stands beside a file in flight (`blocks.LIST`).
_TEMPORARY_NAME_BYTES: Final = 8


def temporary_name(name: str, prefix: str, suffix: str) -> str:
    """What a file is called until it has its name; where the name leaves no room for more, by a
    digest of it."""
    longer = f"{prefix}{name}{suffix}"
    if (
        len(os.fsencode(longer)) + _TEMPORARY_NAME_BYTES <= NAME_BYTES
        or len(os.fsencode(name)) > NAME_BYTES
    ):
        return longer
    return f"{prefix}{hashlib.sha256(os.fsencode(name)).hexdigest()}{suffix}"


def is_inside(path: str, directory: str) -> bool:
    """Whether it is the directory or below it; both absolute, links resolved."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class InflightName:
    """How a file that is not whole yet is called: a suffix, a prefix, or a folder of its own.

    Sarracenia's NONE, which writes to the final name, is taken as a dot before the name: half a
    file under its final name is never right.
    """

    prefix: str = ""
    suffix: str = ".tmp"
    folder: str = ""

    def path(self, place: str) -> str:
        folder, name = os.path.split(place)
        name = temporary_name(name, self.prefix, self.suffix)
        return os.path.join(folder, self.folder, name)  # noqa: PTH118


def read_inflight(text: str) -> InflightName:
    """`.tmp` is a suffix, `.` a prefix, `tmp/` a folder, NONE or off a prefix."""
    if text.endswith("/"):
        return InflightName(suffix="", folder=text.rstrip("/"))
    if text == "." or text.lower() in ("none", "off", ""):
        return InflightName(prefix=".", suffix="")
    return InflightName(suffix=text)


@dataclass(frozen=True, slots=True)
class LocalTarget:
    directory: str | os.PathLike[str]
    path: str
    #: All of it as a text: to make a `Path` costs more than most of what is asked of a small file.
    place: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", os.path.join(self.directory, self.path))  # noqa: PTH118

    @property
    def final(self) -> Path:
        return Path(self.place)

    def prepare(self, mode: int = 0o775) -> Path:
        """Make the folders on the way, and be sure they lead where they seem to."""
        final = self.final
        if not final.parent.is_dir():
            self.check()
            final.parent.mkdir(mode=mode, parents=True, exist_ok=True)
        self.check()
        return final

    def check(self) -> None:
        home, parent = os.path.realpath(self.directory), os.path.realpath(self.final.parent)
        if not is_inside(parent, home):
            raise OutsideDirectory(f"{self.final} leads to {parent}, outside {home}")


# Folders that files land in: made when they are missing, and known to lead where they seem to.
#
# To be sure of a folder every word of its path has to be looked at. That is done once; afterwards
# it is known by what it is, so that another one under the same name, or a symbolic link in its
# place, is looked at anew. Blocking, and safe to call from several threads.

#: More than that are forgotten, and looked at again.
MAX_CACHED_FOLDERS: Final = 4096


class FolderCache:
    def __init__(self, mode: int = 0o775) -> None:
        self._mode = mode
        self._known: dict[tuple[str, str], tuple[int, int]] = {}  #: device and inode

    def prepare(self, target: LocalTarget) -> None:
        """The folder is there, and inside the directory that may not be left."""
        parent = os.path.dirname(target.place)  # noqa: PTH120 - it is asked for every file
        key = (os.fspath(target.directory), parent)
        known = self._known.get(key)
        if known is not None and known == _identity(parent):
            return
        target.prepare(self._mode)
        found = _identity(parent)
        if len(self._known) >= MAX_CACHED_FOLDERS:
            self._known.clear()
        if found is not None:
            self._known[key] = found


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        there = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return there.st_dev, there.st_ino
