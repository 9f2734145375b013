// The public page: places and how full they are, live. One module, no framework, no build step.
//
// Everything shown comes from the public API, which answers from its cache; figures then change as
// events arrive, by polling where streams do not get through. A place whose sensors are silent is
// shown as such, never as empty. Text from the API only ever becomes text: nothing is parsed as HTML.

const API = "/v1";
const POLL_MS = 10_000;
const LATE_MS = 90_000; // no newer data than that is not live
const PAGE_SIZE = 48;
const LEVELS = { quiet: "Quiet", moderate: "Moderate", busy: "Busy", full: "Full" };
const THAN = { quieter: "less busy than usual", as_usual: "as usual", busier: "busier than usual" };
const TREND = { rising: ["↗", "filling up"], falling: ["↘", "emptying"], steady: ["", ""] };
const DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const TABS = { favourites: "favourites", deals: "deals", deal: "deals", hive: null }; // view -> the tab it is under
const SVG = "http://www.w3.org/2000/svg";
const HEXAGON = "M50 3 91 26.5v47L50 97 9 73.5v-47Z";
const HEART = "M12 20.5 4.3 12.9a4.9 4.9 0 0 1 7-6.9l.7.7.7-.7a4.9 4.9 0 0 1 7 6.9Z";

const main = document.querySelector("#main");
const figures = new Map(); // hive -> the latest figure there is
const watchers = new Map(); // hive -> functions that redraw what shows it
const choice = { name: "", type: "", sort: "name", open: false, near: null };

// ---- what is remembered on this device

const remembered = {
  get: (key, otherwise) => {
    try { return JSON.parse(localStorage.getItem(`hives.${key}`)) ?? otherwise; } catch { return otherwise; }
  },
  set: (key, value) => {
    try { localStorage.setItem(`hives.${key}`, JSON.stringify(value)); } catch { /* a private window */ }
  },
};
const favourites = new Set(remembered.get("favourites", []));

// ---- elements

