"""How somebody who forgot a password gets the means to set another.

By mail where there is a server for it; on a machine for development each letter is a file, which
nobody but its owner can read. What is in a letter is never in the log.
"""

from __future__ import annotations

import asyncio
import os
import smtplib
import tempfile
from email.message import EmailMessage
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger

log = get_logger(__name__)

SECONDS: Final = 20.0
_TEXT: Final = """\
Somebody, most likely you, has asked to set a new password.

    {link}

This works once, within the hour. If it was not you, nothing has changed.
"""


class Letters(Protocol):
    async def send(self, letter: EmailMessage) -> None: ...


def reset_letter(sender: str, login: str, link: str) -> EmailMessage:
    letter = EmailMessage()
    letter["From"] = sender
    letter["To"] = login
    letter["Subject"] = "Set a new password"
    letter.set_content(_TEXT.format(link=link))
    return letter


class FiledLetters:
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


class MailedLetters:
    """By SMTP: `smtp://user:password@host:587` or `smtps://…`."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        if self._url.scheme not in ("smtp", "smtps") or not self._url.hostname:
            raise ConfigurationError("mail goes by smtp://user:password@host:587, or smtps://…")

    async def send(self, letter: EmailMessage) -> None:
        await asyncio.to_thread(self._send, letter)

    def _send(self, letter: EmailMessage) -> None:
        url = self._url
        assert url.hostname is not None
        if url.scheme == "smtps":
            line: smtplib.SMTP = smtplib.SMTP_SSL(url.hostname, url.port or 465, timeout=SECONDS)
        else:
            line = smtplib.SMTP(url.hostname, url.port or 587, timeout=SECONDS)
        with line:
            if url.scheme == "smtp" and line.has_extn("starttls"):
                line.starttls()
            if url.username:
                line.login(unquote(url.username), unquote(url.password or ""))
            line.send_message(letter)
