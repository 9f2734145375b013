"""Starting the brokers that are compared, each with private directories and free loopback ports.

A peer runs with its own defaults, except where they could hold back a load that is the same for
all: what is set is at the top. It is ready when `start_*` returns. `Peer.close()` ends the
processes it started, by their ids, and no others.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

from benchmarks.errors import PeerFailed
from benchmarks.usage import Usage, usage_of

_MOSQUITTO = "/usr/sbin/mosquitto"
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
#: Newer versions, which `make peers-new` installs. They see the system's directory for temporary
#: files, and no other.
_NEWER = Path(__file__).parents[1] / ".peers" / "newer"
#: By default 20 messages may be on their way to a client and 1,000 may wait: here it has no limits,
#: so that none of them is what is measured. It writes at once, and keeps nothing on disk.
_MOSQUITTO_SETTINGS = """\
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
persistence false
log_dest stderr
user root
"""
#: The configuration it comes with, but on a port of ours and without the plugin for $SYS.
_AMQTT_SETTINGS = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
plugins:
  amqtt.plugins.logging_amqtt.EventLoggerPlugin:
  amqtt.plugins.logging_amqtt.PacketLoggerPlugin:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""
#: It keeps sessions in its log, on which its MQTT is built.
_NATS_SETTINGS = """\
server_name: bench
listen: 127.0.0.1:{client_port}
jetstream {{ store_dir: "{directory}" }}
mqtt {{ listen: "127.0.0.1:{port}" }}
"""
#: A client of MQTT 3.1.1 that wants nothing, and the welcome it is given.
_CONNECT = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x3c\x00\x05probe"
_CONNACK = b"\x20\x02\x00\x00"
#: RabbitMQ takes about five seconds on an idle machine.
_START_SECONDS = 90.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A broker that runs: the address to speak its protocol to, and its processes."""

    name: str
    version: str
    port: int
    processes: tuple[subprocess.Popen[bytes], ...]
    log: Path
    stream_port: int = 0  #: of RabbitMQ's stream plugin, if it has that

    def usage(self) -> Usage:
        return usage_of(process.pid for process in self.processes)

    def close(self) -> None:
        """Ask each process to end, in the order they are listed; insist after a while."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start_penstock(
    directory: Path,
    profile: Path | None = None,
    scheme: str = "amqp",
    more: Sequence[str] = (),
    interpreter: str = sys.executable,
) -> Peer:
    """Penstock, with its data in `directory`; under cProfile when a file for its figures is given.

    `more` are addresses that it listens on, too; `interpreter` is that of the environment it is
    installed in. Its line on standard output says that it is ready.
    """
    port = free_port()
    profiler = ["-m", "cProfile", "-o", str(profile)] if profile else []
    command = [interpreter, *profiler, "-m", "penstock", "broker"]
    command += ["--data", str(directory / "data"), "--listen", f"{scheme}://127.0.0.1:{port}"]
    command += [word for address in more for word in ("--listen", address)]
    log = directory / "penstock.log"
    with log.open("wb") as errors:
        process = _start(command, dict(os.environ), subprocess.PIPE, errors.fileno())
    peer = Peer("penstock", _package_version("penstock"), port, (process,), log)
    assert process.stdout is not None
    said_something, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
    if not said_something or not process.stdout.readline():
        _give_up(peer)
    return peer


def start_rabbitmq(
    directory: Path, plugins: str = "", settings: str = "", *, newer: bool = False
) -> Peer:
    """Debian's RabbitMQ, or that of a newer Debian, as a node of its own beside any other.

    It has the plugins that are named, separated by commas, and no others; `settings` are theirs.
    """
    program = _NEWER / "rabbitmq-server" if newer else _RABBITMQ
    port, epmd_port = free_port(), free_port()
    log = directory / "rabbitmq.log"
    (directory / "plugins").write_text(f"[{plugins}].\n")
    (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n{settings}")
    environment = os.environ | {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "no-environment-file"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        # The start script then becomes the emulator, instead of waiting for it.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
    with log.open("wb") as output:
        # The emulator would start a port mapper that outlives it; ours ends with the peer.
        epmd = _start(["epmd", "-address", "127.0.0.1", "-port", str(epmd_port)], environment)
        broker = _start([str(program)], environment, output.fileno())
    name = "rabbitmq-4" if newer else "rabbitmq"
    version = _debian_version("rabbitmq-server", newer)
    peer = Peer(name, version, port, (broker, epmd), log)
    # It opens its listener last, and then greets whoever sends the protocol header.
    _await_answer(peer, b"AMQP\x00\x00\x09\x01", b"\x01")
    return peer


def start_mosquitto(directory: Path, *, newer: bool = False) -> Peer:
    """Debian's mosquitto, or that of a newer Debian."""
    program = str(_NEWER / "mosquitto") if newer else _MOSQUITTO
    port = free_port()
    settings = directory / "mosquitto.conf"
    settings.write_text(_MOSQUITTO_SETTINGS + f"listener {port} 127.0.0.1\n")
    log = directory / "mosquitto.log"
    with log.open("wb") as output:
        broker = _start([program, "-c", str(settings)], dict(os.environ), output.fileno())
    name = "mosquitto-2.1" if newer else "mosquitto"
    peer = Peer(name, _debian_version("mosquitto", newer), port, (broker,), log)
    _await_answer(peer, _CONNECT, _CONNACK)
    return peer


