// One place: how full it is now, its typical week, today beside the forecast, and the best time to come.

import { ask, call } from "./api.js";
import { cell } from "./cell.js";
import { chart } from "./chart.js";
import { dealCard } from "./deals.js";
import { back, button, field, form, link, main, make, notice, panel } from "./elements.js";
import { heart, visited } from "./favourites.js";
import { t } from "./language.js";
import { figures, seed, watch } from "./live.js";
import { isSignedIn } from "./session.js";
import { record } from "./usage.js";
import { ago, clockOf, closedText, dateOf, DAY_CODES, DAYS, hourOf, isClosed, levelOf, localOf, people, qualityOf, says, sentence, SHORT_DAYS, stale } from "./words.js";

export async function showHive(hive, signal) {
  const [detail, week, forecast, today] = await Promise.all(["", "/typical-week", "/forecast", "/today"].map((of) => ask(`/hives/${hive}${of}`, signal)));
  document.title = `${detail.name} · Hives`;
  visited(detail.id);
  seed(detail.occupancy);
  const gauge = cell(true);
  const words = make("p", { class: "says" });
  const plain = make("p", { class: "soft" });
  const quality = make("p", { class: "soft small" });
  const spoken = make("p", { class: "hidden", "aria-live": "polite" });
  const hero = make("div", { class: "hero" }, gauge.element,
    make("div", {},
      make("div", { class: "row between" }, make("h1", {}, detail.name), heart(detail.id, detail.name)),
      make("p", { class: "soft" }, [t(detail.type_name), detail.address?.city].filter(Boolean).join(" · ")), words, plain, quality, spoken));
  const redraw = (figure) => {
    hero.dataset.level = levelOf(figure, detail);
    gauge.show(figure, detail);
    words.replaceChildren(...says(figure, detail));
    spoken.textContent = sentence(figure, detail);
    plain.hidden = quality.hidden = isClosed(detail);
    const known = figure && { people: people(figure.occupancy), ago: ago(figure.as_of) };
    plain.textContent = !figure ? "" : stale(figure) ? t("{people} at the last report · {ago}", known) : t("{people} inside · {ago}", known);
    quality.textContent = qualityOf(figure);
  };
  const cover = detail.images.find((image) => image.kind === "cover");
  main.replaceChildren(
    back("#/", t("All places")),
    cover ? make("img", { class: "cover", src: `${cover.url}?width=1280`, alt: cover.caption || detail.name, width: cover.width, height: cover.height }) : "",
    hero, actions(detail),
    make("div", { class: "one" },
      make("div", { class: "stack" }, dayPanel(detail, week, forecast, today), gallery(detail), hoursPanel(detail)),
      make("div", { class: "stack" }, factsPanel(detail),
        detail.deals.length ? panel(t("Deals"), make("ul", { class: "deals" }, detail.deals.map((deal) => dealCard(deal, { ofPlace: true })))) : null,
        feedbackPanel(detail), badgePanel(detail))));
  redraw(figures.get(detail.id) ?? detail.occupancy);
  watch(detail.id, redraw);
}

/** Opens the map application of the phone, or a page with directions. */
function directions({ lat, lon }, name) {
  const agent = navigator.userAgent; // an iPad calls itself a Macintosh
  if (/iPhone|iPad/.test(agent) || (/Macintosh/.test(agent) && navigator.maxTouchPoints > 1)) return `https://maps.apple.com/?daddr=${lat},${lon}`;
  if (/Android/.test(agent)) return `geo:${lat},${lon}?q=${lat},${lon}(${encodeURIComponent(name)})`;
  return `https://www.openstreetmap.org/directions?to=${lat},${lon}`;
}

function actions(detail) {
  const where = detail.address?.lat != null && detail.address.lon != null;
  return make("div", { class: "row actions" },
    link(`#/alerts/new/${detail.id}`, t("Tell me when it is quieter"), "button"),
    where && make("a", { class: "button plain", href: directions(detail.address, detail.name), rel: "noopener", onclick: () => record("navigate", { hive_id: detail.id }) }, t("Directions")),
    where && link(`#/map/${detail.id}`, t("On the map"), "button plain"));
}

