// The plan of the reader: what plans include, buying and cancelling one, and payments.

import { ask, call } from "./api.js";
import { back, button, confirmed, main, make, notice, panel } from "./elements.js";
import { count, locale, t, told } from "./language.js";
import { dateOf } from "./words.js";

const HELD = new Set(["active", "trial", "past_due", "cancelled"]);
const amountOf = (amount, currency) => new Intl.NumberFormat(locale, { style: "currency", currency }).format(amount);
const priceOf = (plan) => (Number(plan.price) ? t("{price} a month", { price: amountOf(plan.price, plan.currency) }) : t("free of charge"));
const KINDS = () => ({ purchase: t("Purchase"), renewal: t("Renewal"), refund: t("Refund"), cancel: t("Cancellation"), expire: t("End") });
const pageHere = () => `${location.origin}/#/plan`;

/** A page of the provider; without one the plan is changed already. */
async function leaveFor({ url }, again) {
  if (new URL(url).origin === location.origin) await again(); else location.assign(url);
}

const act = (work) => async () => {
  try {
    await work();
  } catch (error) {
    notice(error.status ? told(error.message) : t("No connection. Try again."));
  }
};

export async function showPlan(signal) {
  const again = () => showPlan(signal);
  const [plans, held, payments, settings] = await Promise.all([
    ask("/plans", signal), call("GET", "/me/subscriptions", undefined, { signal }),
    call("GET", "/me/transactions?limit=20", undefined, { signal }), fetch("/page.json", { signal }).then((answer) => answer.json())]);
  const named = new Map(plans.map((plan) => [plan.code, t(plan.name)]));
  const current = held.filter((each) => HELD.has(each.status));
  const offered = plans.filter((plan) => plan.audience === "user");
  document.title = `${t("Your plan")} · Hives`;
  main.replaceChildren(back("#/account", t("Your account")), make("h1", {}, t("Your plan")),
    make("ul", { class: "rows above" }, current.map((each) => subscriptionRow(each, named, again))),
    make("ul", { class: "plans" }, offered.map((plan) => planCard(plan, current, settings.sells_plans, again))),
    payments.items.length ? panel(t("Payments"), make("table", { class: "hours" }, make("tbody", {}, payments.items.map((each) => paymentRow(each, named))))) : "");
}

function subscriptionRow(each, named, again) {
  const state = each.status === "cancelled" ? t("Ends on {date}.", { date: dateOf(each.expires_at) })
    : each.renews_at ? t("Renews on {date}.", { date: dateOf(each.renews_at) }) : t("Without payment.");
  const cancel = act(async () => {
    if (!await confirmed(t("Cancel the plan?"), t("It ends after the time that is paid for."), t("Cancel the plan"))) return;
    await call("POST", `/subscriptions/${each.id}/cancel`);
    await again();
  });
  const portal = act(async () => leaveFor(await call("POST", "/payments/portal", { return_url: pageHere() }), again));
  const ways = each.provider === "stripe" ? button(t("Payment methods and invoices"), portal, "button plain")
    : each.status === "cancelled" ? null
    : ["apple", "google"].includes(each.provider) ? make("p", { class: "soft small" }, t("It is cancelled in the store where it was bought."))
    : button(t("Cancel the plan"), cancel, "button plain");
  return make("li", { class: "note" }, make("div", {}, make("h2", {}, named.get(each.plan) ?? each.plan), make("p", { class: "soft" }, state)), ways);
}

function planCard(plan, current, sells, again) {
  const holds = current.some((each) => each.plan === plan.code) || (!current.length && !Number(plan.price));
  const choose = act(async () => leaveFor(await call("POST", "/payments/checkout", { plan: plan.code, return_url: pageHere() }), again));
  const limits = ({ code, name, limits: { alerts } }) => (code === "alerts" ? count(alerts, "{n} alert", "{n} alerts") : t(name));
  return make("li", { class: "panel" },
    make("h2", {}, t(plan.name), " ", holds && make("span", { class: "tag" }, t("yours"))),
    make("p", {}, priceOf(plan)),
    make("ul", { class: "soft ticks" }, plan.features.map((feature) => make("li", {}, limits(feature)))),
    !holds && sells && Number(plan.price) ? button(t("Choose {plan}", { plan: t(plan.name) }), choose) : null);
}

function paymentRow(each, named) {
  const amount = each.amount === null ? "–" : amountOf(each.amount, each.currency);
  return make("tr", {}, make("th", { scope: "row" }, dateOf(each.at)), make("td", {}, [KINDS()[each.kind] ?? each.kind, named.get(each.plan), amount].filter(Boolean).join(" · ")));
}
