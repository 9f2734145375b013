"""Members in network namespaces of their own, on one bridge: packets are lost, as in a network.

A direction is cut by a wrong hardware address of the target in the source's neighbour table: what
is sent is lost without an error. Needs root, `ip`, `tc`, and a kernel with bridges and veth.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterable
from typing import Final

from .network import Proxy

#: Of what a member sends to everybody over a slow link.
_SLOW_RATE: Final = ("rate", "2mbit", "burst", "32kbit", "latency", "400ms")
_SHAPE: Final = ("tc", "qdisc")
_ROOT: Final = ("dev", "eth0", "root")
#: Of nobody.
_WRONG_ADDRESS: Final = "02:00:00:00:00:ff"


def can_use_namespaces() -> bool:
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        return False
    try:
        Namespaces(["x"]).close()
    except subprocess.CalledProcessError:
        return False
    return True


class Namespaces:
    """A network of 198.18.0.0/15, which is for tests: the clients at .1, the coordinator at .2,
    members from .10 on."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        chance = random.SystemRandom()
        self._id = f"pk{chance.randrange(1 << 20):05x}"
        self._network = f"198.{chance.choice((18, 19))}.{chance.randrange(256)}"
        while _ip("route", "show", f"{self._network}.0/24"):  # another test has it
            self._network = f"198.{chance.choice((18, 19))}.{chance.randrange(256)}"
        self._cuts: set[tuple[str, str]] = set()
        self._slow: set[str] = set()
        self.clients, self.coordinator = f"{self._network}.1", f"{self._network}.2"
        try:
            _ip("link", "add", self._id, "type", "bridge")
            for address in (self.clients, self.coordinator):
                _ip("address", "add", f"{address}/24", "dev", self._id)
            _ip("link", "set", self._id, "up")
            for name in self._names:
                self._add(name)
        except BaseException:
            self.close()
            raise

    def _add(self, name: str) -> None:
        space, outside = self.space(name), f"{self._id}{name}"
        _ip("netns", "add", space)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outside, "master", self._id, "up")
        _ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")

    def space(self, name: str) -> str:
        return f"{self._id}-{name}"

    def address(self, name: str) -> str:
        return f"{self._network}.{10 + self._names.index(name)}"

    def others(self, name: str) -> list[str]:
        return [one for one in self._names if one != name]

    def cut(self, source: str, target: str) -> None:
        """What one member sends to an address is lost."""
        entry = (target, "lladdr", _WRONG_ADDRESS, "dev", "eth0", "nud", "permanent")
        _ip("-n", self.space(source), "neighbour", "replace", *entry)
        self._cuts.add((source, target))

    def slow_down(self, source: str) -> None:
        _ip("netns", "exec", self.space(source), *_SHAPE, "replace", *_ROOT, "tbf", *_SLOW_RATE)
        self._slow.add(source)

    def heal(self, source: str) -> None:
        if source in self._slow:
            _ip("netns", "exec", self.space(source), *_SHAPE, "delete", *_ROOT)
            self._slow.discard(source)
        for cut in [cut for cut in self._cuts if cut[0] == source]:
            _ip("-n", self.space(source), "neighbour", "delete", cut[1], "dev", "eth0")
            self._cuts.discard(cut)

    def close(self) -> None:
        for name in self._names:
            _ip("link", "delete", f"{self._id}{name}", check=False)
            _ip("netns", "delete", self.space(name), check=False)
        _ip("link", "delete", self._id, check=False)


class NamespaceLinks:
    """A member's place in the network; the same faults as with `ProxyLinks`."""

    def __init__(
        self, spaces: Namespaces, name: str, coordinator: int | str, replication: int
    ) -> None:
        self._spaces = spaces
        self._name = name
        self._relay = Proxy(coordinator, spaces.coordinator)
        self.host = spaces.address(name)
        self.prefix = ("ip", "netns", "exec", spaces.space(name))
        self.coordinator = f"{spaces.coordinator}:{self._relay.port}"
        self.advertised = f"{self.host}:{replication}"

    def cut_off_coordinator(self) -> None:
        self._spaces.cut(self._name, self._spaces.coordinator)

    def lose_changes(self) -> None:
        for other in self._spaces.others(self._name):
            self._spaces.cut(self._name, self._spaces.address(other))

    def lose_acknowledgements(self) -> None:
        for other in self._spaces.others(self._name):
            self._spaces.cut(other, self.host)

    def cut_off_from(self, other: str) -> None:
        self._spaces.cut(self._name, self._spaces.address(other))
        self._spaces.cut(other, self.host)

    def slow_down(self) -> None:
        self._spaces.slow_down(self._name)

    def heal(self) -> None:
        self._spaces.heal(self._name)

    def close(self) -> None:
        self._relay.close()


def _ip(*words: str, check: bool = True) -> bytes:
    return subprocess.run(["ip", *words], check=check, capture_output=True).stdout
