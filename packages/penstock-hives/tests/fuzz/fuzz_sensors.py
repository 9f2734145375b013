"""Fuzzes what sensors send: reports of both versions, and topics of commands.

    PYTHONPATH=. python packages/penstock-hives/tests/fuzz/fuzz_sensors.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of a decoder and the bytes to decode. A report
that a decoder refuses by another error than it promises is a finding, and so is one that is another
after it was written and read again.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_hives.sensors.protocol"]):
    from contextlib import suppress

    from penstock.core.errors import PenstockError
    from penstock_hives.sensors.protocol import FirmwareProfile
    from penstock_hives.sensors.protocol.report import ReportV2, decode_report, is_report_v2
    from penstock_hives.sensors.protocol.topic import parse_command_topic
    from tests.fuzz_input import Choices, compose_text, run_fuzzer
PROFILE = FirmwareProfile()


def fuzz_report(choices: Choices) -> None:
    body = choices.rest()
    is_report_v2(body)
    with suppress(PenstockError):
        report = decode_report(body, PROFILE)
        encoded = report.encode() if isinstance(report, ReportV2) else report.encode(PROFILE)
        assert decode_report(encoded, PROFILE) == report


def fuzz_topic(choices: Choices) -> None:
    with suppress(PenstockError):
        parse_command_topic(compose_text(choices.rest(), ("commands/sensor/", "/", "sensors/")))


TARGETS = (fuzz_report, fuzz_topic)


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    choices.one_of(TARGETS)(choices)


if __name__ == "__main__":
    run_fuzzer(fuzz)
