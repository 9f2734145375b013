"""What a disk may have after a power cut, from the records of `traced_broker`.

What a completed sync covers is there. Of what came later, sectors of 512 bytes arrive or not, in
any order; a file may have its new size, with zeros for what did not arrive. Of the names that were
made, changed and removed in a directory since its last sync, the first few arrive, independently
in each directory: so a file may be there under no name, or its former one. A sync of a file does
not make its name durable, which is less than ext4 and XFS give.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

SECTOR_BYTES: Final = 512

Record = tuple[Any, ...]


def read_trace(path: Path) -> list[Record]:
    """Nanoseconds and an operation, each; the last one may be cut."""
    data, at, found = path.read_bytes(), 0, []
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if at + 4 + size > len(data):
            break
        found.append(pickle.loads(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


class SimulatedFile:
    def __init__(self) -> None:
        self.changes: list[tuple[int, bytes | None]] = []  # position and data, or a new size
        self.synced = 0  # as many are durable

    def content(self, chance: random.Random | None) -> bytes:
        """With everything, or after a power cut."""
        found = bytearray()
        for at, data in self.changes[: self.synced]:
            _change(found, at, data)
        later = self.changes[self.synced :]
        arrives = 1.0 if chance is None else chance.choice((0.0, 0.5, 0.9, 1.0))
        for at, data in later:
            if data is None:
                if chance is None or chance.random() < arrives:
                    _change(found, at, None)
                continue
            for start, sector in _sectors(at, data):
                if chance is None or chance.random() < arrives:
                    _change(found, start, sector)
        if chance is not None and later and chance.random() < 0.3:
            size = max((at + len(data) for at, data in later if data is not None), default=0)
            found.extend(bytes(max(0, size - len(found))))
        return bytes(found)


class SimulatedDirectory:
    def __init__(self) -> None:
        self.changes: list[tuple[str, str, Any]] = []  # kind, name, object or new name
        self.synced = 0

    def entries(self, chance: random.Random | None) -> dict[str, Any]:
        later = len(self.changes) - self.synced
        arrived = self.synced + (later if chance is None else chance.randint(0, later))
        found: dict[str, Any] = {}
        for kind, name, value in self.changes[:arrived]:
            match kind:
                case "add":
                    found[name] = value
                case "remove":
                    found.pop(name, None)
                case _:
                    found[value] = found.pop(name)
        return found


class SimulatedDisk:
    def __init__(self) -> None:
        self._root = SimulatedDirectory()
        self._directories = {"": self._root}
        self._files: dict[int, SimulatedFile] = {}  # by inode, which may be used again
        self._syncs: dict[int, tuple[Any, int]] = {}  # what is being synced, and how much of it

    def apply(self, record: Record) -> None:
        match record[1:]:
            case "create", path, inode:
                self._files[inode] = SimulatedFile()
                self._add(path, self._files[inode])
            case "write", inode, position, data:
                self._files[inode].changes.append((position, data))
            case "truncate", inode, size:
                self._files[inode].changes.append((size, None))
            case "sync", number, str(path):
                directory = self._directories.get(path)
                if directory is not None:
                    self._syncs[number] = (directory, len(directory.changes))
            case "sync", number, inode:
                file = self._files[inode]
                self._syncs[number] = (file, len(file.changes))
            case "synced", number:
                found, changes = self._syncs.pop(number, (SimulatedFile(), 0))
                found.synced = max(found.synced, changes)
            case "rename", source, target:
                self._rename(source, target)
            case "link", path, inode:
                self._add(path, self._files[inode])
            case "unlink", path:
                folder, name = self._split(path)
                folder.changes.append(("remove", name, None))
                self._directories.pop(path, None)
            case "mkdir", path:
                if path:
                    self._directories[path] = SimulatedDirectory()
                    self._add(path, self._directories[path])

    def _split(self, path: str) -> tuple[SimulatedDirectory, str]:
        folder, _, name = path.rpartition("/")
        return self._directories[folder], name

    def _add(self, path: str, value: SimulatedFile | SimulatedDirectory) -> None:
        folder, name = self._split(path)
        folder.changes.append(("add", name, value))

    def _rename(self, source: str, target: str) -> None:
        folder, name = self._split(source)
        other, new = self._split(target)
        if folder is other:
            folder.changes.append(("rename", name, new))
        else:
            value = folder.entries(None)[name]
            other.changes.append(("add", new, value))
            folder.changes.append(("remove", name, None))

    def files(self, chance: random.Random | None) -> Iterator[tuple[str, bytes | None]]:
        """Paths with contents, None for a directory: all, or those after a power cut."""
        yield from _walk("", self._root, chance, {})

    def write(self, target: Path, chance: random.Random) -> None:
        """Make the files that are there after a power cut."""
        target.mkdir()
        for path, content in self.files(chance):
            if content is None:
                (target / path).mkdir()
            else:
                (target / path).write_bytes(content)


def _walk(
    path: str,
    directory: SimulatedDirectory,
    chance: random.Random | None,
    contents: dict[int, bytes],
) -> Iterator[tuple[str, bytes | None]]:
    for name, value in directory.entries(chance).items():
        if isinstance(value, SimulatedDirectory):
            yield path + name, None
            yield from _walk(f"{path}{name}/", value, chance, contents)
        else:
            if id(value) not in contents:  # a file of several names has one content
                contents[id(value)] = value.content(chance)
            yield path + name, contents[id(value)]


def _change(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del content[at:]
        content.extend(bytes(at - len(content)))
        return
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


def _sectors(at: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        end = start + SECTOR_BYTES - (at + start) % SECTOR_BYTES
        yield at + start, data[start:end]
        start = end
