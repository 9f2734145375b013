"""What is offered to other machines without protection is found, and said at start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.broker.user import User
from penstock.broker.users import default_user
from penstock.core.config import BrokerSettings
from penstock.core.passwords import PasswordVerifier
from penstock.server import Broker
from penstock.server.exposure import find_exposures

GUEST = default_user()
CHANGED = User("guest", PasswordVerifier().hash("correct horse"))
SAFE = User("guest")


async def problems(guest: User | None = None, **settings: Any) -> list[str]:
    found = await find_exposures(BrokerSettings(**settings), guest)
    assert all(each.advice for each in found)
    return [each.problem for each in found]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.8.8.8"])
async def test_loopback_exposes_nothing(host: str) -> None:
    listen = [f"amqp://{host}:0", f"http://{host}:0"]
    assert await problems(GUEST, listen=listen, anonymous=True, allowed_origins=["*"]) == []


async def test_each_listener_without_tls_has_a_line() -> None:
    listen = ["amqp://0.0.0.0:0", "mqtt://[::]:0", "http://broker.example:0", "ws://127.0.0.1:0"]
    assert await problems(listen=listen) == [
        f"{address} accepts connections from other machines without TLS" for address in listen[:3]
    ]


async def test_the_default_password_is_found_and_another_is_not() -> None:
    listen = ["amqp://0.0.0.0:0"]
    assert any("default password" in line for line in await problems(GUEST, listen=listen))
    for guest in (CHANGED, SAFE, None):
        assert len(await problems(guest, listen=listen)) == 1


async def test_access_without_a_name_and_from_any_site() -> None:
    found = await problems(
        listen=["amqp://0.0.0.0:0"], anonymous=True, allowed_hosts=["*"], allowed_origins=["*"]
    )
    assert "omit the user name" in found[1]
    assert found[2].startswith("broker.allowed_hosts is *")
    assert found[3].startswith("broker.allowed_origins is *")


async def test_a_broker_says_so_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(BrokerSettings(listen=["amqp://0.0.0.0:0"]), data=tmp_path):
        pass
    lines = [line.message for line in caplog.records if "insecure setting" in line.message]
    assert len(lines) == 2
    assert "without TLS" in lines[0]
    assert "penstock user password guest" in lines[1]
