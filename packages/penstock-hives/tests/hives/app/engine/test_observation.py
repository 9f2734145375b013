"""What the server counts and logs of requests, and what it answers at once."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.errors import ConfigurationError
from penstock.core.settings_model import build_settings
from penstock_hives.server.access_log import AccessEntry, AccessLog
from penstock_hives.server.asgi import Receive, Scope, Send, send_response
from penstock_hives.server.asgi_server import AsgiServer
from penstock_hives.server.configuration import read_configuration
from penstock_hives.server.http_protocol import ImmediateResponse
from penstock_hives.server.master import listener_url
from penstock_hives.server.metrics import SITE_METRICS, RequestMetrics, SiteMetrics
from penstock_hives.server.settings import EngineSettings
from tests.hives.app.engine.test_engine import eventually, running, settings

PATIENCE = 60.0


class Application:
    """`/now` is in memory; `/wait` waits for `go`; other paths are answered by ASGI."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["location"] = "slow"
        if scope["path"] == "/fail":
            raise ValueError("a mistake of ours")
        if scope["path"] == "/wait":
            await self.go.wait()
        body = f"asgi {scope['path']}".encode()
        await send_response(send, 200, [(b"content-length", str(len(body)).encode())], body)

    def respond(
        self, target: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> ImmediateResponse | None:
        if not target.startswith(b"/now"):
            return None
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n"
        return ImmediateResponse("fast", 200, head, b"now")

    def figures(self) -> dict[str, Any]:
        return {"streams": 2, "figures": 7, "age": 1.5}


@asynccontextmanager
async def serving(app: Application, **given: Any) -> AsyncIterator[tuple[AsgiServer, str]]:
    usual = {"application": "given:here", "linger": 0.0, "drain": 5.0}
    server = AsgiServer(app, build_settings(EngineSettings, {**usual, **given}), asyncio.Event())
    listener = socket.create_server(("127.0.0.1", 0))
    await server.start(listener)
    try:
        yield server, listener_url(listener)
    finally:
        await server.drain()


def values(metrics: SiteMetrics) -> dict[tuple[str, ...], float]:
    text = generate_latest(metrics.registry).decode()
    return {
        (sample.name.removeprefix("penstock_hives_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_every_request_is_counted_by_location_method_and_status() -> None:
    async with serving(Application()) as (server, url), httpx.AsyncClient(base_url=url) as client:
        for path in ("/now", "/now?x=1", "/other", "/fail"):
            await client.get(path)
        await client.request("PROPFIND", "/other")
        report = json.loads(json.dumps(server.report()))
    metrics = SiteMetrics()
    metrics.update("one", report)
    metrics.update("two", report)
    found = values(metrics)

    assert found["http_requests_total", "fast", "GET", "200"] == 4
    assert found["http_requests_total", "slow", "GET", "200"] == 2
    assert found["http_requests_total", "slow", "GET", "500"] == 2
    assert found["http_requests_total", "slow", "other", "200"] == 2
    assert found["http_response_bytes_total", "fast"] == 4 * len("now")
    assert found["http_request_seconds_count", "fast"] == 4
    assert found["http_request_seconds_bucket", "+Inf", "fast"] == 4
    assert (found[("live_streams",)], found[("live_figures_total",)]) == (4, 14)
    assert found[("snapshot_age_seconds",)] == 1.5


def test_counters_do_not_fall_when_a_worker_ends() -> None:
    counted = RequestMetrics()
    counted.observe("api", "GET", 200, 10, 0.5)
    metrics = SiteMetrics()
    metrics.update("one", counted.report({"figures": 3, "streams": 4}))
    metrics.end("one")
    metrics.end("one")
    metrics.update("two", counted.report({"figures": 2, "streams": 1}))
    found = values(metrics)

    assert found["http_requests_total", "api", "GET", "200"] == 2
    assert found["http_request_seconds_sum", "api"] == 1.0
    assert found[("live_figures_total",)] == 5
    assert found[("live_streams",)] == 1


def test_the_exported_metrics_are_the_documented_ones() -> None:
    metrics = SiteMetrics()
    metrics.update("one", RequestMetrics().report({"age": 0.0}))
    exported = {family.name for family in metrics.collect()}
    documented = {name.removesuffix("_total") for name, _, _, _ in SITE_METRICS}
    assert exported == {f"penstock_hives_{name}" for name in documented}


async def test_the_master_adds_up_what_its_workers_count() -> None:
    async with running(lambda: settings(workers=2, silence=1.0)) as engine:
        url = await engine.url
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            for _ in range(3):
                await client.get("/")

        async def counted() -> bool:
            found = values(engine.master.metrics)
            return found.get(("http_requests_total", "none", "GET", "200")) == 3

        await eventually(counted)
        assert values(engine.master.metrics)[("workers_ready",)] == 2
        await engine.reloaded()
    found = values(engine.master.metrics)
    assert found["http_requests_total", "none", "GET", "200"] == 3
    assert found["reloads_total", "done"] == 1


async def exchange(url: str, *requests: bytes) -> bytes:
    """What comes back on one connection until it is closed."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for each in requests:
        writer.write(each)
        await writer.drain()
    async with asyncio.timeout(PATIENCE):
        found = await reader.read()
    writer.close()
    return found


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: x", *headers, "", "")).encode()


async def test_responses_are_in_the_order_of_pipelined_requests() -> None:
    app = Application()
    async with serving(app) as (_, url):
        batch = get("/now") + get("/wait") + get("/now") + get("/other", "Connection: close")
        asyncio.get_running_loop().call_later(0.05, app.go.set)
        answer = await exchange(url, batch)
    bodies = [part.split(b"\r\n\r\n")[1] for part in answer.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert bodies == [b"now", b"asgi /wait", b"asgi /now", b"asgi /other"]


@pytest.mark.parametrize(
    "request_",
    [
        get("/now", "Connection: close"),
        b"GET /now HTTP/1.0\r\nHost: x\r\n\r\n",
    ],
)
async def test_a_connection_that_is_to_be_closed_takes_the_usual_way(request_: bytes) -> None:
    async with serving(Application()) as (_, url):
        answer = await exchange(url, request_)
    assert answer.endswith(b"asgi /now")


async def test_an_idle_connection_ends_after_an_immediate_response() -> None:
    async with serving(Application(), keep_alive=1.0) as (server, url):
        answer = await exchange(url, get("/now"), get("/now"))
        assert server.connections == 0
    assert answer.count(b"\r\n\r\nnow") == 2
    assert answer.count(b"date: ") == 2


async def test_the_access_log_has_neither_queries_nor_codes(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    proxy = {"trusted_proxies": ["127.0.0.1"], "access_log": str(file)}
    forwarded = {
        b"X-Forwarded-For": b"203.0.113.9",
        b"Authorization": b"Bearer s3cret",
        b"Referer": b"https://hives.example/?code=s3cret#s3cret",
        b"User-Agent": b'evil" "\t\xfc',
    }
    async with (
        serving(Application(), **proxy) as (_, url),
        httpx.AsyncClient(base_url=url, headers=forwarded) as client,
    ):
        await client.get("/now?token=s3cret")
        await client.post("/v1/redemptions/S3CRET12/verify?code=s3cret", content=b"s3cret")
    lines = file.read_text().splitlines()
    assert "s3cret" not in file.read_text().lower()
    assert lines[0].startswith("203.0.113.9 - - [")
    assert lines[0].endswith(
        '"GET /now HTTP/1.1" 200 3 "https://hives.example/" "evil\\x22 \\x22\\x09\\xC3\\xBC"'
    )
    assert '"POST /v1/redemptions/***/verify HTTP/1.1" 200' in lines[1]


async def test_the_access_log_as_json(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    given = {"access_log": str(file), "access_log_format": "json"}
    async with serving(Application(), **given) as (_, url), httpx.AsyncClient() as client:
        await client.get(f"{url}/other?x=1", headers={"user-agent": "a"})
    [line] = map(json.loads, file.read_text().splitlines())
    assert line.pop("seconds") >= 0
    assert line.pop("time").endswith("Z")
    assert line == {
        "client": "127.0.0.1",
        "method": "GET",
        "path": "/other",
        "protocol": "HTTP/1.1",
        "status": 200,
        "bytes": len("asgi /other"),
        "referer": "",
        "user_agent": "a",
    }


async def test_a_rotated_access_log_is_opened_again(tmp_path: Path) -> None:
    file, entry = tmp_path / "access.log", AccessEntry("c", "GET", "/", "HTTP/1.1", 200, 0, 0, ())
    log = AccessLog(file)
    log.add(entry)
    log.flush()
    file.rename(tmp_path / "access.log.1")
    log.add(entry)
    log.flush()
    file.unlink()
    log.add(entry)
    log.close()
    assert [len(each.read_text().splitlines()) for each in sorted(tmp_path.iterdir())] == [1, 1]


def test_an_access_log_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    flags = {"engine": {"access_log": tmp_path / "none" / "access.log"}}
    with pytest.raises(ConfigurationError, match=r"cannot write the access log .*No such file"):
        read_configuration(None, flags)
