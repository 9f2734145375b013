"""AMQP 1.0 over TLS: on the shared port and its own, and certificates as identity."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.broker.permissions import Permission
from penstock.core.config import BrokerSettings, TlsSettings
from penstock.server.broker import Broker
from penstock.wire.amqp10.message import Amqp10Message
from penstock.wire.amqp10.performatives import ACCEPTED
from penstock.wire.amqp10.sasl import ANONYMOUS, EXTERNAL, PLAIN
from tests.client.test_tls import write_certificate
from tests.protocols.amqp10.peer import Peer

#: The common name of the certificate that tests have.
NAME = "penstock test"


@pytest.mark.parametrize("scheme", ["amqps", "amqps10"])
@pytest.mark.parametrize("mechanism", [PLAIN, ANONYMOUS, EXTERNAL])
async def test_a_client_comes_in_over_tls(tmp_path: Path, scheme: str, mechanism: str) -> None:
    certificate, key = write_certificate(tmp_path)
    settings = BrokerSettings(
        listen=[f"{scheme}://127.0.0.1:0"],
        anonymous=True,
        anonymous_user="guest",
        drain_seconds=0.1,
        tls=TlsSettings(certificate=certificate, key=key, authority=certificate, verify_peer=True),
    )
    context = ssl.create_default_context(cafile=str(certificate))
    context.load_cert_chain(certificate, key)
    async with Broker(settings, data=tmp_path / "data") as broker:
        broker.users.add(NAME, "secret")
        broker.users.set_permissions(NAME, "/", Permission(".*", ".*", ".*"))
        port = urlsplit(broker.addresses[0]).port
        assert port is not None
        peer = await Peer().connect(port, mechanism=mechanism, tls=context)
        assert await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x")) == ACCEPTED
        [terminal] = broker.clients
        described = terminal.describe()
        assert described["ssl"]
        assert described["user"] == (NAME if mechanism == EXTERNAL else "guest")
        await peer.close()
