// Deals: listed, opened, redeemed with a code that the business verifies.

import { ask, call } from "./api.js";
import { back, button, form, field, link, main, make, nothing, notice, panel } from "./elements.js";
import { t, told } from "./language.js";
import { isSignedIn } from "./session.js";
import { record } from "./usage.js";
import { clockOf, momentOf } from "./words.js";

const DAY_MS = 86_400_000;
const shown = new Set(); // deals that were recorded as shown

const reasonOf = (reason) => t(reason.charAt(0).toUpperCase() + reason.slice(1));

function until(deal) {
  const left = new Date(deal.expires_at) - Date.now();
  if (left <= 0) return make("span", { class: "than" }, t("Ended {when}", { when: momentOf(deal.expires_at, deal.time_zone) }));
  const soon = left < DAY_MS;
  return make("span", { class: soon ? "tag" : "than" }, t("until {when}", { when: soon ? clockOf(deal.expires_at, deal.time_zone) : momentOf(deal.expires_at, deal.time_zone) }));
}

export function dealCard(deal, { ofPlace = false, reason = null } = {}) {
  if (!shown.has(deal.id)) {
    shown.add(deal.id);
    record("deal_show", { deal_id: deal.id, hive_id: deal.hive_id });
  }
  return make("li", { class: "deal" },
    make("h3", {}, link(`#/deal/${deal.id}`, deal.title)),
    !ofPlace && make("p", {}, link(`#/hive/${deal.hive_id}`, deal.hive_name)),
    deal.description && make("p", {}, deal.description),
    make("p", { class: "small row" }, until(deal), reason && make("span", { class: "soft" }, reasonOf(reason))),
    deal.terms && make("p", { class: "soft small" }, deal.terms));
}

export async function showDeals(signal) {
  const list = make("ul", { class: "deals" });
  const mine = make("div");
  main.replaceChildren(make("h1", {}, t("Deals")), make("p", { class: "soft" }, t("What places offer now.")), make("div", { class: "filters" }), mine, list);
  const [deals, codes] = await Promise.all([ask("/deals?limit=100", signal), redemptions(signal)]);
  const open = codes.filter((each) => !each.verified_at && new Date(each.expires_at) > Date.now());
  if (open.length) mine.append(panel(t("Your codes"), make("ul", { class: "rows" }, open.map(codeRow))), make("h2", { class: "above" }, t("All deals")));
  if (deals.items.length) list.append(...deals.items.map((deal) => dealCard(deal)));
  else list.replaceWith(nothing(t("No deals right now"), t("Places announce them here when they are quiet.")));
}

const redemptions = (signal) => (isSignedIn() ? call("GET", "/me/redemptions", undefined, { signal }) : Promise.resolve([]));
const spaced = (code) => `${code.slice(0, 4)} ${code.slice(4)}`;
const codeRow = (each) => make("li", {}, make("code", { class: "code" }, spaced(each.code)), make("div", {}, link(`#/deal/${each.deal_id}`, each.title), make("p", { class: "soft small" }, each.hive_name)));

/** The code as it is shown at the counter, or what became of it. */
function ticket(redemption) {
  const used = redemption.verified_at && t("Used {when}", { when: momentOf(redemption.verified_at, redemption.time_zone) });
  const ended = !used && new Date(redemption.expires_at) <= Date.now() && t("Ended {when}", { when: momentOf(redemption.expires_at, redemption.time_zone) });
  return make("section", { class: "panel ticket", "data-done": String(Boolean(used || ended)), "aria-label": t("Your code") },
    make("p", { class: "soft" }, used || ended || t("Show this code at the counter. It is valid once.")),
    make("p", { class: "code big" }, spaced(redemption.code)));
}

export async function showDeal(number, signal) {
  const codes = await redemptions(signal);
  let redemption = codes.find((each) => each.deal_id === number);
  const deal = await ask(`/deals/${number}`, signal).catch((error) => {
    if (error.status === 404 && redemption) return { ...redemption, id: number, description: "", terms: "" }; // it has ended
    throw error;
  });
  document.title = `${deal.title} · Hives`;
  record("deal_open", { deal_id: number, hive_id: deal.hive_id });
  const place = make("div");
  const draw = () => {
    if (redemption) place.replaceChildren(ticket(redemption));
    else if (!isSignedIn()) place.replaceChildren(panel(null, make("p", {}, t("Sign in to redeem this deal.")), link(`#/sign-in?to=deal/${number}`, t("Sign in"), "button")));
    else place.replaceChildren(button(t("Redeem"), redeem));
  };
  const redeem = async (event) => {
    event.target.disabled = true;
    try {
      redemption = await call("POST", `/deals/${number}/redeem`);
      record("deal_redeem", { deal_id: number, hive_id: deal.hive_id });
      draw();
    } catch (error) {
      event.target.disabled = false;
      notice(error.status === 409 ? t("This deal cannot be redeemed any more.") : t("No connection. Try again."));
    }
  };
  draw();
  main.replaceChildren(make("div", { class: "narrow" }, back("#/deals", t("All deals")), make("h1", {}, deal.hive_name), make("ul", { class: "deals" }, dealCard(deal)), place));
}

// ---- for who works at a place: is the code valid?

export function showVerify() {
  const outcome = make("div", { "aria-live": "polite" });
  const check = form([field({ name: "code", label: t("Code"), required: true, minlength: 8, maxlength: 12, autocomplete: "off", autocapitalize: "characters", spellcheck: "false", placeholder: "7KQM 2XHB" })], t("Check"), async ({ code }, element) => {
    outcome.replaceChildren();
    try {
      const found = await call("POST", `/redemptions/${encodeURIComponent(code.trim())}/verify`);
      outcome.replaceChildren(make("div", { class: "outcome", "data-is": "good" }, make("strong", {}, t("Valid")), make("p", {}, found.title), make("p", { class: "soft" }, found.hive_name)));
      element.reset();
    } catch (error) {
      if (![404, 409, 422].includes(error.status)) throw error;
      const why = error.status === 409 ? told(error.message) : t("No deal of yours has this code.");
      outcome.replaceChildren(make("div", { class: "outcome", "data-is": "bad" }, make("strong", {}, t("Not valid")), make("p", {}, why)));
    }
  });
  main.replaceChildren(make("div", { class: "narrow" }, back("#/account", t("Your account")), make("h1", {}, t("Check a code")),
    make("p", { class: "soft" }, t("Guests show the code of a deal they have redeemed.")), check, outcome));
}
