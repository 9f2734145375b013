// How full a place is, in words; moments in the reader's language and the place's time zone.

import { count, locale, t } from "./language.js";
import { make } from "./elements.js";

const TREND = { rising: "↗", falling: "↘" };
export const DAY_CODES = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MONDAY = Date.UTC(2024, 0, 1);
const dayName = (style) => DAY_CODES.map((_, day) => new Intl.DateTimeFormat(locale, { weekday: style, timeZone: "UTC" }).format(MONDAY + day * 86_400_000));
export const DAYS = dayName("long");
export const SHORT_DAYS = dayName("short").map((day) => day.replace(".", ""));

const level = (name) => ({ quiet: t("Quiet"), moderate: t("Moderate"), busy: t("Busy"), full: t("Full") })[name];
const than = (relation) => ({ quieter: t("less busy than usual"), as_usual: t("as usual"), busier: t("busier than usual") })[relation];
const trend = (name) => ({ rising: t("filling up"), falling: t("emptying") })[name];
export const people = (n) => count(n, "{n} person", "{n} people");

export const stale = (figure) => !figure || figure.quality === "stale";
// What was read of a place may have changed since: it has opened or closed.
export const isClosed = (hive) => Boolean(hive.changes_at && Date.parse(hive.changes_at) <= Date.now()) === hive.open_now;
export const levelOf = (figure, hive) => (isClosed(hive) ? "closed" : stale(figure) ? "stale" : figure.level ?? "open");

export function ago(moment) {
  const seconds = Math.max(0, (Date.now() - new Date(moment)) / 1000);
  const format = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });
  if (seconds < 45) return t("just now");
  if (seconds < 3600) return format.format(-Math.round(seconds / 60), "minute");
  if (seconds < 86400) return format.format(-Math.round(seconds / 3600), "hour");
  return format.format(-Math.round(seconds / 86400), "day");
}

const shown = (moment, zone, how) => new Intl.DateTimeFormat(locale, { timeZone: zone, ...how }).format(new Date(moment));
export const clockOf = (moment, zone) => shown(moment, zone, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
export const dateOf = (moment, zone) => shown(moment, zone, { day: "numeric", month: "short" });
export const momentOf = (moment, zone) => shown(moment, zone, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
/** The hour of the day as it is read: 7:00. */
export const hourOf = (hour) => `${hour}:00`;

export function localOf(moment, zone) {
  const parts = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", hourCycle: "h23", weekday: "short", timeZone: zone }).formatToParts(new Date(moment));
  const part = (type) => parts.find((each) => each.type === type).value;
  return { hour: Number(part("hour")) % 24, weekday: DAY_CODES.indexOf(part("weekday").slice(0, 3).toLowerCase()) };
}

export const distance = (km) => (km < 1 ? `${Math.max(10, Math.round(km * 100) * 10)} m` : `${new Intl.NumberFormat(locale, { maximumFractionDigits: km < 10 ? 1 : 0 }).format(km)} km`);

/** In the place's time, with the day if it is another one. */
export function opening(moment, zone) {
  const day = localOf(moment, zone).weekday;
  const clock = clockOf(moment, zone);
  return day === localOf(Date.now(), zone).weekday ? clock : `${SHORT_DAYS[day]} ${clock}`;
}

/** A closed place says when it opens, and nothing else. */
export const closedText = (hive) => (!hive.open_now && hive.changes_at ? t("Closed, opens {time}", { time: opening(hive.changes_at, hive.time_zone) }) : t("Closed"));

export function sentence(figure, hive) {
  const { name } = hive;
  if (isClosed(hive)) return `${closedText(hive)}.`;
  if (!figure) return t("No data of {name} yet.", { name });
  if (stale(figure)) return t("The sensors of {name} send no data. {people} inside {ago}.", { name, people: people(figure.occupancy), ago: ago(figure.as_of) });
  const percent = figure.percent === null ? "" : t(", {n} percent full", { n: Math.round(figure.percent) });
  const usual = figure.usual ? `, ${than(figure.usual.relation)}` : "";
  return `${level(figure.level) ?? t("Open")}: ${people(figure.occupancy)}${percent}${usual}.`;
}

/** The words beside a cell. */
export function says(figure, hive) {
  if (isClosed(hive)) return [make("span", { class: "level" }, closedText(hive))];
  if (!figure) return [make("span", { class: "level" }, t("No data"))];
  if (stale(figure)) {
    return [make("span", { class: "level" }, t("No current data")), make("span", { class: "soft" }, t("last report {ago}", { ago: ago(figure.as_of) }))];
  }
  const arrow = TREND[figure.trend];
  return [
    make("span", { class: "level" }, level(figure.level) ?? people(figure.occupancy)),
    arrow && make("span", { class: "soft", title: trend(figure.trend) }, arrow, make("span", { class: "hidden" }, trend(figure.trend))),
    figure.usual && make("span", { class: "than", "data-is": figure.usual.relation }, than(figure.usual.relation)),
    figure.quality === "partial" && make("span", { class: "than" }, t("incomplete data")),
    make("span", { class: "soft small age" }, ago(figure.as_of)),
  ].filter(Boolean);
}

/** How good the figure is, in a word. */
export const qualityOf = (figure) => ({ good: t("All sensors report."), partial: t("Some sensors do not report."), stale: t("No sensor reports.") })[figure?.quality] ?? "";
