"""`python -m benchmarks.relay`: what one message in flight costs the kernel alone.

A relay in C does what a broker does at least for a message: it waits with epoll, reads from one
socket and writes to another. No broker can need less CPU time in the ping-pong on this machine, so
the figure says how much of a broker's is its own. The relay is compiled with `cc`.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

from benchmarks.peers import free_port
from benchmarks.usage import usage_of

#: The octets of a publish and of a delivery of 16 bytes, as in the ping-pong of AMQP 0-9-1.
PUBLISH_BYTES: Final = 71
DELIVERY_BYTES: Final = 90

SOURCE: Final = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static char in[65536], out[65536];
    int size = atoi(argv[2]), on = 1, ends[2], listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&here, sizeof here) || listen(listening, 2)) return 1;
    write(1, "\n", 1);
    struct epoll_event event = {.events = EPOLLIN};
    int poll = epoll_create1(0);
    for (int i = 0; i < 2; i++) {
        ends[i] = accept(listening, 0, 0);
        setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        event.data.fd = ends[i];
        epoll_ctl(poll, EPOLL_CTL_ADD, ends[i], &event);
    }
    while (epoll_wait(poll, &event, 1, -1) == 1) {
        if (recv(event.data.fd, in, sizeof in, 0) <= 0) return 0;
        send(ends[1], out, size, 0);
    }
    return 1;
}
"""


def measure(messages: int) -> float:
    """CPU seconds of the relay per million messages, one in flight."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "relay.c", Path(folder) / "relay"
        source.write_text(SOURCE)
        subprocess.run(["cc", "-O2", "-w", "-o", program, source], check=True)
        port = free_port()
        command = [str(program), str(port), str(DELIVERY_BYTES)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as relay:
            assert relay.stdout is not None
            relay.stdout.read(1)  # it listens
            publisher, consumer = _connected(port), _connected(port)
            with publisher, consumer:
                _play(publisher, consumer, messages // 10)
                before = usage_of([relay.pid]).cpu_seconds
                _play(publisher, consumer, messages)
                spent = usage_of([relay.pid]).cpu_seconds - before
    return spent / messages * 1e6


def _connected(port: int) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", port))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.settimeout(None)
    return connected


def _play(publisher: socket.socket, consumer: socket.socket, messages: int) -> None:
    ball, room = b"x" * PUBLISH_BYTES, bytearray(DELIVERY_BYTES)
    for _ in range(messages):
        publisher.sendall(ball)
        left = DELIVERY_BYTES
        while left:
            left -= consumer.recv_into(room, left)


def main(
    messages: Annotated[int, typer.Option(min=10, help="Per round.")] = 50_000,
    rounds: Annotated[int, typer.Option(min=1, help="The median of these counts.")] = 3,
) -> None:
    """Print the CPU seconds of the relay per million messages."""
    print(f"{median(measure(messages) for _ in range(rounds)):.1f}")


if __name__ == "__main__":
    typer.run(main)
