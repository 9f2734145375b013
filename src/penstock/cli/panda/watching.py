"""Whether an overlay is there: a client that asks all brokers how they are, until all links are up.

It is connected to the first broker, and hears of the others through it; so what it has seen, the
overlay carries.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.cli.panda.places import DeploymentError
from penstock.cli.panda.startbroker import Launch
from penstock.client.padres import Client

#: Seconds between two questions.
ASK_SECONDS: Final = 0.5


async def see_all(
    launches: Sequence[Launch], told: Callable[[str], None], seconds: float = 300.0
) -> None:
    """Return when every broker has been heard of, and each of its links is up."""
    brokers = [one for one in launches if one.broker is not None]
    if not brokers:
        return
    missing = set(_expected(brokers))
    try:
        async with asyncio.timeout(seconds):
            await _watch(str(brokers[0].broker), missing, told)
    except TimeoutError:
        listed = ", ".join(sorted(missing))
        raise DeploymentError(f"not there after {seconds:g} seconds: {listed}") from None


def _expected(brokers: Sequence[Launch]) -> list[str]:
    found = []
    for one in brokers:
        assert one.broker is not None
        found.append(one.broker.id)
        found += [f"{one.broker.id}-{other}" for other in one.neighbours]
    return found


async def _watch(url: str, missing: set[str], told: Callable[[str], None]) -> None:
    async with Client(url, patience=60.0) as client:
        await client.advertise("[class,eq,NETWORK_DISCOVERY]")
        await client.subscribe("[class,eq,BROKER_INFO]")
        while missing:
            await client.publish("[class,NETWORK_DISCOVERY]", durable=False)
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_SECONDS):
                    while missing:
                        received = await client.receive()
                        _seen(json.loads(received.payload), missing, told)


def _seen(info: dict[str, Any], missing: set[str], told: Callable[[str], None]) -> None:
    name = info["brokerID"]
    if name in missing:
        missing.remove(name)
        told(f"broker {name} is there")
    for other, usable in info["links"].items():
        link = f"{name}-{other}"
        if usable and link in missing:
            missing.remove(link)
            told(f"link {link} is up")
