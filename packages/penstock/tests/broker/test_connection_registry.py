"""How a connection is ended, whatever carries it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.connection_registry import half_close


class Transport:
    def __init__(self, halves: bool, gone: bool = False) -> None:
        self._halves = halves
        self._gone = gone
        self.asked: list[str] = []

    def can_write_eof(self) -> bool:
        return self._halves

    def write_eof(self) -> None:
        if self._gone:
            raise OSError("not connected")
        self.asked.append("eof")

    def close(self) -> None:
        self.asked.append("close")

    def abort(self) -> None:
        self.asked.append("abort")


@pytest.mark.parametrize(
    ("transport", "told", "asked"),
    [
        (Transport(halves=True), True, ["eof", "read"]),
        (Transport(halves=True), False, ["eof", "read"]),
        (Transport(halves=True, gone=True), True, ["abort", "read"]),
        (Transport(halves=False), True, ["read"]),  # TLS: the client closes
        (Transport(halves=False), False, ["close", "read"]),
    ],
)
def test_our_half_ends_and_what_still_comes_is_read(
    transport: Transport, told: bool, asked: list[str]
) -> None:
    flow_control = SimpleNamespace(force_resume=lambda: transport.asked.append("read"))

    half_close(
        cast(Any, SimpleNamespace(transport=transport, flow_control=flow_control)), reason_sent=told
    )

    assert transport.asked == asked
