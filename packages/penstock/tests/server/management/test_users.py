from __future__ import annotations

import httpx
import pytest

from tests.server.management.conftest import As
from tests.server.management.given import user

ALL = {"configure": ".*", "write": ".*", "read": ".*"}


async def test_a_user_is_made_changed_and_deleted(api: httpx.AsyncClient, as_user: As) -> None:
    body = {"password": "one", "tags": "management"}
    assert (await api.put("/users/ada", json=body)).status_code == 201
    assert (await as_user("ada", "one").get("/whoami")).json() == {
        "name": "ada",
        "tags": ["management"],
    }

    changed = {"password": "two", "tags": ["monitoring"]}
    assert (await api.put("/users/ada", json=changed)).status_code == 204
    assert (await as_user("ada", "one").get("/whoami")).status_code == 401
    assert (await as_user("ada", "two").get("/whoami")).status_code == 200

    assert (await api.delete("/users/ada")).status_code == 204
    assert (await api.delete("/users/ada")).status_code == 404


async def test_a_hash_from_rabbitmq_serves_as_a_password(
    api: httpx.AsyncClient, as_user: As
) -> None:
    # Salt and SHA-256 of it and "test12", from RabbitMQ's own documentation.
    body = {
        "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
        "tags": "management",
    }

    await api.put("/users/ada", json=body)

    assert (await as_user("ada", "test12").get("/whoami")).status_code == 200


async def test_a_user_may_be_tied_to_client_ids(api: httpx.AsyncClient) -> None:
    body = {"password": "x", "tags": ""}
    await api.put("/users/seven", json={**body, "client_ids": "sensor-7"})
    assert (await api.get("/users/seven")).json()["client_ids"] == "sensor-7"

    await api.put("/users/seven", json=body)
    assert (await api.get("/users/seven")).json()["client_ids"] == "sensor-7"

    await api.put("/users/seven", json={**body, "client_ids": ""})
    assert "client_ids" not in (await api.get("/users/seven")).json()


async def test_client_ids_go_with_the_definitions(api: httpx.AsyncClient) -> None:
    await api.put("/users/seven", json={"password": "x", "tags": "", "client_ids": "sensor-7"})
    exported = (await api.get("/definitions")).json()
    await api.delete("/users/seven")

    assert (await api.post("/definitions", json=exported)).status_code == 204

    assert (await api.get("/users/seven")).json()["client_ids"] == "sensor-7"


@pytest.mark.parametrize(
    "body",
    [
        {"password": "x"},
        {"password": 1, "tags": ""},
        {"password_hash": "zzz", "tags": ""},
        {"password_hash": "", "hashing_algorithm": "md5", "tags": ""},
        {"password": "x", "tags": "", "client_ids": "("},
        {"password": "x", "tags": "", "client_ids": 7},
    ],
)
async def test_what_makes_no_user_is_refused(
    api: httpx.AsyncClient, body: dict[str, object]
) -> None:
    assert (await api.put("/users/ada", json=body)).status_code == 400
    assert (await api.get("/users/ada")).status_code == 404


async def test_no_answer_holds_a_password(api: httpx.AsyncClient) -> None:
    await user(api, "ada")

    [row] = [row for row in (await api.get("/users")).json() if row["name"] == "ada"]

    assert row["password_hash"].startswith("$argon2id$")
    assert row["tags"] == []
    assert "password" not in row


async def test_permissions_are_given_and_taken(api: httpx.AsyncClient) -> None:
    await user(api, "ada", vhost=None)
    where = "/permissions/%2F/ada"

    assert (await api.get(where)).status_code == 404
    assert (await api.put(where, json=ALL)).status_code == 201
    assert (await api.put(where, json={**ALL, "read": "^a"})).status_code == 204
    assert (await api.get(where)).json() == {"user": "ada", "vhost": "/", **ALL, "read": "^a"}
    assert (await api.get("/users/ada/permissions")).json() == [(await api.get(where)).json()]
    assert len((await api.get("/vhosts/%2F/permissions")).json()) == 3
    assert (await api.delete(where)).status_code == 204
    assert (await api.delete(where)).status_code == 404


@pytest.mark.parametrize(
    ("where", "body", "reason"),
    [
        ("%2F/ada", {"configure": ".*", "write": ".*"}, "key_missing: read"),
        ("%2F/ada", {**ALL, "read": "("}, "not a regular expression"),
        ("%2F/ada", {**ALL, "read": 1}, "a regular expression is expected"),
        ("%2F/nobody", ALL, "vhost_or_user_not_found"),
        ("nowhere/ada", ALL, "vhost_or_user_not_found"),
    ],
)
async def test_permissions_that_make_no_sense_are_refused(
    api: httpx.AsyncClient, where: str, body: dict[str, object], reason: str
) -> None:
    await user(api, "ada", vhost=None)

    answer = await api.put(f"/permissions/{where}", json=body)

    assert answer.status_code == 400
    assert reason in answer.json()["reason"]


async def test_topic_permissions_are_given_and_taken(api: httpx.AsyncClient) -> None:
    await user(api, "ada")
    where, body = "/topic-permissions/%2F/ada", {"exchange": "amq.topic", "write": "^a", "read": ""}

    assert (await api.put(where, json=body)).status_code == 201
    assert (await api.put(where, json=body)).status_code == 204
    assert (await api.get(where)).json() == [{"user": "ada", "vhost": "/", **body}]
    assert (await api.get("/topic-permissions")).json() == (await api.get(where)).json()
    assert (await api.delete(f"{where}/amq.fanout")).status_code == 404
    assert (await api.delete(f"{where}/amq.topic")).status_code == 204
    assert (await api.get(where)).status_code == 404


async def test_a_virtual_host_belongs_to_whoever_made_it(api: httpx.AsyncClient) -> None:
    made = await api.put("/vhosts/lab", json={"description": "trials", "tags": "a,b"})
    shown = (await api.get("/vhosts/lab")).json()

    assert made.status_code == 201
    assert (shown["description"], shown["tags"]) == ("trials", ["a", "b"])
    assert (await api.get("/vhosts/lab/permissions")).json() == [
        {"user": "guest", "vhost": "lab", **ALL}
    ]


async def test_a_virtual_host_goes_with_all_that_is_in_it(api: httpx.AsyncClient) -> None:
    await api.put("/vhosts/lab")
    await api.put("/queues/lab/inbox", json={"durable": True})

    assert (await api.delete("/vhosts/lab")).status_code == 204

    assert (await api.get("/vhosts/lab")).status_code == 404
    assert [row["vhost"] for row in (await api.get("/users/guest/permissions")).json()] == ["/"]