function make(tag, attributes = {}, ...children) {
  const drawn = ["svg", "path", "rect", "line", "text", "clipPath", "polyline", "polygon", "title", "circle"].includes(tag);
  const element = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const icon = (path) => make("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, make("path", { d: path }));

let noticed;
function notice(text) {
  const place = document.querySelector("#notice");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(noticed);
  noticed = setTimeout(() => { place.hidden = true; }, 6000);
}

// ---- asking

class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

async function ask(path, signal) {
  for (let tries = 0; ; tries++) {
    const answer = await fetch(API + path, { signal, headers: { accept: "application/json" } });
    if (answer.ok) return answer.json();
    const problem = await answer.json().catch(() => ({}));
    if (answer.status !== 503 || tries >= 5) throw new Refused(answer.status, problem.detail ?? answer.statusText);
    const seconds = Number(answer.headers.get("retry-after")) || 2;
    await new Promise((done) => setTimeout(done, seconds * 1000));
  }
}

// ---- live figures

const pulse = document.querySelector("#pulse");
function showPulse(state, text) {
  pulse.dataset.state = state;
  pulse.lastElementChild.textContent = text;
}

function take(list) {
  for (const figure of list) {
    const known = figures.get(figure.hive_id);
    if (known && known.version > figure.version) continue;
    figures.set(figure.hive_id, figure);
    const changed = !known || known.version !== figure.version;
    for (const redraw of watchers.get(figure.hive_id) ?? []) redraw(figure, changed && Boolean(known));
  }
}

function watch(hive, redraw) {
  if (!watchers.has(hive)) watchers.set(hive, []);
  watchers.get(hive).push(redraw);
  if (figures.has(hive)) redraw(figures.get(hive), false);
}

// Live means that data arrives: a connection over which nothing new comes is shown as such.
let connected = false;
function showAge() {
  if (!connected || !figures.size) return;
  const newest = Math.max(...[...figures.values()].map((figure) => Date.parse(figure.as_of)));
  if (Date.now() - newest < LATE_MS) showPulse("live", "Live");
  else showPulse("late", `Last data ${ago(newest)}`);
}
setInterval(showAge, 5000);

let source, polling;
function follow() {
  source?.close();
  clearInterval(polling);
  polling = undefined;
  source = new EventSource(`${API}/live`);
  source.addEventListener("open", () => {
    clearInterval(polling);
    polling = undefined;
    connected = true;
    showPulse("live", "Live");
  });
  source.addEventListener("figures", (event) => { take(JSON.parse(event.data)); showAge(); });
  source.addEventListener("error", () => {
    connected = false;
    showPulse("away", "Reconnecting…");
    polling ??= setInterval(poll, POLL_MS);
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, POLL_MS);
  });
}

let tag;
async function poll() {
  try {
    const answer = await fetch(`${API}/live`, { headers: tag ? { "if-none-match": tag } : {}, cache: "no-store" });
    if (!answer.ok && answer.status !== 304) throw new Refused(answer.status);
    tag = answer.headers.get("etag");
    if (answer.status === 200) take((await answer.json()).figures);
    if (source.readyState !== EventSource.OPEN) showPulse("polling", "Every few seconds");
  } catch {
    showPulse("away", "No connection");
  }
}

// ---- words

const stale = (figure) => !figure || figure.quality === "stale";
// A closed place is closed, not quiet; people who are still inside are shown.
const closed = (figure, open) => open === false && !stale(figure) && figure.occupancy === 0;
const levelOf = (figure, open) => (stale(figure) ? "stale" : closed(figure, open) ? "closed" : figure.level ?? "open");

function ago(moment) {
  const seconds = Math.max(0, (Date.now() - new Date(moment)) / 1000);
  const format = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
  if (seconds < 45) return "just now";
  if (seconds < 3600) return format.format(-Math.round(seconds / 60), "minute");
  if (seconds < 86400) return format.format(-Math.round(seconds / 3600), "hour");
  return format.format(-Math.round(seconds / 86400), "day");
}

function clockOf(moment, zone) {
  return new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: zone }).format(new Date(moment));
}

function localOf(moment, zone) {
  const parts = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", hourCycle: "h23", weekday: "long", timeZone: zone }).formatToParts(new Date(moment));
  const part = (type) => parts.find((each) => each.type === type).value;
  return { hour: Number(part("hour")) % 24, weekday: DAYS.indexOf(part("weekday")) };
}

function sentence(figure, name, open) {
  if (!figure) return `No data of ${name} yet.`;
  if (closed(figure, open)) return `${name} is closed.`;
  if (stale(figure)) return `The sensors of ${name} send no data. ${figure.occupancy} people were inside ${ago(figure.as_of)}.`;
  const percent = figure.percent === null ? "" : `, ${Math.round(figure.percent)} percent full`;
  const usual = figure.usual ? `, ${THAN[figure.usual.relation]}` : "";
  return `${LEVELS[figure.level] ?? "Open"}: ${figure.occupancy} people${percent}${usual}.`;
}

// ---- how full: a cell of the comb

let cells = 0;
function cell(big = false) {
  const clip = `cell-${cells++}`;
  const fill = make("rect", { class: "fill", x: 0, y: 0, width: 100, height: 100, "clip-path": "none" });
  fill.style.transform = "scaleY(0)";
  const value = make("b");
  const element = make("div", { class: big ? "cell big" : "cell", "aria-hidden": "true" },
    make("svg", { viewBox: "0 0 100 100" },
      make("clipPath", { id: clip }, make("path", { d: HEXAGON })),
      make("path", { class: "wall", d: HEXAGON }),
      make("svg", { "clip-path": `url(#${clip})`, viewBox: "0 0 100 100", width: 100, height: 100 }, fill)),
    value);
  return {
    element,
    show: (figure, open) => {
      element.dataset.level = levelOf(figure, open);
      const share = figure ? Math.min(1, (figure.percent ?? 0) / 100) : 0;
      fill.style.transform = `scaleY(${share})`;
      if (!figure) value.replaceChildren("–");
      else if (stale(figure)) value.replaceChildren("?");
      else if (closed(figure, open)) value.replaceChildren("–");
      else if (figure.percent === null) value.replaceChildren(String(figure.occupancy));
      else value.replaceChildren(String(Math.round(figure.percent)), make("small", {}, "%"));
    },
  };
}

function says(figure, open) {
  if (!figure) return [make("span", { class: "level" }, "No data")];
  if (closed(figure, open)) return [make("span", { class: "level" }, "Closed")];
  if (stale(figure)) {
    return [make("span", { class: "level" }, "No current data"), make("span", { class: "soft" }, `last report ${ago(figure.as_of)}`)];
  }
  const [arrow, words] = TREND[figure.trend] ?? TREND.steady;
  return [
    make("span", { class: "level" }, LEVELS[figure.level] ?? `${figure.occupancy} people`),
    arrow && make("span", { class: "soft", title: words }, arrow, make("span", { class: "hidden" }, words)),
    figure.usual && make("span", { class: "than", "data-is": figure.usual.relation }, THAN[figure.usual.relation]),
    figure.quality === "partial" && make("span", { class: "than" }, "incomplete data"),
  ];
}

function heart(hive, name) {
  const button = make("button", { class: "icon-button heart", type: "button" }, icon(HEART));
  const show = () => {
    button.setAttribute("aria-pressed", favourites.has(hive));
    button.setAttribute("aria-label", `Favourite: ${name}`);
  };
  button.addEventListener("click", () => {
    if (!favourites.delete(hive)) favourites.add(hive);
    remembered.set("favourites", [...favourites]);
    show();
  });
  show();
  return button;
}

// ---- the list

function place(hive, deals) {
  const gauge = cell();
  const words = make("p", { class: "says" });
  const where = [hive.type_name, hive.distance_km === null ? hive.address?.city : distance(hive.distance_km)].filter(Boolean).join(" · ");
  const card = make("li", { class: "place", "data-hive": hive.id },
    gauge.element,
    make("div", {},
      make("h2", {}, make("a", { href: `#/hive/${hive.id}` }, hive.name)),
      make("p", { class: "soft small" }, where, hive.open_now ? "" : " · closed now"),
      words),
    heart(hive.id, hive.name));
  const count = deals.get(hive.id);
  const redraw = (figure, moved) => {
    card.dataset.level = levelOf(figure, hive.open_now);
    gauge.show(figure, hive.open_now);
    words.replaceChildren(...says(figure, hive.open_now).filter(Boolean), ...(count ? [make("span", { class: "tag" }, count > 1 ? `${count} deals` : "Deal")] : []));
    if (moved) {
      card.classList.remove("changed");
      requestAnimationFrame(() => card.classList.add("changed"));
    }
  };
  redraw(figures.get(hive.id) ?? hive.occupancy, false);
  watch(hive.id, redraw);
  return card;
}

const distance = (km) => (km < 1 ? `${Math.max(10, Math.round(km * 100) * 10)} m` : `${km < 10 ? km.toFixed(1) : Math.round(km)} km`);

function question(cursor) {
  const query = new URLSearchParams({ limit: PAGE_SIZE, sort: choice.sort });
  const text = choice.name.trim();
  if (text) query.set("q", text);
  if (choice.type) query.set("type", choice.type);
  if (choice.open) query.set("open_now", "true");
  if (choice.near) query.set("near", choice.near.map((degree) => degree.toFixed(4)).join(","));
  if (cursor) query.set("cursor", cursor);
  return `/hives?${query}`;
}

function dealsByHive(deals) {
  const counted = new Map();
  for (const deal of deals) counted.set(deal.hive_id, (counted.get(deal.hive_id) ?? 0) + 1);
  return counted;
}

