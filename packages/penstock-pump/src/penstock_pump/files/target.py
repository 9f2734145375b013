"""The final and the in-flight path of a file.

A target is a path below a directory that it must not leave: neither by `..`, which placement
refuses, nor by a symbolic link on the way.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock_pump.errors import OutsideDirectory

#: The longest name on almost all file systems.
NAME_BYTES: Final = 255
#: Reserved for the suffix of the block list (`blocks.BLOCK_LIST`).
_SUFFIX_BYTES: Final = 8
#: The size of the cache of folders.
MAX_CACHED_FOLDERS: Final = 4096


def temporary_name(name: str, prefix: str, suffix: str) -> str:
    """With a digest instead of the name where that would be too long."""
    longer = f"{prefix}{name}{suffix}"
    if (
        len(os.fsencode(longer)) + _SUFFIX_BYTES <= NAME_BYTES
        or len(os.fsencode(name)) > NAME_BYTES
    ):
        return longer
    return f"{prefix}{hashlib.sha256(os.fsencode(name)).hexdigest()}{suffix}"


def is_inside(path: str, directory: str) -> bool:
    """Whether it is the directory or below it; both absolute, links resolved."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class InflightName:
    """Where a file is written until it is complete: with a suffix, a prefix, or in a folder.

    Sarracenia's NONE, which writes to the final name, means a dot before the name here: a partial
    file must not have its final name.
    """

    prefix: str = ""
    suffix: str = ".tmp"
    folder: str = ""

    def path(self, full_path: str) -> str:
        folder, name = os.path.split(full_path)
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
    #: A string, because a `Path` costs more than most operations on a small file.
    full_path: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "full_path", os.path.join(self.directory, self.path))  # noqa: PTH118

    @property
    def final(self) -> Path:
        return Path(self.full_path)

    def prepare(self, mode: int = 0o775) -> Path:
        """Makes the folders, and checks that they are inside the directory."""
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


class FolderCache:
    """Folders that were made and checked, by device and inode: another folder or a symbolic link of
    the same name is checked again. Any thread may call it."""

    def __init__(self, mode: int = 0o775) -> None:
        self._mode = mode
        self._known: dict[tuple[str, str], tuple[int, int]] = {}  #: device and inode

    def prepare(self, target: LocalTarget) -> None:
        """As `LocalTarget.prepare`."""
        parent = os.path.dirname(target.full_path)  # noqa: PTH120 - called for every file
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
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino
