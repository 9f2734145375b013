"""Topic patterns in a trie of words: the cost of a match does not grow with what cannot match.

`*` stands for one word, `#` for any number of them; an empty key has no words, as in RabbitMQ. A
key is walked word by word with the set of places in the trie it may have reached; `#` is a place
that keeps itself.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


def words_of(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


class Node(Generic[T]):
    __slots__ = ("any", "many", "sticky", "values", "words")

    def __init__(self, sticky: bool = False) -> None:
        self.words: dict[bytes, Node[T]] = {}
        self.any: Node[T] | None = None  #: behind `*`
        self.many: Node[T] | None = None  #: behind `#`
        self.sticky = sticky  #: reached by `#`: takes further words and stays
        self.values: dict[T, int] = {}  #: what ends here, and how often it was added

    @property
    def empty(self) -> bool:
        return not (self.words or self.any or self.many or self.values)


class Trie(Generic[T]):
    """Patterns and what they lead to; adding the same twice asks for removing it twice."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: Node[T] = Node()

    def add(self, pattern: bytes, value: T) -> None:
        node = self._root
        for word in words_of(pattern):
            if word == b"*":
                node.any = node.any or Node()
                node = node.any
            elif word == b"#":
                if not node.sticky:  # `#.#` is `#`
                    node.many = node.many or Node(sticky=True)
                    node = node.many
            else:
                node = node.words.setdefault(word, Node())
        node.values[value] = node.values.get(value, 0) + 1

    def remove(self, pattern: bytes, value: T) -> None:
        trail: list[tuple[Node[T], bytes]] = []
        node = self._root
        for word in words_of(pattern):
            if word == b"#" and node.sticky:
                continue
            trail.append((node, word))
            if word == b"*":
                child = node.any
            elif word == b"#":
                child = node.many
            else:
                child = node.words.get(word)
            if child is None:
                return
            node = child
        count = node.values.get(value, 0)
        if count > 1:
            node.values[value] = count - 1
        else:
            node.values.pop(value, None)
        while trail and node.empty:
            node, word = trail.pop()
            if word == b"*":
                node.any = None
            elif word == b"#":
                node.many = None
            else:
                del node.words[word]

    def match(self, key: bytes) -> list[T]:
        """Everything whose pattern matches, each once."""
        root = self._root
        here = [root] if root.many is None else [root, root.many]
        for word in words_of(key):
            there: list[Node[T]] = []
            for node in here:
                if node.sticky:
                    there.append(node)
                child = node.words.get(word)
                if child is not None:
                    there.append(child)
                    if child.many is not None:
                        there.append(child.many)
                child = node.any
                if child is not None:
                    there.append(child)
                    if child.many is not None:
                        there.append(child.many)
            if not there:
                return []
            here = there if len(there) < 3 else list(dict.fromkeys(there))
        found: dict[T, int] = {}
        for node in here:
            if node.values:
                found.update(node.values)
        return list(found)
