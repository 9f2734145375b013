"""Letters leave by SMTP, or lie in a folder where nobody else can read them."""

from __future__ import annotations

import asyncio
import base64
import smtplib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock_hives.identity import mail
from penstock_hives.identity.mail import FileMailSender, SmtpMailSender, password_reset_mail
from tests.client.test_tls import write_certificate

LETTER = password_reset_mail(
    "hives@bees.example", "ada@bees.example", "https://bees.example/#reset=x"
)


@dataclass
class Received:
    letter: bytes
    encrypted: bool
    login: bytes | None


class MailServer:
    """As much of SMTP (RFC 5321, 3207, 4954) as it takes to get a letter, with TLS or without."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls  #: offered by STARTTLS
        self.received: list[Received] = []
        self.said: list[bytes] = []  #: in clear text

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except ConnectionError:
            pass  # a client that does not like the certificate leaves
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        encrypted = writer.get_extra_info("ssl_object") is not None
        login: bytes | None = None
        greeted = False
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            if not encrypted:
                self.said.append(line.strip())
            match line.split()[0].upper():
                case b"EHLO":
                    greeted = True
                    offers = self._tls is not None and not encrypted
                    writer.write(b"250-here\r\n250-STARTTLS\r\n" if offers else b"250-here\r\n")
                    writer.write(b"250 AUTH PLAIN\r\n")
                case b"STARTTLS" if greeted and self._tls is not None:
                    writer.write(b"220 go on\r\n")
                    await writer.start_tls(self._tls)
                    encrypted, greeted = True, False
                case b"AUTH" if greeted:
                    login = base64.b64decode(line.split()[2])
                    writer.write(b"235 welcome\r\n")
                case b"DATA":
                    writer.write(b"354 go on\r\n")
                    letter = await reader.readuntil(b"\r\n.\r\n")
                    self.received.append(Received(letter, encrypted, login))
                    writer.write(b"250 taken\r\n")
                case b"QUIT":
                    writer.write(b"221 bye\r\n")
                    await writer.drain()
                    return
                case b"MAIL" | b"RCPT" | b"RSET" if greeted:
                    writer.write(b"250 yes\r\n")
                case _:
                    writer.write(b"503 not now\r\n")
            await writer.drain()


@asynccontextmanager
async def serving(server: MailServer, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Its address. With `tls`, it speaks TLS from the beginning."""
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls) as listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """Of 127.0.0.1: what a client has to trust, and what the server has."""
    file, key = write_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, key)
    return file, context


Certificate = tuple[Path, ssl.SSLContext]


async def test_a_letter_is_mailed() -> None:
    server = MailServer()
    async with serving(server) as address:
        await SmtpMailSender(f"smtp://{address}").send(LETTER)
    (received,) = server.received
    assert b"To: ada@bees.example" in received.letter
    assert b"https://bees.example/#reset=x" in received.letter


async def test_starttls_comes_before_the_login_and_the_letter(certificate: Certificate) -> None:
    authority, context = certificate
    server = MailServer(context)
    async with serving(server) as address:
        await SmtpMailSender(f"smtp://bee:ho%20ney@{address}", authority).send(LETTER)
    (received,) = server.received
    assert received.encrypted
    assert received.login == b"\0bee\0ho ney"
    assert [said.split()[0] for said in server.said] == [b"ehlo", b"STARTTLS"]


async def test_tls_from_the_beginning(certificate: Certificate) -> None:
    authority, context = certificate
    server = MailServer()
    async with serving(server, context) as address:
        await SmtpMailSender(f"smtps://bee:honey@{address}", authority).send(LETTER)
    (received,) = server.received
    assert received.encrypted


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_certificate_nobody_vouches_for_gets_no_letter(
    certificate: Certificate, scheme: str
) -> None:
    _, context = certificate
    server = MailServer(context)
    async with serving(server, context if scheme == "smtps" else None) as address:
        with pytest.raises(ssl.SSLCertVerificationError):
            await SmtpMailSender(f"{scheme}://bee:honey@{address}").send(LETTER)
    assert not server.received
    assert not any(said.startswith(b"AUTH") for said in server.said)


async def test_a_server_elsewhere_without_starttls_gets_neither_letter_nor_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mail, "is_loopback", lambda host: False)
    server = MailServer()
    async with serving(server) as address:
        with pytest.raises(smtplib.SMTPNotSupportedError, match="MAIL_CLEARTEXT"):
            await SmtpMailSender(f"smtp://bee:honey@{address}").send(LETTER)
        assert [said.split()[0] for said in server.said] == [b"ehlo"]
        await SmtpMailSender(f"smtp://bee:honey@{address}", allow_cleartext=True).send(LETTER)
    assert len(server.received) == 1


def test_an_authority_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="absent"):
        SmtpMailSender("smtps://mail.example", tmp_path / "absent.pem")


@pytest.mark.parametrize("url", ["mail.example", "http://mail.example", "smtp://"])
def test_mail_goes_by_smtp(url: str) -> None:
    with pytest.raises(ConfigurationError):
        SmtpMailSender(url)


async def test_a_filed_letter_is_its_owners_alone(tmp_path: Path) -> None:
    await FileMailSender(tmp_path / "letters").send(LETTER)
    (file,) = (tmp_path / "letters").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert b"#reset=x" in file.read_bytes()
