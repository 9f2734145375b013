"""The joins of one composite subscription: a Rete network over its parts.

A publication that satisfies a part enters there as a partial match and goes up. `||` passes it on.
`&` joins it with every partial match of the other side that agrees in the variables, passes the
results on, and remembers it for partners that come later, as policy and bound allow. What leaves at
the top is a match.
"""

from __future__ import annotations

from penstock.content.composite.partial import Memory, Partial
from penstock.content.composite.policies import Bound, Policy
from penstock.content.messages import Composite, Expression, Join, Joining
from penstock.content.operators import BINDING
from penstock.content.values import Variable


class Network:
    __slots__ = ("_bound", "_entrances", "_joins", "_policy")

    def __init__(self, composite: Composite, policy: Policy, bound: Bound) -> None:
        self._policy = policy
        self._bound = bound
        self._joins: list[_And] = []
        #: For each part, from left to right, the joins on its way up and the sides it comes from.
        self._entrances: list[list[tuple[_And, int]]] = []
        self._build(composite.expression, [])

    def _build(self, node: Expression, way: list[tuple[_And, int]]) -> None:
        if not isinstance(node, Join):
            self._entrances.append(way[::-1])
        elif node.joining is Joining.OR:
            self._build(node.left, way)
            self._build(node.right, way)
        else:
            shared = tuple(sorted(_bound_in(node.left) & _bound_in(node.right)))
            join = _And(shared, self._policy, self._bound)
            self._joins.append(join)
            self._build(node.left, [*way, (join, 0)])
            self._build(node.right, [*way, (join, 1)])

    def remembered(self) -> int:
        """How many partial matches wait for partners."""
        return sum(len(memory) for join in self._joins for memory in join.sides)

    def enter(self, part: int, partial: Partial, now: float) -> list[Partial]:
        """What a publication completes by satisfying a part."""
        found = [partial]
        for join, side in self._entrances[part]:
            found = [out for one in found for out in join.feed(side, one, now)]
            if not found:
                break
        return found


class _And:
    __slots__ = ("_policy", "sides")

    def __init__(self, shared: tuple[str, ...], policy: Policy, bound: Bound) -> None:
        self._policy = policy
        self.sides = (Memory(shared, policy, bound), Memory(shared, policy, bound))

    def feed(self, side: int, new: Partial, now: float) -> list[Partial]:
        mine, others = self.sides[side], self.sides[1 - side]
        mine.expire(now)
        others.expire(now)
        found = []
        for partner in others.partners(new, now):
            joined = new.merge(partner) if side else partner.merge(new)
            if joined is None:
                continue
            found.append(joined)
            if self._policy is Policy.ONCE:
                others.remove(partner)
                return found
        mine.add(new)
        return found


def _bound_in(node: Expression) -> frozenset[str]:
    """The variables that every match of an expression binds."""
    if isinstance(node, Join):
        left, right = _bound_in(node.left), _bound_in(node.right)
        return left | right if node.joining is Joining.AND else left & right
    return frozenset(
        predicate.operand.name
        for predicate in node.predicates
        if predicate.operator in BINDING and isinstance(predicate.operand, Variable)
    )
