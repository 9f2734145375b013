"""`amqps://`: the certificate is checked, against the authority one names."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock.client import BrokerUnreachable, connect
from tests.fixtures import NewPenstock
from tests.peers import free_port


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "penstock test")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


async def test_a_certificate_is_checked(
    new_penstock: NewPenstock, tmp_path: Path, name: str
) -> None:
    certificate, key = write_certificate(tmp_path)
    port = free_port()
    new_penstock(
        *("--listen", f"amqps://127.0.0.1:{port}"),
        *("--set", f"broker.tls.certificate={certificate}"),
        *("--set", f"broker.tls.key={key}"),
    )
    url = f"amqps://127.0.0.1:{port}"

    with pytest.raises(BrokerUnreachable, match="certificate"):
        await connect(url).open()

    async with connect(f"{url}?cafile={certificate}") as fabric:
        await fabric.push(name).send(b"by URL")
    context = ssl.create_default_context(cafile=str(certificate))
    async with connect(url, tls=context) as fabric, fabric.pull(name) as items:
        assert (await items.receive()).body == b"by URL"
