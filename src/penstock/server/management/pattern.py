"""Regular expressions for filters of lists, matched in linear time.

Any user of the management API may send a pattern, and the broker matches it on its event loop.
Python's `re` backtracks: a pattern of a few characters can take it years. Here a pattern becomes a
nondeterministic automaton with at most `MOST_STATES` states, and all of its states advance together
over a name, one character at a time. Sets of states that were seen before are remembered.

The syntax is that of `re` without what needs backtracking: no references to groups, no looking
ahead or behind, no word boundaries. `$` is the end of the name.
"""

from __future__ import annotations

import re
from typing import Final

MOST_CHARACTERS: Final = 256
MOST_STATES: Final = 256
#: Steps from one set of states to the next that are remembered before starting over.
MOST_STEPS: Final = 4096

_TOKEN: Final = re.compile(
    r"""(?P<group>\((?:\?:|\?P<\w+>)?)
    |(?P<end>\))
    |(?P<or>\|)
    |(?P<anchor>\^|\$|\\A|\\Z)
    |(?P<repeat>(?:[*+?]|\{(?=[0-9,])(?P<least>[0-9]*)(?P<comma>,(?P<most>[0-9]*))?\})\??)
    |(?P<atom>\[\^?\]?(?:\\.|[^\]\\])*\]
        |\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[dDwWsSafnrtv]|[^A-Za-z0-9])
        |[^\\\[*+?(])""",
    re.VERBOSE | re.DOTALL,
)
_BOUNDS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_MATCH: Final = -1

#: A state: an atom and the state behind it, an anchor and the state behind it, or a fork.
_State = tuple[re.Pattern[str] | str | None, tuple[int, ...]]
_Piece = list[_State]  #: states numbered from 0; whatever leads to their number ends the piece


class Pattern:
    """Raises `ValueError` where the text is no pattern, or one that is not supported."""

    __slots__ = ("_first", "_flags", "_position", "_states", "_steps", "_text")

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"longer than {MOST_CHARACTERS} characters")
        self._flags = re.IGNORECASE if text.startswith("(?i)") else re.NOFLAG
        self._text = text.removeprefix("(?i)")
        self._position = 0
        self._states = self._alternatives(0)
        if self._position < len(self._text):
            raise ValueError(f"unbalanced parenthesis at position {self._position}")
        self._first = self._reached({0}, "^")
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        current = self._first
        for character in text:
            if _MATCH in current:
                return True
            current = self._step(current, character)
        return _MATCH in self._reached(set(current), "$" if text else "^$")

    # Matching.

    def _step(self, current: frozenset[int], character: str) -> frozenset[int]:
        known = self._steps.get((current, character))
        if known is None:
            behind = {0}  # a match may begin at any character
            for number in current:
                test, following = self._states[number]
                if isinstance(test, re.Pattern) and test.match(character):
                    behind.update(following)
            known = self._reached(behind, "")
            if len(self._steps) >= MOST_STEPS:
                self._steps.clear()
            self._steps[current, character] = known
        return known

    def _reached(self, numbers: set[int], anchors: str) -> frozenset[int]:
        """The states that are reached without a character, at a place with these anchors."""
        found: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number in (len(self._states), _MATCH):
                found.add(_MATCH)
            elif number not in found:
                found.add(number)
                test, following = self._states[number]
                if test is None or (isinstance(test, str) and test in anchors):
                    waiting += following
        return frozenset(found)

    # Reading: each returns the states of what it has read.

    def _alternatives(self, depth: int) -> _Piece:
        piece = self._sequence(depth)
        while (token := self._peek()) is not None and token["or"]:
            self._position = token.end()
            piece = _either(piece, self._sequence(depth))
        return piece

    def _sequence(self, depth: int) -> _Piece:
        piece: _Piece = []
        while (token := self._peek()) is not None and not (token["or"] or token["end"]):
            if token["repeat"]:
                raise ValueError(f"nothing to repeat at position {self._position}")
            self._position = token.end()
            piece = _behind(piece, self._repeated(self._item(token, depth)))
        return piece

    def _item(self, token: re.Match[str], depth: int) -> _Piece:
        if token["anchor"]:
            return [({"\\A": "^", "\\Z": "$"}.get(token[0], token[0]), (1,))]
        if token["group"]:
            if depth == 32:
                raise ValueError("more than 32 groups within each other")
            piece = self._alternatives(depth + 1)
            closing = self._peek()
            if closing is None or not closing["end"]:
                raise ValueError(f"missing ), unterminated group at position {token.start()}")
            self._position = closing.end()
            return piece
        return [(re.compile(token[0], self._flags), (1,))]

    def _repeated(self, piece: _Piece) -> _Piece:
        token = self._peek()
        if token is None or not token["repeat"]:
            return piece
        least, most = _BOUNDS.get(token[0][0], (0, None))
        if token[0][0] == "{":
            least = int(token["least"] or 0)
            most = least if not token["comma"] else int(token["most"]) if token["most"] else None
            if most is not None and most < least:
                raise ValueError(f"{token[0]}: the most is less than the least")
        self._position = token.end()
        again = self._peek()
        if again is not None and again["repeat"]:
            raise ValueError(f"multiple repeat at position {self._position}")
        return _times(piece, least, most)

    def _peek(self) -> re.Match[str] | None:
        if self._position == len(self._text):
            return None
        token = _TOKEN.match(self._text, self._position)
        if token is None:
            rest = self._text[self._position : self._position + 4]
            raise ValueError(f"{rest!r} at position {self._position} is not supported")
        return token


def _moved(piece: _Piece, by: int) -> _Piece:
    return [(test, tuple(number + by for number in following)) for test, following in piece]


def _behind(first: _Piece, second: _Piece) -> _Piece:
    if len(first) + len(second) > MOST_STATES:
        raise ValueError(f"it needs more than {MOST_STATES} states")
    return first + _moved(second, len(first))


def _either(first: _Piece, second: _Piece) -> _Piece:
    last = len(first) + len(second) + 2
    jump: _State = (None, (last,))
    fork: _State = (None, (1, len(first) + 2))
    return _behind([fork, *_moved(first, 1), jump], second)


def _times(piece: _Piece, least: int, most: int | None) -> _Piece:
    made: _Piece = []
    if not piece:
        return made
    for _ in range(least):
        made = _behind(made, piece)
    if most is None:
        size = len(piece)
        return _behind(made, [(None, (1, size + 2)), *_moved(piece, 1), (None, (0,))])
    for _ in range(most - least):
        made = _behind(made, [(None, (1, len(piece) + 1)), *_moved(piece, 1)])
    return made
