"""How somebody who forgot a password gets the means to set another.

By mail where there is a server for it; on a machine for development each letter is a file, which
nobody but its owner can read. What is in a letter is never in the log. Whoever reads the link of a
letter can set the password, so mail to another machine is encrypted and its certificate verified.
"""

from __future__ import annotations

import asyncio
import os
import smtplib
import ssl
import tempfile
from email.message import EmailMessage
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from penstock.core.addresses import is_loopback
from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger

log = get_logger(__name__)

SMTP_TIMEOUT: Final = 20.0
_TEXT: Final = """\
Somebody, most likely you, has asked to set a new password.

    {link}

This works once, within the hour. If it was not you, nothing has changed.
"""


class MailSender(Protocol):
    async def send(self, letter: EmailMessage) -> None: ...


def password_reset_mail(sender: str, login: str, link: str) -> EmailMessage:
    letter = EmailMessage()
    letter["From"] = sender
    letter["To"] = login
    letter["Subject"] = "Set a new password"
    letter.set_content(_TEXT.format(link=link))
    return letter


class FileMailSender:
    """A folder in place of a post office."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def send(self, letter: EmailMessage) -> None:
        file = await asyncio.to_thread(self._write, letter.as_bytes())
        log.info("letter written", file=str(file))

    def _write(self, octets: bytes) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(".eml", "letter-", self._folder)
        with os.fdopen(number, "wb") as out:
            out.write(octets)
        return Path(name)


class SmtpMailSender:
    """By SMTP: `smtp://user:password@host:587` with STARTTLS, or `smtps://…` with TLS at once.

    The server's certificate is verified against `authority`, or the system's authorities without
    one. A server that does not offer STARTTLS gets no letter and no password, unless it is on this
    machine or `allow_cleartext` is set.
    """

    def __init__(
        self, url: str, authority: Path | None = None, *, allow_cleartext: bool = False
    ) -> None:
        self._url = urlsplit(url)
        if self._url.scheme not in ("smtp", "smtps") or not self._url.hostname:
            raise ConfigurationError("mail goes by smtp://user:password@host:587, or smtps://…")
        self._host = self._url.hostname
        self._allow_cleartext = allow_cleartext
        try:
            self._tls = ssl.create_default_context(cafile=authority)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{authority} holds no certificates to verify a mail server with: {error}"
            ) from error

    async def send(self, letter: EmailMessage) -> None:
        await asyncio.to_thread(self._send, letter)

    def _send(self, letter: EmailMessage) -> None:
        url = self._url
        with self._connect() as line:
            if url.username:
                line.login(unquote(url.username), unquote(url.password or ""))
            line.send_message(letter)

    def _connect(self) -> smtplib.SMTP:
        port = self._url.port
        if self._url.scheme == "smtps":
            return smtplib.SMTP_SSL(
                self._host, port or 465, timeout=SMTP_TIMEOUT, context=self._tls
            )
        line = smtplib.SMTP(self._host, port or 587, timeout=SMTP_TIMEOUT)
        try:
            line.ehlo_or_helo_if_needed()
            if line.has_extn("starttls"):
                line.starttls(context=self._tls)
            elif not (self._allow_cleartext or is_loopback(_peer(line))):
                raise smtplib.SMTPNotSupportedError(
                    f"{self._host} does not offer STARTTLS, and a letter about a password is not "
                    "sent in clear text: use smtps://, another server, or set "
                    "PENSTOCK_HIVES_IDENTITY_MAIL_CLEARTEXT=true"
                )
        except BaseException:
            line.close()
            raise
        return line


def _peer(line: smtplib.SMTP) -> str:
    assert line.sock is not None, "not connected"
    return str(line.sock.getpeername()[0])
