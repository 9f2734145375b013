"""What a session has asked for: topics by patterns, and publications by what they say."""

from __future__ import annotations

from penstock.broker.destinations import Binding
from penstock.broker.sessions import Subscription
from penstock.drivers.session.contents import Contents
from penstock.drivers.session.grants import Grants


class Subscriptions:
    __slots__ = ("contents", "grants")

    def __init__(self) -> None:
        self.grants = Grants()
        self.contents: Contents | None = None  #: few have any

    def __len__(self) -> int:
        return len(self.grants.subscriptions) + len(self.contents or ())

    @property
    def spurn_own(self) -> bool:
        """Some do not want what the client itself publishes."""
        contents = self.contents
        return self.grants.spurn_own or (contents is not None and contents.spurn_own)

    def get(self, pattern: str) -> Subscription | None:
        found = self.grants.subscriptions.get(pattern)
        if found is None and self.contents is not None:
            found = self.contents.subscriptions.get(pattern)
        return found

    def add(self, binding: Binding) -> None:
        subscription = Subscription.of(binding.key, binding.arguments)
        if not subscription.content:
            self.grants.add(subscription)
            return
        if self.contents is None:
            self.contents = Contents()
        self.contents.add(subscription, binding.source)

    def remove(self, binding: Binding) -> None:
        subscription = Subscription.of(binding.key, binding.arguments)
        if not subscription.content or self.contents is None:
            self.grants.remove(subscription)
            return
        self.contents.remove(subscription, binding.source)
        if not self.contents:
            self.contents = None
