"""Where tables are: a directory, or a prefix in an object store.

    StorageLocation.parse("/data/lake")
    StorageLocation.parse("s3://lake/penstock", {"aws_endpoint_url": "http://localhost:9000"})

Options are those of delta-rs' object stores (`aws_region`, `azure_storage_account_name`, …); what
is not given comes from the environment (`AWS_ACCESS_KEY_ID`, …). Commits need a store that can
create an object only if it does not exist, which S3, Azure and Google can.

Errors of a store become errors of Penstock: a store that does not answer is `StorageUnavailable`
and a full disk `StorageFull`, both worth a retry; a refused access is `AccessRefused`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs

from penstock.core.data_directory import private_opener
from penstock.core.errors import AccessRefused, ConfigurationError, PenstockError

SCHEMES: Final = ("s3", "s3a", "az", "azure", "abfs", "abfss", "gs")
#: A flow that waits for its store says so after half a minute, and tries again.
_DEFAULTS: Final = {"max_retries": "4", "retry_timeout": "30s", "timeout": "30s"}
#: Options with the address of a store; without TLS only if they say so.
_ENDPOINTS: Final = ("aws_endpoint_url", "azure_storage_endpoint", "azure_endpoint")
#: Create an object only if it does not exist.
_S3_DEFAULTS: Final = {"aws_conditional_put": "etag"}


class StorageUnavailable(PenstockError):
    """The store does not answer, or asks to slow down."""

    transient = True


class StorageFull(PenstockError):
    """No space is left on the device."""

    transient = True


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """A directory or a prefix. Picklable; the options may contain secrets and are not shown."""

    url: str  #: an absolute path, or scheme://container/prefix
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, text: str | Path, options: Mapping[str, str] | None = None) -> Self:
        scheme, separator, rest = str(text).partition("://")
        if not separator or scheme == "file":
            path = Path(unquote(rest) if separator else text).expanduser()
            if not str(text) or options:
                wrong = "options need an object store" if options else "the path is empty"
                raise ConfigurationError(f"location {str(text)!r}: {wrong}")
            return cls(str(path.absolute()))
        parts = urlsplit(str(text))
        if scheme not in SCHEMES:
            known = ", ".join(f"{each}://" for each in SCHEMES)
            raise ConfigurationError(f"location {text}: should be a path or begin with {known}")
        if not parts.netloc or parts.query or parts.fragment:
            raise ConfigurationError(f"location {text}: should be like {scheme}://container/prefix")
        given = _DEFAULTS | {key.lower(): value for key, value in (options or {}).items()}
        if scheme.startswith("s3"):
            given = _S3_DEFAULTS | given
        endpoints = (given.get(key, os.environ.get(key.upper(), "")) for key in _ENDPOINTS)
        if any(endpoint.startswith("http://") for endpoint in endpoints):
            given.setdefault("allow_http", "true")
        return cls(str(text).rstrip("/"), tuple(sorted(given.items())))

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.url}/{name}", self.options)

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def path(self) -> Path | None:
        """None in an object store."""
        return None if "://" in self.url else Path(self.url)

    @property
    def storage_options(self) -> dict[str, str]:
        return dict(self.options)

    def filesystem(self) -> pafs.FileSystem:
        """Paths are relative to the location."""
        if self.path is not None:
            return pafs.SubTreeFileSystem(self.url, pafs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        with storage_errors(self):
            return pafs.PyFileSystem(DeltaStorageHandler(self.url, self.storage_options))

    def read_json(self, name: str) -> Any | None:
        """The content of a small file; None if it does not exist."""
        with storage_errors(self):
            try:
                with self.filesystem().open_input_stream(name) as file:
                    return json.loads(file.read())
            except FileNotFoundError:
                return None

    def write_json(self, name: str, value: Any) -> None:
        """Replace a small file atomically and durably."""
        if self.path is not None:
            write_atomically(self.path / name, json.dumps(value))
            return
        with (
            storage_errors(self),
            self.filesystem().open_output_stream(name, buffer_size=4096) as file,
        ):
            file.write(json.dumps(value).encode())

    def folders(self) -> list[str]:
        """The names of the folders directly below, in order."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                return sorted(each.name for each in self.path.iterdir() if each.is_dir())
            return []
        with storage_errors(self):
            found = self.filesystem().get_file_info(
                pafs.FileSelector("", allow_not_found=True, recursive=True)
            )
        return sorted({each.path.partition("/")[0] for each in found if "/" in each.path})

    def delete(self) -> None:
        """Delete everything below."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.path)
            return
        with storage_errors(self):
            files = self.filesystem()
            for each in files.get_file_info(
                pafs.FileSelector("", allow_not_found=True, recursive=True)
            ):
                if each.type == pafs.FileType.File:
                    files.delete_file(each.path)


#: What stores and delta-rs say. They raise few classes, so the text decides.
_FULL: Final = re.compile(r"No space left on device|os error 28|Disk quota exceeded", re.I)
_REFUSED: Final = re.compile(
    r"\b40[13]\b|Forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|lacked? .*privil",
    re.I,
)
_UNAVAILABLE: Final = re.compile(
    r"\b50[0234]\b|SlowDown|Service ?Unavailable|sending request|timed? ?out|connection|retries",
    re.I,
)


@contextmanager
def storage_errors(location: StorageLocation) -> Iterator[None]:
    """Translate errors of the store during the block."""
    try:
        yield
    except (PenstockError, FileNotFoundError):
        raise
    except Exception as error:
        # A worker that writes to a local disk does without delta-rs.
        from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

        unchanged = (CommitFailedError, TableNotFoundError)
        if isinstance(error, unchanged) or not isinstance(error, (OSError, DeltaError)):
            raise
        text = error_text(error)
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or _FULL.search(text):
            raise StorageFull(f"{location}: no space left") from error
        if location.path is None:
            if _REFUSED.search(text):
                raise AccessRefused(f"{location}: access refused: {text}") from error
            if _UNAVAILABLE.search(text):
                raise StorageUnavailable(f"{location}: {text}") from error
        raise


def error_text(error: BaseException) -> str:
    """The text in one line, without delta-rs' coloured tree of causes and its backtrace."""
    text = str(error).partition("\n   0: ")[0]
    return " ".join(re.sub(r"\x1b\[\d*m|↳", " ", text).split())


def write_atomically(path: Path, text: str) -> None:
    """Replace a file atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", opener=private_opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_folders(root: Path, files: Iterable[str]) -> None:
    """Sync the folders from the files' up to the root, each once, deepest first."""
    folders = {root}
    for file in files:
        folders.update(root / parent for parent in Path(file).parents)
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        fsync_path(folder)
