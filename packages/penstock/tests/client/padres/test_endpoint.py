"""What a URL says of a broker that speaks PADRES."""

from __future__ import annotations

import pytest

from penstock.client.padres.endpoint import PadresEndpoint, parse_endpoint
from penstock.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("padres://there/B1", PadresEndpoint(host="there", port=5680, broker="B1")),
        ("padres://", PadresEndpoint(host="127.0.0.1", port=5680)),
        ("padres://[::1]:7/B1", PadresEndpoint(host="::1", port=7, broker="B1")),
        ("padress://there", PadresEndpoint(host="there", port=5681, tls=True)),
        ("padres://there?tls", PadresEndpoint(host="there", port=5681, tls=True)),
        (
            "padres://there:1?tls&cafile=x",
            PadresEndpoint(host="there", port=1, tls=True, cafile="x"),
        ),
        (
            "padres://ada:a%40b@there?vhost=blue&heartbeat=0",
            PadresEndpoint(
                host="there", port=5680, user="ada", password="a@b", vhost="blue", heartbeat=0
            ),
        ),
    ],
)
def test_a_url_names_a_broker(url: str, endpoint: PadresEndpoint) -> None:
    assert parse_endpoint(url) == endpoint


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("socket://there/B1", "should be padres://host:port/BrokerID"),
        ("padres://there:port", "the port should be a number"),
        ("padres://there/B-1", "not a broker id"),
        ("padres://there/a/b", "not a broker id"),
        ("padres://there?heartbeat=soon", "heartbeat should be whole seconds"),
        ("padres://there?colour=red", "unknown option 'colour'"),
    ],
)
def test_a_url_that_names_none_says_why(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_endpoint(url)
