"""What a URL says of a broker that speaks AMQP 1.0."""

from __future__ import annotations

import pytest

from penstock.client.amqp10.endpoint import parse_endpoint
from penstock.core.errors import ConfigurationError


def test_a_bare_url_is_the_standard_port_and_guest() -> None:
    endpoint = parse_endpoint("amqp+1.0://example.org")
    assert (endpoint.host, endpoint.port, endpoint.tls) == ("example.org", 5672, False)
    assert (endpoint.user, endpoint.password) == ("guest", "guest")
    assert endpoint.hostname == "example.org"


def test_an_empty_name_is_nobody() -> None:
    assert parse_endpoint("amqp+1.0://@example.org").user is None


def test_tls_has_a_port_of_its_own() -> None:
    endpoint = parse_endpoint("amqps+1.0://example.org?cafile=ca.pem")
    assert (endpoint.port, endpoint.tls, endpoint.cafile) == (5671, True, "ca.pem")


def test_names_and_passwords_are_percent_encoded() -> None:
    endpoint = parse_endpoint("amqp+1.0://a%40b:c%2Fd@[::1]:7000/x%2Fy")
    assert (endpoint.user, endpoint.password) == ("a@b", "c/d")
    assert (endpoint.host, endpoint.port, str(endpoint)) == ("::1", 7000, "[::1]:7000")
    assert endpoint.hostname == "vhost:x/y"


def test_options_follow_the_question_mark() -> None:
    endpoint = parse_endpoint("amqp+1.0://h?container_id=me&heartbeat=5")
    assert (endpoint.container_id, endpoint.heartbeat) == ("me", 5)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("amqp+1.0://h:99999", "port"),
        ("amqp+1.0://h?colour=red", "colour"),
        ("amqp+1.0://h?heartbeat=0", "heartbeat"),
        ("amqp+1.0://h?heartbeat=soon", "heartbeat"),
    ],
)
def test_what_cannot_be_used_is_said(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_endpoint(url)
