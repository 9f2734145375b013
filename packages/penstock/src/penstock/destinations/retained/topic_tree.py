"""Values by key in a tree of levels, for very many keys that seldom branch.

A level that leads to one key is a *leaf*: one bytes object with the rest of the key and the value,
so that a key costs a dictionary entry, its word and that object, and nothing for the garbage
collector. Any other level is a dictionary of the next words; its own value is under None.

    leaf  length of the rest u8, the rest (empty, or a dot and more levels), the value

Keys have at most 255 bytes, as routing keys. A match visits only what can match. `TopicTrie`
answers the opposite question: which of many patterns match one key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

#: The next words; None is the end of a key.
Node = dict["bytes | None", "Node | bytes"]


class TopicTree:
    __slots__ = ("_changes", "_count", "_root")

    def __init__(self) -> None:
        self._root: Node = {}
        self._count = 0
        self._changes = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in _walk(self._root, LevelPattern(b"#", hidden=True)))

    def get(self, key: bytes) -> bytes | None:
        node = self._root
        rest = key
        while True:
            word, dot, after = rest.partition(b".")
            child = node.get(word)
            if isinstance(child, dict):
                if not dot:
                    own = child.get(None)
                    return own[1:] if isinstance(own, bytes) else None
                node, rest = child, after
            elif child is None:
                return None
            else:
                end = 1 + child[0]
                return child[end:] if child[1:end] == rest[len(word) :] else None

    def put(self, key: bytes, value: bytes) -> bytes | None:
        """Set a key's value; returns the one it replaces."""
        self._changes += 1
        node = self._root
        rest = key
        while True:
            word, dot, after = rest.partition(b".")
            child = node.get(word)
            path = rest[len(word) :]
            if isinstance(child, bytes):
                end = 1 + child[0]
                if child[1:end] == path:
                    node[word] = child[:end] + value
                    return child[end:]
                child = node[word] = _branch(child)
            elif child is None:
                node[word] = bytes((len(path),)) + path + value
                self._count += 1
                return None
            if not dot:
                own = child.get(None)
                child[None] = b"\0" + value
                if isinstance(own, bytes):
                    return own[1:]
                self._count += 1
                return None
            node, rest = child, after

    def pop(self, key: bytes) -> bytes | None:
        """Remove a key; returns the value it had."""
        parents: list[tuple[Node, bytes]] = []
        self._changes += 1
        node = self._root
        rest = key
        while True:
            word, dot, after = rest.partition(b".")
            child = node.get(word)
            if isinstance(child, dict):
                parents.append((node, word))
                node, rest = child, after
                if dot:
                    continue
                own = node.pop(None, None)
                gone = own[1:] if isinstance(own, bytes) else None
            elif child is None:
                return None
            else:
                end = 1 + child[0]
                gone = child[end:] if child[1:end] == rest[len(word) :] else None
                if gone is not None:
                    del node[word]
            break
        if gone is not None:
            self._count -= 1
            _fold(node, parents)
        return gone

    def match(self, pattern: bytes) -> Iterator[bytes]:
        """The keys that match. The tree may change meanwhile: new keys may be missing, and removed
        ones included."""
        return (key for key, _ in _walk(self._root, LevelPattern(pattern)))

    def items(self, pattern: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys that match and their values at that moment. The tree may change meanwhile."""
        changes = self._changes
        for key, found in _walk(self._root, LevelPattern(pattern)):
            value = found if self._changes == changes else self.get(key)
            if value is not None:
                yield key, value


def _branch(leaf: bytes) -> Node:
    """The node that replaces a leaf when another key shares its word."""
    end = 1 + leaf[0]
    path, value = leaf[1:end], leaf[end:]
    if not path:
        return {None: leaf}
    word, _, _ = path[1:].partition(b".")
    after = path[1 + len(word) :]
    return {word: bytes((len(after),)) + after + value}


def _fold(node: Node, parents: list[tuple[Node, bytes]]) -> None:
    """Replace a node that has one leaf only by that leaf, and so on upwards."""
    while parents and len(node) == 1:
        ((word, child),) = node.items()
        if isinstance(child, dict):
            return
        if word is not None:
            end = 1 + child[0]
            path = b"." + word + child[1:end]
            child = bytes((len(path),)) + path + child[end:]
        node, above = parents.pop()
        node[above] = child


def _walk(root: Node, pattern: LevelPattern) -> Iterator[tuple[bytes, bytes]]:
    """The matching keys below a root and their values, without recursion: a key may have 256
    levels. Once the tree has changed, a value may be an old one."""
    stack = [(root, b"", iter(pattern.candidates(root, 0)))]
    while stack:
        node, prefix, pending = stack[-1]
        level = len(stack)  # of the children of this node
        fits = pattern.rest(level)
        for word in pending:
            child = node.get(word)
            if isinstance(child, bytes):
                end = 1 + child[0]
                path = child[1:end]
                if word is None:
                    yield prefix[:-1], child[end:]
                elif fits is None or fits(path):
                    yield prefix + word + path, child[end:]
            elif child is not None:
                assert word is not None, "nothing is behind the end of a key"
                stack.append((child, prefix + word + b".", iter(pattern.candidates(child, level))))
                break
        else:
            stack.pop()


class LevelPattern:
    """An MQTT topic filter in AMQP's characters, matched level by level.

    `*` is one level, `#` at the end any number of levels, also none: `a.#` matches `a`. A pattern
    that begins with either does not match keys that begin with `$`, unless `hidden`. A `#`
    elsewhere is an ordinary word.
    """

    __slots__ = ("_depth", "_hidden", "_open_ended", "_words")

    def __init__(self, pattern: bytes, *, hidden: bool = False) -> None:
        words = pattern.split(b".")
        self._hidden = hidden or words[0] not in (b"*", b"#")
        self._open_ended = words[-1] == b"#"
        self._words = words[:-1] if self._open_ended else words
        self._depth = len(self._words)

    def candidates(self, words: Collection[bytes | None], level: int) -> Collection[bytes | None]:
        """The words at a level that may match; None, the end of a key, is one, too.

        It is a copy, so that the tree may change meanwhile, or the one word to look up.
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

    def rest(self, level: int) -> Callable[[bytes], bool] | None:
        """Whether the rest of a key from a level on (empty, or a dot and more levels) matches;
        None if any rest does."""
        words = self._words[level:]
        open_ended = self._open_ended
        if open_ended and not words:
            return None
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
