"""What has been announced of a tree, on disk: so that after a restart only changes are.

Blocking: called in a thread, one call at a time.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SCHEMA: Final = """
create table if not exists announced (
    path text primary key, inode integer, size integer, mtime integer, kind integer
) without rowid;
"""


@dataclass(frozen=True, slots=True)
class Known:
    """What tells that a file is still the one that was announced."""

    inode: int
    size: int
    mtime: int
    kind: int  #: the type bits of its mode

    @property
    def folder(self) -> bool:
        return stat.S_ISDIR(self.kind)

    @property
    def file(self) -> bool:
        return stat.S_ISREG(self.kind)


def known_of(status: os.stat_result) -> Known:
    folder = stat.S_ISDIR(status.st_mode)
    # The size and time of a directory change with what is in it.
    return Known(
        status.st_ino,
        0 if folder else status.st_size,
        0 if folder else status.st_mtime_ns,
        stat.S_IFMT(status.st_mode),
    )


class Tree:
    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(
            ":memory:" if path is None else path, check_same_thread=False, isolation_level=None
        )
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = normal")
        self._db.executescript(_SCHEMA)
        self._known = {
            str(row[0]): Known(*row[1:])
            for row in self._db.execute("select path, inode, size, mtime, kind from announced")
        }

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, path: Path) -> bool:
        return os.fspath(path) in self._known

    def get(self, path: Path) -> Known | None:
        return self._known.get(os.fspath(path))

    def paths(self) -> list[Path]:
        return [Path(path) for path in self._known]

    def below(self, folder: Path) -> list[Path]:
        """Everything known below a directory, the deepest first."""
        beginning = os.fspath(folder) + "/"
        found = [path for path in self._known if path.startswith(beginning)]
        return [Path(path) for path in sorted(found, key=lambda each: -each.count("/"))]

    def record(self, seen: Iterable[tuple[Path, Known | None]]) -> None:
        """What is there now, or no more."""
        self._db.execute("begin")
        for path, known in seen:
            key = os.fspath(path)
            if known is None:
                self._known.pop(key, None)
                self._db.execute("delete from announced where path = ?", (_text(key),))
            else:
                self._known[key] = known
                self._db.execute(
                    "insert or replace into announced values (?, ?, ?, ?, ?)",
                    (_text(key), known.inode, known.size, known.mtime, known.kind),
                )
        self._db.execute("commit")

    def close(self) -> None:
        self._db.close()


def _text(path: str) -> str:
    """Names that are not UTF-8 cannot be announced, but must not stop us."""
    return path.encode(errors="surrogateescape").decode(errors="replace")
