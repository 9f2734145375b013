"""qpid-proton's event handlers: its container, its credit by prefetch, its reconnects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.amqp10.proton import need_proton
from tests.peers import Broker

MESSAGES = 2000


def run(handler: Any) -> None:
    need_proton().reactor.Container(handler).run()


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
def test_all_that_is_sent_arrives_in_order(amqp10_broker: Broker, name: str, settled: bool) -> None:
    proton = need_proton()
    options = proton.reactor.AtMostOnce() if settled else proton.reactor.AtLeastOnce()

    class Flow(proton.handlers.MessagingHandler):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__(prefetch=100)
            self.sent = self.accepted = 0
            self.received: list[int] = []

        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(
                f"amqp://guest:guest@127.0.0.1:{amqp10_broker.port}",
                allowed_mechs="PLAIN",
                reconnect=False,
            )
            event.container.create_receiver(self.connection, f"/queue/{name}", options=options)
            event.container.create_sender(self.connection, f"/queue/{name}", options=options)

        def on_sendable(self, event: Any) -> None:
            while event.sender.credit and self.sent < MESSAGES:
                event.sender.send(proton.Message(body=self.sent))
                self.sent += 1

        def on_accepted(self, event: Any) -> None:
            self.accepted += 1
            self._end()

        def on_message(self, event: Any) -> None:
            self.received.append(event.message.body)
            self._end()

        def _end(self) -> None:
            if len(self.received) == MESSAGES and (settled or self.accepted == MESSAGES):
                self.connection.close()

        def on_transport_error(self, event: Any) -> None:
            raise AssertionError(event.transport.condition)

    flow = Flow()
    run(flow)
    assert flow.received == list(range(MESSAGES))
