"""An oracle for sets of texts: each predicate as an automaton, conjunctions as their product.

What a predicate says of a text depends on how its characters compare with those of the operand, so
one character from each gap between those that occur stands for all of the gap. A breadth-first walk
over the product finds a shortest text that all accept, or that there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.content.messages import COMPARISONS, Operator

LESS, GREATER = -1, -2  # states of a comparison that is decided


class Constraint(NamedTuple):
    operator: Operator
    operand: str
    wanted: bool = True  #: or else its opposite

    def step(self, state: int, character: str) -> int:
        text = self.operand
        if self.operator is Operator.CONTAINS and state == len(text):
            return state
        if self.operator in (Operator.CONTAINS, Operator.POSTFIX):
            return fallback(text, state, character)
        if state < 0 or (self.operator is Operator.PREFIX and state == len(text)):
            return state
        if state == len(text) or character > text[state]:
            return GREATER
        return state + 1 if character == text[state] else LESS

    def accepts(self, state: int) -> bool:
        text = self.operand
        if self.operator in (Operator.CONTAINS, Operator.POSTFIX, Operator.PREFIX):
            return (state == len(text)) is self.wanted
        if self.operator is Operator.PRESENT:
            return self.wanted
        compared = 0 if state == len(text) else 1 if state == GREATER else -1
        return COMPARISONS[self.operator](compared, 0) is self.wanted


def fallback(text: str, state: int, character: str) -> int:
    """The longest beginning of the text that what was read ends with."""
    seen = text[:state] + character
    return next(n for n in range(min(len(seen), len(text)), -1, -1) if seen.endswith(text[:n]))


def alphabet(constraints: Iterable[Constraint]) -> list[str]:
    used = sorted({ord(character) for one in constraints for character in one.operand})
    chosen = set(used)
    for code in (-1, *used):
        if code + 1 not in chosen and code < 0x10FFFF:
            chosen.add(code + 1)
    return [chr(code) for code in sorted(chosen)]


def witness(constraints: tuple[Constraint, ...]) -> str | None:
    """A text that satisfies all, if there is one."""
    characters = alphabet(constraints)
    start = (0,) * len(constraints)
    reached = {start: ""}
    waiting = deque([start])
    while waiting:
        states = waiting.popleft()
        if all(one.accepts(state) for one, state in zip(constraints, states, strict=True)):
            return reached[states]
        for character in characters:
            then = tuple(
                one.step(state, character) for one, state in zip(constraints, states, strict=True)
            )
            if then not in reached:
                reached[then] = reached[states] + character
                waiting.append(then)
    return None
