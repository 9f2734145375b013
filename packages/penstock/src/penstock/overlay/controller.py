"""Assembles the broker's own hop, control, heartbeats and monitor."""

from __future__ import annotations

from collections.abc import Callable

from penstock.overlay.heartbeats import Heartbeats, HeartbeatSettings, Timers
from penstock.overlay.monitor import BrokerMonitor
from penstock.overlay.router import OverlayRouter
from penstock.overlay.routing_tables import ORDER_CLASS
from penstock.overlay.self import BrokerOperations, ControlHandler, SelfHop


class OverlayController:
    def __init__(
        self,
        router: OverlayRouter,
        timers: Timers,
        operations: BrokerOperations,
        pulse: HeartbeatSettings | None = None,
        *,
        uri: Callable[[], str] = str,
        info_interval: float = 0.0,
        info_full: bool = True,
    ) -> None:
        self.self_hop = SelfHop(router)
        if router.rules.ordered_by == router.broker_id:
            self.self_hop.advertise(ORDER_CLASS, f',[brokerID,eq,"{router.broker_id}"]')
        self.control = ControlHandler(self.self_hop, operations)
        self.heartbeats = Heartbeats(self.self_hop, timers, pulse or HeartbeatSettings())
        self.monitor = BrokerMonitor(
            self.self_hop,
            timers,
            self.heartbeats,
            operations,
            uri=uri,
            interval=info_interval,
            full=info_full,
        )

    def stop(self) -> None:
        self.heartbeats.stop()
        self.monitor.stop()
