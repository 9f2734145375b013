"""`penstock doctor`: checks the machine and the configuration, and says what to change.

It changes nothing, and works beside a running broker. Exit status 1: a check failed.
"""

from __future__ import annotations

import asyncio
import errno
import json
import platform
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

import typer

from penstock import __version__
from penstock.cli.options import AsJson, ConfigFile, Data, Listen, Overrides, effective
from penstock.cli.table import new_table
from penstock.core.addresses import ListenAddress, parse_address
from penstock.core.data_directory import FileLock
from penstock.core.errors import ConfigurationError
from penstock.core.java import java_problem
from penstock.core.resources import disk_free, memory_total, raise_descriptor_limit
from penstock.core.units import GiB, MiB

if TYPE_CHECKING:
    from penstock.core.config import Settings


Verdict = Literal["ok", "warning", "failed"]

#: Connections and open files of a small installation.
FEW_DESCRIPTORS: Final = 65_536
#: Messages, and Spark if it is installed.
LITTLE_MEMORY: Final = 1 * GiB
#: A certificate that expires sooner is reported.
EXPIRY_DAYS: Final = 30

_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    detail: str
    advice: str = ""


def doctor(
    file: ConfigFile = None,
    pairs: Overrides = None,
    data: Data = None,
    listen: Listen = None,
    as_json: AsJson = False,
) -> None:
    """Check versions, limits, disk, ports, certificates and what is exposed to other machines."""
    settings = effective(file, pairs, data, listen).settings
    findings = [finding for check in CHECKS for finding in check(settings)]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    if any(finding.verdict == "failed" for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    table = new_table("check", "result", "detail")
    for each in findings:
        detail = f"{each.detail}\n→ {each.advice}" if each.advice else each.detail
        style = _STYLES[each.verdict]
        table.add_row(Text(each.check), Text(each.verdict, style=style), Text(detail))
    Console().print(table)


def check_versions(settings: Settings) -> Iterator[Finding]:
    python = platform.python_version()
    yield Finding("version", "ok", f"penstock {__version__}, Python {python}, {sys.platform}")
    for found in distributions():
        name = found.metadata["Name"] or ""
        if name.startswith("penstock-") and found.version != __version__:
            yield Finding(
                "version",
                "failed",
                f"{name} is {found.version}, penstock is {__version__}",
                f"install the same version of both: pip install penstock {name}",
            )


def check_limits(settings: Settings) -> Iterator[Finding]:
    descriptors = raise_descriptor_limit()
    enough = descriptors >= FEW_DESCRIPTORS
    yield Finding(
        "open files",
        "ok" if enough else "warning",
        f"at most {descriptors:,}: each connection and each open segment needs one",
        "" if enough else f"raise it: ulimit -n {FEW_DESCRIPTORS}, or LimitNOFILE= (systemd)",
    )
    memory = memory_total()
    yield Finding(
        "memory",
        "ok" if memory >= LITTLE_MEMORY else "warning",
        f"{memory / GiB:,.1f} GiB, {settings.broker.memory_bytes / MiB:,.0f} MiB for messages",
        "" if memory >= LITTLE_MEMORY else "Spark needs at least 1 GiB; the broker runs",
    )


def check_data_directory(settings: Settings) -> Iterator[Finding]:
    data = settings.data
    existing = next(each for each in (data, *data.parents) if each.exists())
    free, limit = disk_free(existing), settings.broker.disk_free_limit
    full = free < limit
    yield Finding(
        "disk",
        "failed" if full else "ok",
        f"{free / GiB:,.1f} GiB free in {existing}, the limit is {limit / MiB:,.0f} MiB",
        "free some space: publishers are blocked below broker.disk_free_limit" if full else "",
    )
    if not data.is_dir():
        yield Finding("data", "ok", f"{data} does not exist; the first start creates it")
        return
    exposed = stat.S_IMODE(data.stat().st_mode) & 0o066
    yield Finding(
        "data",
        "failed" if exposed else "ok",
        f"{data} can be read or written by other users" if exposed else str(data),
        f"chmod 700 {data}" if exposed else "",
    )


def check_ports(settings: Settings) -> Iterator[Finding]:
    from penstock.server.broker import LOCK_NAME

    lock = FileLock(settings.data / LOCK_NAME)
    if lock.is_held:
        yield Finding("ports", "ok", f"a broker runs in {settings.data}, {lock.holder}")
        return
    for address in map(parse_address, settings.broker.listen):
        problem = _bind_problem(address)
        yield Finding(
            "ports",
            "failed" if problem else "ok",
            f"{address}: {problem}" if problem else str(address),
            "choose another with --listen, or stop what uses it" if problem else "",
        )


def _bind_problem(address: ListenAddress) -> str:
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in infos:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "the port is in use"
        return error.strerror or str(error)
    return ""


def check_certificates(settings: Settings) -> Iterator[Finding]:
    tls = settings.broker.tls
    if tls.certificate is None:
        return
    from penstock.server.listener import certificate_expiry, tls_context

    try:
        tls_context(tls)
    except ConfigurationError as error:
        yield Finding("certificate", "failed", str(error), "check the files of broker.tls")
        return
    days = (certificate_expiry(tls.certificate) - time.time()) / 86_400
    detail = f"{tls.certificate} is valid for {days:,.0f} days"
    if days < 0:
        detail = f"{tls.certificate} has expired"
    late = days < EXPIRY_DAYS
    verdict: Verdict = "failed" if days < 0 else "warning" if late else "ok"
    yield Finding("certificate", verdict, detail, "renew it" if late else "")


def check_java(settings: Settings) -> Iterator[Finding]:
    if find_spec("penstock_spark") is None:
        return
    problem = java_problem()
    yield Finding("java", "failed" if problem else "ok", problem or "found; Spark can run")


def check_exposure(settings: Settings) -> Iterator[Finding]:
    from penstock.broker.user import UsersFile
    from penstock.broker.users import DEFAULT_USER, default_user
    from penstock.server.exposure import find_exposures

    path = settings.data / "users.json"
    # Before the first start there is no file; the start creates the default user.
    users = UsersFile(path).read() if path.exists() else {DEFAULT_USER: default_user()}
    found = asyncio.run(find_exposures(settings.broker, users.get(DEFAULT_USER)))
    for each in found:
        yield Finding("exposure", "warning", each.problem, each.advice)
    if not found:
        yield Finding("exposure", "ok", "nothing insecure is offered to other machines")


CHECKS: Final[tuple[Callable[[Settings], Iterator[Finding]], ...]] = (
    check_versions,
    check_limits,
    check_data_directory,
    check_ports,
    check_certificates,
    check_java,
    check_exposure,
)
