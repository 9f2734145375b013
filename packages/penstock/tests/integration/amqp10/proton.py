"""qpid-proton as the tests use it: its blocking connection, with names and limits of time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fixtures import missing
from tests.peers import PeerMissing

try:
    import proton
    import proton.handlers
    import proton.reactor
    from proton import utils
except ImportError:
    proton = None  # type: ignore[assignment]

#: A loaded machine gets time to spare.
SECONDS = 30


def need_proton() -> Any:
    if proton is None:
        missing(PeerMissing("qpid-proton is not installed (pip package python-qpid-proton)"))
    return proton


@contextmanager
def connected(port: int, user: str = "guest", **options: Any) -> Iterator[Any]:
    need_proton()
    url = f"amqp://{user}:guest@127.0.0.1:{port}"
    connection = utils.BlockingConnection(
        url, timeout=SECONDS, allowed_mechs="PLAIN", sasl_enabled=True, **options
    )
    try:
        yield connection
    finally:
        connection.close()
