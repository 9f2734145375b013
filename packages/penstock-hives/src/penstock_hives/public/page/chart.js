// Visitors by the hour of a day: usually, as counted today, and as expected.

import { main, make, nothing } from "./elements.js";
import { t } from "./language.js";
import { hourOf } from "./words.js";

// The least of 1, 2, 5, 10, 20, 50 … that goes at most four times into it.
function stride(most) {
  for (let power = 1; ; power *= 10) for (const digit of [1, 2, 5]) if (most <= 4 * digit * power) return digit * power;
}

/** `hours` have typical, counted, p50 and p90, as far as they are known; `partial` is the last counted
 * hour, which is not over; `now` is the hour now. */
export function chart(hours, now, day, closed) {
  const known = hours.filter((each) => Math.max(each.typical ?? 0, each.p50 ?? 0, each.counted ?? 0) >= 0.5); // by night nobody comes
  if (!known.length && closed) return [nothing(t("Closed on {day}", { day }), "")];
  if (!known.length) return [nothing(t("No data"), t("A typical day is shown after two weeks."))];
  const first = Math.min(...known.map((each) => each.hour)), last = Math.max(...known.map((each) => each.hour));
  const shown = hours.slice(first, last + 1);
  const most = Math.max(1, ...shown.flatMap((each) => [each.typical ?? 0, each.p90 ?? 0, each.counted ?? 0]));
  const unit = stride(most), top = unit * Math.ceil(most / unit);
  // Drawn at the size it is shown at, so that its words are as large as others.
  const width = Math.max(260, Math.min(680, main.clientWidth - 80)), height = 220, base = 192, left = 26, step = (width - left) / shown.length;
  const x = (each) => left + (each.hour - first) * step, y = (value) => base - (value / top) * (base - 12);
  const middle = (each) => x(each) + step / 2;
  const expected = shown.filter((each) => each.p50 !== undefined);
  const counted = shown.filter((each) => each.counted !== undefined), whole = counted.filter((each) => !each.partial);
  const told = ({ hour, counted: n, partial }) => (partial ? t("{hour} · {n} today so far", { hour: hourOf(hour), n }) : t("{hour} · {n} today", { hour: hourOf(hour), n }));
  const points = (list, of) => list.map((each) => `${middle(each).toFixed(1)},${y(each[of]).toFixed(1)}`);
  const every = Math.ceil(46 / step);
  const label = t("Visitors by the hour on {day}", { day });
  const picture = make("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t("{title}; the table below has the figures.", { title: label }) },
    Array.from({ length: top / unit + 1 }, (_, each) => [
      make("line", { class: "axis", x1: left, x2: width, y1: y(each * unit) + .5, y2: y(each * unit) + .5 }),
      make("text", { x: left - 7, y: y(each * unit) + 4, "text-anchor": "end" }, String(each * unit))]),
    shown.filter((each) => each.typical !== undefined).map((each) => make("rect", { class: each.hour === now ? "bar now" : "bar", x: x(each) + step * .12, width: step * .76, y: Math.min(base - 2, y(each.typical)), height: Math.max(2, base - y(each.typical)), rx: Math.min(4, step * .2) },
      make("title", {}, t("{hour} · usually {n}", { hour: hourOf(each.hour), n: Math.round(each.typical) })))),
    expected.length > 1 && make("polygon", { class: "band", points: [...points(expected, "p90"), ...points(expected, "p50").reverse()].join(" ") }),
    expected.length > 1 && make("polyline", { class: "line", points: points(expected, "p50").join(" ") }),
    whole.length > 1 && make("polyline", { class: "line counted", points: points(whole, "counted").join(" ") }),
    counted.map((each) => make("circle", { class: each.partial ? "dot partial" : "dot", cx: middle(each), cy: y(each.counted), r: 3.5 }, make("title", {}, told(each)))),
    shown.filter((each) => (each.hour - first) % every === 0).map((each) => make("text", { x: middle(each), y: height - 8, "text-anchor": "middle" }, hourOf(each.hour))));
  const number = (value) => (value === undefined ? "–" : String(Math.round(value)));
  const soFar = ({ partial, counted: n }) => (partial ? t("{n} so far", { n }) : number(n));
  const today = counted.length > 0 || expected.length > 1;
  const table = make("div", { class: "hidden" }, make("table", {}, make("caption", {}, label),
    make("thead", {}, make("tr", {}, [t("Hour"), t("Usually"), today && t("Counted today"), today && t("Expected today")].filter(Boolean).map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, shown.map((each) => make("tr", {}, make("th", { scope: "row" }, hourOf(each.hour)), make("td", {}, number(each.typical)), today && make("td", {}, soFar(each)), today && make("td", {}, number(each.p50)))))));
  const key = (mark, text) => make("span", {}, make("i", { class: mark }), text);
  return [picture, make("p", { class: "key", "aria-hidden": "true" }, key("", t("usually")), whole.length > 0 && key("line counted", t("today")), counted.length > whole.length && key("dot partial", t("this hour so far")), expected.length > 1 && [key("line", t("expected today")), key("band", t("9 days in 10 no more"))]), table];
}
