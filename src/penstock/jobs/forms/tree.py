"""XML from strangers, read into plain elements: no entities, no document types, nothing fetched.

Everything that makes XML dangerous begins with a document type declaration, so none is accepted;
depth, number of elements and size of a tag are bounded, and the time it takes is in proportion to
the size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from penstock.core.units import MiB
from penstock.jobs.errors import FormError

#: A request has seven levels.
DEPTH: Final = 16
#: Ten thousand samples in twenty columns; an element takes some 300 bytes of memory.
ELEMENTS: Final = 200_000
#: Of a tag with its attributes, which exist all at once; one may hold the output of a command.
TAG_BYTES: Final = 4 * MiB
_FEED_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class Element:
    name: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, name: str) -> list[Element]:
        return [child for child in self.children if child.name == name]

    def first(self, name: str) -> Element | None:
        return next((child for child in self.children if child.name == name), None)

    def __str__(self) -> str:
        return f"<{self.name}> in line {self.line}"


def parse(data: bytes) -> Element:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    open_elements = [Element("", {}, 0)]
    #: Of each open element: a string that grew piece by piece would be copied for each of them.
    texts: list[list[str]] = [[]]
    elements = 0

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        elements += 1
        line = parser.CurrentLineNumber
        if len(open_elements) > DEPTH:
            raise FormError(f"line {line}: elements in elements, more than {DEPTH} deep")
        if elements > ELEMENTS:
            raise FormError(f"line {line}: more than {ELEMENTS:,} elements")
        element = Element(name, attributes, line)
        open_elements[-1].children.append(element)
        open_elements.append(element)
        texts.append([])

    def end(_: str) -> None:
        open_elements.pop().text = "".join(texts.pop())

    def characters(text: str) -> None:
        texts[-1].append(text)

    def refuse(*_: object) -> None:
        raise FormError(f"line {parser.CurrentLineNumber}: a document type is not accepted")

    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        for at in range(0, len(data), _FEED_BYTES):
            parser.Parse(data[at : at + _FEED_BYTES], False)
            if at + _FEED_BYTES - parser.CurrentByteIndex > TAG_BYTES:
                line = parser.CurrentLineNumber
                raise FormError(f"line {line}: a tag of more than {TAG_BYTES:,} bytes")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise FormError(f"line {error.lineno}, column {error.offset + 1}: {reason}") from error
    except (LookupError, ValueError) as error:  # an encoding that there is not
        raise FormError(f"not readable as XML: {error}") from error
    return open_elements[0].children[0]
