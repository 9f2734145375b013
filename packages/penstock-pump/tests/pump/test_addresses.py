"""A host is asked where it was checked: its name may lead elsewhere by the time it is used."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aioftp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock_pump.credentials import parse_credentials
from penstock_pump.errors import SourceUnavailable
from penstock_pump.transports import ftp as ftp_transport
from penstock_pump.transports.access import HostRule
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    TransportContext,
    TransportRegistry,
)
from tests.pump.servers import serving
from tests.pump.test_transports import DATA, Caught, ftpd, sshd

#: Resolved by nobody (RFC 6761): whoever asks for its address again gets none.
NAME = "files.test"


@dataclass(frozen=True)
class Checked(HostRule):
    """A name that was allowed at its address."""

    async def check(self, host: str) -> str:
        return "127.0.0.1" if host == NAME else host


async def fetched(url: str, transport_context: TransportContext) -> bytes:
    transports = TransportRegistry(transport_context)
    caught = Caught()
    try:
        await transports.get(url.partition(":")[0]).fetch(
            FileSource(url + "a%20b"), ByteRange(), caught
        )
    finally:
        await transports.close()
    return bytes(caught.data)


def folder_of_one(place: Path) -> Path:
    folder = place / "there"
    folder.mkdir()
    (folder / "a b").write_bytes(DATA)
    return folder


async def test_http(tmp_path: Path) -> None:
    with serving(folder_of_one(tmp_path)) as server:
        url = server.url.replace("127.0.0.1", NAME)
        assert await fetched(url, TransportContext(hosts=Checked(), timeout=60.0)) == DATA


@pytest.mark.peer
async def test_sftp_and_its_key_is_the_one_of_the_name(tmp_path: Path) -> None:
    async with sshd(folder_of_one(tmp_path), tmp_path / "sshd") as server:
        url = server.url.replace("127.0.0.1", NAME)
        known = parse_credentials([f"{url} ssh_keyfile={tmp_path}/sshd/user"], "test")
        assert server.known_hosts is not None
        transport_context = TransportContext(known, Checked(), 60.0, known_hosts=server.known_hosts)
        keys = server.known_hosts.read_text()
        server.known_hosts.write_text(keys.replace("127.0.0.1", "others.test"))
        with pytest.raises(SourceUnavailable, match="not trusted"):
            await fetched(url, transport_context)
        server.known_hosts.write_text(keys.replace("127.0.0.1", NAME))
        assert await fetched(url, transport_context) == DATA


async def test_ftp_and_where_its_data_come_from(tmp_path: Path) -> None:
    async with ftpd(folder_of_one(tmp_path)) as server:
        url = server.url.replace("127.0.0.1", NAME)
        known = parse_credentials([url.replace("me@", "me:se%2Fcret@")], "test")
        assert await fetched(url, TransportContext(known, Checked(), 60.0)) == DATA


@pytest.mark.parametrize("named", [NAME, "others.test"])
async def test_ftps_whose_certificate_is_the_one_of_the_name(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = write_certificate(tmp_path, named)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    user = aioftp.User("me", "secret", base_path=folder_of_one(tmp_path))
    server = aioftp.Server([user], ssl=context)
    await server.start("127.0.0.1")
    monkeypatch.setattr(ftp_transport, "IMPLICIT_PORT", server.server_port)
    try:
        url = f"ftps://me:secret@{NAME}:{server.server_port}/"
        transport_context = TransportContext(hosts=Checked(), timeout=60.0)
        if named == NAME:
            assert await fetched(url, transport_context) == DATA
        else:
            with pytest.raises(SourceUnavailable, match="certificate"):
                await fetched(url, transport_context)
    finally:
        await server.close()


def write_certificate(folder: Path, name: str) -> Path:
    """A certificate that vouches for itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "penstock test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, *plain)
    )
    return path
