"""Proxies: connections through an HTTP proxy (CONNECT) or a SOCKS5 proxy.

The setting `proxy` names one for all connections; otherwise the environment does, as for other
programs: `https_proxy`, `http_proxy`, `all_proxy`, and `no_proxy` with the hosts that need none.
A proxy resolves host names itself, so the addresses of hosts behind it are not checked.
"""

from __future__ import annotations

import asyncio
import os
import socket
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.core.errors import ConfigurationError
from penstock_pump.errors import SourceUnavailable

_PORTS: Final = {"http": 8080, "socks5": 1080, "socks5h": 1080, "socks": 1080}
_MAX_REPLY_BYTES: Final = 16_384
_NO_PASSWORD, _PASSWORD = 0, 2


@dataclass(frozen=True, slots=True)
class ProxyRule:
    """Which proxy a connection takes."""

    setting: str | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def url(self) -> str | None:
        """The proxy of the setting; `none` turns off that of the environment."""
        if self.setting is None or self.setting.lower() in ("none", "off"):
            return None
        return self.setting

    def proxy_for(self, scheme: str, host: str) -> str | None:
        if self.setting is not None:
            return self.url
        given = {name.lower(): value for name, value in self.environment.items() if value}
        if _is_excluded(host, given.get("no_proxy", "")):
            return None
        return given.get(f"{scheme}_proxy") or given.get("all_proxy")


def _is_excluded(host: str, no_proxy: str) -> bool:
    for each in (word.strip().lower() for word in no_proxy.split(",")):
        suffix = each.lstrip("*").lstrip(".")
        if each == "*" or (suffix and (host == suffix or host.endswith("." + suffix))):
            return True
    return False


async def open_through_proxy(proxy: str, host: str, port: int, timeout: float) -> socket.socket:
    """A connected socket to the host; the caller adds TLS."""
    parts = urlsplit(proxy)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigurationError(
            f"proxy {proxy!r} should be http://HOST:PORT or socks5://HOST:PORT"
        )
    loop = asyncio.get_running_loop()
    address = (parts.hostname, parts.port or _PORTS[parts.scheme])
    user = unquote(parts.username or ""), unquote(parts.password or "")
    try:
        async with asyncio.timeout(timeout):
            infos = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
            family, kind, protocol, _, found = infos[0]
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, found)
                if parts.scheme == "http":
                    await _connect_http(sock, host, port, *user)
                else:
                    await _connect_socks(sock, host, port, *user)
            except BaseException:
                sock.close()
                raise
    except (OSError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise SourceUnavailable(f"proxy {parts.hostname}: {host}:{port}: {reason}") from error
    return sock


async def _connect_http(sock: socket.socket, host: str, port: int, user: str, secret: str) -> None:
    name = f"[{host}]" if ":" in host else host
    lines = [f"CONNECT {name}:{port} HTTP/1.1", f"Host: {name}:{port}"]
    if user:
        words = b64encode(f"{user}:{secret}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {words}")
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, "\r\n".join((*lines, "", "")).encode())
    reply = b""
    while b"\r\n\r\n" not in reply:  # byte by byte: what follows belongs to the host
        reply += await _receive(sock, 1)
        if len(reply) > _MAX_REPLY_BYTES:
            raise OSError("the proxy's answer has no end")
    status = reply.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    if len(status) < 2 or not status[1].startswith("2"):
        raise OSError(f"the proxy answers {' '.join(status[1:])}")


async def _connect_socks(sock: socket.socket, host: str, port: int, user: str, secret: str) -> None:
    loop = asyncio.get_running_loop()
    methods = bytes([_NO_PASSWORD, _PASSWORD] if user else [_NO_PASSWORD])
    await loop.sock_sendall(sock, b"\x05" + bytes([len(methods)]) + methods)
    version, method = await _receive(sock, 2)
    if version != 5:
        raise OSError("the proxy does not speak SOCKS5")
    if method == _PASSWORD and user:
        name, word = user.encode(), secret.encode()
        request = b"\x01" + bytes([len(name)]) + name + bytes([len(word)]) + word
        await loop.sock_sendall(sock, request)
        if (await _receive(sock, 2))[1] != 0:
            raise OSError("the proxy refuses user and password")
    elif method != _NO_PASSWORD:
        raise OSError("the proxy wants user and password")
    await loop.sock_sendall(sock, b"\x05\x01\x00" + _socks_address(host) + port.to_bytes(2, "big"))
    _, code, _, kind = await _receive(sock, 4)
    if code != 0:
        raise OSError(f"the proxy answers code {code}")
    length = {1: 4, 4: 16}.get(kind) or (await _receive(sock, 1))[0]
    await _receive(sock, length + 2)


def _socks_address(host: str) -> bytes:
    try:
        address = ip_address(host)
    except ValueError:
        name = host.encode("idna")
        return b"\x03" + bytes([len(name)]) + name
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


async def _receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = await asyncio.get_running_loop().sock_recv(sock, count - len(data))
        if not piece:
            raise OSError("the proxy closes the connection")
        data += piece
    return data
