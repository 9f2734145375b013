"""The addresses a broker listens on."""

from __future__ import annotations

import pytest

from penstock.core.addresses import DEFAULT_PORTS, parse_address


@pytest.mark.parametrize(("scheme", "port"), DEFAULT_PORTS.items())
def test_every_scheme_has_a_port_of_its_own(scheme: str, port: int) -> None:
    assert str(parse_address(f"{scheme}://localhost")) == f"{scheme}://localhost:{port}"


def test_port_0_stays_for_the_system_to_choose() -> None:
    assert parse_address("amqp://127.0.0.1:0").port == 0


def test_an_address_of_the_sixth_version_keeps_its_brackets() -> None:
    address = parse_address("amqp://[::1]:5672")
    assert address.host == "::1"
    assert str(address) == "amqp://[::1]:5672"


@pytest.mark.parametrize("scheme", ["amqps", "https", "mqtts", "padress", "wss"])
def test_schemes_over_tls(scheme: str) -> None:
    assert parse_address(f"{scheme}://localhost").tls


@pytest.mark.parametrize("scheme", ["amqp", "http", "mqtt", "ws", "padres"])
def test_schemes_in_the_clear(scheme: str) -> None:
    assert not parse_address(f"{scheme}://localhost").tls


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:5672", "should be scheme://host:port"),
        ("gopher://localhost", "a scheme of amqp, amqps"),
        ("amqp://", "the host is missing"),
        ("amqp://localhost:many", "a number from 0 to 65535"),
        ("amqp://localhost:70000", "a number from 0 to 65535"),
        ("amqp://guest:guest@localhost", "and nothing more"),
        ("amqp://localhost/vhost", "and nothing more"),
    ],
)
def test_what_is_no_address_is_refused_with_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_address(url)
