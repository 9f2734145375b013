"""An App Store for tests: a chain of certificates like Apple's, and notifications signed by it."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BUNDLE = "app.bees"
_LEAF = x509.ObjectIdentifier("1.2.840.113635.100.6.11.1")
_INTERMEDIATE = x509.ObjectIdentifier("1.2.840.113635.100.6.2.1")
_NULL = b"\x05\x00"


@dataclass(frozen=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _certify(name: str, issuer: Authority | None, mark: x509.ObjectIdentifier | None) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer = issuer.key if issuer else key
    end = mark == _LEAF
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=30))
        .not_valid_after(datetime.now(UTC) + timedelta(days=30))
        .add_extension(x509.BasicConstraints(not end, None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=end,
                key_cert_sign=not end,
                crl_sign=not end,
                encipher_only=False,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if mark is not None:
        builder = builder.add_extension(x509.UnrecognizedExtension(mark, _NULL), critical=False)
    return Authority(builder.sign(signer, hashes.SHA256()), key)


class AppStore:
    """Signs what it says of subscriptions to one app."""

    def __init__(self) -> None:
        root = _certify("Root", None, None)
        middle = _certify("Intermediate", root, _INTERMEDIATE)
        leaf = _certify("Leaf", middle, _LEAF)
        self.root = root.certificate.public_bytes(serialization.Encoding.DER)
        self._chain = [
            base64.b64encode(each.certificate.public_bytes(serialization.Encoding.DER)).decode()
            for each in (leaf, middle, root)
        ]
        self._key = leaf.key

    def signed(self, document: dict[str, Any], **headers: Any) -> str:
        return jwt.encode(
            document, self._key, algorithm="ES256", headers={"x5c": self._chain, **headers}
        )

    def notification(
        self,
        kind: str,
        subtype: str | None = None,
        *,
        at: datetime,
        transaction: dict[str, Any] | None = None,
        renewal: dict[str, Any] | None = None,
        number: str | None = None,
        bundle: str = BUNDLE,
    ) -> bytes:
        """The body of a webhook."""
        common = {"environment": "Sandbox", "signedDate": ms(at)}
        ours = {
            "originalTransactionId": "2000001",
            "transactionId": "2000001",
            "bundleId": bundle,
            "productId": "app.bees.premium",
            "originalPurchaseDate": ms(at),
            "purchaseDate": ms(at),
            "expiresDate": ms(at + timedelta(days=30)),
            "price": 4990,
            "currency": "EUR",
            **common,
            **(transaction or {}),
        }
        renewing = {
            "originalTransactionId": "2000001",
            "productId": "app.bees.premium",
            "autoRenewStatus": 1,
            **common,
            **(renewal or {}),
        }
        document = {
            "notificationType": kind,
            "notificationUUID": number or str(uuid.uuid4()),
            "version": "2.0",
            "signedDate": ms(at),
            "data": {
                "bundleId": bundle,
                "environment": "Sandbox",
                "signedTransactionInfo": self.signed(ours),
                "signedRenewalInfo": self.signed(renewing),
            },
        }
        if subtype is not None:
            document["subtype"] = subtype
        return json.dumps({"signedPayload": self.signed(document)}).encode()


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
