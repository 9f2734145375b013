"""What other packages bring by their entry points: sums by method, transports by scheme."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from penstock_pump.posts.checksums import ChecksumMethods
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    TransportContext,
    TransportRegistry,
)
from tests.pump.test_transports import Caught

MODULE = """
import zlib

class Crc:
    def __init__(self):
        self.value = 0
    def update(self, data):
        self.value = zlib.crc32(data, self.value)
    def hexdigest(self):
        return f"{self.value:08x}"

class Memory:
    def __init__(self, circumstances):
        self.timeout = circumstances.timeout
    async def fetch(self, source, span, sink):
        await sink.feed(f"{source.path} within {self.timeout:g} s".encode())
    async def close(self):
        return
"""
ENTRIES = """
[penstock.pump.sums]
crc32 = a_package_of_a_test:Crc
[penstock.pump.transports]
memory = a_package_of_a_test:Memory
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_package_of_a_test.py").write_text(MODULE)
    about = tmp_path / "a_package_of_a_test-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: a-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_sum_by_its_name() -> None:
    digest = ChecksumMethods.installed().over_data("crc32")
    assert digest is not None
    digest.update(b"data")
    assert digest.hexdigest() == f"{zlib.crc32(b'data'):08x}"


async def test_a_transport_by_its_scheme() -> None:
    transports = TransportRegistry(TransportContext(timeout=7.0))
    caught = Caught()
    await transports.get("memory").fetch(FileSource("memory://here/f"), ByteRange(), caught)
    await transports.close()
    assert bytes(caught.data) == b"/f within 7 s"
