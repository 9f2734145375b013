"""A broker's URL taken apart."""

from __future__ import annotations

import pytest

from penstock.client.url import BrokerEndpoint, create_tls_context, parse_url
from penstock.core.errors import ConfigurationError
from penstock.wire.amqp091.address import parse_amqp_url


def test_all_parts_are_there_and_names_are_decoded() -> None:
    url = parse_url("padres://a%40b:c%2Fd@[::1]:7/x%2Fy?heartbeat=5&tls", ("heartbeat", "tls"))

    assert (url.scheme, url.host, url.port, url.path) == ("padres", "::1", 7, "/x%2Fy")
    assert (url.user, url.password) == ("a@b", "c/d")
    assert dict(url.options) == {"heartbeat": "5", "tls": ""}
    assert url.seconds("heartbeat", 15, 0, 60) == 5
    assert url.seconds("other", 15, 0, 60) == 15
    assert str(BrokerEndpoint(host=url.host, port=7)) == "[::1]:7"


def test_a_cluster_has_several_hosts() -> None:
    url = parse_url("mqtt://ada:pa55@one,two:7,[::1]:8/?keepalive=5", ("keepalive",))
    assert (url.host, url.port) == ("one", None)
    assert list(url.others) == [("two", 7), ("::1", 8)]
    endpoint = BrokerEndpoint(host="one", port=1, others=[("two", 7)])
    assert sorted(endpoint.hosts()) == [("one", 1), ("two", 7)]
    address = parse_amqp_url("amqp://one,two:7/vhost")
    found = sorted((each.host, each.port, each.vhost) for each in address.candidates())
    assert found == [("one", 5672, "vhost"), ("two", 7, "vhost")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mqtt://ada:pa55@host:70000", "port"),
        ("mqtt://ada:pa55@host:x", "port"),
        ("mqtt://ada:pa55@host,other:x", "is not valid"),
        ("mqtt://ada:pa55@host?colour=red", "unknown option 'colour'"),
        ("mqtt://ada:pa55@[host", "is not valid"),
    ],
)
def test_what_cannot_be_used_is_told_without_the_password(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused:
        parse_url(text, ("keepalive",))

    assert "pa55" not in str(refused.value)
    assert "ada" not in str(refused.value)


def test_the_password_is_in_nothing_that_is_printed() -> None:
    url = parse_url("mqtt://ada:pa55@host?keepalive=soon", ("keepalive",))

    assert "pa55" not in repr(url)
    with pytest.raises(ConfigurationError, match="'mqtt://host") as refused:
        url.seconds("keepalive", 30, 1, 60)
    assert "pa55" not in str(refused.value)


def test_a_file_of_authorities_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="cafile=/no/such"):
        create_tls_context("/no/such")
