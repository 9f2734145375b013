"""The site behind nginx, with the configuration that we ship."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from penstock_hives.server.application import application
from tests.databases import copy_of
from tests.fixtures import needed
from tests.hives.app.serving import PATIENCE, served
from tests.hives.app.sites import furnish, until
from tests.paths import ROOT
from tests.peers import Process, find_program, free_port
from tests.store.test_http_server import create_certificate
from tests.web.browsing import serving

pytestmark = pytest.mark.peer

EXAMPLE = ROOT / "packaging" / "nginx.conf"
#: Requests of an anonymous address before it is refused, for hours.
ALLOWED = 3
DASHBOARDS = "dashboards.example.org"
_AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/hives.conf;
}}
"""


@dataclass(frozen=True)
class Proxied:
    plain: str
    secure: str
    trust: ssl.SSLContext
    access_log: Path

    @asynccontextmanager
    async def visitor(self, address: str, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        """Somebody at another address."""
        transport = httpx.AsyncHTTPTransport(verify=self.trust, local_address=address)
        host = {"Host": "www.example.org", **headers}
        async with httpx.AsyncClient(
            base_url=self.secure, transport=transport, headers=host, timeout=PATIENCE
        ) as client:
            yield client


@asynccontextmanager
async def in_thread(context: AbstractContextManager[str]) -> AsyncIterator[str]:
    """Its start and end do not hold up the loop that serves the site."""
    entered = await asyncio.to_thread(context.__enter__)
    try:
        yield entered
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


@pytest.fixture(scope="module")
def furnished(embedded_template: str) -> Iterator[str]:
    with copy_of(embedded_template) as url:
        furnish(url)
        yield url


@asynccontextmanager
async def behind_nginx(folder: Path, database: str) -> AsyncIterator[Proxied]:
    program = needed(find_program, "nginx", "nginx-light")
    access_log = folder / "access.log"
    options: dict[str, Any] = {
        "application": {
            "database": database,
            "images": str(folder / "images"),
            "rate_anonymous": ALLOWED / 1e6,
            "rate_burst": 1e6,
        },
        "identity": {"folder": str(folder / "identity")},
        "pictures": str(folder / "pictures"),
        "hosts": ["www.example.org"],
    }
    draining = asyncio.Event()
    engine = {"trusted_proxies": ["127.0.0.1"], "access_log": str(access_log)}
    pages = ("-m", "penstock", "dashboards", "--gate", "hives", "--only", "hives", "--port", "0")
    reach = ("--url", "amqp://127.0.0.1:1", "--database", database, "--data", str(folder / "home"))
    name = ("--allow-host", DASHBOARDS, "--stop-with-stdin")
    async with (
        application(options, draining) as app,
        served(app, draining, **engine) as site,
        in_thread(serving(*pages, *reach, *name)) as dashboards,
    ):
        certificate, key = create_certificate(folder)
        plain, secure = free_port(), free_port()
        _configure(folder, site, dashboards, plain, secure, certificate, key)
        nginx = Process(
            [program, "-p", str(folder), "-c", str(folder / "nginx.conf")],
            folder / "nginx.log",
            dict(os.environ),
        )
        try:
            await asyncio.to_thread(nginx.wait_for_port, secure)
            trust = ssl.create_default_context(cafile=certificate)
            urls = f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{secure}"
            proxied = Proxied(*urls, trust, access_log)
            async with proxied.visitor("127.0.0.9") as client:
                await until(client, "/health", lambda answer: answer.status_code == 200)
            yield proxied
        finally:
            await asyncio.to_thread(nginx.end, signal.SIGTERM)


def _configure(
    folder: Path,
    site: str,
    dashboards: str,
    plain: int,
    secure: int,
    certificate: Path,
    key: Path,
) -> None:
    """The example with ports and files of this test, and nothing else changed."""
    text = EXAMPLE.read_text()
    for given, ours in (
        ("127.0.0.1:8000", site.removeprefix("http://")),
        ("127.0.0.1:8080", dashboards.removeprefix("http://")),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{secure} ssl;"),
        ("/etc/ssl/example.org.pem", str(certificate)),
        ("/etc/ssl/example.org.key", str(key)),
    ):
        assert given in text
        text = text.replace(given, ours)
    (folder / "hives.conf").write_text(text)
    (folder / "nginx.conf").write_text(_AROUND.format(folder=folder))


async def test_the_shipped_nginx_configuration_serves_the_site(
    tmp_path: Path, furnished: str
) -> None:
    async with behind_nginx(tmp_path, furnished) as proxied:
        await _redirects_to_https(proxied)
        await _limits_each_client_address(proxied)
        await _streams_at_once(proxied)
        await _passes_websockets(proxied)
        await _serves_what_web_push_needs(proxied)
        await _serves_the_dashboards(proxied)
    log = proxied.access_log.read_text()
    assert "127.0.0.2 - - [" in log
    assert "127.0.0.1 - -" not in log


async def _redirects_to_https(proxied: Proxied) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.get(f"{proxied.plain}/x", headers={"Host": "www.example.org"})
    assert (answer.status_code, answer.headers["location"]) == (301, "https://www.example.org/x")


async def _limits_each_client_address(proxied: Proxied) -> None:
    async def statuses(address: str, **headers: str) -> list[int]:
        async with proxied.visitor(address, **headers) as client:
            return [(await client.get("/v1/roles")).status_code for _ in range(ALLOWED + 1)]

    limited = [200] * ALLOWED + [429]
    assert await statuses("127.0.0.2") == limited
    assert await statuses("127.0.0.3") == limited
    forged = {"X-Forwarded-For": "198.51.100.7"}
    assert await statuses("127.0.0.2", **forged) == [429] * (ALLOWED + 1)


async def _streams_at_once(proxied: Proxied) -> None:
    async with (
        proxied.visitor("127.0.0.4", Accept="text/event-stream") as client,
        client.stream("GET", "/v1/live") as stream,
    ):
        lines = stream.aiter_lines()
        async with asyncio.timeout(PATIENCE):
            while not (await anext(lines)).startswith("data: "):  # the stream goes on
                pass
    assert stream.status_code == 200


async def _passes_websockets(proxied: Proxied) -> None:
    url = proxied.secure.replace("https", "wss") + "/v1/live"
    async with asyncio.timeout(PATIENCE), connect(url, ssl=proxied.trust) as socket:
        await socket.send(json.dumps({"subscribe": [1]}))
        assert [each["hive_id"] for each in json.loads(await socket.recv())["figures"]] == [1]


async def _serves_what_web_push_needs(proxied: Proxied) -> None:
    async with proxied.visitor("127.0.0.5") as client:
        key = await client.get("/v1/push/key")
        worker = await client.get("/service-worker.js")
        device = await client.post("/v1/push/devices", json={"kind": "webpush"})
    assert key.status_code == 200
    assert worker.headers["content-type"].startswith("text/javascript")
    assert device.status_code == 401  # it arrived, and asks who it is from


async def _serves_the_dashboards(proxied: Proxied) -> None:
    async with proxied.visitor("127.0.0.6", Host=DASHBOARDS) as client:
        page = await client.get("/hives")
        assert (page.status_code, page.headers["location"].split("?")[0]) == (303, "/sign-in")
        assert (await client.get("/sign-in")).status_code == 200
    cookie = page.headers["set-cookie"].lower()
    assert "secure" in cookie
    assert "httponly" in cookie
    port = int(proxied.secure.rpartition(":")[2])
    there: Any = {"host": "127.0.0.1", "port": port, "server_hostname": "127.0.0.1"}
    url = f"wss://{DASHBOARDS}:{port}/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    held = {"Cookie": page.headers["set-cookie"].partition(";")[0]}
    async with (
        asyncio.timeout(PATIENCE),
        connect(url, ssl=proxied.trust, additional_headers=held, **there) as socket,
    ):
        assert str(await socket.recv()).startswith("0{")
