// Texts in the language of the browser. The English text is the key; `languages/*.json` have the others.

import { remembered } from "./storage.js";

export const LANGUAGES = { en: "English", de: "Deutsch", fr: "Français" };

function preferred() {
  const wanted = [remembered.get("language"), ...navigator.languages].filter(Boolean);
  return wanted.map((each) => each.slice(0, 2).toLowerCase()).find((each) => each in LANGUAGES) ?? "en";
}

export const language = preferred();
/** For dates and numbers: the region of the browser, if it is of the same language. */
export const locale = navigator.languages.find((each) => each.startsWith(language)) ?? (language === "en" ? "en-GB" : language);
document.documentElement.lang = language;

const texts = language === "en" ? {} : await fetch(`/languages/${language}.json`).then((answer) => (answer.ok ? answer.json() : {})).catch(() => ({}));
const plurals = new Intl.PluralRules(language);

const filled = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
/** The text in the reader's language, with `{name}` replaced by values. */
export const t = (text, values = {}) => filled(texts[text] ?? text, values);

/** What the service said, in English with its values in it: its translation, or in general words. */
export function told(said) {
  if (language === "en" || texts[said]) return t(said);
  for (const [text, translated] of Object.entries(texts)) {
    const names = [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    if (!names.length) continue;
    const pattern = text.split(/\{\w+\}/).map((part) => part.replace(/[.*+?^$()|[\]\\{}]/g, "\\$&")).join("(.+)");
    const values = said.match(`^${pattern}$`);
    if (values) return filled(translated, Object.fromEntries(names.map((name, n) => [name, values[n + 1]])));
  }
  return t("This was not accepted.");
}

/** The same for a number of things: `n` is in the text. */
export function count(n, one, many) {
  return t(plurals.select(n) === "one" ? one : many, { n: new Intl.NumberFormat(locale).format(n) });
}

/** Translates what is written in the HTML file. */
export function translatePage() {
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t || element.textContent.trim().replace(/\s+/g, " "));
  for (const name of ["aria-label", "placeholder", "title"]) {
    for (const element of document.querySelectorAll(`[data-t-${name}]`)) element.setAttribute(name, t(element.getAttribute(`data-t-${name}`) || element.getAttribute(name)));
  }
}
