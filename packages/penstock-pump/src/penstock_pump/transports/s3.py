"""S3 and what speaks its protocol, with obstore: `s3://bucket/key`. The extra `s3` installs it.

User and password of the credentials are the access key and its secret, `s3_endpoint` is the server
(AWS without it), `s3_session_token` a token. A bucket without credentials is read without a
signature. An object is complete under its name at once, so there is no temporary name.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from penstock.core.units import MiB
from penstock_pump.errors import PumpError, SourceMissing, SourceUnavailable
from penstock_pump.transports.listing import ListedFile
from penstock_pump.transports.transport import (
    ByteRange,
    ByteSink,
    FileRangeReader,
    FileSource,
    FileUpload,
    TransportContext,
    WholeFilesOnly,
)

if TYPE_CHECKING:
    from obstore import GetOptions

_PART_BYTES: Final = 8 * MiB
_REGION: Final = "us-east-1"


class S3Transport(WholeFilesOnly):
    def __init__(self, context: TransportContext) -> None:
        self._context = context
        self._stores: dict[str, S3Store] = {}

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None:
        options: GetOptions = {}
        if not span.whole:
            end = None if span.length is None else span.offset + span.length
            options["range"] = {"offset": span.offset} if end is None else (span.offset, end)
        try:
            found = await obstore.get_async(self._store(source), _key(source), options=options)
            async for piece in found.stream(min_chunk_size=MiB):
                await sink.feed(bytes(piece))
        except (BaseError, OSError) as error:
            raise _explain(source, error) from error

    async def send(self, upload: FileUpload, target: FileSource) -> None:
        with await asyncio.to_thread(FileRangeReader, upload) as file_range:
            try:
                writer = obstore.open_writer_async(
                    self._store(target), _key(target), buffer_size=_PART_BYTES
                )
                async with writer:
                    while piece := await asyncio.to_thread(file_range.read):
                        await writer.write(piece)
            except (BaseError, OSError) as error:
                raise _explain(target, error) from error

    async def remove(self, target: FileSource) -> None:
        try:
            await obstore.delete_async(self._store(target), _key(target))
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise _explain(target, error) from error

    async def list(self, source: FileSource) -> list[ListedFile]:
        prefix = _key(source).rstrip("/")
        try:
            found = await obstore.list_with_delimiter_async(self._store(source), prefix or None)
        except (BaseError, OSError) as error:
            raise _explain(source, error) from error
        names = [
            ListedFile(path.rstrip("/").rpartition("/")[2], is_directory=True)
            for path in found["common_prefixes"]
        ]
        for each in found["objects"]:
            mtime = int(each["last_modified"].timestamp() * 1e9)
            names.append(ListedFile(each["path"].rpartition("/")[2], False, each["size"], mtime))
        return names

    async def close(self) -> None:
        self._stores.clear()

    def _store(self, source: FileSource) -> S3Store:
        """One for each user and bucket."""
        site = urlsplit(source.url).netloc
        if site not in self._stores:
            self._stores[site] = self._open(source)
        return self._stores[site]

    def _open(self, source: FileSource) -> S3Store:
        found = self._context.credentials.find(source.url)
        config: dict[str, Any] = {}
        if found.s3_endpoint:
            config["endpoint"] = found.s3_endpoint
            config["virtual_hosted_style_request"] = False
            config.setdefault("region", _REGION)
        if found.user and found.password:
            config["access_key_id"] = found.user
            config["secret_access_key"] = found.password
        else:
            config["skip_signature"] = True
        if found.s3_session_token:
            config["token"] = found.s3_session_token
        timeout = timedelta(seconds=self._context.timeout)
        client = {"timeout": timeout, "allow_http": True}
        if self._context.proxy.url is not None:
            client["proxy_url"] = self._context.proxy.url
        return S3Store(source.host, config=config, client_options=client)  # type: ignore[arg-type]


def _key(source: FileSource) -> str:
    return source.path.lstrip("/")


def _explain(source: FileSource, error: Exception) -> PumpError:
    if isinstance(error, FileNotFoundError):
        return SourceMissing(f"{source.host} has no object {_key(source)}")
    return SourceUnavailable(
        f"{source.url}: {str(error).splitlines()[0] if str(error) else error!r}"
    )
