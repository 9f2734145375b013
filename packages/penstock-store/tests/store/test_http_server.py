"""Applications that a command serves."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI

from penstock.core.errors import ConfigurationError
from penstock_store.http.server import open_tls, serve_app
from penstock_store.http.timeouts import MAX_HEADER_BYTES


async def test_the_head_of_a_request_is_limited() -> None:
    async with serve_app(FastAPI(), "127.0.0.1", 0) as url:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        reading = asyncio.create_task(reader.read())
        writer.write(b"GET / HTTP/1.1\r\nX-Long: ")
        with suppress(ConnectionError):
            for _ in range(16):
                writer.write(MAX_HEADER_BYTES * b"x")
                await writer.drain()
        with suppress(ConnectionError):
            assert b" 200 " not in await reading
        writer.close()


def create_certificate(folder: Path) -> tuple[Path, Path]:
    """Of 127.0.0.1, signed by itself."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return certificate, key


async def test_with_a_certificate_it_serves_https(tmp_path: Path) -> None:
    certificate, key = create_certificate(tmp_path)
    app = FastAPI()
    app.get("/")(lambda: "here")
    async with serve_app(app, "127.0.0.1", 0, certificate, key) as url:
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=certificate)
        async with httpx.AsyncClient(verify=trusted) as client:
            assert (await client.get(url)).json() == "here"
        async with httpx.AsyncClient() as stranger:
            with pytest.raises(httpx.ConnectError):
                await stranger.get(url)


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing"):
        open_tls(tmp_path / "nothing", None)
    certificate, _ = create_certificate(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot use the certificate"):
        open_tls(certificate, certificate)
    with pytest.raises(ConfigurationError, match="needs a certificate"):
        open_tls(None, certificate)
    assert open_tls(None, None) is None
