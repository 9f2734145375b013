# ruff: noqa: PTH100, PTH115, PTH116, PTH118
"""A broker that records what it does to its files: `python traced_broker.py TRACE broker …`.

The functions of `os` and `io` that change files are replaced before anything else is imported. A
record is pickled: nanoseconds of the monotonic clock, and the fields of one operation, in the order
of the operations. A sync has two records, its beginning and its end. Below the directory of TRACE
only; whether the records are complete is checked by their replay. SIGUSR1 kills the broker between
two operations, so that none is done and not recorded.
"""

from __future__ import annotations

import builtins
import io
import os
import pickle
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

_original = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
_open_file = io.open


class Recorder:
    def __init__(self, trace: Path, root: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = _original["open"](trace, flags, 0o600)
        self._root = os.path.join(root.resolve(), "")
        self._syncs = count(1)
        self.lock = threading.RLock()

    def path(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Below the root, or None: it is of no interest."""
        name = os.fsdecode(path)
        if dir_fd is not None:
            name = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
        name = os.path.abspath(name)
        return name[len(self._root) :] if name.startswith(self._root) else None

    def of(self, fd: int) -> tuple[str | None, int, bool]:
        """The path, the inode, and whether it is a directory."""
        try:
            name = os.readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")
        except OSError:
            return None, 0, False
        found = os.fstat(fd)
        path = "" if name + os.sep == self._root else self.path(name)
        return path, found.st_ino, stat.S_ISDIR(found.st_mode)

    def add(self, *record: Any) -> None:
        data = pickle.dumps((time.monotonic_ns(), *record))
        _original["write"](self._fd, len(data).to_bytes(4, "big") + data)

    def opened(self, path: Any, flags: int, *more: Any, dir_fd: int | None = None) -> int:
        with self.lock:
            name = self.path(path, dir_fd)
            is_new = name is not None and not os.path.lexists(os.path.join(self._root, name))
            fd: int = _original["open"](path, flags, *more, dir_fd=dir_fd)
            if name is not None and flags & os.O_CREAT and is_new:
                self.add("create", name, os.fstat(fd).st_ino)
            elif name is not None and flags & os.O_TRUNC:
                self.add("truncate", os.fstat(fd).st_ino, 0)
            return fd

    def written(self, fd: int, position: int, pieces: list[Any], size: int) -> None:
        path, inode, _ = self.of(fd)
        if path is not None:
            data = b"".join(bytes(piece) for piece in pieces)[:size]
            self.add("write", inode, position, data)

    def pwritev(self, fd: int, buffers: Any, offset: int, *more: Any) -> int:
        with self.lock:
            size: int = _original["pwritev"](fd, buffers, offset, *more)
            self.written(fd, offset, list(buffers), size)
            return size

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        with self.lock:
            size: int = _original["pwrite"](fd, data, offset)
            self.written(fd, offset, [data], size)
            return size

    def write(self, fd: int, data: Any) -> int:
        with self.lock:
            path, _, _ = self.of(fd)
            if path is None:
                return int(_original["write"](fd, data))
            position = os.lseek(fd, 0, os.SEEK_CUR)
            size = int(_original["write"](fd, data))
            self.written(fd, position, [data], size)
            return size

    def ftruncate(self, fd: int, size: int) -> None:
        with self.lock:
            _original["ftruncate"](fd, size)
            path, inode, _ = self.of(fd)
            if path is not None:
                self.add("truncate", inode, size)

    def syncing(self, name: str) -> Callable[[Any], None]:
        def sync(file: Any) -> None:
            fd = file if isinstance(file, int) else file.fileno()
            path, inode, is_directory = self.of(fd)
            if path is None:
                _original[name](fd)
                return
            number = next(self._syncs)
            with self.lock:
                self.add("sync", number, path if is_directory else inode)
            _original[name](fd)
            with self.lock:
                self.add("synced", number)

        return sync

    def renamed(self, name: str) -> Callable[..., None]:
        def rename(source: Any, target: Any, **more: Any) -> None:
            with self.lock:
                _original[name](source, target, **more)
                if (to := self.path(target)) is not None:
                    self.add("rename", self.path(source), to)

        return rename

    def link(self, source: Any, target: Any, **more: Any) -> None:
        with self.lock:
            _original["link"](source, target, **more)
            if (to := self.path(target)) is not None:
                self.add("link", to, os.stat(target).st_ino)

    def removed(self, name: str) -> Callable[..., None]:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            with self.lock:
                found = self.path(path, dir_fd)
                _original[name](path, dir_fd=dir_fd)
                if found is not None:
                    self.add("unlink", found)

        return remove

    def mkdir(self, path: Any, *more: Any, dir_fd: int | None = None, **options: Any) -> None:
        with self.lock:
            found = self.path(path, dir_fd)
            _original["mkdir"](path, *more, dir_fd=dir_fd, **options)
            if found is not None:
                self.add("mkdir", found)

    def open(self, file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        """Files that are opened for writing have a raw file of ours."""
        if not set(mode) & set("wax+") or "b" not in mode:
            if set(mode) & set("wax+"):
                raw = self.open(file, mode.replace("t", "") + "b", opener=options.pop("opener", 0))
                return io.TextIOWrapper(raw, **options)
            return _open_file(file, mode, *more, **options)
        opener = options.get("opener") or (lambda path, flags: os.open(path, flags, 0o666))
        raw = RecordedFile(file, mode.replace("b", ""), opener=opener)
        return io.BufferedWriter(raw)

    def install(self) -> None:
        replacements = {
            "open": self.opened,
            "write": self.write,
            "pwrite": self.pwrite,
            "pwritev": self.pwritev,
            "ftruncate": self.ftruncate,
            "fsync": self.syncing("fsync"),
            "fdatasync": self.syncing("fdatasync"),
            "rename": self.renamed("rename"),
            "replace": self.renamed("replace"),
            "link": self.link,
            "unlink": self.removed("unlink"),
            "remove": self.removed("remove"),
            "rmdir": self.removed("rmdir"),
            "mkdir": self.mkdir,
        }
        for name, replacement in replacements.items():
            setattr(os, name, replacement)
        for module in (io, builtins):
            vars(module)["open"] = self.open
        RecordedFile.recorder = self

    def end_at_signal(self) -> None:
        """Before other threads start, which inherit the signal mask."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

        def wait() -> None:
            signal.sigwait({signal.SIGUSR1})
            with self.lock:
                os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=wait, daemon=True).start()


class RecordedFile(io.FileIO):
    recorder: Recorder

    def write(self, data: Any) -> int:
        with self.recorder.lock:
            position = self.tell()
            size = super().write(data)
            self.recorder.written(self.fileno(), position, [data], size or 0)
            return size or 0


if __name__ == "__main__":
    trace = Path(sys.argv.pop(1))
    import shutil  # noqa: F401 - it asks whether functions of os take descriptors

    recorder = Recorder(trace, trace.parent / "data")
    recorder.install()
    recorder.end_at_signal()
    from penstock.__main__ import main

    main()
