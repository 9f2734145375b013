"""Lines a person or a file of commands gives a client: a verb and a message.

`sub [class,eq,stock],[price,<,50]`, `p [class,stock],[price,45]`, `unsub B1-M7`. What is undone is
named by its id alone. Positions of mistakes count from the start of the line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.content.errors import LanguageError, expected
from penstock.content.fast import parse_publication
from penstock.content.messages import (
    Advertisement,
    Composite,
    CompositeUnsubscription,
    Publication,
    Subscription,
    Unadvertisement,
    Unsubscription,
)
from penstock.content.reading import parse_advertisement, parse_composite, parse_subscription

Command: TypeAlias = (
    Advertisement
    | Subscription
    | Composite
    | Publication
    | Unsubscription
    | Unadvertisement
    | CompositeUnsubscription
)

#: The verbs of the language with their short forms.
VERBS: Final[dict[str, Callable[[str], Command]]] = {
    **dict.fromkeys(("adv", "a"), parse_advertisement),
    **dict.fromkeys(("sub", "s"), parse_subscription),
    **dict.fromkeys(("csub", "cs"), parse_composite),
    **dict.fromkeys(("pub", "p"), parse_publication),
    "unsub": lambda text: Unsubscription(_id(text)),
    "unadv": lambda text: Unadvertisement(_id(text)),
    "uncsub": lambda text: CompositeUnsubscription(_id(text)),
}


def parse_command(line: str) -> Command:
    words = line.split(maxsplit=1)
    start = len(line) - len(line.lstrip())
    if not words or words[0] not in VERBS:
        raise expected(line, start, f"a command ({' '.join(VERBS)})")
    end = start + len(words[0])
    # Blanks in place of the verb: everything behind it keeps its position.
    return VERBS[words[0]](" " * end + line[end:])


def _id(text: str) -> str:
    words = text.split()
    if len(words) != 1:
        position = text.find(words[1]) if words else len(text)
        raise LanguageError(text, position, "expected one id, such as B1-M7")
    return words[0]
