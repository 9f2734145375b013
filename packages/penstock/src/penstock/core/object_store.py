"""Directories and buckets of an object store behind one interface: blocking calls, whole objects.

An object appears under its name when it is complete and on disk. Names are relative, with `/`.
Buckets need the extra `penstock[s3]`. Credentials, region and endpoint are in the environment, as
for other tools (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`).
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, Protocol
from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError, ObjectStoreError

#: Of one request to an object store: for a connection, and for all of its content.
CONNECT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 300.0
#: How long a request is repeated.
RETRY_SECONDS: Final = 10.0
#: Schemes of buckets.
BUCKET_SCHEMES: Final = ("s3", "gs", "az")
_INCOMPLETE: Final = ".incomplete-"
_PIECE_BYTES: Final = 1 << 20


class ObjectStore(Protocol):
    """All methods raise ObjectStoreError; reads of a missing object FileNotFoundError."""

    def put(self, name: str, data: bytes) -> None: ...

    def put_file(self, name: str, path: Path) -> None: ...

    def get(self, name: str) -> bytes: ...

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content, in bounded memory."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """The names that begin with the prefix, which ends with `/` or is empty."""

    def delete(self, name: str) -> None:
        """An object that may be missing."""

    def delete_incomplete(self) -> None:
        """What interrupted puts left in a directory; nothing else may be writing."""


def open_object_store(url: str) -> ObjectStore:
    """A directory, or `s3://bucket/prefix`, `gs://…`, `az://…`."""
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in BUCKET_SCHEMES:
        return BucketStore(url)
    if scheme not in ("", "file"):
        raise ConfigurationError(
            f"{url}: unsupported scheme {scheme}; use a directory or one of "
            + ", ".join(f"{one}://" for one in BUCKET_SCHEMES)
        )
    return DirectoryStore(Path(url.removeprefix("file://")).expanduser())


class DirectoryStore:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __str__(self) -> str:
        return str(self.directory)

    def put(self, name: str, data: bytes) -> None:
        self._put(name, BytesIO(data))

    def put_file(self, name: str, path: Path) -> None:
        with path.open("rb") as source:
            self._put(name, source)

    def _put(self, name: str, source: IO[bytes]) -> None:
        path = self._path(name)
        with self._explained(name):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial = path.with_name(f"{_INCOMPLETE}{secrets.token_hex(8)}")
            try:
                with partial.open("xb") as file:
                    shutil.copyfileobj(source, file, _PIECE_BYTES)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
            except OSError:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
                raise
            _sync_directory(path.parent)

    def get(self, name: str) -> bytes:
        with self._explained(name):
            return self._path(name).read_bytes()

    def pieces(self, name: str) -> Iterator[bytes]:
        with self._explained(name), self._path(name).open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    def sizes(self, prefix: str) -> dict[str, int]:
        found = {}
        with self._explained(prefix):
            for folder, _, files in os.walk(self.directory / prefix):
                for file in files:
                    if not file.startswith(_INCOMPLETE):
                        path = Path(folder) / file
                        found[path.relative_to(self.directory).as_posix()] = path.stat().st_size
        return found

    def delete(self, name: str) -> None:
        with self._explained(name):
            self._path(name).unlink(missing_ok=True)

    def delete_incomplete(self) -> None:
        with self._explained(""):
            for path in self.directory.rglob(f"{_INCOMPLETE}*"):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.directory / name

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ObjectStoreError(f"{self._path(name)}: {error.strerror or error}") from error


class BucketStore:
    def __init__(self, url: str) -> None:
        try:
            import obstore
            import obstore.store
            from obstore.exceptions import BaseError
        except ImportError:
            raise ConfigurationError(
                f"{url}: object stores need a package: pip install 'penstock[s3]'"
            ) from None
        self._url = url.rstrip("/")
        self._obstore = obstore
        self._errors = (BaseError, OSError)
        options: dict[str, Any] = {
            "client_options": {
                "allow_http": True,  # an endpoint may be http://
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=REQUEST_SECONDS),
            },
            "retry_config": {"max_retries": 5, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        }
        try:
            self._store = obstore.store.from_url(self._url, **options)
        except BaseError as error:
            raise ConfigurationError(f"{url}: {_first_line(error)}") from None

    def __str__(self) -> str:
        return self._url

    def put(self, name: str, data: bytes) -> None:
        with self._explained(name):
            self._obstore.put(self._store, name, data)

    def get(self, name: str) -> bytes:
        with self._explained(name):
            return bytes(self._obstore.get(self._store, name).bytes())

    def put_file(self, name: str, path: Path) -> None:
        with self._explained(name):
            self._obstore.put(self._store, name, path)

    def pieces(self, name: str) -> Iterator[bytes]:
        with self._explained(name):
            for piece in self._obstore.get(self._store, name).stream(min_chunk_size=_PIECE_BYTES):
                yield bytes(piece)

    def sizes(self, prefix: str) -> dict[str, int]:
        with self._explained(prefix):
            listing = self._obstore.list(self._store, prefix.rstrip("/") or None)
            return {one["path"]: one["size"] for page in listing for one in page}

    def delete(self, name: str) -> None:
        with self._explained(name), suppress(FileNotFoundError):
            self._obstore.delete(self._store, name)

    def delete_incomplete(self) -> None:
        """Incomplete uploads are ended by a lifecycle rule of the bucket."""

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(f"{self._url}/{name} does not exist") from None
        except self._errors as error:
            raise ObjectStoreError(f"{self._url}/{name}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
