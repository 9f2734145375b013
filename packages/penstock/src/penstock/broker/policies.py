"""Policies: settings of queues and exchanges whose names match a pattern, as in RabbitMQ.

The policy with the highest priority applies, and one operator policy besides. If a queue has the
same setting as an argument, the lower number counts; other settings are taken from the argument.
Operator policies restrict what users may set.

They also hold the limits of a virtual host. All are stored in the topology journal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from penstock.broker.declarations import KNOWN_ARGUMENTS
from penstock.broker.topology import Topology
from penstock.core.errors import PreconditionFailed
from penstock.core.linear_regex import LinearRegex

#: What `apply-to` may be, and the kinds of destinations that it covers.
APPLY_TO: Final = {
    "all": frozenset({"exchange", "classic", "quorum", "stream"}),
    "exchanges": frozenset({"exchange"}),
    "queues": frozenset({"classic", "quorum", "stream"}),
    "classic_queues": frozenset({"classic"}),
    "quorum_queues": frozenset({"quorum"}),
    "streams": frozenset({"stream"}),
}
#: The lower of a policy's and an argument's number counts.
_MINIMUM_KEYS: Final = frozenset(
    {
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "delivery-limit",
    }
)
#: A policy's setting → the argument that means the same.
_ARGUMENTS: Final = {
    **{key: f"x-{key}" for key in sorted(_MINIMUM_KEYS)},
    "overflow": "x-overflow",
    "queue-mode": "x-queue-mode",
    "dead-letter-exchange": "x-dead-letter-exchange",
    "dead-letter-routing-key": "x-dead-letter-routing-key",
    "consumer-timeout": "x-consumer-timeout",
    "confirm-policy": "x-confirm-policy",
    "max-age": "x-max-age",
    "local-max-age": "x-local-max-age",
    "local-max-length-bytes": "x-local-max-length-bytes",
    "stream-max-segment-size-bytes": "x-stream-max-segment-size-bytes",
    "queue-leader-locator": "x-queue-leader-locator",
    "initial-cluster-size": "x-initial-cluster-size",
    "alternate-exchange": "alternate-exchange",
    **{key: key for key in ("federation-upstream", "federation-upstream-set")},
    "federation-upstream-pattern": "federation-upstream-pattern",
    "schema": "x-schema",
}
VHOST_LIMITS: Final = ("max-connections", "max-queues")

_MIRRORS: Final = "classic queues are not mirrored: use a cluster, or type quorum"


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> LinearRegex:
    """A policymaker chooses the pattern and users choose names: no pair may block the broker."""
    return LinearRegex(pattern)


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    pattern: str
    definition: dict[str, Any]
    apply_to: str = "all"
    priority: int = 0

    def matches(self, kind: str, name: str) -> bool:
        return kind in APPLY_TO[self.apply_to] and _regex(self.pattern).search(name)

    def to_json(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "definition": self.definition,
            "priority": self.priority,
        }

    @classmethod
    def from_json(cls, name: str, value: dict[str, Any], *, operator: bool = False) -> Policy:
        """Raises `PreconditionFailed` with all reasons."""
        problems = list(_problems(name, value, operator))
        if problems:
            raise PreconditionFailed("Validation failed\n\n" + "\n".join(problems) + "\n")
        return cls(
            name,
            value["pattern"],
            value["definition"],
            value.get("apply-to", "all"),
            value.get("priority", 0),
        )


def _problems(name: str, value: dict[str, Any], operator: bool) -> list[str]:
    problems = []
    if not name:
        problems.append("the name is empty")
    pattern: Any = value.get("pattern")
    try:
        _regex(pattern)
    except (TypeError, ValueError) as error:
        problems.append(f"pattern: {pattern!r} is not a regular expression: {error}")
    if value.get("apply-to", "all") not in tuple(APPLY_TO):
        problems.append(f"apply-to should be one of {', '.join(APPLY_TO)}")
    if type(value.get("priority", 0)) is not int:
        problems.append("priority should be a whole number")
    definition = value.get("definition")
    if not isinstance(definition, dict) or not definition:
        problems.append("definition should be an object with at least one setting")
        return problems
    allowed = _MINIMUM_KEYS if operator else _ARGUMENTS.keys()
    for key, setting in definition.items():
        if key.startswith("ha-"):
            problems.append(f"{key}: {_MIRRORS}")
        elif key not in allowed:
            problems.append(f"{key} is not a recognised {'operator ' * operator}policy setting")
        else:
            check = KNOWN_ARGUMENTS.get(_ARGUMENTS[key], KNOWN_ARGUMENTS["x-dead-letter-exchange"])
            if (why := check(setting)) is not None:
                problems.append(f"{key}: {why}")
    return problems


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """What applies to one destination."""

    policy: str | None = None  #: its name
    operator_policy: str | None = None
    definition: dict[str, Any] = field(default_factory=dict)

    def merged(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a declaration, with the settings of the policies."""
        merged = dict(arguments)
        for key, value in self.definition.items():
            name = _ARGUMENTS[key]
            declared = arguments.get(name)
            if declared is None:
                merged[name] = value
            elif key in _MINIMUM_KEYS:
                merged[name] = min(value, declared)
        return merged


