"""`/api/health/checks/…` and `/api/aliveness-test`: 200, or 503 with the reason."""

from __future__ import annotations

import time
from typing import Final

from penstock.broker.contract import Message
from penstock.core.addresses import parse_address
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import NotFound
from penstock.core.units import parse_count
from penstock.server.listener import certificate_expiry
from penstock.server.management.api_call import ApiCall, ApiRoute
from penstock.server.management.http import HttpResponse, bad_request, json_response
from penstock.server.management.messages import HttpFetcher, HttpPublisher
from penstock.server.management.overview import PROTOCOLS

#: Other names of protocols.
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
    """503 while a memory or disk alarm is active."""
    active = call.broker.alarms
    if not active.active:
        return _ok()
    return _failed(active.reason, alarms=active.names)


async def virtual_hosts(call: ApiCall) -> HttpResponse:
    """200: virtual hosts are recovered before the listeners open."""
    return _ok()


async def ready(call: ApiCall) -> HttpResponse:
    """503 while an alarm blocks publishers."""
    if call.broker.alarms.active:
        return _failed(call.broker.alarms.reason)
    return _ok()


async def critical(call: ApiCall) -> HttpResponse:
    """200: queues have no mirrors or quorums that could be lost."""
    return _ok(reason="single node cluster")


#: Seconds of the units of `certificate-expiration`.
_UNITS: Final = {
    "days": 86_400,
    "weeks": 604_800,
    "months": 2_592_000,
    "years": 31_536_000,
}


async def certificate_expiration(call: ApiCall) -> HttpResponse:
    """503 if the server certificate expires within so many days, weeks, months or years."""
    within, unit = parse_count(call.names["within"]), _UNITS.get(call.names["unit"])
    if within is None or unit is None:
        raise bad_request(f"within should be a whole number, unit one of {', '.join(_UNITS)}")
    certificate = call.broker.settings.tls.certificate
    if certificate is None:
        return _ok()
    expires = certificate_expiry(certificate)
    if expires > time.time() + within * unit:
        return _ok()
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(expires))
    return _failed("Certificates expiring", expired=[{"cert_expiry_date": moment}])


async def port_listener(call: ApiCall) -> HttpResponse:
    """503 if no listener is open on a port."""
    port = parse_count(call.names["port"], 65535)
    if port is None:
        raise bad_request("Invalid port")
    ports = [parse_address(url).port for url in call.broker.addresses]
    if port in ports:
        return _ok(port=port)
    return _failed("No active listener", missing=port, ports=ports)


async def protocol_listener(call: ApiCall) -> HttpResponse:
    """503 if no listener is open for a protocol, such as `amqp` or `mqtt/ssl`."""
    asked = call.names["protocol"].lower()
    wanted = _ALIASES.get(asked, asked)
    schemes = [parse_address(url).scheme for url in call.broker.addresses]
    spoken = [PROTOCOLS.get(scheme, scheme) for scheme in schemes]
    if wanted in spoken:
        return _ok(protocol=wanted)
    return _failed("No active listener", missing=asked, protocols=spoken)


async def aliveness(call: ApiCall) -> HttpResponse:
    """Declare the queue `aliveness-test`, publish a message to it and get the message."""
    vhost, access, kernel = call.vhost, call.access, call.broker.kernel
    access.check("configure", "queue", _TEST_QUEUE)
    access.check("write", "exchange", "")
    access.check("read", "queue", _TEST_QUEUE)
    queue = vhost.declare_queue(_TEST_QUEUE)
    message = Message(
        encode_route("", _TEST_QUEUE), encode_header(BasicProperties(), 12), b"test_message"
    )
    await HttpPublisher(kernel, vhost.exchange("")).post(message)
    fetcher = HttpFetcher(kernel, queue)
    if fetcher.next() is None:
        raise NotFound("the test message did not arrive")
    fetcher.confirm()
    return _ok()


_CHECKS: Final = "/api/health/checks"

routes: Final = (
    ApiRoute("GET", "/api/aliveness-test/{vhost}", aliveness),
    ApiRoute("GET", f"{_CHECKS}/alarms", alarms),
    ApiRoute("GET", f"{_CHECKS}/local-alarms", alarms),
    ApiRoute("GET", f"{_CHECKS}/virtual-hosts", virtual_hosts),
    ApiRoute("GET", f"{_CHECKS}/node-is-mirror-sync-critical", critical),
    ApiRoute("GET", f"{_CHECKS}/node-is-quorum-critical", critical),
    ApiRoute(
        "GET", f"{_CHECKS}/certificate-expiration/{{within}}/{{unit}}", certificate_expiration
    ),
    ApiRoute("GET", f"{_CHECKS}/ready", ready),
    ApiRoute("GET", f"{_CHECKS}/ready-to-serve-clients", ready),
    ApiRoute("GET", f"{_CHECKS}/port-listener/{{port}}", port_listener),
    ApiRoute("GET", f"{_CHECKS}/protocol-listener/{{protocol}}", protocol_listener),
)
