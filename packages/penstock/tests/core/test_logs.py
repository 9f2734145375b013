"""Structured logs: an event and its facts, one line each."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from penstock.core.config import LogSettings
from penstock.core.logs import configure_logs, get_logger, log_settings


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("penstock")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_a_line_is_json() -> None:
    out = io.StringIO()
    configure_logs(LogSettings(), out)
    get_logger("penstock.test").info("queue declared", queue="work", durable=True)
    told = json.loads(out.getvalue())
    assert told["event"] == "queue declared"
    assert (told["queue"], told["durable"]) == ("work", True)
    assert (told["level"], told["logger"]) == ("info", "penstock.test")
    assert told["timestamp"].endswith("Z")


def test_in_a_terminal_a_line_is_for_people() -> None:
    out = Terminal()
    configure_logs(LogSettings(), out)
    get_logger("penstock.test").warning("blocked", reason="disk")
    assert "blocked" in out.getvalue()
    assert not out.getvalue().startswith("{")


def test_the_format_can_be_chosen() -> None:
    out = Terminal()
    configure_logs(LogSettings(format="json"), out)
    get_logger("penstock.test").info("ready")
    assert json.loads(out.getvalue())["event"] == "ready"


@pytest.mark.parametrize("form", ["json", "console"])
def test_another_process_can_be_given_the_same_logs(form: str) -> None:
    configure_logs(LogSettings(level="warning", format=form), io.StringIO())  # type: ignore[arg-type]
    assert log_settings() == LogSettings(level="warning", format=form)  # type: ignore[arg-type]


def test_what_is_less_severe_than_the_level_is_not_written() -> None:
    out = io.StringIO()
    configure_logs(LogSettings(level="warning"), out)
    get_logger("penstock.test").info("not worth it")
    assert out.getvalue() == ""


def test_an_exception_goes_into_its_line() -> None:
    out = io.StringIO()
    configure_logs(LogSettings(), out)
    try:
        raise ValueError("what happened")
    except ValueError:
        get_logger("penstock.test").exception("failed")
    assert "ValueError: what happened" in json.loads(out.getvalue())["exception"]


def test_other_libraries_speak_from_warnings_up_in_the_same_form() -> None:
    out = io.StringIO()
    configure_logs(LogSettings(level="debug"), out)
    logging.getLogger("somebody.else").info("chatter")
    logging.getLogger("somebody.else").warning("trouble with %s", "x")
    told = json.loads(out.getvalue())
    assert (told["event"], told["logger"]) == ("trouble with x", "somebody.else")


def test_passwords_are_hidden_in_every_line() -> None:
    out = io.StringIO()
    configure_logs(LogSettings(format="json"), out)
    log = get_logger("penstock.test.redaction")
    log.warning("no link", broker="padres://ada:lovelace@host/B2", password="byron")
    log.warning("no link", brokers=["padres://ada:lovelace@host/B2"])
    try:
        raise ValueError("cannot reach amqp://ada:lovelace@host")
    except ValueError:
        log.exception("a fault")
    logging.getLogger("someone.else").warning("at amqp://ada:%s@host", "lovelace")
    assert "ada:***@host" in out.getvalue()
    assert len(out.getvalue().splitlines()) == 4
    assert "lovelace" not in out.getvalue()
    assert "byron" not in out.getvalue()


@pytest.mark.parametrize("control", ["\x1b[2J", "\x9b2J", "\r", "\n", "\x07", "\u202e", "\x7f"])
def test_a_terminal_gets_no_control_character_of_a_peer(control: str) -> None:
    out = Terminal()
    configure_logs(LogSettings(), out)
    mark = f"a{control}b"
    get_logger("penstock.test").warning(mark, user=mark, names=[mark])
    logging.getLogger("somebody.else").warning("trouble with %s", mark)
    assert mark not in out.getvalue()
    assert out.getvalue().count("\n") == 2


def test_the_traceback_of_an_exception_keeps_its_lines_and_nothing_else() -> None:
    out = Terminal()
    configure_logs(LogSettings(), out)
    try:
        raise ValueError("what\x1b[2Jhappened")
    except ValueError:
        get_logger("penstock.test").exception("failed")
    assert "\x1b[2J" not in out.getvalue()
    assert "what\\x1b[2Jhappened" in out.getvalue()
    assert "Traceback (most recent call last):\n" in out.getvalue()
