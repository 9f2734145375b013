"""Direct: the routing key is the binding key. And the default exchange: it is the queue's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker.contract import Message
from penstock.broker.destinations import Binding, Exchange, Queue, Sink
from penstock.core.errors import AccessRefused

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost


class Direct:
    keyed = True

    def __init__(self) -> None:
        self._bound: dict[bytes, list[Queue | Exchange]] = {}

    def check(self, binding: Binding) -> None:
        """Any key will do."""

    def add(self, binding: Binding) -> None:
        self._bound.setdefault(binding.key.encode(), []).append(binding.destination)

    def remove(self, binding: Binding) -> None:
        bound = self._bound[binding.key.encode()]
        bound.remove(binding.destination)
        if not bound:
            del self._bound[binding.key.encode()]

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        return self._bound.get(key, ())


class Default:
    """Every queue is bound here by its name; so are the reply channels of clients."""

    keyed = True

    def __init__(self, vhost: VirtualHost) -> None:
        self._vhost = vhost

    def check(self, binding: Binding) -> None:
        raise AccessRefused("operation not permitted on the default exchange")

    def add(self, binding: Binding) -> None:
        self.check(binding)

    def remove(self, binding: Binding) -> None:
        self.check(binding)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        name = key.decode("utf-8", "surrogateescape")
        sink = self._vhost.queues.get(name) or self._vhost.replies.get(name)
        return () if sink is None else (sink,)
