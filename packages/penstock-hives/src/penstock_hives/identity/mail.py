"""Mail with a link to set a password or confirm an address: by SMTP, or as files in development.

Whoever has the link can set the password. So mail to another machine is encrypted, certificates are
verified, files are readable by their owner only, and the log never contains a mail.
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
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.translation import translate

log = get_logger(__name__)

SMTP_TIMEOUT: Final = 20.0
_RESET: Final = """\
Use this link to set a new password:

    {link}

It is valid once, for one hour. If you did not request it, ignore this mail.
"""


_CONFIRM: Final = """\
Use this link to sign in with this address from now on:

    {link}

It is valid once, for one hour. If you did not request it, ignore this mail.
"""
_CHANGED: Final = """\
You now sign in with {login} instead of this address.

If you did not request this, tell the operators of the page.
"""


_INVITATION: Final = """\
{account} invites you to work on its places with it. Use this link to accept:

    {link}

It is valid once, for two weeks. Sign in first, or create an account on the public page. If you do
not know the business, ignore this mail.
"""


class MailSender(Protocol):
    async def send(self, message: EmailMessage) -> None: ...


def password_reset_mail(sender: str, login: str, link: str, locale: str = "en") -> EmailMessage:
    subject = translate("Set a new password", locale)
    return _mail(sender, login, subject, translate(_RESET, locale, link=link))


def confirm_login_mail(sender: str, login: str, link: str, locale: str = "en") -> EmailMessage:
    subject = translate("Confirm your new address", locale)
    return _mail(sender, login, subject, translate(_CONFIRM, locale, link=link))


def login_changed_mail(sender: str, old: str, login: str, locale: str = "en") -> EmailMessage:
    subject = translate("Your address was changed", locale)
    return _mail(sender, old, subject, translate(_CHANGED, locale, login=login))


def invitation_mail(
    sender: str, to: str, account: str, link: str, locale: str = "en"
) -> EmailMessage:
    name = " ".join(account.split())  # a header is one line
    subject = translate("Join {account}", locale, account=name)
    return _mail(sender, to, subject, translate(_INVITATION, locale, account=name, link=link))


def text_mail(sender: str, to: str, subject: str, text: str) -> EmailMessage:
    return _mail(sender, to, " ".join(subject.split()), text)  # a header is one line


def _mail(sender: str, to: str, subject: str, text: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = sender
    message["To"] = to
    message["Subject"] = subject
    message.set_content(text)
    return message


class FileMailSender:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def send(self, message: EmailMessage) -> None:
        file = await asyncio.to_thread(self._write, message.as_bytes())
        log.info("mail written to file", file=str(file))

    def _write(self, content: bytes) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(".eml", "letter-", self._folder)
        with os.fdopen(number, "wb") as out:
            out.write(content)
        return Path(name)


class SmtpMailSender:
    """`smtp://user:password@host:587` with STARTTLS, or `smtps://…` with implicit TLS.

    Certificates are verified with `authority` or the system's. A server without STARTTLS is
    refused, unless it is on this machine or `allow_cleartext` is set.
    """

    def __init__(
        self, url: str, authority: Path | None = None, *, allow_cleartext: bool = False
    ) -> None:
        self._url = urlsplit(url)
        if self._url.scheme not in ("smtp", "smtps") or not self._url.hostname:
            raise ConfigurationError(
                "the mail URL must be smtp://user:password@host:587 or smtps://…"
            )
        self._host = self._url.hostname
        self._allow_cleartext = allow_cleartext
        try:
            self._tls = ssl.create_default_context(cafile=authority)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{authority} is not a file of certificates: {error}"
            ) from error

    async def send(self, message: EmailMessage) -> None:
        await asyncio.to_thread(self._send, message)

    def _send(self, message: EmailMessage) -> None:
        url = self._url
        with self._connect() as server:
            if url.username:
                server.login(unquote(url.username), unquote(url.password or ""))
            server.send_message(message)

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
                    f"{self._host} does not offer STARTTLS: use smtps:// or another server, or set "
                    "PENSTOCK_HIVES_IDENTITY_MAIL_CLEARTEXT=true"
                )
        except BaseException:
            line.close()
            raise
        return line


def open_mail_sender(settings: IdentitySettings) -> MailSender:
    """By SMTP if a server is configured, otherwise as files in the folder of the issuer."""
    if settings.mail is None:
        return FileMailSender(settings.folder / "letters")
    authority, cleartext = settings.mail_authority, settings.mail_cleartext
    return SmtpMailSender(settings.mail, authority, allow_cleartext=cleartext)


def _peer(line: smtplib.SMTP) -> str:
    assert line.sock is not None, "not connected"
    return str(line.sock.getpeername()[0])
