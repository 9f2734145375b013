"""The content space over HTTP: what is in it, and its console."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from penstock.broker.permissions import Permission
from penstock.server import Broker
from tests.server.management.conftest import As

CONSOLE = "/content/%2F/console"


async def say(api: httpx.AsyncClient, command: str) -> dict[str, Any]:
    answer = await api.post(CONSOLE, json={"command": command})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_command_is_answered(api: httpx.AsyncClient) -> None:
    advertised = await say(api, "adv [class,eq,stock],[price,>,0]")
    assert advertised["error"] == ""

    listed = await say(api, "printadvs nohead")
    id_ = advertised["output"]
    assert f"{id_}  Broker1-console  [class,eq,stock],[price,>,0]" in listed["output"].splitlines()


async def test_commands_are_run_up_to_the_first_that_fails(api: httpx.AsyncClient) -> None:
    answer = await say(api, "# nothing\nsub [class,eq,stock]\nsub [class,stock]\npub [class,stock]")

    assert answer["output"].startswith("Broker1-M")
    assert answer["error"] == "column 8: expected 'eq', found 'stock]'"
    assert (await say(api, "received"))["output"] == ""


async def test_what_the_console_subscribes_to_can_be_looked_at(api: httpx.AsyncClient) -> None:
    wanted = (await say(api, "csub {{[class,eq,a]}&{[class,eq,b]}}"))["output"]
    await say(api, "pub [class,a]\npub [class,b]\npub [class,c]")
    received = (await say(api, "received"))["output"].splitlines()
    assert [line.rpartition("  ")[2] for line in received] == ["[class,a]", "[class,b]"]

    assert (await say(api, f"unsub {wanted}")) == {"output": "", "error": ""}
    assert wanted in (await say(api, f"unsub {wanted}"))["error"]


async def test_what_there_is_is_told_in_figures(api: httpx.AsyncClient) -> None:
    before = (await api.get("/content/%2F")).json()
    await say(api, "sub [class,eq,stock]\nadv [class,eq,stock]\npub [class,stock]")
    after = (await api.get("/content/%2F")).json()

    assert after["broker"] == "Broker1"
    assert after["subscriptions"] == before["subscriptions"] + 1
    assert after["advertisements"] == before["advertisements"] + 1
    assert after["received"]["publish"] == before["received"]["publish"] + 1
    assert "Broker1-console" in after["clients"]


async def test_what_is_published_at_the_console_reaches_bindings(
    api: httpx.AsyncClient, served: Broker
) -> None:
    await say(api, "help")  # there is a content exchange from now on
    vhost = served.vhosts["/"]
    queue = vhost.declare_queue("cheap")
    vhost.bind("content", queue, "", {"x-subscription": "[class,eq,stock],[price,<,50]"})
    await say(api, "pub [class,stock],[price,45]\npub [class,stock],[price,55]")

    assert queue.message_count == 1


@pytest.mark.parametrize("body", [{}, {"command": 5}])
async def test_a_call_without_a_command_is_refused(api: httpx.AsyncClient, body: Any) -> None:
    assert (await api.post(CONSOLE, json=body)).status_code == 400


async def test_the_console_is_for_administrators(served: Broker, as_user: As) -> None:
    for name, tags in (("monitor", ("monitoring",)), ("manager", ("management",))):
        served.users.add(name, name, tags)
        served.users.set_permissions(name, "/", Permission(".*", ".*", ".*"))
    monitor, manager = as_user("monitor", "monitor"), as_user("manager", "manager")

    assert (await monitor.get("/content/%2F")).status_code == 200
    assert (await monitor.post(CONSOLE, json={"command": "info"})).status_code == 401
    assert (await manager.get("/content/%2F")).status_code == 401


async def test_a_virtual_host_that_is_not_there_has_no_console(api: httpx.AsyncClient) -> None:
    assert (await api.get("/content/none")).status_code == 404
