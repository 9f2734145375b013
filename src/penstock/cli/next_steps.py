"""What a person who has just started Penstock may do next.

Commands are shown as they can be typed here: with the path to ours where the shell would not find
it, and with an address where it is not the one the commands know by themselves.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from penstock.cli.supervisor import Addresses
from penstock.core.addresses import PORTS

#: How a person reaches an address, by its scheme.
_REACH = {
    "amqp": "AMQP, guest/guest",
    "amqps": "AMQP over TLS",
    "mqtt": "MQTT, guest/guest or no name",
    "mqtts": "MQTT over TLS",
    "ws": "MQTT over WebSocket, guest/guest",
    "wss": "MQTT over WebSocket and TLS",
    "padres": "PADRES",
    "padress": "PADRES over TLS",
    "http": "the broker's page, guest/guest",
    "https": "the broker's page, over TLS",
}


def reach(address: str) -> str:
    scheme, separator, _ = address.partition("://")
    return _REACH.get(scheme, "") if separator else ""


def next_steps(
    addresses: Addresses, where: Sequence[str] = (), command: str | None = None
) -> list[tuple[str, str]]:
    """Commands to try, and what each shows; `where` are flags that lead to the data."""
    penstock = command or _command()
    broker = addresses.get("broker", ())
    amqp = _unless_usual("amqp", broker)
    http = _unless_usual("http", broker)
    steps: list[tuple[str, str]] = []
    mqtt = next((url for url in broker if url.startswith("mqtt://")), None)
    if addresses.get("demo"):
        steps.append((f"{penstock} sub 'sensors.#'{amqp}", "what sensors send"))
    if addresses.get("pipeline"):
        steps.append((f"{penstock} sub 'occupancy.#'{amqp}", "how full hives are"))
        if mqtt is not None:
            steps.append((f"{penstock} sub {mqtt} 'occupancy/#'", "over MQTT"))
        status = " ".join([f"{penstock} pipeline status{amqp}", *map(quote, where)])
        steps.append((status, "lag, tables"))
    if any(url.startswith("http") for url in broker):
        steps.append((f"{penstock} broker status{http}", "rates, queues"))
    return steps


def _unless_usual(scheme: str, addresses: Sequence[str]) -> str:
    """The flag that leads to the first address of a scheme, where one is needed."""
    usual = f"{scheme}://127.0.0.1:{PORTS[scheme]}"
    found = [url for url in addresses if url.startswith(f"{scheme}://")]
    return f" --url {found[0]}" if found and usual not in found else ""


def _command() -> str:
    if shutil.which("penstock"):
        return "penstock"
    ours = Path(sys.executable).with_name("penstock")
    if not ours.exists():
        return "python -m penstock"
    near = os.path.relpath(ours)
    return str(ours) if near.startswith("..") else near
