"""paho's client, made for an endpoint and connected to it; and what the broker greets us with."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from penstock.client.mqtt.endpoint import Endpoint
from penstock.client.mqtt.faults import FAILURE

CONNECT_SECONDS: Final = 10.0
#: What a packet's length has room for.
LARGEST: Final = 0x0FFF_FFFF
#: How many messages the broker may send ahead of our acknowledgements.
RECEIVE_MAXIMUM: Final = 1000


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the broker says of itself when it lets us in."""

    session_present: bool
    receive_maximum: int
    maximum_qos: int
    maximum_bytes: int
    retains: bool
    identifiers: bool  #: it tells which subscription a message is for


def new_client(endpoint: Endpoint, tls: ssl.SSLContext | None) -> Client:
    modern = endpoint.modern
    client = _Client(
        CallbackAPIVersion.VERSION2,
        endpoint.client_id,
        clean_session=None if modern else not endpoint.lasting,
        protocol=MQTTProtocolVersion.MQTTv5 if modern else MQTTProtocolVersion.MQTTv311,
        transport="tcp" if endpoint.path is None else "websockets",
        reconnect_on_failure=False,
        manual_ack=True,
    )
    if endpoint.user is not None:
        client.username_pw_set(endpoint.user, endpoint.password)
    if endpoint.path is not None:
        client.ws_set_options(endpoint.path)
    context = tls or endpoint.tls_context()
    if endpoint.tls and context is not None:
        client.tls_set_context(context)
    client.connect_timeout = CONNECT_SECONDS
    client.max_inflight_messages_set(0)  # whoever sends keeps to the broker's own limit
    return client


def dial(client: Client, endpoint: Endpoint) -> None:
    """Waits for the network; returns when CONNECT is on its way."""
    if not endpoint.modern:
        client.connect(endpoint.host, endpoint.port, endpoint.keepalive)
        return
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    if endpoint.lasting:
        properties.SessionExpiryInterval = endpoint.session_expiry
    client.connect(
        endpoint.host,
        endpoint.port,
        endpoint.keepalive,
        clean_start=not endpoint.lasting,
        properties=properties,
    )


def read_greeting(session_present: bool, said: Properties | None, modern: bool) -> Greeting:
    return Greeting(
        session_present=session_present,
        receive_maximum=getattr(said, "ReceiveMaximum", 0xFFFF),
        maximum_qos=getattr(said, "MaximumQoS", 2),
        maximum_bytes=getattr(said, "MaximumPacketSize", LARGEST),
        retains=bool(getattr(said, "RetainAvailable", 1)),
        identifiers=modern and bool(getattr(said, "SubscriptionIdentifierAvailable", 1)),
    )


class _Client(Client):
    """paho's, but for a message of quality 2 that the broker refuses.

    paho does not read why and goes on as if nothing had happened, and then the end of that looks
    like success. A refusal is the last word on a message.
    """

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = self._in_packet["packet"]
        packet_id = int.from_bytes(packet[:2], "big")
        refusal = self.protocol == MQTTProtocolVersion.MQTTv5 and packet[2:3] >= bytes([FAILURE])
        if not refusal or packet_id not in self._out_messages:
            return super()._handle_pubrec()
        reason = ReasonCode(PacketTypes.PUBREC, identifier=packet[2])
        properties = Properties(PacketTypes.PUBREC)  # type: ignore[no-untyped-call]
        return self._do_on_publish(packet_id, reason, properties)
