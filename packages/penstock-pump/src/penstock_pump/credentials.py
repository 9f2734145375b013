"""Sarracenia's `credentials.conf`: passwords in one file instead of in configurations.

A line is a URL with a password, quoted as in URLs, followed by options: `ssh_keyfile=…`, `tls`,
`implicit_ftps`, `bearer_token=…`, `s3_endpoint=…`, `s3_session_token=…`. Other options of
Sarracenia are accepted and ignored. A URL is matched by scheme, user, host and port; a URL with a
password needs no line, nor does the user `anonymous`, whose password is its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from penstock.core.errors import ConfigurationError

#: Options without a value; some write `passive = True`.
_FLAGS: Final = {
    *("passive", "active", "binary", "ascii"),
    *("tls", "ssl", "prot_p", "implicit_ftps", "sftp_compat_mode"),
}
_VALUES: Final = {
    *("ssh_keyfile", "bearer_token", "bt", "login_method"),
    *("s3_endpoint", "s3_session_token", "azure_storage_credentials"),
}
#: The user of public brokers.
ANONYMOUS: Final = "anonymous"
_NO: Final = frozenset({"false", "no", "off", "0"})
#: Spaces around the sign between an option and its value.
_EQUALS: Final = re.compile(r"(?<![^\s,])(\w+)\s*=\s*")


@dataclass(frozen=True, slots=True)
class PumpCredential:
    url: str = ""
    user: str | None = None
    password: str | None = None
    ssh_keyfile: str | None = None
    tls: bool = False  #: FTP upgrades to TLS
    implicit: bool = False  #: FTP starts with TLS
    bearer_token: str | None = None
    s3_endpoint: str | None = None
    s3_session_token: str | None = None


class PumpCredentials:
    def __init__(self, known: Sequence[PumpCredential] = ()) -> None:
        self._known = tuple(known)
        self.version = 0  #: counts the changes

    def find(self, url: str) -> PumpCredential:
        """The line of a URL; the URL's own user and password where there is none."""
        own = PumpCredential(url, *_user_password(urlsplit(url)))
        return own if own.password is not None else self.line(url) or own

    def line(self, url: str) -> PumpCredential | None:
        user, _ = _user_password(urlsplit(url))
        for each in self._known:
            if _server(each.url) == _server(url) and user in (None, each.user):
                return each
        return None

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self._known]

    def add(self, credential: PumpCredential) -> None:
        """Comes before the other lines, and replaces one of the same server and user."""
        others = (
            each
            for each in self._known
            if (_server(each.url), each.user) != (_server(credential.url), credential.user)
        )
        self._known = (credential, *others)
        self.version += 1

    def complete(self, url: str) -> str:
        """The URL with its password."""
        found, parts = self.find(url), urlsplit(url)
        if found.user == ANONYMOUS and found.password is None:
            found = replace(found, password=ANONYMOUS)
        if found.password is None or parts.password is not None:
            return url
        user, password = quote(found.user or "", safe=""), quote(found.password, safe="")
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{user}:{password}@{host}").geturl()


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _user_password(parts: SplitResult) -> tuple[str | None, str | None]:
    user, password = parts.username, parts.password
    return None if user is None else unquote(user), None if password is None else unquote(password)


def without_secret(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.partition(':')[0]}@{host}").geturl()


def read_credentials(path: Path) -> PumpCredentials:
    """A missing file has no lines."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return PumpCredentials()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return parse_credentials(lines, str(path))


def parse_credentials(lines: Iterable[str], where: str) -> PumpCredentials:
    known = []
    for number, line in enumerate(lines, 1):
        url, *words = line.split(maxsplit=1) or [""]
        if url and not url.startswith("#"):
            known.append(_credential(url, "".join(words), f"{where}:{number}"))
    return PumpCredentials(known)


def _credential(url: str, words: str, where: str) -> PumpCredential:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for one that is none
    except ValueError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    if not parts.scheme or not parts.hostname:
        raise ConfigurationError(f"{where}: should begin with a URL, scheme://user:secret@host")
    # Options are separated by commas or spaces.
    pairs = [word for word in re.split(r"[\s,]+", _EQUALS.sub(r"\1=", words)) if word]
    options = dict(pair.partition("=")[::2] for pair in pairs)
    if unknown := options.keys() - _FLAGS - _VALUES:
        raise ConfigurationError(f"{where}: {', '.join(sorted(unknown))}: no such option")
    key = options.get("ssh_keyfile")
    flags = {word for word, value in options.items() if value.lower() not in _NO}
    return PumpCredential(
        url,
        *_user_password(parts),
        ssh_keyfile=None if key is None else os.path.expandvars(Path(key).expanduser()),
        tls=bool(flags & {"tls", "implicit_ftps"}),
        implicit="implicit_ftps" in flags,
        bearer_token=options.get("bearer_token", options.get("bt")),
        s3_endpoint=options.get("s3_endpoint"),
        s3_session_token=options.get("s3_session_token"),
    )