NO_POLICY: Final = EffectivePolicy()


def describe_policy(policy: EffectivePolicy) -> dict[str, Any]:
    """Fields of a queue in the management API."""
    return {
        "policy": policy.policy,
        "operator_policy": policy.operator_policy,
        "effective_policy_definition": policy.definition,
    }


class Policies:
    """The policies and limits of a virtual host."""

    __slots__ = ("_operator", "_topology", "_user", "_vhost", "limits")

    def __init__(self, vhost: str, topology: Topology) -> None:
        self._vhost = vhost
        self._topology = topology
        self._user = self._stored("policy")
        self._operator = self._stored("operator-policy")
        self.limits: dict[str, int] = dict(topology.get(("vhost-limits", vhost)) or {})

    def _stored(self, kind: str) -> dict[str, Policy]:
        return {
            key[2]: Policy.from_json(key[2], value)
            for key, value in self._topology.all(kind)
            if key[1] == self._vhost
        }

    def all(self, *, operator: bool = False) -> list[Policy]:
        return [policy for _, policy in sorted(self._policies(operator).items())]

    def _policies(self, operator: bool) -> dict[str, Policy]:
        return self._operator if operator else self._user

    def set(self, policy: Policy, *, operator: bool = False) -> None:
        self._policies(operator)[policy.name] = policy
        self._topology.put(self._key(policy.name, operator), policy.to_json())

    def remove(self, name: str, *, operator: bool = False) -> bool:
        """Returns whether it existed."""
        self._topology.drop(self._key(name, operator))
        return self._policies(operator).pop(name, None) is not None

    def _key(self, name: str, operator: bool) -> tuple[str, str, str]:
        return ("operator-policy" if operator else "policy", self._vhost, name)

    def set_limit(self, name: str, value: int | None) -> None:
        """None removes the limit; a negative number means none, as in RabbitMQ."""
        if value is None or value < 0:
            self.limits.pop(name, None)
        else:
            self.limits[name] = value
        if self.limits:
            self._topology.put(("vhost-limits", self._vhost), dict(self.limits))
        else:
            self._topology.drop(("vhost-limits", self._vhost))

    def drop(self) -> None:
        """The virtual host is deleted."""
        for operator in (False, True):
            for policy in self.all(operator=operator):
                self.remove(policy.name, operator=operator)
        self._topology.drop(("vhost-limits", self._vhost))

    def of_queue(self, name: str, arguments: dict[str, Any]) -> EffectivePolicy:
        return self._effective(arguments.get("x-queue-type", "classic"), name)

    def of_exchange(self, name: str) -> EffectivePolicy:
        return self._effective("exchange", name)

    def _effective(self, kind: str, name: str) -> EffectivePolicy:
        if not self._user and not self._operator:
            return NO_POLICY
        user = _highest(self._user, kind, name)
        operator = _highest(self._operator, kind, name)
        if user is None and operator is None:
            return NO_POLICY
        definition = dict(user.definition) if user else {}
        for key, value in (operator.definition if operator else {}).items():
            definition[key] = min(value, definition.get(key, value))
        return EffectivePolicy(
            user.name if user else None, operator.name if operator else None, definition
        )


def _highest(policies: dict[str, Policy], kind: str, name: str) -> Policy | None:
    found = [policy for policy in policies.values() if policy.matches(kind, name)]
    return min(found, key=lambda policy: (-policy.priority, policy.name), default=None)