function factsPanel(detail) {
  const zone = detail.time_zone;
  const now = isClosed(detail) ? closedText(detail) : detail.open_now && detail.changes_at ? t("Open until {time}", { time: clockOf(detail.changes_at, zone) }) : t("Open");
  const address = detail.address;
  const row = (name, ...value) => [make("dt", {}, name), make("dd", {}, ...value)];
  return panel(t("Good to know"),
    make("dl", { class: "facts" },
      row(t("Now"), now),
      detail.capacity ? row(t("Room for"), people(detail.capacity)) : null,
      address ? row(t("Where"), [address.street, `${address.zip} ${address.city}`.trim()].filter(Boolean).join(", ")) : null,
      row(t("Local time"), clockOf(Date.now(), zone))),
    detail.description && make("p", { class: "soft" }, detail.description));
}

/** Opening hours have weekdays, and dates that are exceptions: holidays. */
const dateIn = (zone) => new Intl.DateTimeFormat("en-CA", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit" }).format();
const spansOf = (detail, day) => detail.opening_hours[DAY_CODES[day]] ?? [];
const spansOn = (detail, day, now) => (day === now.weekday ? detail.opening_hours[dateIn(detail.time_zone)] : null) ?? spansOf(detail, day);

function hoursPanel(detail) {
  if (!Object.keys(detail.opening_hours).length) return null;
  const today = localOf(Date.now(), detail.time_zone).weekday;
  const date = dateIn(detail.time_zone);
  const exceptions = Object.keys(detail.opening_hours).filter((key) => /^\d/.test(key) && key >= date).sort().slice(0, 5);
  const row = (name, spans, current) => make("tr", { "aria-current": current ? "date" : null }, make("th", { scope: "row" }, name),
    make("td", {}, spans.map((span) => span.join("–")).join(", ") || t("closed")));
  return panel(t("Opening hours"), make("table", { class: "hours" }, make("tbody", {},
    DAYS.map((name, day) => row(name, spansOf(detail, day), day === today && !(date in detail.opening_hours))),
    exceptions.map((key) => row(dateOf(`${key}T12:00:00Z`, "UTC"), detail.opening_hours[key], key === date)))));
}

function gallery(detail) {
  const others = detail.images.filter((image) => image.kind !== "cover");
  if (!others.length) return null;
  return panel(t("Pictures"),
    make("div", { class: "gallery", tabindex: "0", role: "group", "aria-label": t("Pictures") },
      others.map((image) => make("img", { src: `${image.url}?width=640`, alt: image.caption || detail.name, width: image.width, height: image.height, loading: "lazy" }))));
}

// ---- the day

const minutesOf = (clock) => { const [hours, minutes] = clock.split(":").map(Number); return hours * 60 + minutes; };

/** Whether the place is open for most of that hour. */
function opensAt(detail, day, hour, now) {
  const spans = spansOn(detail, day, now);
  const before = spansOf(detail, (day + 6) % 7).filter(([from, to]) => minutesOf(to) <= minutesOf(from)).map(([, to]) => [0, minutesOf(to)]);
  const all = [...before, ...spans.map(([from, to]) => [minutesOf(from), minutesOf(to) > minutesOf(from) ? minutesOf(to) : 1440])];
  return all.some(([from, to]) => from <= hour * 60 + 15 && to >= hour * 60 + 45);
}

/** The quietest of the open hours that are left of the day; by the forecast, else by the typical week. */
function bestTime(detail, week, forecast, day, now) {
  const expected = new Map();
  if (day === now.weekday) for (const each of forecast.hours) expected.set(localOf(each.slot, detail.time_zone).hour, each.p50);
  if (!expected.size) for (const each of week.hours) if (each.weekday === day) expected.set(each.hour, each.occupancy);
  const hours = [...expected].filter(([hour]) => opensAt(detail, day, hour, now) && (day !== now.weekday || hour >= now.hour));
  if (hours.length < 2) return null;
  return hours.reduce((best, each) => (each[1] < best[1] ? each : best))[0];
}

function dayPanel(detail, week, forecast, today) {
  const zone = detail.time_zone;
  const now = localOf(Date.now(), zone);
  const holder = make("div");
  const advice = make("p", { class: "advice" });
  const buttons = DAYS.map((day, weekday) => make("button", { class: "chip", type: "button", "aria-label": day, onclick: () => draw(weekday) }, SHORT_DAYS[weekday]));
  const draw = (weekday) => {
    buttons.forEach((each, day) => each.setAttribute("aria-pressed", String(day === weekday)));
    const hours = Array.from({ length: 24 }, (_, hour) => ({ hour }));
    for (const typical of week.hours) if (typical.weekday === weekday) hours[typical.hour].typical = typical.entries;
    if (weekday === now.weekday) {
      for (const expected of forecast.hours) Object.assign(hours[localOf(expected.slot, zone).hour], { p50: expected.p50, p90: expected.p90 });
      const counted = new Map(today.hours.map((each) => [localOf(each.slot, zone).hour, each.entries]));
      // In other hours nobody came, as far as the sensors have reported; later hours are not known.
      const heard = Date.parse((figures.get(detail.id) ?? detail.occupancy)?.as_of ?? 0);
      const last = Math.max(...counted.keys(), Date.now() - heard < 86_400_000 && localOf(heard, zone).weekday === weekday ? localOf(heard, zone).hour : -1);
      const end = Math.min(last, now.hour); // of this hour more is to be heard
      if (counted.size) for (const each of hours) if (each.hour <= end) Object.assign(each, { counted: counted.get(each.hour) ?? 0, partial: each.hour === end });
    }
    const closed = Object.keys(detail.opening_hours).length > 0 && !spansOn(detail, weekday, now).length;
    holder.replaceChildren(...chart(hours, weekday === now.weekday ? now.hour : null, DAYS[weekday], closed));
    const best = bestTime(detail, week, forecast, weekday, now);
    advice.textContent = best === null ? "" : t("Best time to come: {from} to {to}", { from: hourOf(best), to: hourOf((best + 1) % 24) });
  };
  draw(now.weekday);
  const peak = forecast.peak && t("Today is expected to be busiest from {from} to {to}.", { from: clockOf(forecast.peak.starts_at, zone), to: clockOf(forecast.peak.ends_at, zone) });
  return make("section", { class: "panel" }, make("h2", {}, t("Visitors by the hour")),
    make("div", { class: "week", role: "group", "aria-label": t("Day of the week") }, buttons), holder, advice, peak && make("p", { class: "soft" }, peak));
}

// ---- after a visit

function feedbackPanel(detail) {
  if (!isSignedIn()) return panel(t("Were you here?"), make("p", { class: "soft" }, t("Sign in to tell them how it was.")), link(`#/sign-in?to=hive/${detail.id}`, t("Sign in"), "button plain"));
  const stars = make("fieldset", { class: "stars" }, make("legend", {}, t("Stars")),
    [1, 2, 3, 4, 5].map((n) => make("label", {}, make("input", { type: "radio", name: "stars", value: n, "aria-label": String(n) }), make("span", { "aria-hidden": "true" }, "★"))));
  const paint = () => {
    const chosen = Number(stars.querySelector(":checked")?.value ?? 0);
    stars.querySelectorAll("label").forEach((each, n) => each.toggleAttribute("data-on", n < chosen));
  };
  stars.addEventListener("change", paint);
  const words = form([stars, field({ name: "content", label: t("What was it like?"), type: "textarea", required: true, maxlength: 4000 })], t("Send"), async ({ content }, element) => {
    const rating = Number(stars.querySelector(":checked")?.value ?? 0) || null;
    await call("POST", "/messages", { type: "feedback", hive_id: detail.id, content, rating });
    element.reset();
    paint();
    notice(t("Thank you. The answer will be in your inbox."));
  }, { kind: "button plain" });
  return panel(t("Were you here?"), words);
}

// ---- on other pages

function badgePanel(detail) {
  if (!detail.badge) return null;
  const page = `${location.origin}/#/hive/${detail.id}`;
  const image = `${location.origin}/badge/${detail.id}.svg`;
  const code = `<a href="${page}"><img src="${image}" alt="${t("Occupancy")}" height="28"></a>`;
  return panel(t("On your own page"), make("p", {}, make("img", { src: `/badge/${detail.id}.svg`, alt: t("Occupancy"), height: 28, width: 190 })),
    make("p", { class: "small" }, make("code", { class: "snippet" }, code)),
    button(t("Copy"), () => navigator.clipboard.writeText(code).then(() => notice(t("Copied.")), () => notice(t("Select the text and copy it."))), "button plain"));
}
