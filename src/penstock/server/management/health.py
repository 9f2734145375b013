"""`/api/health/checks/…` and `/api/aliveness-test`: yes (200) or no (503), and why."""

from __future__ import annotations

from typing import Final

from penstock.broker.contract import Message
from penstock.core.addresses import parse_address
from penstock.core.errors import NotFound
from penstock.core.properties import Properties, encode_header, encode_route
from penstock.core.units import parse_count
from penstock.server.management.call import Call, Level
from penstock.server.management.errand import Fetching, Posting
from penstock.server.management.errors import bad_request
from penstock.server.management.http import Response, as_json
from penstock.server.management.overview import PROTOCOLS
from penstock.server.management.routing import Route

#: Other names of protocols, as people and RabbitMQ's documentation write them.
_ALIASES: Final = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqps": "amqp/ssl",
    "amqp/tls": "amqp/ssl",
    "mqtts": "mqtt/ssl",
    "tls": "amqp/ssl",
}

_TEST_QUEUE: Final = "aliveness-test"


def _ok(**facts: object) -> Response:
    return as_json({"status": "ok", **facts})


def _failed(reason: str, **facts: object) -> Response:
    return as_json({"status": "failed", "reason": reason, **facts}, 503)


async def alarms(call: Call) -> Response:
    active = call.broker.alarms
    if not active.active:
        return _ok()
    return _failed(active.reason, alarms=active.names)


async def virtual_hosts(call: Call) -> Response:
    """A virtual host that is there is running: recovery is over before anything listens."""
    return _ok()


async def ready(call: Call) -> Response:
    """Whether new clients are taken: listening, not closing, and nobody is told to wait."""
    if call.broker.alarms.active:
        return _failed(call.broker.alarms.reason)
    return _ok()


async def port_listener(call: Call) -> Response:
    port = parse_count(call.names["port"], 65535)
    if port is None:
        raise bad_request("Invalid port")
    ports = [parse_address(url).port for url in call.broker.addresses]
    if port in ports:
        return _ok(port=port)
    return _failed("No active listener", missing=port, ports=ports)


async def protocol_listener(call: Call) -> Response:
    asked = call.names["protocol"].lower()
    wanted = _ALIASES.get(asked, asked)
    schemes = [parse_address(url).scheme for url in call.broker.addresses]
    spoken = [PROTOCOLS.get(scheme, scheme) for scheme in schemes]
    if wanted in spoken:
        return _ok(protocol=wanted)
    return _failed("No active listener", missing=asked, protocols=spoken)


async def aliveness(call: Call) -> Response:
    """A message goes through a queue of its own, and out again."""
    vhost, access, kernel = call.vhost, call.access, call.broker.kernel
    access.check("configure", "queue", _TEST_QUEUE)
    access.check("write", "exchange", "")
    access.check("read", "queue", _TEST_QUEUE)
    queue = vhost.declare_queue(_TEST_QUEUE)
    message = Message(
        encode_route("", _TEST_QUEUE), encode_header(Properties(), 12), b"test_message"
    )
    await Posting(kernel, vhost.exchange("")).post(message)
    fetching = Fetching(kernel, queue)
    if fetching.next() is None:
        raise NotFound("the test message did not arrive")
    fetching.confirm()
    return _ok()


_CHECKS: Final = "/api/health/checks"

routes: Final = (
    Route("GET", "/api/aliveness-test/{vhost}", Level.MANAGEMENT, aliveness),
    Route("GET", f"{_CHECKS}/alarms", Level.MANAGEMENT, alarms),
    Route("GET", f"{_CHECKS}/local-alarms", Level.MANAGEMENT, alarms),
    Route("GET", f"{_CHECKS}/virtual-hosts", Level.MANAGEMENT, virtual_hosts),
    Route("GET", f"{_CHECKS}/ready", Level.MANAGEMENT, ready),
    Route("GET", f"{_CHECKS}/ready-to-serve-clients", Level.MANAGEMENT, ready),
    Route("GET", f"{_CHECKS}/port-listener/{{port}}", Level.MANAGEMENT, port_listener),
    Route("GET", f"{_CHECKS}/protocol-listener/{{protocol}}", Level.MANAGEMENT, protocol_listener),
)
