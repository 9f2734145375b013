"""`amqps://` and `https://`: the certificate is checked, against the authority one names."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.config import BrokerSettings, TlsSettings
from penstock.core.errors import ConfigurationError
from penstock.server import Broker
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.streams.backend import StreamRange
from penstock_spark.streams.endpoint import StreamEndpoint, find_endpoint
from tests.client.test_tls import write_certificate
from tests.fixtures import NewPenstock
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
        find_endpoint(parse_amqp_url(url), management)

    endpoint = find_endpoint(parse_amqp_url(url, str(certificate)), management)
    assert endpoint.ranges == f"{management}/api/streams"
    # The broker has a listener without TLS as well, and names both.
    assert find_endpoint(endpoint.address) == replace(endpoint, management=None)
    assert find_endpoint(parse_amqp_url(server.url)).ranges == f"{server.http_url}/api/streams"
    for each in (endpoint, StreamEndpoint(endpoint.address, None)):
        batches = each.open().read(StreamRange(name, 0, 5))
        assert sum(batch.num_rows for batch in batches) == 5


async def test_a_password_sent_over_tls_is_not_sent_in_clear_to_another_machine(
    tmp_path: Path,
) -> None:
    certificate, key = write_certificate(tmp_path)
    listen = ["amqps://127.0.0.1:0", "http://127.0.0.1:0"]
    settings = BrokerSettings(listen=listen, tls=TlsSettings(certificate=certificate, key=key))
    async with Broker(settings, data=tmp_path / "data") as broker:
        url, here = broker.addresses
        address = parse_amqp_url(url, str(certificate))
        endpoint = await asyncio.to_thread(find_endpoint, address)
        assert endpoint.ranges == f"{here}/api/streams"  # it does not leave the machine
        broker.product["arrow"] = there = "http://broker.example:15672/api/streams"
        with pytest.raises(ConfigurationError, match=f"{there}.*'guest'.*in clear.*managementUrl"):
            await asyncio.to_thread(find_endpoint, address)
        endpoint = await asyncio.to_thread(find_endpoint, address, "http://broker.example:15672")
        assert endpoint.ranges == there  # whoever asks for it gets it
        broker.product["arrow_tls"] = "https://broker.example:15671/api/streams"
        endpoint = await asyncio.to_thread(find_endpoint, address)
        assert endpoint.ranges == broker.product["arrow_tls"]
