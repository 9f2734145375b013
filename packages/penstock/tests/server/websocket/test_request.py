"""The opening handshake: who is let in, and what the others are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.host_policy import HostPolicy
from penstock.server.websocket_protocol import (
    MAX_HANDSHAKE_BYTES,
    HandshakeResult,
    WebSocketHandshake,
)

PATHS = frozenset({"/ws", "/mqtt"})
HEADERS = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
    "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
    "Origin": "https://app.example",
}


def request(line: str = "GET /ws HTTP/1.1", /, **changes: str | None) -> bytes:
    """A good request; `Upgrade=None` leaves a header out, `Upgrade="x"` changes it."""
    headers = {**HEADERS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([line, *lines, "", ""]).encode()


POLICY = HostPolicy(origins=["https://app.example"], setting="broker.allowed_origins")


def opening() -> WebSocketHandshake:
    return WebSocketHandshake(("mqtt", "mqttv3.1"), PATHS, POLICY)


def verdict(sent: bytes) -> HandshakeResult:
    found = opening().feed(sent)
    assert found is not None
    return found


def status(sent: bytes) -> int:
    found = verdict(sent)
    assert found.subprotocol is None
    return int(found.response.split(b" ", 2)[1])


def test_a_client_that_speaks_mqtt_is_let_in() -> None:
    found = verdict(request())

    assert found.response.startswith(b"HTTP/1.1 101 ")
    # The accept key is that of the example in RFC 6455.
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in found.response
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in found.response
    assert (found.subprotocol, found.rest) == ("mqtt", b"")


@pytest.mark.parametrize(
    "changed",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
        {"Host": "rebound.example"},
        {"Host": "rebound.example", "Origin": "http://rebound.example"},
    ],
)
def test_a_page_of_another_site_is_refused(changed: dict[str, str | None]) -> None:
    assert status(request(**changed)) == 403


@pytest.mark.parametrize("origin", [None, "http://localhost", "https://app.example"])
def test_a_program_and_pages_of_allowed_sites_are_let_in(origin: str | None) -> None:
    assert verdict(request(Origin=origin)).subprotocol == "mqtt"


def test_compression_is_not_agreed_to() -> None:
    assert b"deflate" not in verdict(request()).response


@pytest.mark.parametrize(
    ("offered", "given"),
    [("mqttv3.1", "mqttv3.1"), ("mqttv3.1, mqtt", "mqtt"), ("chat, mqtt", "mqtt")],
)
def test_the_best_subprotocol_on_offer_is_taken(offered: str, given: str) -> None:
    found = verdict(request(Sec_WebSocket_Protocol=offered))

    assert found.subprotocol == given
    assert f"Sec-WebSocket-Protocol: {given}\r\n".encode() in found.response


@pytest.mark.parametrize("offered", [None, "chat", "MQTT"])
def test_a_client_that_does_not_speak_mqtt_is_refused(offered: str | None) -> None:
    assert status(request(Sec_WebSocket_Protocol=offered)) == 400


@pytest.mark.parametrize("path", ["/ws", "/mqtt", "/ws?client=7"])
def test_there_may_be_several_paths(path: str) -> None:
    assert verdict(request(f"GET {path} HTTP/1.1")).subprotocol == "mqtt"


@pytest.mark.parametrize("path", ["/", "/ws/", "/WS", "*"])
def test_another_path_is_not_found(path: str) -> None:
    assert status(request(f"GET {path} HTTP/1.1")) == 404
    assert b"/mqtt, /ws" in verdict(request(f"GET {path} HTTP/1.1")).response


@pytest.mark.parametrize("missing", ["Upgrade", "Connection"])
def test_a_browser_is_told_to_upgrade(missing: str) -> None:
    found = verdict(request(**{missing: None}))

    assert found.response.startswith(b"HTTP/1.1 426 ")
    assert b"Upgrade: websocket\r\n" in found.response


@pytest.mark.parametrize(
    "sent",
    [
        request("POST /ws HTTP/1.1"),
        request("GET /ws"),
        request(Sec_WebSocket_Key="short"),
        request(Sec_WebSocket_Key=None),
        request(Sec_WebSocket_Version="8"),
        request(Content_Length="3"),
        request(Sec_WebSocket_Key="schlüssel"),
        request(Sec_WebSocket_Protocol="mqtt, naïve"),
        b"GET /ws HTTP/1.1\r\nno colon\r\n\r\n",
    ],
)
def test_what_is_no_opening_is_a_bad_request(sent: bytes) -> None:
    assert status(sent) == 400


def test_an_older_http_is_refused() -> None:
    assert status(request("GET /ws HTTP/1.0")) in (400, 505)  # as the library's version has it


@pytest.mark.parametrize("sent", [b"\x10\x0c\x00\x04MQTT", b"\x16\x03\x01", b"P", b"GOT"])
def test_what_is_no_http_is_refused_at_once(sent: bytes) -> None:
    assert status(sent) == 400


def test_a_cookie_may_say_what_it_likes() -> None:
    assert verdict(request(Cookie="käse=größer")).subprotocol == "mqtt"


@given(st.integers(0), st.integers(0, 255))
def test_any_damage_is_answered_or_waited_out(place: int, octet: int) -> None:
    sent = bytearray(request())
    sent[place % len(sent)] = octet

    found = opening().feed(bytes(sent))

    assert found is None or found.response[:12] in (
        b"HTTP/1.1 101",
        b"HTTP/1.1 400",
        b"HTTP/1.1 403",
        b"HTTP/1.1 404",
        b"HTTP/1.1 426",
        b"HTTP/1.1 505",
    )


def test_a_request_may_come_in_pieces_with_more_behind_it() -> None:
    sent, asked = request(), opening()

    for octet in sent[:-1]:
        assert asked.feed(bytes([octet])) is None

    found = asked.feed(sent[-1:] + b"\x82")
    assert found is not None
    assert (found.subprotocol, found.rest) == ("mqtt", b"\x82")


@pytest.mark.parametrize("flood", [b"X: y\r\n", b"y"])
def test_headers_without_end_are_too_large(flood: bytes) -> None:
    asked = opening()
    assert asked.feed(b"GET /ws HTTP/1.1\r\nX: ") is None
    taken = 0
    while (found := asked.feed(flood * 100)) is None:
        taken += 100 * len(flood)

    assert found.response.startswith(b"HTTP/1.1 431 ")
    assert taken < MAX_HANDSHAKE_BYTES


def test_a_refusal_is_a_short_text_and_the_end() -> None:
    response = verdict(request("GET /elsewhere HTTP/1.1")).response

    head, body = response.split(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"Connection: close" in head
    assert body.endswith(b".\n")
