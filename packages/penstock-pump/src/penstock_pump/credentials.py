"""Sarracenia's `credentials.conf`: secrets in one file, so that configurations have none.

A line is a URL with its secret, quoted as URLs are, and words behind it: `ssh_keyfile=…`, `tls`,
`implicit_ftps`, `bearer_token=…`. Others that Sarracenia has are read, and make no difference here.
A URL elsewhere is matched by scheme, user, host and port; one that has a password of its own needs
no line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from penstock.core.errors import ConfigurationError

#: Words that stand alone; `passive = True` is how some write them.
_FLAGS: Final = {
    *("passive", "active", "binary", "ascii"),
    *("tls", "ssl", "prot_p", "implicit_ftps", "sftp_compat_mode"),
}
_VALUES: Final = {
    *("ssh_keyfile", "bearer_token", "bt", "login_method"),
    *("s3_endpoint", "s3_session_token", "azure_storage_credentials"),
}
_NO: Final = frozenset({"false", "no", "off", "0"})
#: Blanks around the sign between a word and its value.
_EQUALS: Final = re.compile(r"(?<![^\s,])(\w+)\s*=\s*")


@dataclass(frozen=True, slots=True)
class PumpCredential:
    """Who we are at a server, and how to speak to it."""

    url: str = ""
    user: str | None = None
    password: str | None = None
    ssh_keyfile: str | None = None
    tls: bool = False  #: FTP asks for it
    implicit: bool = False  #: FTP begins with it
    bearer_token: str | None = None


class PumpCredentials:
    def __init__(self, known: Sequence[PumpCredential] = ()) -> None:
        self._known = tuple(known)

    def find(self, url: str) -> PumpCredential:
        """What is known for a URL; at least what it says itself."""
        wanted = urlsplit(url)
        own = PumpCredential(
            url,
            None if wanted.username is None else unquote(wanted.username),
            None if wanted.password is None else unquote(wanted.password),
        )
        if own.password is not None:
            return own
        for each in self._known:
            given = urlsplit(each.url)
            if (given.scheme, given.hostname, given.port) == (
                wanted.scheme,
                wanted.hostname,
                wanted.port,
            ) and own.user in (None, each.user):
                return each
        return own

    def complete(self, url: str) -> str:
        """The URL with its secret, for a client that wants one."""
        found, parts = self.find(url), urlsplit(url)
        if found.password is None or parts.password is not None:
            return url
        user, password = quote(found.user or "", safe=""), quote(found.password, safe="")
        place = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{user}:{password}@{place}").geturl()


def without_secret(url: str) -> str:
    """The URL to be shown or written down."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.partition(':')[0]}@{place}").geturl()


def read_credentials(path: Path) -> PumpCredentials:
    """An absent file has none; what cannot be read is an error that names the line."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return PumpCredentials()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    return parse_credentials(lines, str(path))


def parse_credentials(lines: Iterable[str], where: str) -> PumpCredentials:
    known = []
    for number, line in enumerate(lines, 1):
        url, *words = line.split(maxsplit=1) or [""]
        if url and not url.startswith("#"):
            known.append(_credential(url, "".join(words), f"{where}:{number}"))
    return PumpCredentials(known)


def _credential(url: str, words: str, where: str) -> PumpCredential:
    parts = urlsplit(url)
    if not parts.scheme or not parts.hostname:
        raise ConfigurationError(f"{where}: should begin with a URL, scheme://user:secret@host")
    # Options may be parted by commas as well as by blanks.
    options = [word for word in re.split(r"[\s,]+", _EQUALS.sub(r"\1=", words)) if word]
    said = dict(word.partition("=")[::2] for word in options)
    if unknown := said.keys() - _FLAGS - _VALUES:
        raise ConfigurationError(f"{where}: {', '.join(sorted(unknown))}: no such option")
    key = said.get("ssh_keyfile")
    flags = {word for word, value in said.items() if value.lower() not in _NO}
    return PumpCredential(
        url,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        ssh_keyfile=None if key is None else os.path.expandvars(Path(key).expanduser()),
        tls=bool(flags & {"tls", "implicit_ftps"}),
        implicit="implicit_ftps" in flags,
        bearer_token=said.get("bearer_token", said.get("bt")),
    )
