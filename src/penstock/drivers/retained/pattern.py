"""Which keys a subscriber wants: MQTT's topic filters in AMQP's letters, asked level by level.

`*` is one level, `#` at the end any number of them, none too: `a.#` matches `a`. A pattern that
begins with either does not match keys that begin with `$`, unless `hidden` keys are asked for.
A `#` elsewhere is a word like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection


class Pattern:
    __slots__ = ("_depth", "_hidden", "_open_ended", "_words")

    def __init__(self, pattern: bytes, *, hidden: bool = False) -> None:
        words = pattern.split(b".")
        self._hidden = hidden or words[0] not in (b"*", b"#")
        self._open_ended = words[-1] == b"#"
        self._words = words[:-1] if self._open_ended else words
        self._depth = len(self._words)

    def ways(self, words: Collection[bytes | None], level: int) -> Collection[bytes | None]:
        """Of the words at a level, those that may lead on; None, the end of a key, is one too.

        It is a copy, so that others may come and go meanwhile; or the one word to look for.
        """
        if level < self._depth:
            word = self._words[level]
            if word != b"*":
                return (word,)
            wanted: list[bytes | None] = [word for word in words if word is not None]
        elif self._open_ended:
            wanted = list(words)
        else:
            return (None,)
        if level or self._hidden:
            return wanted
        return [word for word in wanted if word is None or not word.startswith(b"$")]

    def rest(self, level: int) -> Callable[[bytes], bool]:
        """Whether the rest of a key from a level on (empty, or a dot and more levels) matches."""
        words = self._words[level:]
        open_ended = self._open_ended
        if b"*" in words:
            return lambda rest: _fits(rest.split(b".")[1:], words, open_ended)
        wanted = b"".join(b"." + word for word in words)
        if not open_ended:
            return wanted.__eq__
        return lambda rest: rest == wanted or rest.startswith(wanted + b".")


def _fits(levels: list[bytes], words: list[bytes], open_ended: bool) -> bool:
    if len(levels) < len(words) or (len(levels) > len(words) and not open_ended):
        return False
    return all(word in (b"*", level) for word, level in zip(words, levels, strict=False))
