"""Side by side with RabbitMQ's own management plugin: the same calls, the same fields.

Penstock has at least the fields that scripts use, under the same names and of the same kinds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest

from tests.fixtures import needed, running
from tests.peers import Penstock, RabbitMQ, free_port

pytestmark = pytest.mark.peer

#: What a script may rely on, by the path it asks. A list is looked at by its first row.
FIELDS = {
    "/overview": {
        "management_version", "rabbitmq_version", "product_name", "product_version",
        "cluster_name", "node", "rates_mode", "exchange_types", "message_stats", "churn_rates",
        "queue_totals", "object_totals", "listeners", "contexts",
    },
    "/nodes": {
        "name", "running", "uptime", "os_pid", "processors", "mem_used", "mem_limit", "mem_alarm",
        "disk_free", "disk_free_limit", "disk_free_alarm", "fd_used", "fd_total", "sockets_used",
        "partitions", "run_queue", "rates_mode", "exchange_types", "auth_mechanisms",
        "applications", "type", "db_dir", "log_files", "config_files", "enabled_plugins",
    },
    "/vhosts": {
        "name", "description", "tags", "metadata", "tracing", "cluster_state",
        "default_queue_type",
    },
    "/queues": {
        "name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments", "node",
        "state", "messages", "messages_ready", "messages_unacknowledged", "message_bytes",
        "message_bytes_ready", "consumers", "memory", "policy", "operator_policy",
        "effective_policy_definition", "exclusive_consumer_tag", "single_active_consumer_tag",
        "head_message_timestamp", "consumer_utilisation",
    },
    "/queues/%2F/orders": {"consumer_details", "deliveries", "incoming", "name", "arguments"},
    "/exchanges/%2F/events": {
        "name", "vhost", "type", "durable", "auto_delete", "internal", "arguments", "incoming",
        "outgoing", "user_who_performed_action",
    },
    "/exchanges/%2F/events/bindings/source": {
        "source", "vhost", "destination", "destination_type", "routing_key", "arguments",
        "properties_key",
    },
    "/bindings/%2F": {
        "source", "vhost", "destination", "destination_type", "routing_key", "arguments",
        "properties_key",
    },
    "/connections": {
        "name", "user", "vhost", "host", "port", "peer_host", "peer_port", "protocol", "state",
        "channels", "channel_max", "frame_max", "timeout", "ssl", "client_properties", "node",
        "type", "user_who_performed_action",
    },
    "/channels": {
        "name", "number", "user", "vhost", "node", "connection_details", "consumer_count",
        "messages_unacknowledged", "messages_unconfirmed", "prefetch_count",
        "global_prefetch_count", "confirm", "transactional", "state",
    },
    "/consumers": {
        "consumer_tag", "queue", "channel_details", "ack_required", "prefetch_count", "exclusive",
        "active", "activity_status", "arguments",
    },
    "/users": {"name", "password_hash", "hashing_algorithm", "tags", "limits"},
    "/permissions": {"user", "vhost", "configure", "write", "read"},
    "/whoami": {"name", "tags"},
    "/definitions": {
        "rabbit_version", "rabbitmq_version", "product_name", "product_version", "users",
        "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters",
        "policies", "queues", "exchanges", "bindings",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def managed_rabbitmq(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RabbitMQ, httpx.Client]]:
    """A RabbitMQ with its management plugin, and a client of that."""
    folder, port = tmp_path_factory.mktemp("managed"), free_port()
    advanced = folder / "advanced.config"
    advanced.write_text(
        "[{rabbit, [{collect_statistics_interval, 500}]},"
        f' {{rabbitmq_management, [{{listener, [{{port, {port}}}, {{ip, "127.0.0.1"}}]}}]}}].\n'
    )
    (folder / "environment").write_text(f"RABBITMQ_ADVANCED_CONFIG_FILE={advanced}\n")
    url = f"http://127.0.0.1:{port}/api"
    with (
        running(needed(RabbitMQ, folder, plugins=("rabbitmq_management",))) as server,
        httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60) as client,
    ):
        _until(lambda: _answers(client), "the management plugin answers")
        yield server, client


@pytest.fixture(scope="module")
def managed_penstock(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Penstock, httpx.Client]]:
    """A Penstock without what other files' tests declare: RabbitMQ would not take all of it."""
    with running(Penstock(tmp_path_factory.mktemp("managed"))) as server:
        url = f"{server.http_url}/api"
        with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60) as client:
            yield server, client


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/overview").is_success
    except httpx.TransportError:
        return False


