"""A consumer's acknowledgements: one for every batch, of all up to it."""

from __future__ import annotations

from benchmarks.broker import frames
from benchmarks.broker.connection import CHANNEL
from benchmarks.harness.checker import Checker
from benchmarks.harness.pump import BATCH


class Acks:
    __slots__ = ("_acknowledged",)

    def __init__(self) -> None:
        self._acknowledged = 0

    def due(self, checker: Checker) -> bytes:
        received = checker.received
        until = received if received == checker.total else received - received % BATCH
        words = b""
        while self._acknowledged < until:
            self._acknowledged = min(self._acknowledged + BATCH, until)
            words += frames.ack(CHANNEL, self._acknowledged, multiple=True)
        return words
