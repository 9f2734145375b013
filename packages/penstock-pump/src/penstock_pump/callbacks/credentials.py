"""The credentials of a component as plugins of sr3 read and change them: `get` and `add`.

What a plugin adds, as the bearer token that it fetched, the component's transports use, too.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import ParseResult, unquote, urlparse

from penstock_pump.credentials import PumpCredential, PumpCredentials, parse_credentials


class CredentialUrl(ParseResult):
    """User and password are unquoted, as in sr3."""

    @property
    def username(self) -> str | None:
        return None if super().username is None else unquote(super().username or "")

    @property
    def password(self) -> str | None:
        return None if super().password is None else unquote(super().password or "")


class CallbackCredential:
    """A line with the attributes of sr3's."""

    def __init__(self, known: PumpCredential) -> None:
        self.url = CredentialUrl(*urlparse(known.url))
        self.ssh_keyfile = known.ssh_keyfile
        self.passive = self.binary = True
        self.tls = self.prot_p = known.tls
        self.implicit_ftps = known.implicit
        self.bearer_token = known.bearer_token
        self.s3_endpoint = known.s3_endpoint
        self.s3_session_token = known.s3_session_token
        self.s3_anonymous = self.sftp_compat_mode = False
        self.azure_credentials = self.login_method = None


class CallbackCredentials:
    def __init__(self, known: PumpCredentials) -> None:
        self._known = known
        self._added: dict[str, Any] = {}

    def get(self, url: str) -> tuple[bool, Any]:
        """Whether there is a line, and the line, or one with what the URL has itself."""
        if url in self._added:
            return True, self._added[url]
        line = self._known.line(url)
        return line is not None, CallbackCredential(line or self._known.find(url))

    def has(self, url: str) -> bool:
        return url in self._added or self._known.line(url) is not None

    def add(self, url: str, details: Any = None) -> None:
        """`details` is a credential of sr3's, or of ours."""
        details = details or CallbackCredential(self._known.find(url))
        self._added[url] = details
        self._known.add(
            PumpCredential(
                url,
                details.url.username,
                details.url.password,
                details.ssh_keyfile,
                bool(details.tls or details.implicit_ftps),
                bool(details.implicit_ftps),
                details.bearer_token,
                details.s3_endpoint,
                details.s3_session_token,
            )
        )

    def _parse(self, line: str) -> None:
        """sr3's plugins call it, to add a line of the file."""
        for url in parse_credentials([line], "plugin").urls:
            self.add(url)
