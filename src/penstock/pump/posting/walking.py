"""A tree in order, one directory in memory at a time. Links are not followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.core.logs import get_logger

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
