"""S3 as source and destination, with moto's server."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_pump.credentials import parse_credentials
from penstock_pump.errors import SourceMissing, SourceUnavailable
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    FileUpload,
    TransportContext,
    TransportRegistry,
)
from tests.peers import Process, free_port
from tests.pump.servers import EVERY_FILE
from tests.pump.test_transports import Caught

pytest.importorskip("moto.server")
pytest.importorskip("obstore")

DATA = os.urandom(100_000)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("moto") / "log"
    process = Process(command, log, {**os.environ, "PYTHONWARNINGS": "ignore"})
    try:
        process.wait_for_port(port)
        url = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(f"{url}/bucket", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()
        yield url
    finally:
        process.end_group(signal.SIGKILL)


async def test_objects_are_sent_listed_fetched_and_removed(endpoint: str, tmp_path: Path) -> None:
    known = parse_credentials([f"s3://key:secret@bucket s3_endpoint={endpoint}"], "c")
    transports = TransportRegistry(TransportContext(known, timeout=10.0))
    s3 = transports.get("s3")
    path = tmp_path / "ours"
    path.write_bytes(DATA)
    target = FileSource("s3://bucket/radar/a%20b")
    for _ in range(2):
        await s3.send(FileUpload(path, ".tmp", files=EVERY_FILE), target)
    (folder,) = await s3.list(FileSource("s3://bucket/"))
    assert (folder.name, folder.is_directory) == ("radar", True)
    (found,) = await s3.list(FileSource("s3://bucket/radar/"))
    assert (found.name, found.size) == ("a b", len(DATA))
    for span in (ByteRange(), ByteRange(1000), ByteRange(5000, 70_000)):
        caught = Caught()
        await s3.fetch(target, span, caught)
        end = len(DATA) if span.length is None else span.offset + span.length
        assert bytes(caught.data) == DATA[span.offset : end]
    await s3.remove(target)
    await s3.remove(target)
    with pytest.raises(SourceMissing):
        await s3.fetch(target, ByteRange(), Caught())
    await transports.close()
    nowhere = parse_credentials(
        [f"s3://k:s@bucket s3_endpoint=http://127.0.0.1:{free_port()}"], "c"
    )
    transports = TransportRegistry(TransportContext(nowhere, timeout=1.0))
    with pytest.raises(SourceUnavailable):
        await transports.get("s3").list(FileSource("s3://bucket/"))
