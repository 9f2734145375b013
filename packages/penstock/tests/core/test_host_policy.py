"""Names a service answers to, and sites whose pages may use it."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from penstock.core.errors import AccessRefused
from penstock.core.host_policy import HostPolicy, HostPolicyMiddleware


def policy(hosts: tuple[str, ...] = (), origins: tuple[str, ...] = ()) -> HostPolicy:
    return HostPolicy(hosts, origins, setting="broker.allowed_hosts")


@pytest.mark.parametrize(
    "host",
    [
        *(None, "127.0.0.1:15672", "10.0.0.7", "[::1]:15672", "[fe80::1%25eth0]:80", "LOCALHOST:1"),
        *("localhost.", "app.localhost:8080", socket.gethostname(), "Broker.Example.org:15672"),
    ],
)
def test_addresses_localhost_the_machine_and_allowed_names_are_answered(host: str | None) -> None:
    policy(("broker.example.org",)).check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example", "rebound.example:15672", "127.0.0.1.rebound.example", "", "[", "a b"),
        *("localhost.rebound.example", "notlocalhost", "127.0.0.1@rebound.example", "::1"),
    ],
)
def test_any_other_name_is_refused(host: str) -> None:
    with pytest.raises(AccessRefused, match=r"broker\.allowed_hosts"):
        policy(("broker.example.org",)).check_host(host)


def test_every_name_and_every_site_can_be_allowed() -> None:
    policy(("*",)).check_host("rebound.example")
    policy(origins=("*",)).check_origin("https://elsewhere.example", "localhost")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "localhost"),
        ("http://localhost:15675", "localhost:15675"),
        ("https://[::1]:15676", "[::1]:15676"),
        ("https://app.example", "localhost:15675"),
        ("HTTPS://APP.example", "localhost:15675"),
    ],
)
def test_the_service_itself_and_allowed_sites_may_use_it(origin: str | None, host: str) -> None:
    policy(origins=("https://app.example/",)).check_origin(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://elsewhere.example", "localhost:15675"),
        ("http://localhost:3000", "localhost:15675"),
        ("http://app.example", "localhost:15675"),
        ("null", "null"),
        ("", ""),
        ("http://[", "localhost"),
        ("http://localhost", None),
    ],
)
def test_pages_of_other_sites_are_refused(origin: str, host: str | None) -> None:
    with pytest.raises(AccessRefused, match="may not use"):
        policy(origins=("https://app.example",)).check_origin(origin, host)


async def asked(kind: str, method: str, **headers: str) -> list[Any]:
    sent: list[Any] = []

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        sent.append("answered")

    async def send(message: Any) -> None:
        sent.append(message.get("status", message["type"]))

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": method, "headers": given}
    await HostPolicyMiddleware(answering, policy())(scope, receive, send)
    return sent


async def test_an_application_behind_a_policy_hears_of_no_other_request() -> None:
    elsewhere = "https://elsewhere.example"

    assert await asked("http", "GET", host="localhost") == ["answered"]
    assert await asked("http", "GET", host="rebound.example") == [403, "http.response.body"]
    assert await asked("http", "GET", host="localhost", origin=elsewhere) == ["answered"]
    assert (await asked("http", "POST", host="localhost", origin=elsewhere))[0] == 403
    assert await asked("websocket", "", host="localhost", origin=elsewhere) == ["websocket.close"]
    assert await asked("websocket", "", host="rebound.example") == ["websocket.close"]
    assert await asked("lifespan", "") == ["answered"]
