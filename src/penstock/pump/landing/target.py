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

from penstock.pump.errors import OutsideDirectory

#: Bytes of a name, on almost all file systems.
NAME_BYTES: Final = 255
#: Of them, for what stands beside a file in flight (`blocks.LIST`).
_BESIDE: Final = 8


def temporary_name(name: str, prefix: str, suffix: str) -> str:
    """What a file is called until it has its name; where the name leaves no room for more, by a
    digest of it."""
    longer = f"{prefix}{name}{suffix}"
    if len(os.fsencode(longer)) + _BESIDE <= NAME_BYTES or len(os.fsencode(name)) > NAME_BYTES:
        return longer
    return f"{prefix}{hashlib.sha256(os.fsencode(name)).hexdigest()}{suffix}"


def is_inside(path: str, directory: str) -> bool:
    """Whether it is the directory or below it; both absolute, links resolved."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class Inflight:
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


def read_inflight(text: str) -> Inflight:
    """`.tmp` is a suffix, `.` a prefix, `tmp/` a folder, NONE or off a prefix."""
    if text.endswith("/"):
        return Inflight(suffix="", folder=text.rstrip("/"))
    if text == "." or text.lower() in ("none", "off", ""):
        return Inflight(prefix=".", suffix="")
    return Inflight(suffix=text)


@dataclass(frozen=True, slots=True)
class Target:
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
