"""Which URL leads to which protocol.

One line a scheme: the module that keeps the patterns over it, imported when first asked for. A
protocol is added by adding its folder and its lines here.
"""

from __future__ import annotations

import ssl
from importlib import import_module
from typing import Final, Protocol
from urllib.parse import urlsplit

from penstock.client.errors import UnknownScheme
from penstock.client.fabric import Fabric

SCHEMES: Final = {
    "amqp": "penstock.client.amqp.fabric:AmqpFabric",
    "amqps": "penstock.client.amqp.fabric:AmqpFabric",
    "amqp+1.0": "penstock.client.amqp10.fabric:Amqp10Fabric",
    "amqps+1.0": "penstock.client.amqp10.fabric:Amqp10Fabric",
    "mqtt": "penstock.client.mqtt.fabric:MqttFabric",
    "mqtts": "penstock.client.mqtt.fabric:MqttFabric",
    "ws": "penstock.client.mqtt.fabric:MqttFabric",
    "wss": "penstock.client.mqtt.fabric:MqttFabric",
}


class _Opener(Protocol):
    def __call__(self, url: str, *, tls: ssl.SSLContext | None, patience: float) -> Fabric: ...


def connect(url: str, *, tls: ssl.SSLContext | None = None, patience: float = 0.0) -> Fabric:
    """The fabric behind a URL, to be opened by `async with` (or `await … .open()`).

    A broker that does not answer is an error at once, or after `patience` seconds of trying; one
    that goes away later is waited for.
    """
    scheme = urlsplit(url).scheme
    where = SCHEMES.get(scheme)
    if scheme in ("padres", "padress"):
        raise UnknownScheme(f"{url!r}: publications by content are penstock.client.padres.Client's")
    if where is None:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise UnknownScheme(f"{url!r}: the client speaks {known}")
    module, _, name = where.partition(":")
    opener: _Opener = getattr(import_module(module), name)
    return opener(url, tls=tls, patience=patience)
