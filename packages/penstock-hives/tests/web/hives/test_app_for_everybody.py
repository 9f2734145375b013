"""The app for everybody: in their language, by keys, with axe-core, on a slow phone."""

from __future__ import annotations

import ast
import json
import re
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.web.accessibility import serious_findings, tab_to
from tests.web.browsing import PATIENCE
from tests.web.hives.public_site import HIVES, PASSWORD, Site, heading, signed_in, until
from tests.web.hives.screens import SIZES_AND_SHADES, looking

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("wanted", "title", "level"),
    [("de-DE", "Wie voll ist es gerade?", "Ruhig"), ("fr-CA", "Quelle affluence", "Calme")],
)
def test_the_browser_chooses_the_language(
    browser: Browser, site: Site, wanted: str, title: str, level: str
) -> None:
    with looking(browser, site.url, locale=wanted) as page:
        page.goto("/")
        expect(heading(page)).to_contain_text(title)
        expect(page.locator("[data-hive='1']")).to_contain_text(level)
        assert page.evaluate("document.documentElement.lang") == wanted[:2]
        said = "import('/first.js').then(({ $language }) => $language.told('{text}'))"
        used = page.evaluate(said.replace("{text}", "code AB was used on 2026-03-02 10:00"))
        assert used.endswith(("AB wurde am 2026-03-02 10:00 eingelöst.", "le 2026-03-02 10:00."))
        unknown = page.evaluate(said.replace("{text}", "Input should be at most 7"))
        assert unknown in ("Das wurde nicht angenommen.", "Cela n’a pas été accepté.")
        page.locator("#language").select_option("en")
        expect(heading(page)).to_have_text("How busy is it right now?")


def test_every_text_is_translated() -> None:
    folder = Path(str(files("penstock_hives.public.page")))
    quoted = r'"((?:[^"\\]|\\.)*)"'
    used: set[str] = set()
    for module in folder.glob("*.js"):
        text = module.read_text()
        used |= set(re.findall(rf"(?<![\w.])t\({quoted}", text))
        for pair in re.findall(rf'(?<![\w.])count\([^"]*?{quoted},\s*{quoted}', text):
            used |= set(pair)
    used |= {
        " ".join(each.split())
        for each in re.findall(r"data-t>([^<]+)<", (folder / "index.html").read_text())
    }
    assert len(used) > 200
    for language in ("de", "fr"):
        known = json.loads((folder / "languages" / f"{language}.json").read_text())
        assert used - known.keys() == set()
        for english, other in known.items():
            values, shown = (set(re.findall(r"\{\w+\}", text)) for text in (english, other))
            # What the service says may be told without its values.
            assert values == shown if english in used else values >= shown


#: Modules that the app's calls reach, and what of it the app never shows: it has words of its own
#: for it, or it is about businesses, deals of the dashboard, and keys of programs.
SPEAKING = (
    *("identity/service.py", "identity/repository.py", "api/rate_limiter.py", "alerts/service.py"),
    *("deals/service.py", "messages/service.py", "push/service.py", "people/service.py"),
)
ERRORS = {
    *("AuthenticationFailed", "FieldError", "InvalidRequest", "NotFound", "RequestConflict"),
    *("TooManyRequests", "invalid_field"),
}
NOT_SHOWN = re.compile(
    r"not found$|^deal |^no deal |API key|^user |invitation|Firebase|businesses|is closed"
    r"|^or account_id|for support|your own role|redeemed deal|starts_at|a member of|^reason$"
    r"|recommendations"
)


def raised(module: Path) -> set[str]:
    """The texts of errors in a module, with `{}` for values."""
    tree = ast.parse(module.read_text())
    named = {
        each.target.id: each.value.value
        for each in tree.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and isinstance(each.value, ast.Constant)
    }

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.Constant) else "{}" for each in node.values)
            return "".join(map(str, parts))
        if isinstance(node, ast.Name):
            return str(named.get(node.id, node.id))
        return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)

    found = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            of_field = each.func.id in ("FieldError", "invalid_field")
            if each.func.id in ERRORS:
                found.add(text(each.args[of_field]))
            elif each.func.id == "detail":
                found.add(text(each.args[0]))
        elif isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) in ("reason", "detail"):
            found.add(text(each.value))
    return found


def test_what_the_service_says_is_translated() -> None:
    package = Path(str(files("penstock_hives")))
    said = {text for name in SPEAKING for text in raised(package / name)} - {"detail", "None"}
    shown = {text for text in said if not NOT_SHOWN.search(text)}
    assert len(shown) > 20
    for language in ("de", "fr"):
        file = package / "public" / "page" / "languages" / f"{language}.json"
        known = [re.split(r"\{\w+\}", text) for text in json.loads(file.read_text())]
        patterns = [re.compile("(.+)".join(map(re.escape, parts))) for parts in known]
        assert [t for t in shown if not any(each.fullmatch(t) for each in patterns)] == []


