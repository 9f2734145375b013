"""Client certificates as identity, in every protocol; ALPN."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from paho.mqtt.enums import CallbackAPIVersion

from penstock.broker.permissions import Permission
from penstock.client.padres import PadresClient
from penstock.core.client_certificate import distinguished_name, login_name
from penstock.core.config import BrokerSettings, TlsSettings
from penstock.server.broker import Broker
from penstock.wire.amqp10.sasl import EXTERNAL, PLAIN
from tests.client.test_tls import write_certificate
from tests.protocols.amqp10.peer import Peer

USER = "client"
LISTEN = ["amqps", "mqtts", "wss", "https"]


def write_client_certificate(
    folder: Path, authority: tuple[Path, Path], name: str = USER
) -> tuple[Path, Path]:
    """A certificate that the authority signs, and its key."""
    issuer = x509.load_pem_x509_certificate(authority[0].read_bytes())
    issuer_key: Any = serialization.load_pem_private_key(authority[1].read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example, Inc"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    names = [x509.DNSName("first.example"), x509.DNSName(f"{name}.example")]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    certificate_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


class Ground:
    """A broker with an authority, and contexts of clients with and without a certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = write_certificate(folder)
        self.broker: Broker

    def settings(self, **tls: Any) -> BrokerSettings:
        certificate, key = self.authority
        return BrokerSettings(
            listen=[f"{scheme}://127.0.0.1:0" for scheme in LISTEN],
            drain_seconds=0.1,
            tls=TlsSettings(certificate=certificate, key=key, authority=certificate, **tls),
        )

    def port(self, scheme: str) -> int:
        port = urlsplit(self.broker.addresses[LISTEN.index(scheme)]).port
        assert port is not None
        return port

    def context(self, name: str | None = USER) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority[0]))
        if name is not None:
            context.load_cert_chain(*write_client_certificate(self.folder, self.authority, name))
        return context

    def add_user(self, name: str) -> None:
        users = self.broker.users
        users.add(name, "secret", ("management",))
        users.set_permissions(name, "/", Permission(".*", ".*", ".*"))


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    ground = Ground(tmp_path)
    async with Broker(ground.settings(), data=tmp_path / "data") as ground.broker:
        ground.add_user(USER)
        yield ground


Login = Callable[[Ground, ssl.SSLContext], Any]


def amqp091(ground: Ground, context: ssl.SSLContext) -> str:
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        ground.port("amqps"),
        ssl_options=pika.SSLOptions(context),
        credentials=pika.credentials.ExternalCredentials(),
    )
    connection = pika.BlockingConnection(parameters)
    connection.channel().queue_declare("q")
    user = user_of(ground)
    connection.close()
    return user


def mqtt(ground: Ground, context: ssl.SSLContext, transport: str = "tcp") -> str:
    client = paho.Client(CallbackAPIVersion.VERSION2, "c", transport=transport)  # type: ignore[arg-type]
    client.tls_set_context(context)
    answers: list[Any] = []
    client.on_connect = lambda *args: answers.append(args[3])
    client.connect("127.0.0.1", ground.port("mqtts" if transport == "tcp" else "wss"))
    while not answers:
        client.loop(0.05)
    if answers[0].is_failure:
        raise ConnectionRefusedError(str(answers[0]))
    user = user_of(ground)
    client.disconnect()
    return user


def websocket(ground: Ground, context: ssl.SSLContext) -> str:
    return mqtt(ground, context, "websockets")


def management(ground: Ground, context: ssl.SSLContext) -> str:
    answer = httpx.get(f"https://127.0.0.1:{ground.port('https')}/api/whoami", verify=context)
    answer.raise_for_status()
    return str(answer.json()["name"])


def user_of(ground: Ground) -> str:
    [terminal] = ground.broker.clients
    return str(terminal.describe()["user"])


LOGINS: list[Login] = [amqp091, mqtt, websocket, management]


@pytest.mark.parametrize("login", LOGINS)
async def test_a_certificate_is_the_login(ground: Ground, login: Login) -> None:
    assert await asyncio.to_thread(login, ground, ground.context()) == USER


