"""Everything a broker says and does in its own name, put together."""

from __future__ import annotations

from collections.abc import Callable

from penstock.overlay.control import Control, Operations
from penstock.overlay.heartbeats import Heartbeats, Pulse
from penstock.overlay.monitor import Monitor
from penstock.overlay.own import Own
from penstock.overlay.router import Router
from penstock.overlay.tables import ORDER
from penstock.overlay.timers import Timers


class Controller:
    def __init__(
        self,
        router: Router,
        timers: Timers,
        operations: Operations,
        pulse: Pulse | None = None,
        *,
        uri: Callable[[], str] = str,
        info_interval: float = 0.0,
        info_full: bool = True,
    ) -> None:
        self.own = Own(router)
        if router.rules.ordered_by == router.broker_id:
            self.own.advertise(ORDER, f',[brokerID,eq,"{router.broker_id}"]')
        self.control = Control(self.own, operations)
        self.heartbeats = Heartbeats(self.own, timers, pulse or Pulse())
        self.monitor = Monitor(
            self.own,
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
