"""Command lines of our own processes have no secrets in them."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.cli.arguments import hide_secrets, restore_secrets
from tests.cli.command import environment, run

WORDS = ["hives", "--management", "http://guest:guest@127.0.0.1:15672", "--port", "8000"]


def test_words_with_a_secret_travel_in_the_environment() -> None:
    shown, variables = hide_secrets(WORDS)
    assert "guest:guest" not in " ".join(shown)
    assert [word for word in shown if not word.startswith("env:")] == WORDS[:2] + WORDS[3:]
    assert restore_secrets(shown, variables) == WORDS
    assert variables == {}, "nobody inherits them"


def test_a_word_that_only_looks_concealed_stays_as_it_is() -> None:
    assert restore_secrets(["env:PATH", "env:PENSTOCK_ARGUMENT_9"], {"PATH": "/bin"}) == [
        "env:PATH",
        "env:PENSTOCK_ARGUMENT_9",
    ]


def test_a_command_takes_them_from_there(tmp_path: Path) -> None:
    words, variables = hide_secrets(
        ["config", "--json", "--set", "broker.overlay.password=lovelace"]
    )
    assert "lovelace" not in " ".join(words)
    shown = run(*words, cwd=tmp_path, env=environment(**variables))
    told = json.loads(shown.stdout)["broker.overlay.password"]
    assert told == {"value": "***", "source": "flag --set"}
