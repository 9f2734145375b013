"""Sarracenia's `credentials.conf`: secrets in one file, so that configurations have none.

A line is a URL with its secret, quoted as URLs are, and words behind it: `ssh_keyfile=…`, `passive`
or `active`, `binary` or `ascii`, `tls`, `prot_p`, `bearer_token=…`. A URL elsewhere is matched by
scheme, user, host and port; one that has a password of its own needs no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from penstock.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Credential:
    """Who we are at a server, and how to speak to it."""

    url: str = ""
    user: str | None = None
    password: str | None = None
    ssh_keyfile: str | None = None
    passive: bool = True
    binary: bool = True
    tls: bool = False
    protected: bool = False  #: FTP's data connections are encrypted too
    bearer_token: str | None = None


class Credentials:
    def __init__(self, known: Sequence[Credential] = ()) -> None:
        self._known = tuple(known)

    def find(self, url: str) -> Credential:
        """What is known for a URL; at least what it says itself."""
        wanted = urlsplit(url)
        own = Credential(
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


def read_credentials(path: Path) -> Credentials:
    """An absent file has none; what cannot be read is an error that names the line."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return Credentials()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    return parse_credentials(lines, str(path))


def parse_credentials(lines: Iterable[str], where: str) -> Credentials:
    known = []
    for number, line in enumerate(lines, 1):
        url, *words = line.split() or [""]
        if url and not url.startswith("#"):
            known.append(_credential(url, words, f"{where}:{number}"))
    return Credentials(known)


def _credential(url: str, words: Sequence[str], where: str) -> Credential:
    parts = urlsplit(url)
    if not parts.scheme or not parts.hostname:
        raise ConfigurationError(f"{where}: should begin with a URL, scheme://user:secret@host")
    # Options may be parted by commas as well as by blanks.
    options = [word for each in words for word in each.split(",") if word]
    values = dict(word.split("=", 1) for word in options if "=" in word)
    flags = {word for word in options if "=" not in word}
    unknown = (flags - {"passive", "active", "binary", "ascii", "tls", "ssl", "prot_p"}) | (
        set(values) - {"ssh_keyfile", "bearer_token", "login_method", "implicit_ftps"}
    )
    if unknown:
        raise ConfigurationError(f"{where}: {', '.join(sorted(unknown))}: no such option")
    return Credential(
        url,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        ssh_keyfile=values.get("ssh_keyfile"),
        passive="active" not in flags,
        binary="ascii" not in flags,
        tls="tls" in flags,
        protected="prot_p" in flags,
        bearer_token=values.get("bearer_token"),
    )
