// A list that the broker pages, sorts and filters; its state is in the address, so links keep it.
import { get, watch } from "/static/api.js";
import { button, h, number } from "/static/dom.js";

const SIZES = [25, 50, 100, 250, 500];
const FEW = 10;

// Columns: {label, field (sortable), cell(row), kind}. `rows` of the answer replace the table's body.
// Of several lists of a page each has a `key`; a list with a `title` shows its filter and pages only
// with more than a few rows. With `every` 0 the broker is asked once. `refresh` of the result asks again
// at once.
export function list(view, { path, columns, key = "", title = "", sort = "name", reverse = false, every = 3, placeholder = "Filter by name", empty = "None", tools = [], regex: patterns = true }) {
  const given = name => view.query.get(key + name), few = Boolean(title);
  const state = {
    page: Number(given("page")) || 1, size: Number(given("size")) || 50,
    name: given("name") || "", regex: given("regex") === "true",
    sort: given("sort") || sort, reverse: given("sort") ? given("reverse") === "true" : reverse,
  };
  let watching = new AbortController();
  const filter = h("input", { type: "search", placeholder: `${placeholder}  ( / )`, "aria-label": placeholder, value: state.name, "data-filter": true,
    oninput() { clearTimeout(filter.timer); filter.timer = setTimeout(() => change({ name: filter.value, page: 1 }), 250); } });
  const regex = h("input", { type: "checkbox", checked: state.regex, onchange() { change({ regex: regex.checked, page: 1 }); } });
  const size = h("select", { "aria-label": "Rows per page", onchange() { change({ size: Number(size.value), page: 1 }); } },
    SIZES.map(one => h("option", { value: one, selected: one === state.size }, `${one} rows`)));
  const heads = columns.map(column => h("th", { scope: "col", class: column.kind },
    column.field ? button(column.label, () => change({ sort: column.field, reverse: state.sort === column.field && !state.reverse, page: 1 })) : column.label));
  const rows = h("tbody");
  const none = h("p", { class: "empty", role: "status" }, "Loading…");
  const wrong = h("p", { class: "banner bad", role: "alert", hidden: true });
  const count = h("span");
  const back = button("‹ Previous", () => change({ page: state.page - 1 }));
  const next = button("Next ›", () => change({ page: state.page + 1 }));

  function change(changes) {
    Object.assign(state, changes);
    const query = new URLSearchParams(view.query);
    for (const [name, value] of Object.entries({ ...state, page: state.page > 1 && state.page, size: state.size !== 50 && state.size }))
      if (value) query.set(key + name, value); else query.delete(key + name);
    view.replaceQuery(query);
    follow();
  }

  function follow() {
    watching.abort();
    watching = new AbortController();
    const query = new URLSearchParams({ page: state.page, page_size: state.size });
    if (state.sort) { query.set("sort", state.sort); query.set("sort_reverse", state.reverse); }
    if (state.name) { query.set("name", state.name); query.set("use_regex", state.regex); }
    const [base, fixed] = path.split("?");
    heads.forEach((head, n) => {
      if (columns[n].field === state.sort) head.setAttribute("aria-sort", state.reverse ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const asked = `${base}?${query}${fixed ? `&${fixed}` : ""}`, signal = AbortSignal.any([watching.signal, view.signal]);
    if (every) watch(asked, every, show, fail, signal);
    else get(asked, signal).then(show).catch(error => signal.aborted || fail(error));
  }

  function show(answer) {
    if (answer.page > answer.page_count) { change({ page: answer.page_count }); return; }
    state.page = answer.page;
    wrong.hidden = true;
    const focused = rows.contains(document.activeElement) && document.activeElement.dataset.key;
    rows.replaceChildren(...answer.items.map(row => h("tr", null, columns.map(column => h("td", { class: column.kind }, column.cell(row))))));
    if (focused) rows.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    none.textContent = state.name ? "Nothing matches the filter" : empty;
    none.hidden = answer.items.length > 0;
    const first = (answer.page - 1) * answer.page_size;
    count.textContent = answer.items.length ? `${number(first + 1)}–${number(first + answer.item_count)} of ${number(answer.filtered_count)}`
      + (answer.filtered_count < answer.total_count ? ` (${number(answer.total_count)} in all)` : "") : `0 of ${number(answer.total_count)}`;
    scroll.hidden = few && !answer.total_count;
    filters.hidden = pager.hidden = few && !state.name && answer.total_count <= FEW;
    back.disabled = answer.page <= 1;
    next.disabled = answer.page >= answer.page_count;
  }

  function fail(error) {
    if (error.word === "page_out_of_range") { change({ page: 1 }); return; }
    if (view.failed(error)) return;
    wrong.textContent = error.message;
    wrong.hidden = false;
    none.hidden = true;
  }

  const filters = h("div", { class: "filters", hidden: few }, filter, patterns && h("label", { class: "check" }, regex, "Regex"), h("span", { class: "space" }), few ? [] : tools);
  const scroll = h("div", { class: "scroll" }, h("table", null, h("thead", null, h("tr", null, heads)), rows));
  const pager = h("div", { class: "pager", hidden: few }, count, h("span", { class: "space" }), size, back, next);
  follow();
  const element = h("section", { class: "card" }, few && h("header", null, h("h2", null, title), h("span", { class: "space" }), tools), filters,
    wrong, scroll, none, pager);
  return Object.assign(element, { refresh: follow });
}
