// Alerts: "tell me when it is quieter than …", by place, weekday and hours; deals; quiet hours.

import { ask, call } from "./api.js";
import { back, button, field, form, link, main, make, nothing, notice, panel } from "./elements.js";
import { t, told } from "./language.js";
import { pushSwitch } from "./push.js";
import { DAYS, SHORT_DAYS } from "./words.js";

const clock = (text) => text?.slice(0, 5) ?? "";
const timeField = (name, label, value) => field({ name, label, type: "time", value: clock(value) });

export async function showAlerts([view, number], signal) {
  if (view === "new") await showNew(Number(number), signal);
  else if (view === "edit") await showEdit(Number(number), signal);
  else await showAll(signal);
}

function describe(alert, names) {
  const name = names.get(alert.hive_id) ?? t("any place");
  const limit = alert.unit === "percent" ? `${alert.threshold} %` : t("{n} people", { n: alert.threshold });
  switch (alert.kind) {
    case "occupancy_below": return t("{name} is quieter than {limit}", { name, limit });
    case "occupancy_above": return t("{name} is busier than {limit}", { name, limit });
    case "deal_new": return t("New deals at {name}", { name });
    case "deal_expiring": return t("Deals at {name} end soon", { name });
    default: return t("New deals at my favourites");
  }
}

function when(alert) {
  const days = alert.weekdays.length && alert.weekdays.length < 7 ? [...alert.weekdays].sort().map((day) => SHORT_DAYS[day]).join(", ") : "";
  const hours = alert.active_from ? `${clock(alert.active_from)}–${clock(alert.active_to)}` : "";
  const quiet = alert.quiet_from ? t("quiet {from}–{to}", { from: clock(alert.quiet_from), to: clock(alert.quiet_to) }) : "";
  return [days, hours, quiet].filter(Boolean).join(" · ") || (alert.kind.startsWith("occupancy") ? t("at any time") : "");
}

async function namesOf(alerts, signal) {
  const hives = [...new Set(alerts.map((alert) => alert.hive_id).filter(Boolean))];
  const found = await Promise.all(hives.map((hive) => ask(`/hives/${hive}`, signal).catch(() => null)));
  return new Map(found.filter(Boolean).map((hive) => [hive.id, hive.name]));
}

async function showAll(signal) {
  document.title = `${t("Alerts")} · Hives`;
  const [alerts, preference, types] = await Promise.all([call("GET", "/me/notification-settings", undefined, { signal }), call("GET", "/me/deal-preferences", undefined, { signal }), ask("/hive-types", signal)]);
  const names = await namesOf(alerts, signal);
  const again = () => showAll(signal);
  const row = (alert) => make("li", { class: "note" },
    make("div", {}, make("h3", {}, link(`#/alerts/edit/${alert.id}`, describe(alert, names))), make("p", { class: "soft small" }, when(alert), !alert.enabled && ` · ${t("off")}`)),
    make("div", { class: "row" },
      button(t("Try"), () => call("POST", `/alerts/${alert.id}/test`).then(() => notice(t("Sent to your inbox.")), (error) => notice(told(error.message))), "chip"),
      button(t("Remove"), () => call("DELETE", `/me/notification-settings/${alert.id}`).then(again), "chip")));
  main.replaceChildren(back("#/account", t("Your account")), make("h1", {}, t("Alerts")),
    make("div", { class: "one above" },
      make("div", { class: "wide" },
        alerts.length ? make("ul", { class: "rows" }, alerts.map(row)) : nothing(t("No alerts yet"), t("Open a place and choose “Tell me when it is quieter”."), " ", link("#/", t("All places"))),
        panel(t("Deals"), dealSwitches(alerts, again))),
      panel(t("On this device"), pushSwitch()),
      panel(t("Which deals you prefer"), preferenceForm(preference, types))));
}

/** Alerts that are on or off, without a threshold. */
function dealSwitches(alerts, again) {
  const kinds = [["favourite_deal", t("New deals at my favourites")], ["deal_new", t("Any new deal I prefer")], ["deal_expiring", t("Deals I prefer that end soon")]];
  return kinds.map(([kind, label]) => {
    const held = alerts.find((alert) => alert.kind === kind && alert.hive_id === null);
    const box = field({ name: kind, label, type: "checkbox", value: Boolean(held) });
    box.addEventListener("change", async () => {
      try {
        await (held ? call("DELETE", `/me/notification-settings/${held.id}`) : call("POST", "/me/notification-settings", { kind }));
      } catch (error) { notice(told(error.message)); }
      again();
    });
    return box;
  });
}

function checks(legend, name, options, chosen) {
  return make("fieldset", { class: "checks" }, make("legend", {}, legend),
    options.map(([value, label]) => make("label", { class: "chip" }, make("input", { type: "checkbox", value, "data-group": name, checked: chosen.map(String).includes(String(value)) }), label)));
}
const chosenOf = (element, name) => [...element.querySelectorAll(`[data-group="${name}"]:checked`)].map((box) => box.value);

