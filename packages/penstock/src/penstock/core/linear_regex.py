"""Regular expressions that are matched in linear time, for patterns that users choose."""

from __future__ import annotations

import re
from typing import Final

MAX_PATTERN_LENGTH: Final = 256
MAX_PATTERN_STATES: Final = 256
#: Cached transitions between sets of states.
MAX_PATTERN_STEPS: Final = 4096

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

#: A state: an atom or an anchor, or None for a fork; and the states that follow.
_State = tuple[re.Pattern[str] | str | None, tuple[int, ...]]
_Piece = list[_State]  #: states numbered from 0; a transition to their count leaves the piece


class LinearRegex:
    """A regular expression that is matched in linear time.

    Any user may send a pattern, and the broker matches it on its event loop. `re` backtracks: a
    short pattern can take years. Here a pattern becomes a nondeterministic automaton with at most
    `MAX_PATTERN_STATES` states, which advance together over a name. The syntax is that of `re`
    without references, lookaround and word boundaries; `$` is the end of the name. Raises
    `ValueError` for an invalid or unsupported pattern.
    """

    __slots__ = ("_first", "_flags", "_position", "_states", "_steps", "_text")

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN_LENGTH:
            raise ValueError(f"longer than {MAX_PATTERN_LENGTH} characters")
        self._flags = re.IGNORECASE if text.startswith("(?i)") else re.NOFLAG
        self._text = text.removeprefix("(?i)")
        self._position = 0
        self._states = self._alternatives(0)
        if self._position < len(self._text):
            raise ValueError(f"unbalanced parenthesis at position {self._position}")
        self._first = self._reached({0}, "^")
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def search(self, text: str) -> bool:
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
            if len(self._steps) >= MAX_PATTERN_STEPS:
                self._steps.clear()
            self._steps[current, character] = known
        return known

    def _reached(self, numbers: set[int], anchors: str) -> frozenset[int]:
        """The states that are reached without a character, at a position with these anchors."""
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

    # Parsing: each method returns the states of its piece.

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
        try:
            return [(re.compile(token[0], self._flags), (1,))]
        except re.error as error:  # [z-a]
            raise ValueError(f"{error.msg} at position {token.start()}") from None

    def _repeated(self, piece: _Piece) -> _Piece:
        token = self._peek()
        if token is None or not token["repeat"]:
            return piece
        least, most = _BOUNDS.get(token[0][0], (0, None))
        if token[0][0] == "{":
            least = int(token["least"] or 0)
            most = least if not token["comma"] else int(token["most"]) if token["most"] else None
            if most is not None and most < least:
                raise ValueError(f"{token[0]}: the maximum is less than the minimum")
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
    if len(first) + len(second) > MAX_PATTERN_STATES:
        raise ValueError(f"it needs more than {MAX_PATTERN_STATES} states")
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