def _until(condition: Any, what: str) -> None:
    """RabbitMQ's statistics come when they come: ask until they do."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)


def _busy(url: str) -> pika.BlockingConnection:
    """A connection with a consumer that holds a message, an exchange and bindings."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("orders", durable=True, arguments={"x-max-length": 100})
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_bind("orders", "events", "a.#")
    channel.basic_consume("orders", lambda *_: None)
    channel.basic_publish("events", "a.b", b"hello")
    connection.process_data_events(0.1)
    return connection


def _first(client: httpx.Client, path: str) -> Any:
    value = client.get(path).json()
    return value[0] if isinstance(value, list) and value else value


def test_the_fields_are_there_under_the_same_names(
    managed_rabbitmq: tuple[RabbitMQ, httpx.Client],
    managed_penstock: tuple[Penstock, httpx.Client],
) -> None:
    for (server, client), who in ((managed_rabbitmq, "RabbitMQ"), (managed_penstock, "Penstock")):
        busy = _busy(server.url)
        try:
            for path, expected in FIELDS.items():
                _until(
                    lambda path=path, expected=expected: (
                        _first(client, path) and expected <= _first(client, path).keys()  # noqa: B023
                    ),
                    f"{who}'s {path} has {expected}; it has {_first(client, path)}",
                )
        finally:
            busy.close()


def test_values_are_of_the_same_kind(
    managed_rabbitmq: tuple[RabbitMQ, httpx.Client],
    managed_penstock: tuple[Penstock, httpx.Client],
) -> None:
    (rabbitmq, theirs), (penstock, ours) = managed_rabbitmq, managed_penstock
    busy = [_busy(rabbitmq.url), _busy(penstock.url)]
    try:
        for path, fields in FIELDS.items():
            _until(
                lambda path=path, fields=fields: (
                    _first(theirs, path) and fields <= _first(theirs, path).keys()
                ),
                f"RabbitMQ's {path} is complete",
            )
            their_row, our_row = _first(theirs, path), _first(ours, path)
            for field in fields:
                kinds = {_kind(their_row[field]), _kind(our_row[field])} - {"null"}
                assert len(kinds) <= 1, f"{path} {field}: {their_row[field]!r} {our_row[field]!r}"
    finally:
        for connection in busy:
            connection.close()


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
    return type(value).__name__


LOOK = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}