async function showPlaces(signal) {
  const list = make("ul", { class: "places", "aria-busy": "true" }, Array.from({ length: 6 }, () => make("li", { class: "skeleton", "aria-hidden": "true" })));
  const filters = make("div", { class: "filters", role: "group", "aria-label": "Filters" });
  const heading = make("h1", {}, "How busy is it right now?");
  const count = make("p", { class: "soft", role: "status" }, "Looking…");
  main.replaceChildren(heading, count, filters, list);
  const [types, deals] = await Promise.all([ask("/hive-types", signal), ask("/deals?limit=100", signal)]);
  drawFilters(filters, types);
  const counted = dealsByHive(deals.items);
  let cursor = null;
  const more = make("button", { class: "chip more", type: "button", onclick: () => load().catch(failed) }, "Show more");
  const load = async () => {
    const page = await ask(question(cursor), signal);
    if (!cursor) list.replaceChildren();
    const first = list.children.length;
    list.append(...page.items.map((hive) => place(hive, counted)));
    list.removeAttribute("aria-busy");
    if (cursor) list.children[first]?.querySelector("a").focus();
    cursor = page.next;
    const shown = list.children.length;
    count.textContent = shown ? `${cursor ? "More than " : ""}${shown} ${shown === 1 ? "place" : "places"}` : "";
    if (!shown) list.replaceWith(nothing("Nothing matches", "Try another name, or fewer filters."));
    if (cursor) list.after(more); else more.remove();
  };
  await load();
}

function drawFilters(row, types) {
  const chip = (text, pressed, press) => make("button", { class: "chip", type: "button", "aria-pressed": String(pressed), onclick: press }, text);
  const choose = (changes) => { Object.assign(choice, changes); route(); };
  const sort = make("select", { class: "chip", "aria-label": "Order", onchange: () => choose({ sort: sort.value }) },
    make("option", { value: "name" }, "By name"),
    make("option", { value: "quiet" }, "Quietest first"),
    choice.near && make("option", { value: "distance" }, "Nearest first"));
  sort.value = choice.sort;
  row.replaceChildren(sort,
    chip("Open now", choice.open, () => choose({ open: !choice.open })),
    chip("All", !choice.type, () => choose({ type: "" })),
    ...types.map((type) => chip(type.name, choice.type === type.code, () => choose({ type: choice.type === type.code ? "" : type.code }))));
}

async function showFavourites(signal) {
  const list = make("ul", { class: "places" });
  main.replaceChildren(make("h1", {}, "Your favourites"), make("p", { class: "soft" }, "Kept on this device only."), make("div", { class: "filters" }), list);
  if (!favourites.size) {
    list.replaceWith(nothing("No favourites yet", "Tap the heart of a place to find it here again."));
    return;
  }
  const deals = dealsByHive((await ask("/deals?limit=100", signal)).items);
  const asked = [...favourites].map((hive) => ask(`/hives/${hive}`, signal).catch((error) => { if (error.status !== 404) throw error; }));
  const found = (await Promise.all(asked)).filter(Boolean);
  list.append(...found.map((hive) => place({ ...hive, distance_km: null }, deals)));
}

// ---- deals

function dealCard(deal, ofPlace = false) {
  const zone = deal.time_zone;
  const ends = new Date(deal.expires_at);
  const soon = ends - Date.now() < 86_400_000;
  return make("li", { class: "deal" },
    make("h3", {}, deal.title),
    !ofPlace && make("p", {}, make("a", { href: `#/hive/${deal.hive_id}` }, deal.hive_name)),
    deal.description && make("p", {}, deal.description),
    make("p", { class: "small" },
      make("span", { class: soon ? "tag" : "than" }, `until ${new Intl.DateTimeFormat("en-GB", { timeZone: zone, ...(soon ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" }) }).format(ends)}`)),
    deal.terms && make("p", { class: "soft small" }, deal.terms));
}

async function showDeals(signal) {
  const list = make("ul", { class: "deals" });
  main.replaceChildren(make("h1", {}, "Deals"), make("p", { class: "soft" }, "What places offer now."), make("div", { class: "filters" }), list);
  const deals = (await ask("/deals?limit=100", signal)).items;
  if (deals.length) list.append(...deals.map((deal) => dealCard(deal)));
  else list.replaceWith(nothing("No deals right now", "Places announce them here when they are quiet."));
}

async function showDeal(number, signal) {
  const deal = await ask(`/deals/${number}`, signal);
  document.title = `${deal.title} · Hives`;
  main.replaceChildren(make("a", { class: "back", href: "#/deals" }, "← All deals"), make("h1", {}, deal.hive_name),
    make("div", { class: "filters" }), make("ul", { class: "deals" }, dealCard(deal)));
}

const nothing = (title, text) => make("div", { class: "empty" }, icon("M12 2.2 20.5 7v10L12 21.8 3.5 17V7Z"), make("strong", {}, title), text);

// ---- one place

async function showHive(hive, signal) {
  const [detail, week, forecast] = await Promise.all([ask(`/hives/${hive}`, signal), ask(`/hives/${hive}/typical-week`, signal), ask(`/hives/${hive}/forecast`, signal)]);
  document.title = `${detail.name} · Hives`;
  const gauge = cell(true);
  const words = make("p", { class: "says" });
  const plain = make("p", { class: "soft" });
  const spoken = make("p", { class: "hidden", "aria-live": "polite" });
  const hero = make("div", { class: "hero" }, gauge.element,
    make("div", {},
      make("div", { class: "row between" }, make("h1", {}, detail.name), heart(detail.id, detail.name)),
      make("p", { class: "soft" }, [detail.type_name, detail.address?.city].filter(Boolean).join(" · ")), words, plain, spoken));
  const redraw = (figure) => {
    hero.dataset.level = levelOf(figure, detail.open_now);
    gauge.show(figure, detail.open_now);
    words.replaceChildren(...says(figure, detail.open_now).filter(Boolean));
    plain.textContent = figure ? `${figure.occupancy} ${stale(figure) ? "people at the last report" : "people inside"} · ${ago(figure.as_of)}` : "";
    spoken.textContent = sentence(figure, detail.name, detail.open_now);
  };
  main.replaceChildren(
    make("a", { class: "back", href: "#/" }, "← All places"), hero,
    make("div", { class: "one" }, dayPanel(detail, week, forecast), factsPanel(detail), detail.deals.length ? make("section", { class: "panel" }, make("h2", {}, "Deals"), make("ul", { class: "deals" }, detail.deals.map((deal) => dealCard(deal, true)))) : null, gallery(detail)));
  redraw(figures.get(detail.id) ?? detail.occupancy);
  watch(detail.id, redraw);
}

function factsPanel(detail) {
  const zone = detail.time_zone;
  const today = localOf(Date.now(), zone).weekday;
  const spans = detail.opening_hours[DAYS[today].slice(0, 3).toLowerCase()] ?? [];
  const open = detail.open_now ? `Open${detail.changes_at ? ` until ${clockOf(detail.changes_at, zone)}` : ""}` : `Closed${detail.changes_at ? `, opens ${clockOf(detail.changes_at, zone)}` : ""}`;
  const address = detail.address;
  const row = (name, ...value) => [make("dt", {}, name), make("dd", {}, ...value)];
  return make("section", { class: "panel" },
    make("h2", {}, "Good to know"),
    make("dl", { class: "facts" },
      row("Now", open),
      row("Today", spans.length ? spans.map((span) => span.join("–")).join(", ") : "closed"),
      detail.capacity ? row("Room for", `${detail.capacity} people`) : null,
      address ? row("Where", make("a", { href: `geo:${address.lat},${address.lon}` }, [address.street, `${address.zip} ${address.city}`].filter(Boolean).join(", "))) : null,
      row("Local time", clockOf(Date.now(), zone))),
    detail.description && make("p", { class: "soft" }, detail.description));
}

function gallery(detail) {
  if (!detail.images.length) return null;
  return make("section", { class: "panel" }, make("h2", {}, "Pictures"),
    make("div", { class: "gallery", tabindex: "0", role: "group", "aria-label": "Pictures" },
      detail.images.map((image) => make("img", { src: `${image.url}?width=640`, alt: image.caption || detail.name, width: image.width, height: image.height, loading: "lazy" }))));
}

// ---- a day as a small chart

function dayPanel(detail, week, forecast) {
  const now = localOf(Date.now(), detail.time_zone);
  const holder = make("div");
  const buttons = DAYS.map((day, weekday) => make("button", { class: "chip", type: "button", "aria-label": day, onclick: () => draw(weekday) }, day.slice(0, 2)));
  const draw = (weekday) => {
    buttons.forEach((button, each) => button.setAttribute("aria-pressed", String(each === weekday)));
    const hours = Array.from({ length: 24 }, (_, hour) => ({ hour }));
    for (const typical of week.hours) if (typical.weekday === weekday) hours[typical.hour].typical = typical.entries;
    if (weekday === now.weekday) {
      for (const expected of forecast.hours) Object.assign(hours[localOf(expected.slot, detail.time_zone).hour], { p50: expected.p50, p90: expected.p90 });
    }
    holder.replaceChildren(...chart(hours, weekday === now.weekday ? now.hour : null, DAYS[weekday]));
  };
  draw(now.weekday);
  const peak = forecast.peak && `Today is expected to be busiest from ${clockOf(forecast.peak.starts_at, detail.time_zone)} to ${clockOf(forecast.peak.ends_at, detail.time_zone)}.`;
  return make("section", { class: "panel wide" }, make("h2", {}, "Visitors by the hour"),
    make("div", { class: "week", role: "group", "aria-label": "Day of the week" }, buttons), holder, peak && make("p", {}, peak));
}

// The least of 1, 2, 5, 10, 20, 50 … that goes at most four times into it.
function stride(most) {
  for (let power = 1; ; power *= 10) for (const digit of [1, 2, 5]) if (most <= 4 * digit * power) return digit * power;
}

function chart(hours, now, day) {
  const known = hours.filter((each) => each.typical !== undefined || each.p50 !== undefined);
  if (!known.length) return [nothing("No data", "A typical day is shown after two weeks.")];
  const first = Math.min(...known.map((each) => each.hour)), last = Math.max(...known.map((each) => each.hour));
  const shown = hours.slice(first, last + 1);
  const most = Math.max(1, ...shown.flatMap((each) => [each.typical ?? 0, each.p90 ?? 0]));
  const unit = stride(most), top = unit * Math.ceil(most / unit);
  // Drawn at the size it is shown at, so that its words are as large as others.
  const width = Math.max(260, Math.min(680, main.clientWidth - 80)), height = 220, base = 192, left = 26, step = (width - left) / shown.length;
  const x = (each) => left + (each.hour - first) * step, y = (value) => base - (value / top) * (base - 12);
  const middle = (each) => x(each) + step / 2;
  const expected = shown.filter((each) => each.p50 !== undefined);
  const points = (of) => expected.map((each) => `${middle(each).toFixed(1)},${y(each[of]).toFixed(1)}`);
  const every = Math.ceil(46 / step);
  const picture = make("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Visitors by the hour on ${day}; the table below has the figures.` },
    Array.from({ length: top / unit + 1 }, (_, each) => [
      make("line", { class: "axis", x1: left, x2: width, y1: y(each * unit) + .5, y2: y(each * unit) + .5 }),
      make("text", { x: left - 7, y: y(each * unit) + 4, "text-anchor": "end" }, String(each * unit))]).flat(),
    shown.filter((each) => each.typical !== undefined).map((each) => make("rect", { class: each.hour === now ? "bar now" : "bar", x: x(each) + step * .12, width: step * .76, y: Math.min(base - 2, y(each.typical)), height: Math.max(2, base - y(each.typical)), rx: Math.min(4, step * .2) },
      make("title", {}, `${each.hour}:00 · usually ${Math.round(each.typical)}`))),
    expected.length > 1 && make("polygon", { class: "band", points: [...points("p90"), ...points("p50").reverse()].join(" ") }),
    expected.length > 1 && make("polyline", { class: "line", points: points("p50").join(" ") }),
    shown.filter((each) => (each.hour - first) % every === 0).map((each) => make("text", { x: middle(each), y: height - 8, "text-anchor": "middle" }, `${each.hour}:00`)));
  const number = (value) => (value === undefined ? "–" : String(Math.round(value)));
  const table = make("table", { class: "hidden" }, make("caption", {}, `Visitors by the hour on ${day}`),
    make("thead", {}, make("tr", {}, ["Hour", "Usually", "Expected today"].map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, shown.map((each) => make("tr", {}, make("th", { scope: "row" }, `${each.hour}:00`), make("td", {}, number(each.typical)), make("td", {}, number(each.p50))))));
  const key = (mark, text) => make("span", {}, make("i", { class: mark }), text);
  return [picture, make("p", { class: "key", "aria-hidden": "true" }, key("", "usually"), expected.length > 1 && [key("line", "expected today"), key("band", "9 days in 10 no more")]), table];
}

// ---- which view

let asking;
function failed(error) {
  if (error.name === "AbortError") return;
  const text = error.status === 404 ? "This page does not exist any more." : "This cannot be shown at the moment.";
  main.replaceChildren(nothing(text, error.message), make("p", { class: "empty" }, make("a", { href: "#/" }, "All places")));
}

async function route(event) {
  asking?.abort();
  asking = new AbortController();
  watchers.clear();
  document.title = "Hives · how busy is it right now?";
  const [, view = "", number] = location.hash.split("/");
  const tab = view in TABS ? TABS[view] : "places";
  for (const link of document.querySelectorAll("[data-tab]")) {
    if (link.dataset.tab === tab) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  try {
    if (view === "hive") await showHive(Number(number), asking.signal);
    else if (view === "deal") await showDeal(Number(number), asking.signal);
    else if (view === "favourites") await showFavourites(asking.signal);
    else if (view === "deals") await showDeals(asking.signal);
    else await showPlaces(asking.signal);
    if (event?.type === "hashchange") { main.focus({ preventScroll: true }); scrollTo(0, 0); }
  } catch (error) {
    failed(error);
  }
}

// ---- the head of the page

const search = document.querySelector("#search");
let typing;
function searched() {
  clearTimeout(typing);
  choice.name = search.elements.name.value;
  if (location.hash.length > 2) location.hash = "#/"; else route();
}
search.addEventListener("submit", (event) => { event.preventDefault(); searched(); });
search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(searched, 250); });

const near = document.querySelector("#near");
near.addEventListener("click", () => {
  const show = (place) => {
    Object.assign(choice, { near: place, sort: place ? "distance" : "name" });
    near.setAttribute("aria-pressed", String(Boolean(place)));
    if (location.hash.length > 2) location.hash = "#/"; else route();
  };
  if (choice.near) { show(null); return; }
  if (!navigator.geolocation) { notice("This browser does not say where it is."); return; }
  navigator.geolocation.getCurrentPosition(
    ({ coords }) => show([coords.latitude, coords.longitude]),
    () => notice("Where you are is not known; search by name, town or ZIP code instead."),
    { timeout: 10_000, maximumAge: 300_000 });
});

const theme = document.querySelector("#theme");
const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function dress(name) {
  if (name) document.documentElement.dataset.theme = name;
  theme.setAttribute("aria-pressed", String(dark()));
}
theme.addEventListener("click", () => { const name = dark() ? "light" : "dark"; remembered.set("theme", name); dress(name); });
dress(remembered.get("theme", null));

addEventListener("hashchange", route);
route();
follow();
