"""The console over HTTP: its files, and calls that the broker repeats."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from importlib.resources import files
from typing import Any

import httpx
import pytest

from penstock.server import Broker
from penstock.server.management.console import WatchedCall, _events
from penstock.server.management.http import HttpRequest, HttpResponse
from penstock.server.management.section_process import read_context
from tests.server.management.conftest import As
from tests.server.management.given import publish, queue, user

STATIC = files("penstock.server.management").joinpath("static")
SCRIPTS = sorted(one.name for one in STATIC.iterdir() if one.name.endswith(".js"))


async def events(api: httpx.AsyncClient, path: str, every: int = 1) -> AsyncGenerator[Any]:
    """The data of events; an error is a dict with its status."""
    async with api.stream("GET", "/watch", params={"path": path, "every": every}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def test_the_page_allows_no_inline_script_and_nothing_from_elsewhere(served: Broker) -> None:
    async with httpx.AsyncClient(base_url=served.addresses[1], timeout=60) as browser:
        page = await browser.get("/")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        found = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert found
        for path in found:
            answer = await browser.get(path)
            assert answer.status_code == 200
            again = await browser.get(path, headers={"if-none-match": answer.headers["etag"]})
            assert again.status_code == 304
        for path in ("/static/absent.js", "/static/..%2Fserver.py", "/static/%2Fetc%2Fpasswd"):
            assert (await browser.get(path)).status_code == 404


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_render_names_as_text_and_load_only_from_the_broker(name: str) -> None:
    text = STATIC.joinpath(name).read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    for module in re.findall(r'from "/static/([^"]+)"', text):
        assert STATIC.joinpath(module).is_file()


async def test_a_watched_call_is_sent_again_when_its_answer_changes(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    found = events(api, "/api/queues/%2F/orders?columns=messages")
    async with asyncio.timeout(30):
        assert await anext(found) == {"messages": 0}
        await publish(api, "orders")
        assert await anext(found) == {"messages": 1}
    await found.aclose()


async def test_a_watched_call_has_the_user_s_permissions(
    api: httpx.AsyncClient, as_user: As
) -> None:
    await user(api, "ada", "management")
    found = events(as_user("ada", "ada"), "/api/users")
    async with asyncio.timeout(30):
        assert (await anext(found))["status"] == 401
    await found.aclose()
    found = events(as_user("ada", "ada"), "/api/queues/%2F/absent")
    async with asyncio.timeout(30):
        assert (await anext(found))["status"] == 404
    await found.aclose()


async def test_a_deleted_user_sees_nothing_more(api: httpx.AsyncClient, as_user: As) -> None:
    await user(api, "ada", "management")
    found = events(as_user("ada", "ada"), "/api/whoami")
    async with asyncio.timeout(30):
        assert (await anext(found))["name"] == "ada"
        await api.delete("/users/ada")
        assert (await anext(found))["status"] == 401
        with pytest.raises(StopAsyncIteration):
            await anext(found)


async def test_calls_of_a_page_share_a_response_and_do_not_wait_for_each_other(
    api: httpx.AsyncClient, as_user: As
) -> None:
    await queue(api, "orders")
    await user(api, "ada", "management")
    paths = "/api/whoami\n/api/queues/%2F/orders?columns=messages\n/api/users"
    found: dict[str, Any] = {}
    parameters = {"path": paths, "every": "60,1,1"}
    async with (
        asyncio.timeout(60),
        as_user("ada", "ada").stream("GET", "/watch", params=parameters) as answer,
    ):
        number = ""
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                number = line.removeprefix("id: ")
            elif line.startswith("data: "):
                found[number] = json.loads(line.removeprefix("data: "))
                if number == "1" and found["1"] == {"messages": 0}:
                    await publish(api, "orders")
            if len(found) == 3 and found["1"] == {"messages": 1}:
                break
    assert found["0"]["name"] == "ada"
    assert found["2"]["status"] == 401  # this call alone is not repeated


@pytest.mark.parametrize("count", [1, 2])
async def test_a_call_that_fails_unexpectedly_ends_the_stream_with_its_error(count: int) -> None:
    async def answer(request: HttpRequest) -> HttpResponse:
        if request.path == "/api/fails":
            raise ZeroDivisionError("of a call")
        return HttpResponse(200, b"{}")

    async def read(maximum: int) -> bytes:
        return b""

    request = HttpRequest("GET", "", {}, {}, "127.0.0.1", read)
    paths = ("/api/fails", "/api/works")[:count]
    watched = [WatchedCall(replace(request, path=path), 60) for path in paths]
    found: list[bytes] = []

    async def receive() -> None:
        async for event in _events(answer, watched, asyncio.Event()):
            found.append(event)

    async with asyncio.timeout(30):
        with pytest.raises(ZeroDivisionError, match="of a call"):
            await receive()
    assert set(found) <= {b"id: 1\ndata: {}\n\n"}


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"path": "/"},
        {"path": "/api/watch"},
        {"path": "/api/overview", "every": "0"},
        {"path": "/api/overview\n/api/nodes\n/api/whoami", "every": "1,2"},
        {"path": "\n".join(["/api/overview"] * 21)},
    ],
)
async def test_what_cannot_be_watched_is_refused(
    api: httpx.AsyncClient, query: dict[str, str]
) -> None:
    assert (await api.get("/watch", params=query)).status_code == 400


async def test_a_watched_call_does_not_delay_the_broker_s_end(
    api: httpx.AsyncClient, served: Broker
) -> None:
    found = events(api, "/api/overview", every=60)
    await anext(found)
    async with asyncio.timeout(20):
        await served.close()
    await found.aclose()


async def test_a_page_of_ten_thousand_queues_describes_only_its_rows(
    api: httpx.AsyncClient, served: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    vhost = served.vhosts["/"]
    for number in range(10_000):
        vhost.declare_queue(
            f"q{number:05}", durable=False, owner=None, auto_delete=False, arguments={}
        )
    described = []
    kind = type(vhost.queues["q00000"])
    plain = kind.describe

    def counted(self: Any) -> Any:
        described.append(self)
        return plain(self)

    monkeypatch.setattr(kind, "describe", counted)

    query: dict[str, Any] = {"page": 200, "page_size": 50, "sort": "name", "sort_reverse": "true"}
    page = (await api.get("/queues", params=query)).json()
    assert [row["name"] for row in page["items"]] == [f"q{n:05}" for n in range(49, -1, -1)]
    assert (page["page_count"], page["total_count"], len(described)) == (200, 10_000, 50)

    query = {"page": 1, "page_size": 50, "name": "q0999", "sort": "name"}
    page = (await api.get("/queues", params=query)).json()
    assert (page["filtered_count"], page["total_count"]) == (10, 10_000)

    await publish(api, "q07777")
    query = {"page": 1, "page_size": 50, "sort": "messages", "sort_reverse": "true"}
    page = (await api.get("/queues", params=query)).json()
    assert page["items"][0]["name"] == "q07777"


async def test_a_page_of_many_virtual_hosts_has_their_limits(
    api: httpx.AsyncClient, served: Broker
) -> None:
    for number in range(200):
        served.add_vhost(f"team-{number:04}")
    served.vhosts["team-0007"].policies.set_limit("max-queues", 5)
    query: dict[str, Any] = {"page": 1, "page_size": 10, "sort": "name", "name": "team-000"}
    page = (await api.get("/vhosts", params=query)).json()
    assert (page["total_count"], page["filtered_count"]) == (201, 10)
    assert [row["limits"] for row in page["items"] if row["limits"]] == [{"max-queues": 5}]


@pytest.mark.parametrize(
    ("environment", "broker", "database"),
    [
        ({}, "amqp://127.0.0.1:5672", None),
        (
            {"PENSTOCK_URL": "amqps://ops:secret@here", "PENSTOCK_DATABASE": "postgresql:///jobs"},
            "amqps://ops:secret@here",
            "postgresql:///jobs",
        ),
        ({"PENSTOCK_URL": "mqtt://sensors"}, "amqp://127.0.0.1:5672", None),
    ],
)
def test_sections_get_urls_with_passwords_from_the_environment(
    environment: dict[str, str], broker: str, database: str | None
) -> None:
    fields = {"data": "/data", "broker": "amqp://127.0.0.1:5672", "management": "http://here"}
    context = read_context(fields, environment)
    assert (context.broker, context.database) == (broker, database)
    assert (str(context.data), context.management) == ("/data", "http://here")
