"""Alarms: why publishers have to wait. Never silent: peers, metrics and the log all hear of it."""

from __future__ import annotations

from collections.abc import Callable


class Alarms:
    """The alarms of one broker: a name (`disk`, `memory`) and a reason for people."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._reasons: dict[str, str] = {}
        self._on_change = on_change

    @property
    def active(self) -> bool:
        return bool(self._reasons)

    @property
    def names(self) -> list[str]:
        return list(self._reasons)

    @property
    def reason(self) -> str:
        return "; ".join(self._reasons.values())

    def sound(self, name: str, reason: str) -> None:
        known = name in self._reasons
        self._reasons[name] = reason
        if not known:
            self._on_change()

    def clear(self, name: str) -> None:
        if self._reasons.pop(name, None) is not None:
            self._on_change()
