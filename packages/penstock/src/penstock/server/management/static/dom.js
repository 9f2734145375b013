// Elements, formats, dialogs and notices. Names come from clients: everything is set as text.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

const plain = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const number = value => typeof value === "number" ? (Number.isInteger(value) ? plain : short).format(value) : "–";

export function bytes(value) {
  if (typeof value !== "number") return "–";
  let unit = 0;
  for (; Math.abs(value) >= 1024 && unit < 4; unit++) value /= 1024;
  return `${short.format(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export function duration(seconds) {
  if (typeof seconds !== "number" || !isFinite(seconds)) return "–";
  if (seconds < 60) return `${short.format(Math.max(0, seconds))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export const time = milliseconds => milliseconds ? new Date(milliseconds).toLocaleString("en-GB", { hour12: false }) : "–";

export const json = value => JSON.stringify(value, null, 2);
export const compact = value => {
  const entries = Object.entries(value || {});
  return entries.map(([name, one]) => `${name}: ${typeof one === "object" ? JSON.stringify(one) : one}`).join(", ");
};

export const pill = (text, kind = "") => h("span", { class: `pill ${kind}` }, String(text));
export const link = (to, ...children) => h("a", { href: `#/${to}` }, ...children);
export const button = (label, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, label);

export const facts = pairs => h("dl", { class: "facts" },
  pairs.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));

export const card = (title, ...children) => {
  const [tools, ...rest] = Array.isArray(children[0]) ? children : [[], ...children];
  return h("section", { class: "card" }, title ? h("header", null, h("h2", null, title), h("span", { class: "space" }), tools) : null, ...rest);
};
export const body = (...children) => h("div", { class: "body" }, ...children);

// A small table without paging: columns are [label, cell of a row, class].
export const table = (columns, rows, empty = "None") => rows.length
  ? h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, columns.map(([label, , kind]) => h("th", { class: kind, scope: "col" }, label)))),
    h("tbody", null, rows.map(row => h("tr", null, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row))))))))
  : h("p", { class: "empty" }, empty);

const toasts = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
export function toast(text, isBad = false) {
  if (!toasts.isConnected) document.body.append(toasts);
  const one = h("div", { class: isBad ? "toast bad" : "toast" }, text);
  toasts.append(one);
  setTimeout(() => one.remove(), isBad ? 9000 : 3500);
}

let fieldNumber = 0;
function control(field) {
  const common = { name: field.name, required: field.required, placeholder: field.placeholder, id: `field-${++fieldNumber}` };
  if (field.type === "check") return h("input", { ...common, type: "checkbox", checked: Boolean(field.value) });
  if (field.type === "text area") return h("textarea", { ...common, rows: field.rows, value: field.value ?? "", spellcheck: "false" });
  if (field.type === "choice") {
    return h("select", common, field.options.map(one => {
      const [value, label] = Array.isArray(one) ? one : [one, one];
      return h("option", { value, selected: value === field.value }, label);
    }));
  }
  if (field.type === "file") return h("input", { ...common, type: "file", accept: field.accept });
  return h("input", { ...common, type: field.type || "text", value: field.value ?? "", min: field.min, step: field.type === "number" ? "any" : null, autocomplete: "off", spellcheck: "false" });
}

function labelled(field) {
  const input = control(field);
  if (field.type === "check") return h("label", { class: "check" }, input, field.label);
  const hints = field.hints && h("select", { "aria-label": `Add to ${field.label}`, onchange(event) {
    const found = field.hints.find(([name]) => name === event.target.value);
    event.target.value = "";
    if (!found) return;
    try { input.value = json({ ...JSON.parse(input.value.trim() || "{}"), [found[0]]: found[1] }); } catch { input.focus(); }
  } }, h("option", { value: "" }, "Add…"), field.hints.map(([name]) => h("option", { value: name }, name)));
  return h("div", { class: "field" }, h("label", { for: input.id }, h("span", null, field.label)), input, hints, field.help && h("small", null, field.help));
}

function values(form, fields) {
  const found = {};
  for (const field of fields) {
    const input = form.elements[field.name];
    if (field.type === "check") found[field.name] = input.checked;
    else if (field.type === "file") found[field.name] = input.files[0];
    else if (field.type === "number") found[field.name] = input.value === "" ? undefined : Number(input.value);
    else if (field.json) {
      try { found[field.name] = JSON.parse(input.value.trim() || "{}"); }
      catch (error) { throw new Error(`${field.label}: not JSON (${error.message})`); }
    } else found[field.name] = input.value;
  }
  return found;
}

// A dialog with fields. `act` gets their values; what it throws is shown, and the dialog stays open.
export function dialog({ title, text, fields = [], label, act, danger, wide }) {
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const ok = h("button", { class: danger ? "primary danger" : "primary" }, label);
  const form = h("form", { method: "dialog" }, h("h2", null, title), text && h("p", null, text), fields.map(labelled), wrong,
    h("div", { class: "buttons" }, button("Cancel", () => shown.close()), ok));
  form.addEventListener("submit", async event => {
    event.preventDefault();
    ok.disabled = true;
    try {
      await act(values(form, fields));
      shown.close();
    } catch (error) {
      wrong.textContent = error.message;
      wrong.hidden = false;
    } finally { ok.disabled = false; }
  });
  const shown = h("dialog", { class: wide ? "wide" : "", "aria-label": title }, form);
  shown.addEventListener("close", () => shown.remove());
  document.body.append(shown);
  shown.showModal();
  return shown;
}

export const confirm = (title, text, label, act) => dialog({ title, text, label, act, danger: true });

export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