STEPS: list[tuple[str, str, Any]] = [
    ("PUT", "/vhosts/steps", None),
    ("PUT", "/vhosts/steps", None),
    ("GET", "/vhosts/none", None),
    ("PUT", "/exchanges/steps/e", {"type": "topic", "durable": True}),
    ("PUT", "/exchanges/steps/e", {"type": "topic", "durable": True}),
    ("PUT", "/exchanges/steps/e", {"type": "direct", "durable": True}),
    ("PUT", "/exchanges/steps/x", {"type": "bogus"}),
    ("PUT", "/exchanges/steps/amq.x", {"type": "direct"}),
    ("DELETE", "/exchanges/steps/amq.direct", None),
    ("DELETE", "/exchanges/steps/none", None),
    ("PUT", "/queues/steps/q", {"durable": True, "arguments": {"x-max-length": 3}}),
    ("PUT", "/queues/steps/q", {"durable": True, "arguments": {"x-max-length": 3}}),
    ("PUT", "/queues/steps/q", {"durable": False}),
    ("PUT", "/queues/steps/s", {"durable": True, "arguments": {"x-queue-type": "stream"}}),
    ("GET", "/queues/steps/none", None),
    ("GET", "/queues/none", None),
    ("POST", "/queues/steps/q/actions", {"action": "sync"}),
    ("POST", "/queues/steps/q/actions", {"action": "cancel_sync"}),
    ("POST", "/queues/steps/q/actions", {"action": "bogus"}),
    ("POST", "/queues/steps/q/actions", {}),
    ("GET", "/auth", None),
    ("POST", "/bindings/steps/e/e/q/q", {"routing_key": "a.#"}),
    ("POST", "/bindings/steps/e/e/q/none", {"routing_key": "a.#"}),
    ("POST", "/bindings/steps/e/e/e/amq.fanout", {"routing_key": "x", "arguments": {"a": 1}}),
    ("GET", "/bindings/steps/e/e/q/q", None),
    ("GET", "/bindings/steps/e/e/q/q/a.%23", None),
    ("GET", "/bindings/steps/e/e/q/q/none", None),
    ("POST", "/exchanges/steps/e/publish",
     {"properties": {}, "routing_key": "a.b", "payload": "hi", "payload_encoding": "string"}),
    ("POST", "/exchanges/steps/e/publish",
     {"properties": {}, "routing_key": "none", "payload": "hi", "payload_encoding": "string"}),
    ("POST", "/exchanges/steps/e/publish", {"routing_key": "a.b"}),
    ("POST", "/queues/steps/q/get", LOOK),
    ("POST", "/queues/steps/q/get",
     {"count": 9, "ackmode": "ack_requeue_false", "encoding": "base64"}),
    ("POST", "/queues/steps/s/get", LOOK),
    ("POST", "/queues/steps/none/get", LOOK),
    ("POST", "/queues/steps/q/get", {"count": 1}),
    ("DELETE", "/queues/steps/q/contents", None),
    ("DELETE", "/queues/steps/s/contents", None),
    ("DELETE", "/exchanges/steps/e?if-unused=true", None),
    ("DELETE", "/bindings/steps/e/e/q/q/a.%23", None),
    ("DELETE", "/bindings/steps/e/e/q/q/a.%23", None),
    ("PUT", "/users/steps", {"password": "x", "tags": "management"}),
    ("PUT", "/users/steps", {"password": "x", "tags": ["monitoring"]}),
    ("PUT", "/users/other", {"password": "x"}),
    ("PUT", "/users/other", {"password_hash": "zzz", "tags": ""}),
    ("GET", "/users/none", None),
    ("PUT", "/permissions/steps/steps", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/steps/steps", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/steps/steps", {"configure": ".*"}),
    ("PUT", "/permissions/steps/steps", {"configure": "(", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/none/steps", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("GET", "/permissions/steps/steps", None),
    ("PUT", "/topic-permissions/steps/steps", {"exchange": "e", "write": ".*", "read": ".*"}),
    ("GET", "/topic-permissions/steps/steps", None),
    ("DELETE", "/topic-permissions/steps/steps", None),
    ("DELETE", "/topic-permissions/steps/steps", None),
    ("DELETE", "/permissions/steps/steps", None),
    ("DELETE", "/permissions/steps/steps", None),
    ("DELETE", "/users/steps", None),
    ("DELETE", "/users/steps", None),
    ("POST", "/definitions", {"queues": [{"name": "q", "vhost": "none", "durable": True}]}),
    ("POST", "/definitions/none", {"queues": []}),
    ("GET", "/queues?page=9", None),
    ("GET", "/queues?page=0", None),
    ("GET", "/queues?page=1&page_size=501", None),
    ("GET", "/aliveness-test/steps", None),
    ("GET", "/health/checks/alarms", None),
    ("GET", "/health/checks/virtual-hosts", None),
    ("GET", "/health/checks/port-listener/1", None),
    ("GET", "/health/checks/port-listener/x", None),
    ("GET", "/health/checks/protocol-listener/amqp091", None),
    ("DELETE", "/connections/none", None),
    ("GET", "/connections/username/none", None),
    ("DELETE", "/connections/username/none", None),
    ("GET", "/policies/steps", None),
    ("PUT", "/policies/steps/p", {"pattern": "^q", "definition": {"max-length": 5}}),
    ("PUT", "/policies/steps/p",
     {"pattern": "^q", "definition": {"max-length": 5, "message-ttl": 1000, "expires": 90000,
      "max-length-bytes": 1000, "overflow": "reject-publish", "dead-letter-exchange": "e",
      "dead-letter-routing-key": "k"}, "priority": 2, "apply-to": "queues"}),
    ("GET", "/policies/steps/p", None),
    ("GET", "/policies/steps", None),
    ("GET", "/policies/steps/none", None),
    ("PUT", "/policies/steps/p", {"pattern": "^q"}),
    ("PUT", "/policies/steps/p", {"pattern": "(", "definition": {"max-length": 5}}),
    ("PUT", "/policies/steps/p", {"pattern": "^q", "definition": {}}),
    ("PUT", "/policies/steps/p", {"pattern": "^q", "definition": {"max-length": "x"}}),
    ("PUT", "/policies/steps/p", {"pattern": "^q", "definition": {"max-length": -1}}),
    ("PUT", "/policies/steps/p", {"pattern": "^q", "definition": {"nothing": 1}}),
    ("PUT", "/policies/steps/p", {"pattern": "^q", "definition": {"overflow": "x"}}),
    ("PUT", "/policies/steps/p",
     {"pattern": "^q", "definition": {"max-length": 5}, "priority": "high"}),
    ("PUT", "/policies/steps/p",
     {"pattern": "^q", "definition": {"max-length": 5}, "apply-to": "nothing"}),
    ("PUT", "/policies/none/p", {"pattern": "^q", "definition": {"max-length": 5}}),
    ("PUT", "/policies/steps/a",
     {"pattern": "^e", "definition": {"alternate-exchange": "amq.fanout"},
      "apply-to": "exchanges"}),
    ("GET", "/exchanges/steps/e", None),
    ("PUT", "/operator-policies/steps/o", {"pattern": "^q", "definition": {"max-length": 3}}),
    ("PUT", "/operator-policies/steps/o",
     {"pattern": "^q", "definition": {"dead-letter-exchange": "x"}}),
    ("GET", "/operator-policies/steps/o", None),
    ("GET", "/operator-policies/steps", None),
    ("DELETE", "/operator-policies/steps/o", None),
    ("DELETE", "/operator-policies/steps/o", None),
    ("DELETE", "/policies/steps/p", None),
    ("DELETE", "/policies/steps/p", None),
    ("DELETE", "/policies/steps/a", None),
    ("GET", "/vhost-limits", None),
    ("PUT", "/vhost-limits/steps/max-connections", {"value": 10}),
    ("PUT", "/vhost-limits/steps/max-queues", {"value": 20}),
    ("PUT", "/vhost-limits/steps/nothing", {"value": 20}),
    ("PUT", "/vhost-limits/steps/max-queues", {"value": "x"}),
    ("PUT", "/vhost-limits/steps/max-queues", {}),
    ("GET", "/vhost-limits/steps", None),
    ("DELETE", "/vhost-limits/steps/max-queues", None),
    ("DELETE", "/vhost-limits/steps/max-connections", None),
    ("GET", "/vhost-limits/steps", None),
    ("PUT", "/user-limits/guest/max-channels", {"value": 1000}),
    ("PUT", "/user-limits/guest/nothing", {"value": 1000}),
    ("GET", "/user-limits/guest", None),
    ("GET", "/user-limits", None),
    ("DELETE", "/user-limits/guest/max-channels", None),
    ("GET", "/parameters/nothing", None),
    ("PUT", "/parameters/nothing/steps/x", {"value": {}}),
    ("PUT", "/global-parameters/steps", {"value": {"a": [1]}}),
    ("GET", "/global-parameters/steps", None),
    ("DELETE", "/global-parameters/steps", None),
    ("DELETE", "/global-parameters/steps", None),
    ("PUT", "/feature-flags/quorum_queue/enable", {}),
    ("PUT", "/feature-flags/nothing/enable", {}),
    ("GET", "/health/checks/node-is-mirror-sync-critical", None),
    ("GET", "/health/checks/node-is-quorum-critical", None),
    ("GET", "/health/checks/certificate-expiration/1/months", None),
    ("GET", "/health/checks/certificate-expiration/1/eons", None),
    ("DELETE", "/reset", None),
    ("GET", "/none", None),
    ("DELETE", "/queues/steps/q", None),
    ("DELETE", "/queues/steps/q", None),
    ("DELETE", "/vhosts/steps", None),
    ("DELETE", "/vhosts/steps", None),
]  # fmt: skip


def test_every_step_is_answered_alike(
    managed_rabbitmq: tuple[RabbitMQ, httpx.Client],
    managed_penstock: tuple[Penstock, httpx.Client],
) -> None:
    """The same status, and a body of the same shape: an object's keys, the length of a list."""
    (_, theirs), (_, ours) = managed_rabbitmq, managed_penstock
    for method, path, body in STEPS:
        their_answer = theirs.request(method, path, json=body)
        for _ in range(5):  # it answers 500 now and then, while a channel of its own ends
            if their_answer.status_code < 500:
                break
            their_answer = theirs.request(method, path, json=body)
        our_answer = ours.request(method, path, json=body)
        step = f"{method} {path} {body}: {their_answer.text} {our_answer.text}"
        assert our_answer.status_code == their_answer.status_code, step
        if our_answer.is_success and their_answer.content:
            _alike(our_answer.json(), their_answer.json(), step)


def _alike(ours: Any, theirs: Any, step: str) -> None:
    if isinstance(theirs, list):
        assert len(ours) == len(theirs), step
        for our_row, their_row in zip(ours, theirs, strict=True):
            _alike(our_row, their_row, step)
    elif isinstance(theirs, dict):
        assert ours.keys() >= theirs.keys(), step


def test_what_rabbitmq_exports_penstock_imports(
    managed_rabbitmq: tuple[RabbitMQ, httpx.Client],
    managed_penstock: tuple[Penstock, httpx.Client],
) -> None:
    (_, theirs), (_, ours) = managed_rabbitmq, managed_penstock
    _lay_out(theirs, "exported")

    assert ours.post("/definitions", json=theirs.get("/definitions").json()).status_code == 204

    _check_layout(theirs, ours, "exported")
    assert ours.get("/whoami", auth=("exported", "secret")).status_code == 200


def test_what_penstock_exports_rabbitmq_imports(
    managed_rabbitmq: tuple[RabbitMQ, httpx.Client],
    managed_penstock: tuple[Penstock, httpx.Client],
) -> None:
    """But for passwords: RabbitMQ knows no argon2, and lets nobody in by one."""
    (_, theirs), (_, ours) = managed_rabbitmq, managed_penstock
    _lay_out(ours, "returned")
    tied = {"password": "x", "tags": "", "client_ids": "sensor-7"}  # a field RabbitMQ does not know
    assert ours.put("/users/sensor-7", json=tied).is_success
    exported = ours.get("/definitions").json()
    exported["users"] = [user for user in exported["users"] if user["name"] != "guest"]

    answer = theirs.post("/definitions", json=exported)

    assert answer.status_code == 204, answer.text
    _check_layout(ours, theirs, "returned")
    assert theirs.get("/whoami", auth=("returned", "secret")).status_code == 401
    assert theirs.get("/users/sensor-7").status_code == 200


def _lay_out(client: httpx.Client, name: str) -> None:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    stream = {"x-queue-type": "stream", "x-max-age": "7D"}
    limited = {"x-max-length": 10, "x-overflow": "reject-publish", "x-message-ttl": 60000}
    for method, path, body in (
        ("PUT", f"/vhosts/{name}", None),
        ("PUT", f"/users/{name}", {"password": "secret", "tags": "management"}),
        ("PUT", f"/permissions/{name}/{name}", everything),
        ("PUT", f"/queues/{name}/orders", {"durable": True, "arguments": limited}),
        ("PUT", f"/queues/{name}/events", {"durable": True, "arguments": stream}),
        ("PUT", f"/exchanges/{name}/news", {"type": "headers", "durable": True}),
        ("POST", f"/bindings/{name}/e/news/q/orders", {"arguments": {"x-match": "any", "k": 1}}),
        ("POST", f"/bindings/{name}/e/news/e/amq.topic", {"routing_key": "é #"}),
        ("PUT", f"/policies/{name}/short", {"pattern": "^o", "definition": {"expires": 90000}}),
        ("PUT", f"/operator-policies/{name}/o", {"pattern": "x", "definition": {"expires": 9000}}),
        ("PUT", f"/vhost-limits/{name}/max-queues", {"value": 100}),
    ):
        assert client.request(method, path, json=body).is_success


def _check_layout(origin: httpx.Client, copy: httpx.Client, name: str) -> None:
    def definitions(client: httpx.Client) -> Any:
        document = client.get(f"/definitions/{name}").json()
        sections = ("queues", "exchanges", "bindings", "policies")
        return {key: sorted(document[key], key=str) for key in sections}

    def ordered(value: Any) -> Any:
        return {key: [sorted(row.items(), key=str) for row in rows] for key, rows in value.items()}

    assert ordered(definitions(copy)) == ordered(definitions(origin))
    for path in (f"/operator-policies/{name}", f"/vhost-limits/{name}"):
        assert copy.get(path).json() == origin.get(path).json()
    granted = f"/permissions/{name}/{name}"
    assert copy.get(granted).json() == origin.get(granted).json()


def test_rabbitmqs_own_command_line_works(
    managed_rabbitmq: tuple[RabbitMQ, httpx.Client],
    managed_penstock: tuple[Penstock, httpx.Client],
    tmp_path: Path,
) -> None:
    (_, theirs), (penstock, ours) = managed_rabbitmq, managed_penstock
    script = tmp_path / "rabbitmqadmin"
    script.write_bytes(
        theirs.get(str(theirs.base_url).replace("/api/", "/cli/rabbitmqadmin")).content
    )

    def admin(*words: str) -> str:
        address = ["--host", "127.0.0.1", "--port", str(penstock.http_port)]
        done = subprocess.run(
            [sys.executable, str(script), *address, *words], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    admin("declare", "queue", "name=admin", "durable=true", 'arguments={"x-max-length":5}')
    admin("declare", "exchange", "name=admin", "type=topic")
    admin("declare", "binding", "source=admin", "destination=admin", "routing_key=a.#")
    admin("publish", "exchange=admin", "routing_key=a.b", "payload=hello")
    assert "hello" in admin("get", "queue=admin", "ackmode=ack_requeue_false")
    assert "admin" in admin("list", "queues", "name", "messages")
    assert "a.#" in admin("list", "bindings")
    assert "penstock" in admin("show", "overview")
    admin("export", str(tmp_path / "definitions.json"))
    admin("delete", "binding", "source=admin", "destination_type=queue", "destination=admin",
          f"properties_key={quote('a.#', safe='')}")  # fmt: skip
    admin("declare", "policy", "name=p", "pattern=^adm", 'definition={"max-length":3}',
          "apply-to=queues", "priority=1")  # fmt: skip
    admin("declare", "operator_policy", "name=o", "pattern=^adm", 'definition={"expires":90000}')
    admin("declare", "vhost_limit", "vhost=/", "name=max-queues", "value=1000")
    assert "max-length" in admin("list", "policies")
    assert "expires" in admin("list", "operator_policies")
    assert "1000" in admin("list", "vhost_limits")
    shovel = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to"}
    admin("declare", "parameter", "component=shovel", "name=s", f"value={json.dumps(shovel)}")
    admin("declare", "parameter", "component=federation-upstream", "name=east",
          'value={"uri":"amqp://127.0.0.1:1"}')  # fmt: skip
    admin("declare", "policy", "name=federate", "pattern=^admin$", "apply-to=exchanges",
          'definition={"federation-upstream":"east"}')  # fmt: skip
    admin("publish", "exchange=amq.default", "routing_key=from", "payload=moved")
    _until(
        lambda: ours.get("/queues/%2F/to").json().get("messages"), "the shovel moves the message"
    )
    assert "moved" in admin("get", "queue=to", "ackmode=ack_requeue_false")
    assert {"shovel", "federation-upstream"} <= set(admin("list", "parameters").split())
    [link] = ours.get("/federation-links").json()
    assert (link["upstream"], link["exchange"]) == ("east", "admin")
    admin("delete", "policy", "name=federate")
    admin("delete", "parameter", "component=federation-upstream", "name=east")
    admin("delete", "parameter", "component=shovel", "name=s")
    assert ours.get("/shovels").json() == []
    admin("delete", "policy", "name=p")
    admin("delete", "operator_policy", "name=o")
    admin("delete", "vhost_limit", "vhost=/", "name=max-queues")
    admin("delete", "queue", "name=admin")
    admin("import", str(tmp_path / "definitions.json"))
    assert "admin" in admin("list", "queues", "name")
