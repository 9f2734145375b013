"""What is different between a tree and what was announced of it. Blocking."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.pump.posting.tree import Known, Tree, known_of
from penstock.pump.posting.walking import walk


@dataclass(frozen=True, slots=True)
class Move:
    """A file that has another name now, and is the same."""

    old: Path
    new: Path
    known: Known


@dataclass(frozen=True, slots=True)
class Differences:
    changed: dict[Path, Known] = field(default_factory=dict)  #: parents first
    gone: dict[Path, Known] = field(default_factory=dict)  #: children first
    moves: list[Move] = field(default_factory=list)


def compare(paths: Iterable[Path], tree: Tree) -> Differences:
    """Of these paths and, where a directory came or went, of all that is below it."""
    changed: dict[Path, Known] = {}
    gone: dict[Path, Known] = {}
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
    return Differences(
        dict(sorted(changed.items())),
        dict(sorted(gone.items(), key=lambda each: (each[1].folder, -len(each[0].parts)))),
        moves,
    )


def _note_gone(path: Path, before: Known | None, tree: Tree, gone: dict[Path, Known]) -> None:
    if before is None:
        return
    gone[path] = before
    if before.folder:
        for child in tree.below(path):
            known = tree.get(child)
            if known is not None and _look(child) is None:
                gone[child] = known


def _note_below(folder: Path, tree: Tree, changed: dict[Path, Known]) -> None:
    for path in walk(folder):
        there = _look(path)
        if there is not None and there != tree.get(path):
            changed[path] = there


def _moves(changed: dict[Path, Known], gone: dict[Path, Known], tree: Tree) -> list[Move]:
    """Something that went and something that came, and both are the same file."""
    old_names = {known: path for path, known in gone.items() if known.file}
    moves = []
    for path, known in changed.items():
        if known.file and path not in tree and (old := old_names.pop(known, None)) is not None:
            moves.append(Move(old, path, known))
    return moves


def _look(path: Path) -> Known | None:
    try:
        return known_of(path.lstat())
    except OSError:
        return None
