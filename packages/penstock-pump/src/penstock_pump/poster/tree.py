"""What has been announced of a tree, on disk: so that after a restart only changes are.

Blocking: called in a thread, one call at a time.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.core.logs import get_logger

_SCHEMA: Final = """
create table if not exists announced (
    path text primary key, inode integer, size integer, mtime integer, kind integer
) without rowid;
"""


@dataclass(frozen=True, slots=True)
class FileState:
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


def file_state(status: os.stat_result) -> FileState:
    folder = stat.S_ISDIR(status.st_mode)
    # The size and time of a directory change with what is in it.
    return FileState(
        status.st_ino,
        0 if folder else status.st_size,
        0 if folder else status.st_mtime_ns,
        stat.S_IFMT(status.st_mode),
    )


class PostedTree:
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
            str(row[0]): FileState(*row[1:])
            for row in self._db.execute("select path, inode, size, mtime, kind from announced")
        }

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, path: Path) -> bool:
        return os.fspath(path) in self._known

    def get(self, path: Path) -> FileState | None:
        return self._known.get(os.fspath(path))

    def paths(self) -> list[Path]:
        return [Path(path) for path in self._known]

    def below(self, folder: Path) -> list[Path]:
        """Everything known below a directory, the deepest first."""
        beginning = os.fspath(folder) + "/"
        found = [path for path in self._known if path.startswith(beginning)]
        return [Path(path) for path in sorted(found, key=lambda each: -each.count("/"))]

    def record(self, seen: Iterable[tuple[Path, FileState | None]]) -> None:
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


# What is different between a tree and what was announced of it. Blocking.


@dataclass(frozen=True, slots=True)
class FileMove:
    """A file that has another name now, and is the same."""

    old: Path
    new: Path
    known: FileState


@dataclass(frozen=True, slots=True)
class TreeDifferences:
    changed: dict[Path, FileState] = field(default_factory=dict)  #: parents first
    gone: dict[Path, FileState] = field(default_factory=dict)  #: children first
    moves: list[FileMove] = field(default_factory=list)


def compare(paths: Iterable[Path], tree: PostedTree) -> TreeDifferences:
    """Of these paths and, where a directory came or went, of all that is below it."""
    changed: dict[Path, FileState] = {}
    gone: dict[Path, FileState] = {}
    for path in paths:
        there = _look(path)
        before = tree.get(path)
        if there is None:
            _note_gone(path, before, tree, gone)
        elif there.folder and before is None:
            # Files may have come before the directory was watched.
            _note_below(path, tree, changed)
        elif there != before:
            changed[path] = there
            if before is not None and before.folder:
                _note_gone(path, before, tree, gone)
    gone = {path: known for path, known in gone.items() if path not in changed}
    moves = _moves(changed, gone, tree)
    for move in moves:
        del changed[move.new]
        del gone[move.old]
    return TreeDifferences(
        dict(sorted(changed.items())),
        dict(sorted(gone.items(), key=lambda each: (each[1].folder, -len(each[0].parts)))),
        moves,
    )


def _note_gone(
    path: Path, before: FileState | None, tree: PostedTree, gone: dict[Path, FileState]
) -> None:
    if before is None:
        return
    gone[path] = before
    if before.folder:
        for child in tree.below(path):
            known = tree.get(child)
            if known is not None and _look(child) is None:
                gone[child] = known


def _note_below(folder: Path, tree: PostedTree, changed: dict[Path, FileState]) -> None:
    for path in walk(folder):
        there = _look(path)
        if there is not None and there != tree.get(path):
            changed[path] = there


def _moves(
    changed: dict[Path, FileState], gone: dict[Path, FileState], tree: PostedTree
) -> list[FileMove]:
    """Something that went and something that came, and both are the same file."""
    old_names = {known: path for path, known in gone.items() if known.file}
    moves = []
    for path, known in changed.items():
        if known.file and path not in tree and (old := old_names.pop(known, None)) is not None:
            moves.append(FileMove(old, path, known))
    return moves


def _look(path: Path) -> FileState | None:
    try:
        return file_state(path.lstat())
    except OSError:
        return None


# A tree in order, one directory in memory at a time. Links are not followed.

log = get_logger(__name__)


def walk(path: Path, *, recursive: bool = True) -> Iterator[Path]:
    """The path itself and, if it is a directory, what is below it: a directory before its files."""
    yield path
    if not path.is_dir() or path.is_symlink():
        return
    stack = [_entries(path)]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        yield Path(entry.path)
        if recursive and entry.is_dir(follow_symlinks=False):
            stack.append(_entries(Path(entry.path)))


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return iter(sorted(entries, key=lambda entry: entry.name))
    except OSError as error:
        log.warning("directory cannot be read", path=str(path), reason=error.strerror)
        return iter(())
