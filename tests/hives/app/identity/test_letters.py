"""Letters leave by SMTP, or lie in a folder where nobody else can read them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock.hives.app.identity.letters import FiledLetters, MailedLetters, reset_letter

LETTER = reset_letter("hives@bees.example", "ada@bees.example", "https://bees.example/#reset=x")


class PostOffice:
    """As much of a mail server as it takes to get a letter."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            word = line.split()[0].upper() if line.split() else b""
            if word == b"DATA":
                writer.write(b"354 go on\r\n")
                self.letters.append(await reader.readuntil(b"\r\n.\r\n"))
            writer.write(b"221 bye\r\n" if word == b"QUIT" else b"250 yes\r\n")
            await writer.drain()
            if word == b"QUIT":
                break
        writer.close()


async def test_a_letter_is_mailed() -> None:
    office = PostOffice()
    server = await asyncio.start_server(office.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await MailedLetters(f"smtp://127.0.0.1:{port}").send(LETTER)
    (letter,) = office.letters
    assert b"To: ada@bees.example" in letter
    assert b"https://bees.example/#reset=x" in letter


@pytest.mark.parametrize("url", ["mail.example", "http://mail.example", "smtp://"])
def test_mail_goes_by_smtp(url: str) -> None:
    with pytest.raises(ConfigurationError):
        MailedLetters(url)


async def test_a_filed_letter_is_its_owners_alone(tmp_path: Path) -> None:
    await FiledLetters(tmp_path / "letters").send(LETTER)
    (file,) = (tmp_path / "letters").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert b"#reset=x" in file.read_bytes()
