"""What a configuration exposes to other machines: shown at start and by `penstock doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.broker.users import DEFAULT_PASSWORD, DEFAULT_USER
from penstock.core.addresses import TLS_SCHEMES, is_loopback, parse_address
from penstock.core.passwords import PasswordVerifier

if TYPE_CHECKING:
    from penstock.broker.user import User
    from penstock.core.config import BrokerSettings


@dataclass(frozen=True, slots=True)
class Exposure:
    problem: str
    advice: str


async def find_exposures(settings: BrokerSettings, guest: User | None) -> list[Exposure]:
    """`guest` is the default user, None if it was deleted.

    A broker that listens on loopback only has none.
    """
    addresses = [parse_address(url) for url in settings.listen]
    remote = [
        each for each in addresses if not (each.host == "localhost" or is_loopback(each.host))
    ]
    if not remote:
        return []
    found = [
        Exposure(
            f"{address} accepts connections from other machines without TLS",
            f"listen on {TLS_SCHEMES[address.scheme]}:// with broker.tls.certificate and "
            "broker.tls.key, or on 127.0.0.1",
        )
        for address in remote
        if not address.tls
    ]
    if guest is not None and await PasswordVerifier().check(
        guest.password_hash, DEFAULT_PASSWORD, "127.0.0.1"
    ):
        found.append(
            Exposure(
                f"user {DEFAULT_USER} has the default password; only localhost may use it",
                f"set another: penstock user password {DEFAULT_USER}, or delete the user: "
                f"penstock user delete {DEFAULT_USER}",
            )
        )
    if settings.anonymous:
        found.append(
            Exposure(
                "AMQP and PADRES clients of other machines may omit the user name "
                f"(they are user {settings.anonymous_user})",
                "set broker.anonymous = false",
            )
        )
    for key, values in (
        ("allowed_hosts", settings.allowed_hosts),
        ("allowed_origins", settings.allowed_origins),
    ):
        if "*" in values:
            found.append(
                Exposure(
                    f"broker.{key} is *: any web site can use the browser of a signed-in user",
                    f"list the names in broker.{key}",
                )
            )
    return found