def start_nats(directory: Path) -> Peer:
    """NATS of a newer Debian, with its MQTT."""
    port = free_port()
    settings = directory / "nats.conf"
    settings.write_text(
        _NATS_SETTINGS.format(port=port, client_port=free_port(), directory=directory)
    )
    log = directory / "nats.log"
    command = [str(_NEWER / "nats-server"), "-c", str(settings)]
    with log.open("wb") as output:
        broker = _start(command, dict(os.environ), output.fileno())
    peer = Peer("nats", _debian_version("nats-server", True), port, (broker,), log)
    _await_answer(peer, _CONNECT, _CONNACK)
    return peer


def start_amqtt(directory: Path) -> Peer:
    """The broker of the Python package amqtt, as its own command runs it."""
    port = free_port()
    settings = directory / "amqtt.yaml"
    settings.write_text(_AMQTT_SETTINGS.format(port=port))
    log = directory / "amqtt.log"
    command = [sys.executable, "-m", "amqtt.scripts.broker_script", "-c", str(settings)]
    with log.open("wb") as output:
        broker = _start(command, dict(os.environ), output.fileno())
    peer = Peer("amqtt", _package_version("amqtt"), port, (broker,), log)
    _await_answer(peer, _CONNECT, _CONNACK)
    return peer


def available(name: str) -> bool:
    """Whether this machine has what it takes to start the peer of that name."""
    match name:
        case "rabbitmq":
            return _RABBITMQ.exists() and shutil.which("epmd") is not None
        case "rabbitmq-4":
            return (_NEWER / "rabbitmq-server").exists() and shutil.which("epmd") is not None
        case "mosquitto":
            return Path(_MOSQUITTO).exists()
        case "mosquitto-2.1":
            return (_NEWER / "mosquitto").exists()
        case "nats":
            return (_NEWER / "nats-server").exists()
        case "amqtt":
            return find_spec("amqtt") is not None
    command = [sys.executable, "-m", "penstock", "broker", "--help"]
    return name == "penstock" and subprocess.run(command, capture_output=True).returncode == 0


Starter = Callable[[Path], Peer]

#: Those that `make peers-new` installs, for benchmarks.
NEWER_PEERS = ("rabbitmq-4", "mosquitto-2.1", "nats")

#: The peers a benchmark of AMQP 0-9-1 may name.
AMQP_STARTERS: dict[str, Starter] = {
    "penstock": start_penstock,
    "rabbitmq": start_rabbitmq,
    "rabbitmq-4": partial(start_rabbitmq, newer=True),
}
#: One of AMQP 1.0, which RabbitMQ 3 has as a plugin.
AMQP10_STARTERS: dict[str, Starter] = {
    "penstock": start_penstock,
    "rabbitmq": partial(start_rabbitmq, plugins="rabbitmq_amqp1_0"),
    "rabbitmq-4": partial(
        start_rabbitmq,
        settings="deprecated_features.permit.amqp_address_v1 = true\n",
        newer=True,
    ),
}
#: And one of MQTT.
MQTT_STARTERS: dict[str, Starter] = {
    "penstock": partial(start_penstock, scheme="mqtt"),
    "mosquitto": start_mosquitto,
    "mosquitto-2.1": partial(start_mosquitto, newer=True),
    "nats": start_nats,
    "amqtt": start_amqtt,
}


def _start(
    command: list[str],
    environment: dict[str, str],
    output: int = subprocess.DEVNULL,
    errors: int = subprocess.STDOUT,
) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C at the terminal must reach the harness, which then closes it.
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
    )


def _give_up(peer: Peer) -> None:
    peer.close()
    last_words = peer.log.read_text(errors="replace")[-2000:].strip()
    raise PeerFailed(f"{peer.name} did not start: {last_words or 'it said nothing'}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_answer(peer: Peer, greeting: bytes, answer: bytes) -> None:
    """A broker is ready when it answers as its protocol has it."""
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(peer.port, greeting, answer):
        if peer.processes[0].poll() is not None or time.monotonic() > deadline:
            _give_up(peer)
        time.sleep(0.1)


def _answers(port: int, greeting: bytes, answer: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
            probe.sendall(greeting)
            return probe.recv(len(answer)) == answer
    except OSError:
        return False


def _package_version(package: str) -> str:
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return "from source"


def _debian_version(package: str, newer: bool = False) -> str:
    query = ["dpkg-query", "--show", "--showformat", "${Version}", package]
    if newer:
        query.insert(1, f"--admindir={_NEWER / 'var' / 'lib' / 'dpkg'}")
    try:
        return subprocess.run(query, capture_output=True, text=True).stdout or "unknown"
    except FileNotFoundError:
        return "unknown"
