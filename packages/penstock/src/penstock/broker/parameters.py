"""Runtime parameters of a virtual host, by component and name, as in RabbitMQ.

Components are `shovel`, `federation-upstream`, `federation-upstream-set` and `schema`. The values
are checked by those who use them. They are stored in the topology journal.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.topology import Topology

SHOVEL: Final = "shovel"
UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
SCHEMA: Final = "schema"


class RuntimeParameters:
    __slots__ = ("_topology", "_vhost")

    def __init__(self, vhost: str, topology: Topology) -> None:
        self._vhost = vhost
        self._topology = topology

    def all(self) -> list[tuple[str, str, Any]]:
        """Component, name and value of each."""
        found = [
            (key[2], key[3], stored["value"])
            for key, stored in self._topology.all("parameter")
            if key[1] == self._vhost
        ]
        return sorted(found, key=lambda each: each[:2])

    def of(self, component: str) -> dict[str, Any]:
        return {name: value for each, name, value in self.all() if each == component}

    def set(self, component: str, name: str, value: Any) -> None:
        self._topology.put(("parameter", self._vhost, component, name), {"value": value})

    def remove(self, component: str, name: str) -> None:
        self._topology.drop(("parameter", self._vhost, component, name))

    def drop(self) -> None:
        """The virtual host is deleted."""
        for component, name, _ in self.all():
            self.remove(component, name)