function preferenceForm(preference, types) {
  const kinds = [["discount", t("Discounts")], ["promotion", t("Promotions")], ["daily", t("Daily deals")], ["event", t("Events")]];
  return form([
    checks(t("Kinds (none chosen: any)"), "kinds", kinds, preference.kinds),
    checks(t("Types of places (none chosen: any)"), "types", types.map((type) => [type.code, t(type.name)]), preference.hive_types),
    field({ name: "within_km", label: t("Within (km of where you are)"), type: "number", min: 0.1, max: 20000, step: "any", value: preference.within_km ?? "" }),
    checks(t("Remind me before the end"), "hours", [[24, t("a day")], [2, t("two hours")], [1, t("an hour")]], preference.expiry_hours),
  ], t("Save"), async ({ within_km }, element) => {
    const here = within_km ? await position() : null;
    await call("PUT", "/me/deal-preferences", {
      kinds: chosenOf(element, "kinds"), hive_types: chosenOf(element, "types"), expiry_hours: chosenOf(element, "hours").map(Number),
      within_km: within_km ? Number(within_km) : null, lat: here?.latitude ?? null, lon: here?.longitude ?? null,
    });
    notice(t("Saved."));
  }, { kind: "button plain" });
}

const position = () => new Promise((done, failed) => navigator.geolocation.getCurrentPosition(({ coords }) => done(coords), () => failed(Object.assign(new Error("Where you are is not known."), { status: 1 })), { timeout: 10_000 }));

// ---- one alert

async function showNew(hive, signal) {
  const detail = await ask(`/hives/${hive}`, signal);
  const usual = detail.occupancy?.percent;
  const alert = { kind: "occupancy_below", unit: detail.capacity ? "percent" : "count", threshold: detail.capacity ? Math.max(10, Math.min(40, Math.round((usual ?? 50) / 20) * 10)) : 10, weekdays: [], hysteresis: 0, enabled: true };
  showForm(detail, alert, async (values) => {
    await call("POST", "/me/notification-settings", { ...values, hive_id: hive });
    notice(t("You will be told."));
  });
}

async function showEdit(number, signal) {
  const alert = await call("GET", `/me/notification-settings/${number}`, undefined, { signal });
  const detail = alert.hive_id ? await ask(`/hives/${alert.hive_id}`, signal) : { name: t("any place") };
  showForm(detail, alert, async (values) => {
    await call("PATCH", `/me/notification-settings/${number}`, values);
    notice(t("Saved."));
  });
}

function showForm(detail, alert, save) {
  document.title = `${t("Alert")} · ${detail.name}`;
  const units = [["count", t("people")]];
  if (detail.capacity) units.unshift(["percent", t("% full")]);
  const quiet = [timeField("quiet_from", t("Quiet from"), alert.quiet_from), timeField("quiet_to", t("to"), alert.quiet_to)];
  const parts = alert.kind.startsWith("occupancy") ? [
    make("div", { class: "pair" },
      field({ name: "kind", label: t("Tell me when it is"), options: [["occupancy_below", t("quieter than")], ["occupancy_above", t("busier than")]], value: alert.kind }),
      field({ name: "threshold", label: t("Limit"), type: "number", min: 0, max: 100000, step: "any", required: true, value: alert.threshold }),
      field({ name: "unit", label: t("Unit"), options: units, value: alert.unit })),
    checks(t("On (none chosen: every day)"), "weekdays", DAYS.map((day, n) => [n, day]), alert.weekdays),
    make("div", { class: "pair" }, timeField("active_from", t("Between"), alert.active_from), timeField("active_to", t("and"), alert.active_to)),
    make("p", { class: "hint" }, t("By the clock of the place. Empty: at any time.")),
  ] : [];
  const element = form([...parts, make("div", { class: "pair" }, quiet), make("p", { class: "hint" }, t("In quiet hours there is no sound: the alert is in your inbox.")),
    field({ name: "push", label: t("Also as a notification on my devices"), type: "checkbox", value: !alert.channels || alert.channels.includes("push") }),
    field({ name: "enabled", label: t("On"), type: "checkbox", value: alert.enabled })],
  t("Save"), async ({ push, ...values }, self) => {
    const given = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value === "" ? null : value]));
    if (alert.kind.startsWith("occupancy")) {
      Object.assign(given, { threshold: Number(values.threshold), weekdays: chosenOf(self, "weekdays").map(Number) });
      given.hysteresis = given.unit === "percent" ? 5 : Math.max(1, Math.round(given.threshold / 10));
    }
    await save({ ...given, channels: push ? ["inbox", "push"] : ["inbox"] });
    location.hash = "#/alerts";
  });
  main.replaceChildren(make("div", { class: "narrow" }, back(detail.id ? `#/hive/${detail.id}` : "#/alerts", detail.name), make("h1", {}, t("Alert for {name}", { name: detail.name })), element));
}
