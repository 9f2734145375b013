"""Runs `penstock` commands in copies of a process that has imported them.

A page has tens of commands, and most of the time of a command is its imports. The program
`penstock` on the path of a page sends its arguments, environment and open files to this server,
which forks. The copy is a process of its own in every other respect.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from tests.paths import ROOT

CLIENT: Final = """\
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
asked = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [len(asked).to_bytes(4, "big")], [0, 1, 2])
server.sendall(asked)
pid = int.from_bytes(server.recv(4, socket.MSG_WAITALL), "big")
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, lambda number, frame: os.kill(pid, number))
status = server.recv(4, socket.MSG_WAITALL)
sys.exit(int.from_bytes(status, "big") if status else 137)
"""


#: `pip install` checks that each package, with its extra, exists here or is installed.
PIP: Final = """\
import re, sys, tomllib
from importlib.metadata import distribution
from pathlib import Path
for word in sys.argv[2:]:
    name, extra = re.fullmatch(r"([\\w-]+)(?:\\[([\\w,-]+)\\])?", word).groups()
    file = Path({root!r}, "packages", name, "pyproject.toml")
    if not file.exists():
        distribution(name)
    elif extra:
        known = tomllib.loads(file.read_text())["project"]["optional-dependencies"]
        assert set(extra.split(",")) <= known.keys(), f"{{word}}: there is no such extra"
"""


def install_programs(folder: Path, address: Path) -> None:
    """`penstock` and `pip`, for the path of a page."""
    client = f"#!{sys.executable} -ISs\n" + CLIENT.format(address=str(address))
    pip = f"#!{sys.executable} -I\n" + PIP.format(root=str(ROOT))
    for name, text in (("penstock", client), ("pip", pip)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def serve_commands(address: Path, work: Callable[[], int]) -> int:
    """Serve commands while a copy of this process does the work; the status of that copy."""
    for name in ("cli", "cli.broker", "cli.pub", "cli.sub", "cli.user", "server"):
        import_module(f"penstock.{name}")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(16)
    worker = os.fork()
    if not worker:
        listener.close()
        os._exit(work())
    running: dict[int, socket.socket] = {}
    listener.settimeout(0.02)
    while True:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            pass
        else:
            running |= _start_command(connection, listener)
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == worker:
                for each in running:
                    os.kill(each, signal.SIGKILL)
                return os.waitstatus_to_exitcode(status)
            if client := running.pop(pid, None):
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    client.sendall((code if code >= 0 else 128 - code).to_bytes(4, "big"))
                client.close()


def _start_command(connection: socket.socket, listener: socket.socket) -> dict[int, socket.socket]:
    connection.setblocking(True)
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    asked = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    pid = os.fork()
    if not pid:
        listener.close()
        connection.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        _run_command(*json.loads(asked))
    for file in files:
        os.close(file)
    connection.sendall(pid.to_bytes(4, "big"))
    return {pid: connection}


def _run_command(arguments: list[str], environment: dict[str, str], folder: str) -> NoReturn:
    status = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["penstock", *arguments]
        sys.path = [each for each in sys.path if each not in ("", str(ROOT))]
        sys.stdin = os.fdopen(0)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        from penstock import __main__ as program

        sys.modules["__main__"] = program  # which its own processes import, not the page's
        program.main()
        status = 0
    except SystemExit as ended:
        code = ended.code
        status = code if isinstance(code, int) else 0 if code is None else 1
    finally:
        for file in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                file.flush()
        os._exit(status)
