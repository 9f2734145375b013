"""Topic patterns in a trie of words; the cost of a match does not grow with other patterns.

`*` matches one word, `#` any number; an empty key has no words, as in RabbitMQ. A key is walked
word by word with the set of reached nodes; a `#` node stays reached. There may be a hundred
thousand patterns, most of them alone in their branch, so nodes create dictionaries on demand.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")


def split_words(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


class _Nothing:
    """Marks the absence of a value, as None may be one."""

    __slots__ = ()


NO_VALUE: Final = _Nothing()


class TrieNode(Generic[T]):
    __slots__ = ("any", "many", "only", "sticky", "values", "words")

    def __init__(self, sticky: bool = False) -> None:
        self.words: dict[bytes, TrieNode[T]] | None = None
        self.any: TrieNode[T] | None = None  #: after `*`
        self.many: TrieNode[T] | None = None  #: after `#`
        self.sticky = sticky  #: reached by `#`: stays reached for further words
        self.only: T | _Nothing = NO_VALUE  #: the value that ends here, if it is one, added once
        self.values: dict[T, int] | None = None  #: else all values, and how often each was added

    @property
    def empty(self) -> bool:
        return not (self.words or self.any or self.many or self.values or self.only is not NO_VALUE)

    def add(self, value: T) -> None:
        only = self.only
        if self.values is not None:
            self.values[value] = self.values.get(value, 0) + 1
        elif isinstance(only, _Nothing):
            self.only = value
        else:
            self.values = {only: 1}
            self.values[value] = self.values.get(value, 0) + 1
            self.only = NO_VALUE

    def remove(self, value: T) -> None:
        if self.values is None:
            if self.only == value:
                self.only = NO_VALUE
            return
        count = self.values.get(value, 0)
        if count > 1:
            self.values[value] = count - 1
        elif self.values.pop(value, None) is not None and not self.values:
            self.values = None


class TopicTrie(Generic[T]):
    """Values by pattern; a value that was added twice must be removed twice."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: TrieNode[T] = TrieNode()

    def add(self, pattern: bytes, value: T) -> None:
        node = self._root
        for word in split_words(pattern):
            if word == b"*":
                node.any = node.any or TrieNode()
                node = node.any
            elif word == b"#":
                if not node.sticky:  # `#.#` is `#`
                    node.many = node.many or TrieNode(sticky=True)
                    node = node.many
            else:
                if node.words is None:
                    node.words = {}
                child = node.words.get(word)
                if child is None:
                    child = node.words[word] = TrieNode()
                node = child
        node.add(value)

    def remove(self, pattern: bytes, value: T) -> None:
        path: list[tuple[TrieNode[T], bytes]] = []
        node = self._root
        for word in split_words(pattern):
            if word == b"#" and node.sticky:
                continue
            path.append((node, word))
            if word == b"*":
                child = node.any
            elif word == b"#":
                child = node.many
            else:
                child = node.words.get(word) if node.words is not None else None
            if child is None:
                return
            node = child
        node.remove(value)
        while path and node.empty:
            node, word = path.pop()
            if word == b"*":
                node.any = None
            elif word == b"#":
                node.many = None
            elif node.words is not None:
                del node.words[word]

    def match(self, key: bytes) -> list[T]:
        """All values whose pattern matches, each once."""
        root = self._root
        here = [root] if root.many is None else [root, root.many]
        for word in split_words(key):
            there: list[TrieNode[T]] = []
            for node in here:
                if node.sticky:
                    there.append(node)
                if (words := node.words) is not None and (child := words.get(word)) is not None:
                    there.append(child)
                    if child.many is not None:
                        there.append(child.many)
                if (child := node.any) is not None:
                    there.append(child)
                    if child.many is not None:
                        there.append(child.many)
            if not there:
                return []
            here = there if len(there) < 3 else list(dict.fromkeys(there))
        if len(here) == 1 and not isinstance(here[0].only, _Nothing):
            return [here[0].only]
        found: dict[T, int] = {}
        for node in here:
            if not isinstance(node.only, _Nothing):
                found[node.only] = 1
            elif node.values is not None:
                found.update(node.values)
        return list(found)