@pytest.mark.parametrize("login", LOGINS)
async def test_a_certificate_of_no_user_is_refused(ground: Ground, login: Login) -> None:
    with pytest.raises(Exception, match=r"(?i)refused|authoriz|ACCESS|Bad user name"):
        await asyncio.to_thread(login, ground, ground.context("nobody"))
    assert ground.broker.kernel.metrics.refused == 1


@pytest.mark.parametrize("login", [amqp091, management])
async def test_without_a_certificate_there_is_no_such_login(ground: Ground, login: Login) -> None:
    with pytest.raises(Exception, match=r"(?i)EXTERNAL|Unauthorized|No.*mechanism|Incompatible"):
        await asyncio.to_thread(login, ground, ground.context(None))


async def test_amqp_1_offers_external_to_who_has_a_certificate(ground: Ground) -> None:
    peer = await Peer().connect(ground.port("amqps"), mechanism=EXTERNAL, tls=ground.context())
    assert user_of(ground) == USER
    await peer.close()
    peer = await Peer().connect(ground.port("amqps"), mechanism=PLAIN, tls=ground.context(None))
    assert user_of(ground) == "guest"
    await peer.close()


async def test_the_default_user_by_certificate_is_local_only(ground: Ground) -> None:
    with pytest.raises(Exception, match="only connect via localhost"):
        ground.broker.users.certified("guest", address="192.0.2.1")
    assert ground.broker.users.certified("guest", address="127.0.0.1").name == "guest"


async def test_padres_clients_can_use_a_certificate(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    settings = BrokerSettings(listen=["padress://127.0.0.1:0"], tls=ground.settings().tls)
    async with Broker(settings, data=tmp_path / "data") as ground.broker:
        ground.add_user(USER)
        url = ground.broker.addresses[0].replace("://", "://:@")  # no user
        client = await PadresClient(url, tls=ground.context()).open()
        assert user_of(ground) == USER
        await client.close()


async def test_a_required_certificate_is_required(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    settings = ground.settings(verify_peer=True)
    async with Broker(settings, data=tmp_path / "data") as ground.broker:
        ground.add_user(USER)
        with pytest.raises(httpx.TransportError):
            await asyncio.to_thread(management, ground, ground.context(None))
        assert await asyncio.to_thread(management, ground, ground.context()) == USER


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        ({"login_from": "common_name"}, "a,b"),
        ({"login_from": "distinguished_name"}, r"CN=a\,b,O=Example\, Inc.+OU=x,C=CA"),
        ({"login_from": "subject_alternative_name"}, "one.example"),
        ({"login_from": "subject_alternative_name", "login_san_index": 1}, "two.example"),
        ({"login_from": "subject_alternative_name", "login_san_index": 2}, ""),
        ({"login_from": "subject_alternative_name", "login_san_type": "email"}, "a@example"),
        ({"login_from": "subject_alternative_name", "login_san_type": "uri"}, "urn:a"),
        ({"login_from": "subject_alternative_name", "login_san_type": "ip"}, ""),
    ],
)
def test_the_part_of_a_certificate_that_is_the_user_name(
    tls: dict[str, Any], expected: str
) -> None:
    certificate = {
        "subject": (
            (("countryName", "CA"),),
            (("organizationName", "Example, Inc."), ("organizationalUnitName", "x")),
            (("commonName", "a,b"),),
        ),
        "subjectAltName": (
            ("DNS", "one.example"),
            ("email", "a@example"),
            ("DNS", "two.example"),
            ("URI", "urn:a"),
        ),
    }
    assert login_name(certificate, TlsSettings(**tls)) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [("#a", r"CN=\#a"), (" a ", r"CN=\ a\ "), ('"<>;', r"CN=\"\<\>\;")]
)
def test_a_distinguished_name_is_escaped(value: str, expected: str) -> None:
    assert distinguished_name(((("commonName", value),),)) == expected


@pytest.mark.parametrize(
    ("scheme", "offered", "selected"),
    [("mqtts", ["mqtt"], "mqtt"), ("wss", ["h2", "http/1.1"], "http/1.1"), ("amqps", ["x"], None)],
)
async def test_application_protocols_are_negotiated(
    ground: Ground, scheme: str, offered: list[str], selected: str | None
) -> None:
    context = ground.context(None)
    context.set_alpn_protocols(offered)
    _, writer = await asyncio.open_connection("127.0.0.1", ground.port(scheme), ssl=context)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == selected
    writer.close()
