"""How a fuzzer is run, and what its bytes mean: texts, JSON values.

Random bytes are seldom valid JSON or a valid expression. Here each byte is a choice, so that most
inputs reach what lies behind the parser, and a changed byte is a small change.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

#: An input that takes more processor time is a hang. A busy machine may need much longer.
HANG_SECONDS: Final = 1.0
MOST_PIECES: Final = 64
_NUMBERS: Final = (
    *(0, 1, -1, 2, 0.5, 255, 65536, 1 << 31, -(1 << 31), 1 << 63, 1 << 64, 1e308, -0.0),
    *(float("inf"), float("nan")),
)
_MAX_DEPTH: Final = 6
#: Texts that many fields take, and some that few expect.
_TEXTS: Final = (
    *("1", "0", "-1", "a1", "a@b.example", "12:00", "Europe/Berlin", "* * * * *", "https://h/", ""),
    *("9" * 20, "é", "\x00", "%", "../x", "(", "1e999", "\ud800", "x" * 300, "visits / 2", "null"),
)
_FORMATS: Final = {
    "date-time": "2026-05-31T12:00:00Z",
    "date": "2026-05-31",
    "time": "12:00:00",
    "email": "a@b.example",
    "uri": "https://h.example/",
}


def run_fuzzer(fuzz: Callable[[bytes], None]) -> None:
    """With the arguments of libFuzzer; its own limit of time is by the clock on the wall."""
    import atheris

    def hang(*_: object) -> None:
        raise TimeoutError(f"more than {HANG_SECONDS:g} s of processor time for one input")

    def fuzz_in_time(data: bytes) -> None:
        signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
        fuzz(data)

    signal.signal(signal.SIGPROF, hang)
    atheris.Setup(sys.argv, fuzz_in_time)
    atheris.Fuzz()


def memory_folder() -> str | None:
    """Where files are fast; None where there is no such place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def pieces(data: bytes) -> Iterator[bytes]:
    """Single bytes of a short input; of a long one at most `MOST_PIECES`, since each read costs
    more than what is in it."""
    size = -(-len(data) // MOST_PIECES) or 1
    return (data[at : at + size] for at in range(0, len(data), size))


def compose_text(data: bytes, words: Sequence[str]) -> str:
    """ASCII stands for itself; other bytes are words."""
    return "".join(
        chr(byte) if 32 <= byte < 127 else words[(byte if byte < 32 else byte - 95) % len(words)]
        for byte in data
    )


class Choices:
    """Reads choices from bytes; at their end, each is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, below: int) -> int:
        self._at += 1
        return self._data[self._at - 1] % below if self._at <= len(self._data) else 0

    def one_of(self, options: Sequence[Any]) -> Any:
        return options[self.number(len(options))]

    def rest(self) -> bytes:
        found = self._data[self._at :]
        self._at = len(self._data)
        return found

    def some(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def text(self, words: Sequence[str]) -> str:
        """Of up to seven bytes, or one word."""
        size = self.number(8)
        if not size:
            return str(self.one_of(words))
        return compose_text(self.some(size), words)

    def value(self, keys: Sequence[str], words: Sequence[str], depth: int = 0) -> Any:
        """A JSON value."""
        kind = self.number(10)
        if kind < 3 and depth < _MAX_DEPTH:
            return self.object(keys, words, depth)
        if kind == 3 and depth < _MAX_DEPTH:
            return [self.value(keys, words, depth + 1) for _ in range(self.number(4))]
        if kind == 4:
            return self.one_of(_NUMBERS)
        if kind == 5:
            return self.one_of((True, False, None))
        return self.text(words)

    def object(self, keys: Sequence[str], words: Sequence[str], depth: int = 0) -> dict[str, Any]:
        members = self.number(8)
        return {str(self.one_of(keys)): self.value(keys, words, depth + 1) for _ in range(members)}

    def of_schema(self, schema: Any, schemas: dict[str, Any], depth: int = 0) -> Any:
        """A value as a JSON schema describes it, with a mistake from time to time."""
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.of_schema(self.one_of(options), schemas, depth)
        if self.number(24) == 1 or depth > _MAX_DEPTH:
            return self.value(("x",), _TEXTS, _MAX_DEPTH - 2)
        if "const" in schema or "enum" in schema:
            return self.one_of(schema.get("enum") or [schema["const"]])
        match schema.get("type"):
            case "object":
                required = schema.get("required", ())
                return {
                    name: self.of_schema(each, schemas, depth + 1)
                    for name, each in schema.get("properties", {}).items()
                    if (self.number(24) != 1 if name in required else self.number(3) == 1)
                }
            case "array":
                items = schema.get("items", {})
                return [self.of_schema(items, schemas, depth + 1) for _ in range(self.number(4))]
            case "integer" | "number":
                least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
                return least + self.number(8) if self.number(4) else self.one_of(_NUMBERS)
            case "boolean":
                return bool(self.number(2))
            case "null":
                return None
            case "string" if "examples" in schema or "default" in schema:
                return self.one_of(schema.get("examples") or [schema["default"]])
        return _FORMATS.get(schema.get("format", "")) or self.text(_TEXTS)

    def body(self, keys: Sequence[str], words: Sequence[str]) -> bytes:
        """Mostly an object in JSON, or any bytes."""
        kind = self.number(8)
        if kind == 0:
            return self.rest()
        if kind == 1:
            return json.dumps(self.value(keys, words)).encode()
        return json.dumps(self.object(keys, words)).encode()
