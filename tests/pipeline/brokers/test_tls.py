"""`amqps://` and `https://`: the certificate is checked, against the authority one names."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock.pipeline.brokers.contract import Range
from penstock.pipeline.brokers.opening import Door, find_door
from penstock.wire.amqp091.address import parse_address
from tests.client.test_tls import write_certificate
from tests.conftest import NewPenstock
from tests.peers import free_port
from tests.pipeline.given import stream


def test_a_stream_is_read_over_tls(new_penstock: NewPenstock, tmp_path: Path, name: str) -> None:
    certificate, key = write_certificate(tmp_path)
    amqps, https = free_port(), free_port()
    server = new_penstock(
        *("--listen", f"amqps://127.0.0.1:{amqps}", "--listen", f"https://127.0.0.1:{https}"),
        *("--set", f"broker.tls.certificate={certificate}"),
        *("--set", f"broker.tls.key={key}"),
    )
    stream(server.url, name, 5)
    url, management = f"amqps://127.0.0.1:{amqps}", f"https://127.0.0.1:{https}"

    with pytest.raises(ConfigurationError, match="tlsCaFile"):
        find_door(parse_address(url), management)

    door = find_door(parse_address(url, str(certificate)), management)
    assert door.ranges == f"{management}/api/streams"
    for each in (door, Door(door.address, None)):
        batches = each.open().read(Range(name, 0, 5))
        assert sum(batch.num_rows for batch in batches) == 5
