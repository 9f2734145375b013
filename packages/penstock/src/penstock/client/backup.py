"""Backups of a broker in a directory or a bucket, and restoring them.

    penstock-backup.json        format, and the identity of the broker
    parts/ab/abcd…              content, named by its SHA-256
    snapshots/TIME.json         path, size and parts of each file, with a checksum

Files are cut into parts of 8 MiB. A part that is there already is not written again, and a file
that has not changed since the last backup is not read again. The list of a snapshot is written
last: without it there is no backup, and after a kill the next one uses the parts that are there.
Removal goes the other way, lists before parts, so a kill leaves parts that no list names.

A broker has one snapshot at a time, which is the lock of its backups: whoever does not hold it any
more neither writes a list nor removes a part.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self
from urllib.parse import quote

from penstock.client.management import ManagementClient
from penstock.core.data_directory import RESTORE_MARKER, private_directory, private_opener
from penstock.core.errors import (
    ConfigurationError,
    DamagedBackup,
    NotFound,
    ObjectStoreError,
    PreconditionFailed,
)
from penstock.core.object_store import ObjectStore

FORMAT: Final = 1
HEAD: Final = "penstock-backup.json"
PART_BYTES: Final = 8 << 20
#: Parts that are written or read at the same time.
THREADS: Final = 8
#: While parts are removed, the snapshot is held so often.
HOLD_SECONDS: Final = 5.0
#: In a directory that counts as empty.
_IGNORED: Final = frozenset({"lost+found"})


@dataclass(frozen=True, slots=True)
class BackupFile:
    path: str  #: below the data directory
    size: int
    inode: int
    modified: int
    parts: list[str]  #: SHA-256 of each


@dataclass(frozen=True, slots=True)
class BackupSnapshot:
    time: datetime
    version: str  #: of Penstock
    files: list[BackupFile]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def name(self) -> str:
        return f"snapshots/{self.time:%Y%m%dT%H%M%S.%fZ}.json"


@dataclass(frozen=True, slots=True)
class BackupResult:
    snapshot: BackupSnapshot
    new_bytes: int  #: written by this backup
    removed: int = 0  #: older backups
    removed_bytes: int = 0


class BackupRepository:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._parts: dict[str, int] = {}  # with sizes

    # Backup.

    def take(self, client: ManagementClient, keep: int | None = None) -> BackupResult:
        """Back up the broker behind the management API; `keep` so many backups and no older."""
        with client.request("/api/snapshots", method="POST", body={}) as answer:
            client.check(answer)
            taken = json.loads(answer.read())
        try:
            return self._copy(client, taken, keep)
        finally:
            with client.request(f"/api/snapshots/{taken['id']}", method="DELETE") as answer:
                answer.read()

    def _copy(
        self, client: ManagementClient, taken: dict[str, Any], keep: int | None
    ) -> BackupResult:
        self._claim(taken["broker"])
        names = self._snapshot_names()
        known: dict[str, BackupFile] = {}
        if names:
            try:
                known = {file.path: file for file in self._load(names[-1]).files}
            except DamagedBackup as error:  # everything is read again
                sys.stderr.write(f"{error}; this backup does not use it\n")
        self._parts = self._store.sizes("parts/")
        before = sum(self._parts.values())
        files = []
        with _PartWriter(self._store) as writer:
            for one in taken["files"]:
                file = known.get(one["path"])
                if file is None or not self._is_same(file, one):
                    file = self._copy_file(client, taken["id"], one, writer)
                files.append(file)
        moment = datetime.fromtimestamp(taken["time"], UTC)
        snapshot = BackupSnapshot(moment, taken["version"], files)
        if names and snapshot.name <= names[-1]:
            raise PreconditionFailed(
                f"{self._store} has a later backup, {names[-1]}: set the clock of the broker"
            )
        new_bytes = sum(self._parts.values()) - before
        self._parts = self._store.sizes("parts/")
        for file in files:
            if not self._has_parts(file):
                raise DamagedBackup(f"{self._store} lost parts of {file.path}: back up again")
        _hold(client, taken)
        self._store.put(snapshot.name, _sealed(snapshot))
        if keep is None:
            return BackupResult(snapshot, new_bytes)
        removed = self._prune(keep, lambda: _hold(client, taken))
        return BackupResult(snapshot, new_bytes, *removed)

    def _claim(self, broker: str) -> None:
        """Refuse a directory that has something else, or the backup of another broker."""
        try:
            head = self._head()
        except FileNotFoundError:
            others = sorted(set(self._store.sizes("")) - {HEAD})
            if any(not name.startswith("parts/") for name in others):
                raise PreconditionFailed(
                    f"{self._store} is not a backup and not empty (it has {others[0]}): "
                    "use another directory"
                ) from None
            text = json.dumps({"format": FORMAT, "broker": broker})
            self._store.put(HEAD, text.encode())
            return
        if head["broker"] != broker:
            raise PreconditionFailed(
                f"{self._store} has the backup of another broker: use another directory"
            )

    def _head(self) -> dict[str, Any]:
        try:
            head = json.loads(self._store.get(HEAD))
            found = head["format"]
        except (ValueError, KeyError, TypeError):
            raise DamagedBackup(f"{self._store}/{HEAD} cannot be read") from None
        if found != FORMAT:
            raise PreconditionFailed(
                f"{self._store} has backups of format {found}, not {FORMAT}: use the version of "
                "Penstock that made them"
            )
        return dict(head)

    def _is_same(self, file: BackupFile, one: dict[str, Any]) -> bool:
        """The file has not changed since the last backup, and all its parts are there."""
        if (file.size, file.inode, file.modified) != (one["size"], one["inode"], one["modified"]):
            return False
        return self._has_parts(file)

    def _has_parts(self, file: BackupFile) -> bool:
        sizes = _part_sizes(file.size)
        return all(
            self._parts.get(_part_name(part)) == size
            for part, size in zip(file.parts, sizes, strict=True)
        )

    def _copy_file(
        self, client: ManagementClient, snapshot: str, one: dict[str, Any], writer: _PartWriter
    ) -> BackupFile:
        parts = []
        path = f"/api/snapshots/{snapshot}/{quote(one['path'], safe='')}"
        with client.request(path) as answer:
            client.check(answer)
            for size in _part_sizes(one["size"]):
                data = answer.read(size)
                if len(data) != size:
                    raise ConnectionResetError(f"{client}: {one['path']} ends too early")
                part = hashlib.sha256(data).hexdigest()
                parts.append(part)
                name = _part_name(part)
                if self._parts.get(name) != size:  # an incomplete part is written again
                    self._parts[name] = size
                    writer.put(name, data)
        return BackupFile(one["path"], one["size"], one["inode"], one["modified"], parts)

    def _prune(self, keep: int, hold: Callable[[], None]) -> tuple[int, int]:
        """Remove all but the newest snapshots, and parts that none of those has: how many, and
        their bytes."""
        names = self._snapshot_names()
        old, kept = names[:-keep], names[-keep:]
        try:
            lists = [self._load(name) for name in kept]
        except DamagedBackup as error:
            raise DamagedBackup(
                f"the backup is complete, but no older one was removed: {error}; delete that file"
            ) from None
        needed = {_part_name(part) for one in lists for file in one.files for part in file.parts}
        held_at = time.monotonic()
        unneeded = {name: size for name, size in self._parts.items() if name not in needed}
        for name in (*old, *unneeded):
            if time.monotonic() - held_at > HOLD_SECONDS:
                hold()
                held_at = time.monotonic()
            self._store.delete(name)
        self._store.delete_incomplete()
        return len(old), sum(unneeded.values())

    # Snapshots.

    def times(self) -> list[datetime]:
        """Of all snapshots, the oldest first."""
        return [_time_of(name) for name in self._snapshot_names()]

    def find(self, at: datetime | None) -> BackupSnapshot:
        """The newest snapshot, or the newest of that time or before."""
        try:
            self._head()
        except FileNotFoundError:
            raise NotFound(f"{self._store} is not a backup of Penstock") from None
        names = self._snapshot_names()
        if not names:
            raise NotFound(f"{self._store} has no complete backup: run `penstock backup` again")
        chosen = [name for name in names if at is None or _time_of(name) <= at]
        if not chosen:
            raise NotFound(
                f"{self._store} has no backup from before {at}; the oldest is of "
                f"{_time_of(names[0]).isoformat()}"
            )
        return self._load(chosen[-1])

    def _snapshot_names(self) -> list[str]:
        return sorted(name for name in self._store.sizes("snapshots/") if name.endswith(".json"))

    def _load(self, name: str) -> BackupSnapshot:
        try:
            content = self._store.get(name)
            digest, _, body = content.partition(b"\n")
            if hashlib.sha256(body).hexdigest().encode() != digest:
                raise ValueError("does not match its checksum")
            found = json.loads(body)
            files = [BackupFile(**one) for one in found["files"]]
            return BackupSnapshot(
                datetime.fromisoformat(found["time"]), str(found["version"]), files
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedBackup(
                f"{self._store}/{name} is damaged ({error}): restore another with --at"
            ) from None

    # Restore.

    def restore(self, snapshot: BackupSnapshot, data: Path) -> None:
        """Write the files of a snapshot into an empty directory."""
        prepare_directory(data)
        bodies: dict[tuple[str, ...], Path] = {}
        with ThreadPoolExecutor(THREADS) as threads:
            for file in snapshot.files:
                target = data / _checked(file.path)
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                key = tuple(file.parts)
                if file.path.endswith(".body") and key in bodies:  # one body of several queues
                    os.link(bodies[key], target)
                    continue
                self._restore_file(file, target, threads)
                bodies[key] = target
        for folder, _, _ in os.walk(data):
            _sync(Path(folder))
        (data / RESTORE_MARKER).unlink()
        _sync(data)

    def _restore_file(self, file: BackupFile, target: Path, threads: ThreadPoolExecutor) -> None:
        sizes = list(_part_sizes(file.size))
        if len(sizes) != len(file.parts):
            raise DamagedBackup(f"{self._store}: {file.path} has {len(file.parts)} parts")
        with open(target, "xb", opener=private_opener) as output:
            reading: list[Future[bytes]] = []
            wanted = list(zip(file.parts, sizes, strict=True))
            while wanted or reading:
                while wanted and len(reading) < THREADS:
                    part, size = wanted.pop(0)
                    reading.append(threads.submit(self._read_part, file.path, part, size))
                output.write(reading.pop(0).result())
            output.flush()
            os.fsync(output.fileno())

    def _read_part(self, path: str, part: str, size: int) -> bytes:
        name = _part_name(part)
        advice = f"{path} cannot be restored: restore another with --at"
        try:
            data = self._store.get(name)
        except FileNotFoundError:
            raise DamagedBackup(f"{self._store}/{name} is missing, {advice}") from None
        if len(data) != size or hashlib.sha256(data).hexdigest() != part:
            raise DamagedBackup(
                f"{self._store}/{name} is damaged (it does not match its checksum), {advice}"
            )
        return data


def prepare_directory(data: Path) -> None:
    """An empty directory with the marker of an incomplete restore; raises PreconditionFailed."""
    if data.exists():
        names = {one.name for one in data.iterdir()} - _IGNORED
        if RESTORE_MARKER in names:  # of a restore that was interrupted
            for name in names - {RESTORE_MARKER}:
                path = data / name
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        elif names:
            raise PreconditionFailed(
                f"{data} is not empty (it has {min(names)}): restore into an empty directory "
                "(--data)"
            )
    private_directory(data, traversable=True)
    marker = data / RESTORE_MARKER
    with open(marker, "wb", opener=private_opener) as file:
        os.fsync(file.fileno())
    _sync(data)


class _PartWriter:
    """Writes parts in threads; a block raises the first error at its end."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS)
        self._running: set[Future[None]] = set()

    def __enter__(self) -> Self:
        return self

    def put(self, name: str, data: bytes) -> None:
        self._running.add(self._threads.submit(self._store.put, name, data))
        if len(self._running) >= THREADS:
            self._collect(wait(self._running, return_when=FIRST_COMPLETED).done)

    def _collect(self, done: set[Future[None]]) -> None:
        self._running -= done
        for one in done:
            one.result()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._threads.shutdown(cancel_futures=error is not None)
        if error is None:
            self._collect(set(self._running))


