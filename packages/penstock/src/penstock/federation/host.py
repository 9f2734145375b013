"""The broker, as shovels and federation links see it."""

from __future__ import annotations

from typing import Protocol

from penstock.broker.host import Alarms
from penstock.broker.kernel import Kernel
from penstock.broker.topology import Topology
from penstock.broker.vhost import VirtualHost


class FederationHost(Protocol):
    kernel: Kernel
    alarms: Alarms
    topology: Topology
    vhosts: dict[str, VirtualHost]

    @property
    def cluster_name(self) -> str: ...

    @property
    def cluster_id(self) -> str:
        """Distinguishes this broker, or cluster, from all others."""
