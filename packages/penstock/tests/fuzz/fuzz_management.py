"""Fuzzes the management API: bodies, queries and names, of every route, against a broker.

    PYTHONPATH=. python packages/penstock/tests/fuzz/fuzz_management.py -runs=1000000

Coverage-guided, by atheris. An input is a few calls, each one choice of a route, names from a small
set, a query and a body in JSON (definitions, policies, parameters, messages). A call is answered as
it would be over HTTP, without a socket. A call may be refused; an internal error is a finding.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock.server.management", "penstock.broker"]):
    import json
    import tempfile
    from pathlib import Path
    from typing import Any
    from urllib.parse import quote

    from penstock.broker.user import User
    from penstock.core.config import BrokerSettings, LogSettings
    from penstock.core.logs import configure_logs
    from penstock.server.broker import Broker
    from penstock.server.event_loop import new_event_loop
    from penstock.server.management.http import HttpRequest
    from penstock.server.management.server import ROUTES
    from tests.fuzz_input import Choices, memory_folder, run_fuzzer

#: Not called: they start processes, end connections of others, or answer as long as one listens.
OTHER = ("/api/watch", "/api/sections", "/api/snapshots", "/docs", "/api/cluster/", "/static")
CALLED = tuple(route for route in ROUTES if not route.path.startswith(OTHER))
WRITING = tuple(route for route in CALLED if route.method != "GET")
NAMES = ("/", "q", "s", "x", "amq.topic", "amq.default", "v", "guest", "p", "e", "~", "é", "", ".")
KEYS = (
    *("ackmode", "action", "alternate-exchange", "apply-to", "arguments", "auto_delete", "broker"),
    *("class", "client_ids", "command", "component", "configure", "count", "definition", "type"),
    *("description", "destination", "destination_type", "durable", "enabled", "encoding", "first"),
    *("exchange", "from", "headers", "internal", "key", "limit", "message_id", "name", "offset"),
    *("password", "password_hash", "hashing_algorithm", "pattern", "payload", "payload_encoding"),
    *("priority", "properties", "read", "routing_key", "source", "tags", "text", "to", "truncate"),
    *("user", "users", "value", "vhost", "where", "write", "delivery_mode", "expiration"),
    *("timestamp", "queues", "exchanges", "bindings", "policies", "parameters", "permissions"),
    *("topic_permissions", "global_parameters", "vhosts", "rabbit_version", "x-message-ttl"),
    *("x-max-length", "x-queue-type", "x-dead-letter-exchange", "x-max-age", "x-overflow"),
    *("x-max-priority", "x-single-active-consumer", "x-schema", "x-subscription", "max-length"),
    *("message-ttl", "expires", "ha-mode", "src-uri", "dest-uri", "src-queue", "uri", "x-match"),
    *("max-connections", "tracing", "limits", "x-delay", "x-expires", "x-delivery-limit", "ids"),
)
WORDS = (
    *NAMES,
    *("ack_requeue_true", "reject_requeue_false", "queue", "exchange", "direct", "topic", "fanout"),
    *("headers", "x-content", "x-delayed-message", "stream", "quorum", "classic", "string"),
    *("base64", "auto", "cancel_sync", "reject-publish", "drop-head", "1D", "7h", "queues", "all"),
    *("shovel", "federation-upstream", "amqp://127.0.0.1:1", "[class,eq,a],[n,<,5]", "[", "(", "^"),
    *("administrator", "management", "YWJj", "$2", "rabbit_password_hashing_sha256", "argon2id"),
    *("2026-05-31T12:00:00Z", "0001-01-01", "5", "-1", "true", ".*", "#", "*", "any", "printsubs"),
)
QUERY = (
    *("page", "page_size", "name", "use_regex", "sort", "sort_reverse", "columns", "offset"),
    *("limit", "count", "from", "to", "key", "text", "where", "headers", "if-unused", "start"),
    *("vhost", "download", "msg_rates_age", "lengths_age", "if-empty", "disable_stats"),
)
#: A new broker after so many inputs: what they have declared is not what is fuzzed.
INPUTS_PER_BROKER = 5000


class Fuzzed:
    """A broker that takes every call for the administrator's."""

    def __init__(self) -> None:
        configure_logs(LogSettings(level="error"))
        self._loop = new_event_loop()
        self._broker: Broker | None = None
        self._folder: tempfile.TemporaryDirectory[str]
        self._inputs = 0

    def fuzz(self, data: bytes) -> None:
        if self._inputs % INPUTS_PER_BROKER == 0:
            self._loop.run_until_complete(self._restart())
        self._inputs += 1
        self._loop.run_until_complete(self._calls(Choices(data)))

    async def _restart(self) -> None:
        if self._broker is not None:
            await self._broker.close()
            self._folder.cleanup()
        self._folder = tempfile.TemporaryDirectory(dir=memory_folder())
        settings = BrokerSettings(listen=["http://127.0.0.1:0"])
        self._broker = Broker(settings, data=Path(self._folder.name))
        await self._broker.start()
        server: Any = self._broker._management

        async def administrator(*_: object) -> User:
            return User("guest", tags=("administrator",))

        server._user = administrator
        self._server = server
        await self._call("PUT", "/api/queues/%2F/q", {}, b'{"durable": true}')
        stream = b'{"durable": true, "arguments": {"x-queue-type": "stream"}}'
        await self._call("PUT", "/api/queues/%2F/s", {}, stream)
        for queue in ("q", "s"):
            message: dict[str, Any] = {
                "routing_key": queue,
                "payload": '{"a": 1}',
                "properties": {},
            }
            body = json.dumps({**message, "payload_encoding": "string"}).encode()
            await self._call("POST", "/api/exchanges/%2F/amq.default/publish", {}, body)

    async def _calls(self, choices: Choices) -> None:
        for _ in range(1 + choices.number(3)):
            route = choices.one_of(WRITING if choices.number(2) else CALLED)
            path = "/".join(
                quote(choices.one_of(NAMES), safe="") if part.startswith("{") else part
                for part in route.path.split("/")
            )
            query = {choices.one_of(QUERY): choices.text(WORDS) for _ in range(choices.number(3))}
            await self._call(route.method, path, query, choices.body(KEYS, WORDS))

    async def _call(self, method: str, path: str, query: dict[str, str], body: bytes) -> None:
        async def read(limit: int) -> bytes:
            return body

        request = HttpRequest(method, path, query, {"host": "127.0.0.1"}, "127.0.0.1", read)
        response = await self._server.answer(request)
        assert response.status != 500, f"{method} {path} {query} {body!r}"
        if not isinstance(response.body, bytes):
            async for _ in response.body:
                break


if __name__ == "__main__":
    run_fuzzer(Fuzzed().fuzz)
