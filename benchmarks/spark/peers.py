"""The brokers that are read from: as in `benchmarks.peers`, and Penstock with its ranges."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.errors import PeerFailed
from benchmarks.peers import Peer, start_rabbitmq
from penstock import __version__

_START_SECONDS: Final = 90.0

__all__ = ["Peer", "start_with_management"]


def start_with_management(name: str, folder: Path) -> Peer:
    if name == "penstock":
        return _start_penstock(folder)
    port = _free_port()
    listener = f"stream.listeners.tcp.1 = 127.0.0.1:{port}\n"
    return replace(start_rabbitmq(folder, "rabbitmq_stream", listener), stream_port=port)


def _start_penstock(folder: Path) -> Peer:
    port = _free_port()
    log = folder / "penstock.log"
    command = [sys.executable, "-m", "penstock", "broker", "--data", str(folder / "data")]
    command += ["--listen", f"amqp://127.0.0.1:{port}", "--listen", "http://127.0.0.1:0"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    peer = Peer("penstock", __version__, port, (process,), log)
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
    if not ready or not process.stdout.readline():
        peer.close()
        raise PeerFailed(f"penstock did not start: {log.read_text(errors='replace')[-2000:]}")
    return peer


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
