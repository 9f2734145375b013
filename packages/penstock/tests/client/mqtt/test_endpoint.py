"""What a URL says of a broker and of the session to have with it."""

from __future__ import annotations

import pytest

from penstock.client.mqtt.endpoint import NEVER_EXPIRES, parse_endpoint
from penstock.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "port", "tls", "path"),
    [
        ("mqtt://localhost", 1883, False, None),
        ("mqtts://localhost/", 8883, True, None),
        ("ws://localhost", 15675, False, "/ws"),
        ("wss://localhost:443/mqtt", 443, True, "/mqtt"),
    ],
)
def test_the_scheme_says_how(url: str, port: int, tls: bool, path: str | None) -> None:
    endpoint = parse_endpoint(url)
    assert (endpoint.port, endpoint.tls, endpoint.path) == (port, tls, path)


def test_what_is_left_out_is_a_session_of_mqtt_5_that_ends_with_the_connection() -> None:
    endpoint = parse_endpoint("mqtt://localhost")
    assert (endpoint.version, endpoint.is_persistent, endpoint.user) == ("5", False, None)


def test_every_fabric_has_a_client_id_of_its_own() -> None:
    assert parse_endpoint("mqtt://a").client_id != parse_endpoint("mqtt://a").client_id


def test_what_is_said_is_taken() -> None:
    endpoint = parse_endpoint(
        "mqtt://us%65r:p%40ss@[::1]:1884/?version=3.1.1&client_id=sensor-7&session_expiry=60"
        "&keepalive=5"
    )
    assert (endpoint.user, endpoint.password, endpoint.host) == ("user", "p@ss", "::1")
    assert (endpoint.version, endpoint.client_id) == ("3.1.1", "sensor-7")
    assert (endpoint.session_expiry, endpoint.keepalive, endpoint.is_persistent) == (60, 5, True)
    assert str(endpoint) == "[::1]:1884"


def test_a_name_is_a_session_that_lasts() -> None:
    endpoint = parse_endpoint("mqtt://localhost").named("audit")
    assert (endpoint.client_id, endpoint.session_expiry) == ("audit", NEVER_EXPIRES)
    told = parse_endpoint("mqtt://localhost?session_expiry=60").named("audit")
    assert told.session_expiry == 60


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mqtt://localhost/vhost", "no virtual hosts"),
        ("mqtt://localhost?version=4", "version should be 5 or 3.1.1"),
        ("mqtt://localhost?clientid=x", "unknown option 'clientid'"),
        ("mqtt://localhost?keepalive=soon", "keepalive should be whole seconds"),
        ("mqtt://localhost?keepalive=99999", "1 to 65535"),
        ("mqtt://localhost:99999", "port"),
    ],
)
def test_what_cannot_be_is_said(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_endpoint(url)
