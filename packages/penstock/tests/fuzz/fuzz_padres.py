"""Fuzzes the PADRES codec: frames, envelopes, and a stream of them in pieces.

    python packages/penstock/tests/fuzz/fuzz_padres.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of what to decode and the bytes to decode. A
decoder may refuse them by `ProtocolError` or `ContentTooLarge`; anything else is a finding. What it
accepts must survive being written and read again.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["penstock.wire.padres"]):
    from penstock.core.errors import ContentTooLarge, PenstockError, ProtocolError
    from penstock.wire.padres.envelope import decode_envelope, encode_envelope
    from penstock.wire.padres.frames import (
        PROTOCOL_HEADER,
        OpenFrame,
        PadresFrame,
        PadresFrameReader,
        PeerRole,
        decode_frame,
        encode_frame,
    )
    from tests.fuzz_input import pieces, run_fuzzer

LIMIT = 4096
GREETING = PROTOCOL_HEADER + encode_frame(OpenFrame(PeerRole.CLIENT, "ada"))


def fuzz_frame(data: bytes) -> None:
    frame = decode_frame(data)
    assert decode_frame(encode_frame(frame)[4:]) == frame


def fuzz_envelope(data: bytes) -> None:
    envelope, _ = decode_envelope(data, 0)
    again = encode_envelope(envelope)
    assert decode_envelope(again, 0) == (envelope, len(again))


def fuzz_stream(data: bytes) -> None:
    """Cut in two anywhere, or into many pieces, a stream of frames means the same."""
    cut = data[0] if data else 0
    data = data[1:]
    whole = _feed(data)
    assert _feed(data[:cut], data[cut:]) == whole
    assert _feed(*pieces(data)) == whole


def fuzz_greeted_stream(data: bytes) -> None:
    fuzz_stream(data[:1] + GREETING + data[1:])


def _feed(*reads: bytes) -> tuple[list[PadresFrame], str]:
    reader = PadresFrameReader(LIMIT)
    found: list[PadresFrame] = []
    try:
        for read in reads:
            found += reader.frames(read)
    except PenstockError as error:
        return [], type(error).__name__
    return found, ""


TARGETS = (fuzz_frame, fuzz_envelope, fuzz_stream, fuzz_greeted_stream)


def fuzz(data: bytes) -> None:
    if data:
        with suppress(ProtocolError, ContentTooLarge):
            TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    run_fuzzer(fuzz)
