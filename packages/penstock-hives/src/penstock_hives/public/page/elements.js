// Elements and forms. Text only ever becomes text: nothing is parsed as HTML.

import { t, told } from "./language.js";

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "rect", "line", "text", "clipPath", "polyline", "polygon", "title", "circle", "g"]);
export const main = document.querySelector("#main");

export function make(tag, attributes = {}, ...children) {
  const element = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const icon = (path) => make("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, make("path", { d: path }));
export const link = (href, text, kind = null) => make("a", { href, class: kind }, text);
export const button = (text, press, kind = "button") => make("button", { type: "button", class: kind, onclick: press }, text);
export const panel = (title, ...children) => make("section", { class: "panel" }, title && make("h2", {}, title), ...children);
export const back = (href, text) => make("a", { class: "back", href }, `← ${text}`);

export function nothing(title, text, ...more) {
  return make("div", { class: "empty" }, icon("M12 2.2 20.5 7v10L12 21.8 3.5 17V7Z"), make("strong", {}, title), text, ...more);
}

let noticed;
export function notice(text) {
  const place = document.querySelector("#notice");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(noticed);
  noticed = setTimeout(() => { place.hidden = true; }, 6000);
}

/** A question before something that cannot be undone; resolves to whether it was answered with yes. */
export function confirmed(title, text, yes) {
  return new Promise((done) => {
    const dialog = make("dialog", { class: "dialog", "aria-labelledby": "dialog-title", onclose: () => { done(dialog.returnValue === "yes"); dialog.remove(); } },
      make("form", { method: "dialog" },
        make("h2", { id: "dialog-title" }, title), make("p", {}, text),
        make("div", { class: "row end" },
          make("button", { class: "button plain", value: "no" }, t("Cancel")),
          make("button", { class: "button danger", value: "yes" }, yes))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

let fields = 0;
/** A labelled control: an input, a select with `options`, or a text area (`type: "textarea"`). */
export function field({ name, label, type = "text", hint = null, options = null, value = null, ...more }) {
  const id = `field-${fields++}`;
  const described = hint ? `${id}-hint ${id}-error` : `${id}-error`;
  const given = { id, name, "aria-describedby": described, ...more };
  let control;
  if (options) control = make("select", given, options.map(([each, text]) => make("option", { value: each, selected: String(each) === String(value ?? "") }, text)));
  else if (type === "textarea") control = make("textarea", { rows: 4, ...given });
  else control = make("input", { type, ...given });
  if (type === "checkbox") control.checked = Boolean(value);
  else if (!options && value !== null) control.value = value;
  const parts = [make("label", { for: id }, label), control];
  return make("div", { class: type === "checkbox" ? "field check" : "field" }, type === "checkbox" ? parts.reverse() : parts,
    hint && make("p", { class: "hint", id: `${id}-hint` }, hint),
    make("p", { class: "error", id: `${id}-error`, hidden: true }));
}

/** A form that says what is wrong beside its fields, and cannot be sent twice at once. */
export function form(parts, submitText, submit, { kind = "button", above = null } = {}) {
  const problem = make("p", { class: "error", role: "alert", hidden: true });
  const send = make("button", { class: kind, type: "submit" }, submitText);
  const element = make("form", { class: "form", novalidate: true }, above, parts, problem, make("div", { class: "row" }, send));
  const show = (place, text) => { place.textContent = text; place.hidden = !text; };
  const complain = (control, text) => {
    const place = document.getElementById(`${control.id}-error`);
    if (place) show(place, text);
    control.setAttribute("aria-invalid", "true");
  };
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    show(problem, "");
    for (const control of element.elements) {
      control.removeAttribute("aria-invalid");
      const place = document.getElementById(`${control.id}-error`);
      if (place) show(place, "");
    }
    const wrong = [...element.elements].filter((control) => control.willValidate && !control.checkValidity());
    for (const control of wrong) complain(control, control.validationMessage);
    if (wrong.length) { wrong[0].focus(); return; }
    send.disabled = true;
    try {
      const values = Object.fromEntries([...element.elements].filter((control) => control.name).map((control) => [control.name, control.type === "checkbox" ? control.checked : control.value]));
      await submit(values, element);
    } catch (error) {
      const named = (error.errors ?? []).map((each) => [element.elements[each.field.replace(/^body\./, "")], each.reason]).filter(([control]) => control);
      for (const [control, reason] of named) complain(control, told(reason));
      if (named.length) named[0][0].focus();
      else show(problem, error.status ? told(error.message) : t("No connection. Try again."));
      if (!error.status && error.name !== "TypeError") console.error(error);
    } finally {
      send.disabled = false;
    }
  });
  return element;
}
