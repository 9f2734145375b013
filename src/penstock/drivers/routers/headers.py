"""Headers: the message's headers decide, by the binding's arguments.

`x-match` is `all` (default) or `any`; these ignore header names that begin with `x-`, which
`all-with-x` and `any-with-x` do not. An argument without a value asks only for presence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.broker.contract import Message
from penstock.broker.destinations import Binding, Exchange, Sink
from penstock.core.errors import PreconditionFailed
from penstock.core.properties import decode_header

MATCHES = ("all", "any", "all-with-x", "any-with-x")


class Headers:
    keyed = False

    def __init__(self) -> None:
        self._bound: dict[Binding, tuple[bool, dict[str, Any]]] = {}

    def check(self, binding: Binding) -> None:
        match = binding.arguments.get("x-match", "all")
        if match not in MATCHES:
            raise PreconditionFailed(
                f"Invalid x-match field value {match!r}; expected {', '.join(MATCHES)}"
            )

    def add(self, binding: Binding) -> None:
        match = binding.arguments.get("x-match", "all")
        with_x = match.endswith("-with-x")
        wanted = {
            name: value
            for name, value in binding.arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        }
        self._bound[binding] = (match.startswith("all"), wanted)

    def remove(self, binding: Binding) -> None:
        del self._bound[binding]

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        headers = decode_header(message.header).headers or {}
        for binding, (every, wanted) in self._bound.items():
            hits = (
                name in headers and (value is None or _same(headers[name], value))
                for name, value in wanted.items()
            )
            if all(hits) if every else any(hits):
                yield binding.destination


def _same(left: Any, right: Any) -> bool:
    """Equal, and of one kind: the number 1 is neither the text "1" nor true."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)
