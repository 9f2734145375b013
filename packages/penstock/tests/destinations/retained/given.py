"""What the tests of retained messages set up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.broker.content_header import message_flags
from penstock.broker.contract import RETAIN, Message
from penstock.broker.spool import Spool
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.destinations.retained import RetainedStore
from tests.doubles import Stand


def retained(stand: Stand, name: str = "retained") -> RetainedStore:
    return RetainedStore(stand.kernel, stand.directory / name)


def note(key: bytes | str, body: bytes = b"it", **properties: Any) -> Message:
    """A message whose publisher wants it kept."""
    properties = {"delivery_mode": 2, **properties}
    header = encode_header(BasicProperties(**properties), len(body))
    text = key if isinstance(key, str) else key.decode()
    route = encode_route("amq.topic", text)
    return Message(route, header, body, message_flags(header) | RETAIN)


def large(stand: Stand, key: str, body: bytes) -> Message:
    """One whose body has come to a file."""
    message = note(key, body)
    spool = Spool(stand.kernel.spools.directory / f"given-{uuid4()}", owned=True)
    spool.write(memoryview(body))
    message.spool, message.body = spool, b""
    return message


def body_of(kept: Message | None) -> bytes | None:
    if kept is None:
        return None
    return kept.body if kept.spool is None else kept.spool.read()


def contents(store: RetainedStore) -> dict[bytes, bytes | None]:
    keys = [*store.match(b"#"), *store.match(b"$SYS.#")]
    return {key: body for key in keys if (body := body_of(store.get(key))) is not None}


async def reopened(stand: Stand, store: RetainedStore) -> RetainedStore:
    store.close()
    await stand.synced()
    return retained(stand, _directory(store).name)


def killed(stand: Stand, store: RetainedStore, name: str = "copy") -> RetainedStore:
    """What a start finds that follows a kill at this moment."""
    copy = stand.directory / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_directory(store), copy)
    return retained(stand, name)


def _directory(store: RetainedStore) -> Path:
    return store._directory
