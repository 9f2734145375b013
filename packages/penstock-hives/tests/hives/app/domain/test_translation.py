"""Mails and notifications in the languages there are."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import penstock_hives
from penstock_hives.identity.mail import invitation_mail, password_reset_mail
from penstock_hives.translation import translate

SOURCE = Path(penstock_hives.__file__).parent


def texts() -> set[str]:
    """The first arguments of `translate` in the source; names of constants are looked up."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        code = file.read_text()
        if "translate(" not in code:
            continue
        tree = ast.parse(code)
        constants = {
            node.target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "translate":
                text = node.args[0]
                found.add(text.value if isinstance(text, ast.Constant) else constants[text.id])  # type: ignore[attr-defined]
    return {str(each) for each in found}


@pytest.mark.parametrize("language", ["de", "fr"])
def test_every_text_is_translated_with_its_placeholders(language: str) -> None:
    known = json.loads((SOURCE / "languages" / f"{language}.json").read_text())
    assert set(known) == texts()
    assert len(known) > 20
    for text, translation in known.items():
        assert text != translation
        wanted = sorted(re.findall(r"{\w+}", text))
        assert sorted(re.findall(r"{\w+}", translation)) == wanted, text


def test_values_are_not_texts() -> None:
    assert translate("New at {hive}", "de-CH", hive="{hive} {link}") == "Neu bei {hive} {link}"
    assert translate("New at {hive}", "xx", hive="The Comb") == "New at The Comb"


def test_a_mail_is_in_the_language_of_the_person() -> None:
    mail = password_reset_mail("no-reply@x", "ada@x", "https://x/#/reset/t", "fr")
    assert mail["Subject"] == "Définir un nouveau mot de passe"
    assert "https://x/#/reset/t" in mail.get_content()
    mail = invitation_mail("no-reply@x", "ada@x", "Bees\nBcc: eve@x", "https://x", "de")
    assert mail["Subject"] == "Bees Bcc: eve@x beitreten"