def _hold(client: ManagementClient, taken: dict[str, Any]) -> None:
    """Keep the snapshot for another minute; raises NotFound if another backup has replaced it."""
    one = taken["files"][0]
    path = f"/api/snapshots/{taken['id']}/{quote(one['path'], safe='')}?from={one['size']}"
    with client.request(path) as answer:
        client.check(answer)
        answer.read()


def _part_sizes(size: int) -> Iterator[int]:
    while size > 0:
        yield min(size, PART_BYTES)
        size -= PART_BYTES


def _part_name(part: str) -> str:
    return f"parts/{part[:2]}/{part}"


def _sealed(snapshot: BackupSnapshot) -> bytes:
    value = {
        "time": snapshot.time.isoformat(),
        "version": snapshot.version,
        "files": [asdict(file) for file in snapshot.files],
    }
    body = json.dumps(value, separators=(",", ":")).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _time_of(name: str) -> datetime:
    stem = name.rpartition("/")[2].removesuffix(".json")
    try:
        return datetime.strptime(stem, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        raise DamagedBackup(f"{name} is not the name of a snapshot") from None


def parse_time(text: str) -> datetime:
    """ISO 8601; without a zone it is local time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ConfigurationError(
            f"--at {text}: should be a time such as 2027-01-31T09:30:00Z"
        ) from None


def _checked(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or (parts[0] != "log" and parts != ("users.json",)):
        raise DamagedBackup(f"the snapshot has a file with the name {path!r}")
    return path


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        raise ObjectStoreError(f"{directory}: {error.strerror}") from error
    finally:
        os.close(fd)
