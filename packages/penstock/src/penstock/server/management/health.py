"""`/api/health/checks/…` and `/api/aliveness-test`: yes (200) or no (503), and why."""

from __future__ import annotations

from typing import Final

from penstock.broker.contract import Message
from penstock.core.addresses import parse_address
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import NotFound
from penstock.core.units import parse_count
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import HttpResponse, bad_request, json_response
from penstock.server.management.messages import HttpFetcher, HttpPublisher
from penstock.server.management.overview import PROTOCOLS

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


def _ok(**facts: object) -> HttpResponse:
    return json_response({"status": "ok", **facts})


def _failed(reason: str, **facts: object) -> HttpResponse:
    return json_response({"status": "failed", "reason": reason, **facts}, 503)


async def alarms(call: ApiCall) -> HttpResponse:
    active = call.broker.alarms
    if not active.active:
        return _ok()
    return _failed(active.reason, alarms=active.names)


async def virtual_hosts(call: ApiCall) -> HttpResponse:
    """A virtual host that is there is running: recovery is over before anything listens."""
    return _ok()


async def ready(call: ApiCall) -> HttpResponse:
    """Whether new clients are taken: listening, not closing, and nobody is told to wait."""
    if call.broker.alarms.active:
        return _failed(call.broker.alarms.reason)
    return _ok()


async def port_listener(call: ApiCall) -> HttpResponse:
    port = parse_count(call.names["port"], 65535)
    if port is None:
        raise bad_request("Invalid port")
    ports = [parse_address(url).port for url in call.broker.addresses]
    if port in ports:
        return _ok(port=port)
    return _failed("No active listener", missing=port, ports=ports)


async def protocol_listener(call: ApiCall) -> HttpResponse:
    asked = call.names["protocol"].lower()
    wanted = _ALIASES.get(asked, asked)
    schemes = [parse_address(url).scheme for url in call.broker.addresses]
    spoken = [PROTOCOLS.get(scheme, scheme) for scheme in schemes]
    if wanted in spoken:
        return _ok(protocol=wanted)
    return _failed("No active listener", missing=asked, protocols=spoken)


async def aliveness(call: ApiCall) -> HttpResponse:
    """A message goes through a queue of its own, and out again."""
    vhost, access, kernel = call.vhost, call.access, call.broker.kernel
    access.check("configure", "queue", _TEST_QUEUE)
    access.check("write", "exchange", "")
    access.check("read", "queue", _TEST_QUEUE)
    queue = vhost.declare_queue(_TEST_QUEUE)
    message = Message(
        encode_route("", _TEST_QUEUE), encode_header(BasicProperties(), 12), b"test_message"
    )
    await HttpPublisher(kernel, vhost.exchange("")).post(message)
    fetching = HttpFetcher(kernel, queue)
    if fetching.next() is None:
        raise NotFound("the test message did not arrive")
    fetching.confirm()
    return _ok()


_CHECKS: Final = "/api/health/checks"

routes: Final = (
    ApiRoute("GET", "/api/aliveness-test/{vhost}", AccessLevel.MANAGEMENT, aliveness),
    ApiRoute("GET", f"{_CHECKS}/alarms", AccessLevel.MANAGEMENT, alarms),
    ApiRoute("GET", f"{_CHECKS}/local-alarms", AccessLevel.MANAGEMENT, alarms),
    ApiRoute("GET", f"{_CHECKS}/virtual-hosts", AccessLevel.MANAGEMENT, virtual_hosts),
    ApiRoute("GET", f"{_CHECKS}/ready", AccessLevel.MANAGEMENT, ready),
    ApiRoute("GET", f"{_CHECKS}/ready-to-serve-clients", AccessLevel.MANAGEMENT, ready),
    ApiRoute("GET", f"{_CHECKS}/port-listener/{{port}}", AccessLevel.MANAGEMENT, port_listener),
    ApiRoute(
        "GET",
        f"{_CHECKS}/protocol-listener/{{protocol}}",
        AccessLevel.MANAGEMENT,
        protocol_listener,
    ),
)
