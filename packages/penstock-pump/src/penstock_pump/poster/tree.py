"""The announced state of a tree, stored on disk, and its differences from the tree.

After a restart only changes are announced. Blocking: called in a thread, one call at a time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.core.logs import get_logger
from penstock_pump.sqlite_store import SqliteStore

log = get_logger(__name__)

_SCHEMA: Final = """
create table if not exists announced (
    path text primary key, inode integer, size integer, mtime integer, kind integer
) without rowid;
"""


@dataclass(frozen=True, slots=True)
class FileState:
    """Equal states mean that the file has not changed."""

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
        """Without a path the state is in memory only."""
        self._store = SqliteStore(path, _SCHEMA)
        with self._store.transaction() as db:
            rows = db.execute("select path, inode, size, mtime, kind from announced")
            self._known = {str(row[0]): FileState(*row[1:]) for row in rows}

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
        """The new states of files; None for those that were removed."""
        with self._store.transaction() as db:
            for path, known in seen:
                key = os.fspath(path)
                if known is None:
                    self._known.pop(key, None)
                    db.execute("delete from announced where path = ?", (_text(key),))
                else:
                    self._known[key] = known
                    db.execute(
                        "insert or replace into announced values (?, ?, ?, ?, ?)",
                        (_text(key), known.inode, known.size, known.mtime, known.kind),
                    )

    def close(self) -> None:
        self._store.close()


def _text(path: str) -> str:
    """Names that are not UTF-8 cannot be announced, but must not end the watch."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


@dataclass(frozen=True, slots=True)
class FileMove:
    old: Path
    new: Path
    known: FileState


@dataclass(frozen=True, slots=True)
class TreeDifferences:
    changed: dict[Path, FileState] = field(default_factory=dict)  #: parents first
    gone: dict[Path, FileState] = field(default_factory=dict)  #: children first
    moves: list[FileMove] = field(default_factory=list)


def compare(paths: Iterable[Path], tree: PostedTree) -> TreeDifferences:
    """Of these paths, and of all that is below a new or removed directory."""
    changed: dict[Path, FileState] = {}
    gone: dict[Path, FileState] = {}
    for path in paths:
        current = _current_state(path)
        before = tree.get(path)
        if current is None:
            _add_gone(path, before, tree, gone)
        elif current.folder and before is None:
            # Files may have been created before the directory was watched.
            _add_below(path, tree, changed)
        elif current != before:
            changed[path] = current
            if before is not None and before.folder:
                _add_gone(path, before, tree, gone)
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


def _add_gone(
    path: Path, before: FileState | None, tree: PostedTree, gone: dict[Path, FileState]
) -> None:
    if before is None:
        return
    gone[path] = before
    if before.folder:
        for child in tree.below(path):
            known = tree.get(child)
            if known is not None and _current_state(child) is None:
                gone[child] = known


def _add_below(folder: Path, tree: PostedTree, changed: dict[Path, FileState]) -> None:
    for path in walk(folder):
        current = _current_state(path)
        if current is not None and current != tree.get(path):
            changed[path] = current


def _moves(
    changed: dict[Path, FileState], gone: dict[Path, FileState], tree: PostedTree
) -> list[FileMove]:
    """Pairs of a removed and a new path with the same state."""
    old_names = {known: path for path, known in gone.items() if known.file}
    moves = []
    for path, known in changed.items():
        if known.file and path not in tree and (old := old_names.pop(known, None)) is not None:
            moves.append(FileMove(old, path, known))
    return moves


def _current_state(path: Path) -> FileState | None:
    try:
        return file_state(path.lstat())
    except OSError:
        return None


def walk(path: Path, *, recursive: bool = True, follow_links: bool = False) -> Iterator[Path]:
    """The path and what is below it, a directory before its files. Memory holds one directory per
    level. A link to a directory that is being walked is not followed."""
    yield path
    if not path.is_dir() or (path.is_symlink() and not follow_links):
        return
    stack = [_entries(path)]
    inside = [os.path.realpath(path)]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            inside.pop()
            continue
        yield Path(entry.path)
        if recursive and entry.is_dir(follow_symlinks=follow_links):
            real = os.path.realpath(entry.path) if follow_links else entry.path
            if real not in inside:
                inside.append(real)
                stack.append(_entries(Path(entry.path)))


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return iter(sorted(entries, key=lambda entry: entry.name))
    except OSError as error:
        log.warning("directory cannot be read", path=str(path), reason=error.strerror)
        return iter(())
