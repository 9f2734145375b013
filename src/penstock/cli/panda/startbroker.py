"""Commands of a topology as they are run: PADRES' `startbroker` becomes `penstock broker`.

Its flags are those of PADRES' guide. Other commands stay as they are. Of brokers it is known which
neighbours they name, so that somebody can see whether all links are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.overlay.uris import BrokerUri, parse_uri

#: Flags that are settings of ours by another name.
_SETTINGS: Final[dict[str, str]] = {
    "-rl": "broker.overlay.retry_limit",
    "-rp": "broker.overlay.retry_pause",
    "-cy": "broker.overlay.cycles",
    "-s": "broker.overlay.subscription_covering",
}
_SWITCHES: Final[dict[str, str]] = {
    "-h": "broker.overlay.heartbeat",
    "-pubc": "broker.padres.conformance",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that can be run, and what is known of it if it is a broker's."""

    words: tuple[str, ...]
    broker: BrokerUri | None = None
    neighbours: tuple[str, ...] = ()  #: their ids

    def has(self, setting: str) -> bool:
        """Whether the command itself has a setting."""
        return any(word.startswith(f"{setting}=") for word in self.words)


def launch(command: tuple[str, ...]) -> Launch:
    if command[0] == "startbroker":
        return _startbroker(command[1:])
    if command[:2] == ("penstock", "broker"):
        return _penstock_broker(command)
    return Launch(command)


def _startbroker(flags: tuple[str, ...]) -> Launch:
    uri: BrokerUri | None = None
    neighbours: list[BrokerUri] = []
    settings: list[str] = []
    for flag, value in _pairs(flags):
        if flag == "-uri":
            uri = _uri(value)
        elif flag == "-n":
            neighbours = [_uri(one) for one in value.split(",") if one]
        elif flag in _SETTINGS:
            settings.append(f"{_SETTINGS[flag]}={value}")
        elif flag in _SWITCHES:
            settings.append(f"{_SWITCHES[flag]}={_on(flag, value)}")
        else:
            settings.append(_other(flag, value))
    if uri is None:
        raise ConfigurationError("startbroker: -uri says where the broker is, and is missing")
    settings += [f"broker.overlay.id={uri.id}", f"broker.overlay.uri={uri}"]
    if neighbours:
        settings.append(f"broker.overlay.neighbours={','.join(map(str, neighbours))}")
    words = ["penstock", "broker", "--listen", f"{uri.scheme}://{uri.host}:{uri.port}"]
    words += [word for setting in settings for word in ("--set", setting)]
    return Launch(tuple(words), uri, tuple(one.id for one in neighbours))


def _pairs(flags: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if len(flags) % 2:
        raise ConfigurationError(f"startbroker: {flags[-1]} has no value")
    return zip(flags[::2], flags[1::2], strict=True)


def _uri(text: str) -> BrokerUri:
    """PADRES' own schemes are taken for ours."""
    for scheme in ("socket", "rmi"):
        text = text.replace(f"{scheme}://", "padres://", 1)
    return parse_uri(text)


def _on(flag: str, value: str) -> str:
    if value.upper() not in ("ON", "OFF"):
        raise ConfigurationError(f"startbroker: {flag} is ON or OFF, and not {value!r}")
    return "true" if value.upper() == "ON" else "false"


def _other(flag: str, value: str) -> str:
    meanings: dict[str, Callable[[], str]] = {
        "-a": lambda: (
            "broker.overlay.advertisement_covering=" + ("OFF" if value.upper() == "OFF" else "LAZY")
        ),
        "-mon.bi": lambda: (
            "broker.overlay.info_interval=" + ("20" if _on(flag, value) == "true" else "0")
        ),
        "-mon.bi.advsubinfo": lambda: (
            "broker.overlay.info_full=" + ("true" if value.upper() == "FULL" else "false")
        ),
    }
    if flag not in meanings:
        known = " ".join(["-uri", "-n", *_SETTINGS, *_SWITCHES, *meanings])
        raise ConfigurationError(f"startbroker: there is no flag {flag}: {known}")
    return meanings[flag]()


def _penstock_broker(command: tuple[str, ...]) -> Launch:
    """What such a broker says of itself in its settings."""
    settings = dict(
        value.split("=", 1) for flag, value in pairwise(command) if flag == "--set" and "=" in value
    )
    listening = [
        value
        for flag, value in pairwise(command)
        if flag == "--listen" and value.startswith("padres")
    ]
    identity = settings.get("broker.overlay.id")
    if identity is None or not listening:
        return Launch(command)
    named = settings.get("broker.overlay.neighbours", "").split(",")
    neighbours = tuple(parse_uri(one).id for one in named if one)
    return Launch(command, parse_uri(f"{listening[0]}/{identity}"), neighbours)
