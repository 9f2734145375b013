"""The user name in a verified client certificate, as in RabbitMQ's `ssl_cert_login_from`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

    from penstock.core.config import TlsSettings

#: Short names of attribute types (RFC 4514, section 3); others are written as OpenSSL names them.
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
#: The names of the types of alternative names in Python's `ssl`.
_SAN_TYPES: Final = {"dns": "DNS", "email": "email", "ip": "IP Address", "uri": "URI"}


def certificate_login(transport: asyncio.BaseTransport | None, settings: TlsSettings) -> str:
    """The user name in the client's certificate; empty if it has no certificate or no such name.

    A certificate is only ever present if the TLS handshake has verified it.
    """
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    return login_name(certificate, settings) if certificate else ""


def login_name(certificate: Mapping[str, Any], settings: TlsSettings) -> str:
    """`certificate` is in the form of `SSLSocket.getpeercert()`."""
    if settings.login_from == "subject_alternative_name":
        kind = _SAN_TYPES[settings.login_san_type]
        names = [value for name, value in certificate.get("subjectAltName", ()) if name == kind]
        index = settings.login_san_index
        return str(names[index]) if index < len(names) else ""
    subject = certificate.get("subject", ())
    if settings.login_from == "distinguished_name":
        return distinguished_name(subject)
    return ",".join(value for part in subject for name, value in part if name == "commonName")


def distinguished_name(subject: Any) -> str:
    """The string of RFC 4514: the most specific name first, `CN=client,O=Example`."""
    return ",".join(
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escape(value)}" for name, value in part)
        for part in reversed(subject)
    )


def _escape(value: str) -> str:
    escaped = "".join(
        f"\\{char}" if char in ',+"\\<>;' else "\\00" if char == "\0" else char for char in value
    )
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if len(value) > 1 and value.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped
