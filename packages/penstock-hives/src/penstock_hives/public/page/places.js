// The list of places: all that match a search.

import { ask } from "./api.js";
import { cell } from "./cell.js";
import { button, main, make, nothing } from "./elements.js";
import { heart } from "./favourites.js";
import { count, t, told } from "./language.js";
import { figures, seed, watch } from "./live.js";
import { record } from "./usage.js";
import { distance, levelOf, says } from "./words.js";

const PAGE_SIZE = 48;
export const choice = { name: "", type: "", sort: "name", open: false, near: null };

export function place(hive, deals = new Map()) {
  const gauge = cell();
  const words = make("p", { class: "says" });
  const away = hive.distance_km ?? null;
  const where = [t(hive.type_name), away === null ? hive.address?.city : distance(away)].filter(Boolean).join(" · ");
  const card = make("li", { class: "place", "data-hive": hive.id },
    gauge.element,
    make("div", {},
      make("h2", {}, make("a", { href: `#/hive/${hive.id}` }, hive.name)),
      make("p", { class: "soft small" }, where),
      words),
    heart(hive.id, hive.name));
  const offers = deals.get(hive.id);
  const redraw = (figure, moved) => {
    card.dataset.level = levelOf(figure, hive);
    gauge.show(figure, hive);
    words.replaceChildren(...says(figure, hive), ...(offers ? [make("span", { class: "tag" }, count(offers, "Deal", "{n} deals"))] : []));
    if (moved) {
      card.classList.remove("changed");
      requestAnimationFrame(() => card.classList.add("changed"));
    }
  };
  seed(hive.occupancy);
  redraw(figures.get(hive.id) ?? hive.occupancy, false);
  watch(hive.id, redraw);
  return card;
}

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

const FIRST = question(null);

export function dealsByHive(deals) {
  const counted = new Map();
  for (const deal of deals) counted.set(deal.hive_id, (counted.get(deal.hive_id) ?? 0) + 1);
  return counted;
}

/** What came with the page: the first list, once. */
function given() {
  const element = document.querySelector("#first");
  if (!element) return {};
  element.remove();
  return question(null) === FIRST ? JSON.parse(element.textContent) : {};
}

/** A selector of what has the focus in the list, which also finds it when it is drawn again. */
function focusedInList() {
  const has = document.activeElement, card = has?.closest("[data-hive]");
  return card && `[data-hive="${card.dataset.hive}"] ${has.localName}`;
}

export async function showPlaces(signal, again) {
  const had = focusedInList();
  const list = make("ul", { class: "places", "aria-busy": "true" }, Array.from({ length: 6 }, () => make("li", { class: "skeleton", "aria-hidden": "true" })));
  // The filters stay while the list is drawn again: one of them may have the focus.
  const filters = main.querySelector(":scope > .filters[role=group]") ?? make("div", { class: "filters", role: "group", "aria-label": t("Filters") });
  const status = make("p", { class: "soft", role: "status" }, t("Looking…"));
  if (filters.parentNode !== main) main.replaceChildren(filters);
  for (const each of [...main.children]) if (each !== filters) each.remove();
  filters.before(make("h1", {}, t("How busy is it right now?")), status);
  filters.after(list);
  const { hives: held, "hive-types": heldTypes, deals: heldDeals } = given();
  let cursor = null, first = held ? Promise.resolve(held) : ask(question(null), signal); // asked for at once, with the others
  first.catch(() => {});
  const [types, deals] = await Promise.all([heldTypes ?? ask("/hive-types", signal), heldDeals ?? ask("/deals?limit=100", signal)]);
  drawFilters(filters, types, again);
  const counted = dealsByHive(deals.items);
  const more = button(t("Show more"), () => load().catch((error) => { more.replaceWith(nothing(t("This cannot be shown at the moment."), told(error.message))); }), "chip more");
  const load = async () => {
    const page = await (first ?? ask(question(cursor), signal));
    first = null;
    if (!cursor) list.replaceChildren();
    const before = list.children.length;
    list.append(...page.items.map((hive) => place(hive, counted)));
    list.removeAttribute("aria-busy");
    if (cursor) list.children[before]?.querySelector("a").focus();
    cursor = page.next;
    const shown = list.children.length;
    if (!shown) status.textContent = "";
    else status.textContent = cursor ? t("More than {places}", { places: count(shown, "{n} place", "{n} places") }) : count(shown, "{n} place", "{n} places");
    if (!shown) list.replaceWith(nothing(t("Nothing matches"), t("Try another name, or fewer filters.")));
    if (cursor) list.after(more); else more.remove();
  };
  await load();
  if (had && document.activeElement === document.body) main.querySelector(had)?.focus({ preventScroll: true });
  const query = choice.name.trim();
  if (query) record("search", { query });
}

function drawFilters(row, types, again) {
  const chip = (text, pressed, press) => make("button", { class: "chip", type: "button", "aria-pressed": String(pressed), onclick: press }, text);
  const choose = (changes) => { Object.assign(choice, changes); again(); };
  const sort = make("select", { class: "chip", "aria-label": t("Order"), onchange: () => choose({ sort: sort.value }) },
    make("option", { value: "name" }, t("By name")),
    make("option", { value: "quiet" }, t("Quietest first")),
    choice.near && make("option", { value: "distance" }, t("Nearest first")));
  sort.value = choice.sort;
  const at = [...row.children].indexOf(document.activeElement);
  row.replaceChildren(sort,
    chip(t("Open now"), choice.open, () => choose({ open: !choice.open })),
    chip(t("All"), !choice.type, () => choose({ type: "" })),
    ...types.map((type) => chip(t(type.name), choice.type === type.code, () => choose({ type: choice.type === type.code ? "" : type.code }))));
  row.children[at]?.focus({ preventScroll: true });
}
