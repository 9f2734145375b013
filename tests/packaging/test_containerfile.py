"""The steps of the Containerfile, run in a root of their own; then its command serves."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT

CONTAINERFILE: Final = ROOT / "packaging" / "container" / "Containerfile"
STEP_SECONDS: Final = 600

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3 * STEP_SECONDS),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("mmdebstrap") is None,
        reason="takes root and mmdebstrap",
    ),
]


def instructions() -> Iterator[tuple[str, str]]:
    """Instruction and argument, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            verb, _, argument = line.partition(" ")
            yield verb, argument.strip()


class Container:
    """Interprets the instructions in a directory; what needs a container engine is recorded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        self.user = "root"
        self.recorded: dict[str, str] = {}

    def build(self) -> None:
        for verb, argument in instructions():
            match verb:
                case "FROM":
                    suite = re.findall(r"debian:(\w+)-slim", argument)[0]
                    command = ["mmdebstrap", "--quiet", "--variant=minbase", suite, str(self.root)]
                    subprocess.run(command, check=True, timeout=STEP_SECONDS)
                    self._use_package_indexes_of_this_machine()
                case "RUN":
                    self.run(["sh", "-c", argument])
                case "COPY":
                    source, target = argument.split()
                    place = self.root / target.lstrip("/")
                    place.parent.mkdir(parents=True, exist_ok=True)
                    copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                    copy(ROOT / source, place)
                case "ARG" | "ENV":
                    self.environment |= dict(pair.split("=", 1) for pair in shlex.split(argument))
                case "USER":
                    self.user = argument
                case _:
                    self.recorded[verb] = argument

    def run(self, words: list[str]) -> None:
        subprocess.run(
            [shutil.which("chroot") or "chroot", str(self.root), *words],
            env=self.environment,
            check=True,
            timeout=STEP_SECONDS,
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [
            shutil.which("chroot") or "chroot",
            f"--userspec={self.user}",
            str(self.root),
            *words,
        ]
        return subprocess.Popen(command, env=self.environment)

    def _use_package_indexes_of_this_machine(self) -> None:
        for name in ("etc/resolv.conf", "etc/pip.conf"):
            if Path("/", name).exists():
                shutil.copy(Path("/", name), self.root / name)
        self.environment |= {
            key: value for key, value in os.environ.items() if key.startswith("PIP_")
        }
        if "PIP_CERT" in self.environment:
            shutil.copy(self.environment["PIP_CERT"], self.root / "etc/pip-authorities.pem")
            self.environment["PIP_CERT"] = "/etc/pip-authorities.pem"
        configured = [sys.executable, "-m", "pip", "config", "list"]
        listed = subprocess.run(configured, capture_output=True, text=True, check=True).stdout
        for folder in set(re.findall(r"(?:file://)?(/[^'\s]+)", listed)):
            place = self.root / folder.lstrip("/")
            if Path(folder).is_dir() and not place.exists():
                shutil.copytree(folder, place)


def test_the_image_serves(tmp_path: Path) -> None:
    container = Container(tmp_path / "root")
    container.build()
    entry = json.loads(container.recorded["ENTRYPOINT"])
    command = [
        word.replace("0.0.0.0:15672", "127.0.0.1:28672")
        .replace("0.0.0.0:5672", "127.0.0.1:0")
        .replace("0.0.0.0:1883", "127.0.0.1:0")
        for word in json.loads(container.recorded["CMD"])
    ]
    broker = container.start(*entry, *command)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                found = urllib.request.urlopen("http://127.0.0.1:28672/metrics", timeout=5).read()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert b"penstock_connections" in found
        assert (container.root / "var/lib/penstock/broker.lock").stat().st_uid != 0
    finally:
        broker.terminate()
        assert broker.wait(30) == 0