#: Views, and the headings that they are known by.
VIEWS = {
    "/#/": "How busy is it right now?",
    "/#/hive/1": "Amber Café",
    "/#/account": "Your account",
    "/#/deals": "Deals",
    "/#/map": "Map",
    "/#/alerts/new/1": "Alert for Amber Café",
    "/#/alerts": "Alerts",
    "/#/inbox": "Inbox",
    "/#/sign-up": "Create an account",
    "/#/sign-in": "Sign in",
    "/#/forgotten": "Forgot your password?",
    "/#/reset/token": "Set a new password",
    "/#/confirm/token": "Confirm your new address",
    "/#/favourites": "Your favourites",
    "/#/deal/1": "Amber Café",
    "/#/verify": "Check a code",
    "/#/privacy": "Privacy",
    "/#/plan": "Your plan",
}


@pytest.mark.parametrize(("size", "shade"), SIZES_AND_SHADES)
def test_nothing_keeps_people_with_disabilities_out(
    browser: Browser, site: Site, size: tuple[int, int], shade: str
) -> None:
    """By axe-core: nothing serious or critical."""
    found = []
    with signed_in(browser, site, size=size, shade=shade) as (page, _, _):
        for path, title in VIEWS.items():
            page.goto(path)
            expect(heading(page)).to_have_text(title)
            found += serious_findings(page)
            wide = "document.documentElement.scrollWidth <= innerWidth"
            assert page.evaluate(wide), path
    assert found == []


def test_everything_is_reached_by_keys_alone(browser: Browser, site: Site) -> None:
    login, _ = site.person()
    with looking(browser, site.url) as page:
        page.goto("/#/sign-in")
        expect(heading(page)).to_have_text("Sign in")
        tab_to(page, "E-mail address")
        page.keyboard.type(login)
        page.keyboard.press("Tab")
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        page.goto("/#/hive/1")
        expect(page.locator(".hero")).to_be_visible()
        tab_to(page, "Favourite: Amber Café")
        page.keyboard.press("Space")
        expect(page.locator(".hero .heart")).to_have_attribute("aria-pressed", "true")
        tab_to(page, "Tell me when it is quieter")
        page.keyboard.press("Enter")
        expect(heading(page)).to_have_text("Alert for Amber Café")
        tab_to(page, "Save")
        page.keyboard.press("Enter")
        expect(page.locator(".note")).to_contain_text("Amber Café is quieter than")


def test_the_first_view_is_in_the_html_in_the_readers_language(site: Site) -> None:
    """Names are text there, and a closed place says when it opens."""
    site.rows("UPDATE hive SET name = %s WHERE id = 8", "</script><b>{n} & Sons")
    hostile = "&lt;/script&gt;&lt;b&gt;{n} &amp; Sons"
    german = {"accept-language": "de-AT,de;q=0.9,en;q=0.5"}

    def rendered() -> str | None:
        text = httpx.get(site.url, headers=german, timeout=60).text
        return text if hostile in text else None

    html = until(rendered)
    assert '<html lang="de">' in html
    assert "Wie voll ist es gerade?" in html
    assert html.count('<li class="place"') == HIVES
    assert 'data-t="Places">Orte<' in html
    assert re.search(r"Geschlossen, öffnet (Mo|Di|Mi|Do|Fr|Sa|So) 08:30", html)
    carried = json.loads(html.partition('id="first">')[2].partition("</script>")[0])
    assert carried["hives"] == site.call("GET", "/hives?limit=48&sort=name")
    english = httpx.get(site.url, headers={"accept-language": "ja"}, timeout=60).text
    assert "How busy is it right now?" in english


def test_without_scripts_the_list_is_shown(browser: Browser, site: Site) -> None:
    with looking(browser, site.url, java_script_enabled=False) as page:
        page.goto("/")
        expect(page.locator(".place")).to_have_count(HIVES)
        # Beside it the page may compare with the usual figure of this hour.
        expect(page.locator("[data-hive='1'] .says")).to_contain_text("Quiet")


def test_the_first_view_is_light(browser: Browser, site: Site) -> None:
    with looking(browser, site.url, service_workers="block") as page:
        session = page.context.new_cdp_session(page)
        sizes: list[float] = []
        session.on("Network.loadingFinished", lambda it: sizes.append(it["encodedDataLength"]))
        session.send("Network.enable")
        page.goto("/")
        expect(page.locator(".place .heart")).to_have_count(HIVES)
        page.wait_for_load_state("load")
    assert 0 < sum(sizes) <= 100_000
