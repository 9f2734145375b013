"""Listening sockets on the broker's loop."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any, cast

import pytest

from penstock.core.addresses import ListenAddress
from penstock.core.errors import ConfigurationError
from penstock.server import listener as doors
from penstock.server.listener import SocketListener, bind_listener
from tests.server.loops import (
    Recorder,
    anybody,
    host,
    on_broker_loop,
    open_recorder,
    passes_until,
    this_loop,
    visit,
)


class Crowded:
    """A listening socket of a system that has no room left for the first who come."""

    def __init__(self, listening: socket.socket, refusals: list[int]) -> None:
        self._listening = listening
        self._refusals = refusals

    def accept(self) -> Any:
        if self._refusals:
            number = self._refusals.pop()
            raise OSError(number, os.strerror(number))
        return self._listening.accept()

    def fileno(self) -> int:
        return self._listening.fileno()

    def close(self) -> None:
        self._listening.close()


def listening_socket() -> socket.socket:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    return listening


@on_broker_loop
async def test_everyone_who_comes_gets_a_terminal() -> None:
    door, recorders = await open_recorder()
    peers = [await visit(door) for _ in range(100)]
    await passes_until(lambda: len(recorders) == 100)
    for peer in peers:
        peer.close()
    for recorder in recorders:
        await recorder.until_lost()
    door.close()


@on_broker_loop
async def test_those_who_are_in_stay_in_when_it_closes() -> None:
    door, recorders = await open_recorder()
    address = door.sockets[0].getsockname()
    peer = await visit(door)
    await passes_until(lambda: recorders)

    door.close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    peer.send(b"still here")
    await recorders[0].until(lambda: recorders[0].received == b"still here")
    peer.close()


@on_broker_loop
async def test_it_waits_and_goes_on_when_the_system_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doors, "REST_SECONDS", 0.01)
    crowded = Crowded(listening_socket(), [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
    recorders: list[Recorder] = []

    def recorder() -> Recorder:
        recorders.append(Recorder())
        return recorders[-1]

    door = SocketListener(this_loop(), [cast(socket.socket, crowded)], recorder, anybody())
    peer = socket.create_connection(crowded._listening.getsockname())
    await passes_until(lambda: recorders)
    assert crowded._refusals == []
    peer.close()
    door.close()


@on_broker_loop
async def test_it_does_not_open_again_once_it_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "REST_SECONDS", 0.01)
    crowded = Crowded(listening_socket(), [errno.EMFILE] * 1000)
    door = SocketListener(this_loop(), [cast(socket.socket, crowded)], Recorder, anybody())
    peer = socket.create_connection(crowded._listening.getsockname())
    await passes_until(lambda: len(crowded._refusals) < 1000)
    door.close()
    left = len(crowded._refusals)
    await asyncio.sleep(0.05)
    assert len(crowded._refusals) == left
    peer.close()


@on_broker_loop
async def test_a_visitor_who_has_gone_again_is_nobodys_concern() -> None:
    crowded = Crowded(listening_socket(), [errno.ECONNABORTED])
    made = asyncio.Event()

    def recorder() -> Recorder:
        made.set()
        return Recorder()

    door = SocketListener(this_loop(), [cast(socket.socket, crowded)], recorder, anybody())
    peer = socket.create_connection(crowded._listening.getsockname())
    await made.wait()
    peer.close()
    door.close()


@on_broker_loop
async def test_an_address_that_is_taken_is_an_error_and_leaves_nothing_open() -> None:
    taken = listening_socket()
    address = ListenAddress("mqtt", "127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigurationError, match="in use"):
        await bind_listener(host(), address, Recorder, None)
    taken.close()
