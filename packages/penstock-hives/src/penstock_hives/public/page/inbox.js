// The inbox: what alerts and deals have told, read and unread; and messages with places.

import { call } from "./api.js";
import { button, field, form, link, main, make, nothing, panel } from "./elements.js";
import { t } from "./language.js";
import { ago } from "./words.js";

export async function showUnread() {
  const page = await call("GET", "/inbox?unread=true&limit=20");
  const badge = document.querySelector("#unread");
  const many = page.items.length;
  badge.hidden = !many;
  badge.textContent = page.next ? `${many}+` : String(many);
  document.querySelector("#inbox").setAttribute("aria-label", many ? t("Inbox, {n} unread", { n: badge.textContent }) : t("Inbox"));
}

/** Only links to views of this page. */
const target = (note) => (/^\/#\/[\w/-]*$/.test(note.link ?? "") ? note.link.slice(1) : null);

function noteRow(note, changed) {
  const unread = !note.read_at;
  const read = async () => {
    if (note.read_at) return;
    note.read_at = new Date().toISOString();
    changed();
    await call("POST", `/inbox/${note.id}/read`).then(showUnread).catch(() => {});
  };
  const to = target(note);
  return make("li", { class: "note", "data-unread": String(unread) },
    make("div", {},
      make("h3", {}, to ? make("a", { href: to, onclick: read }, note.title) : note.title, unread && make("span", { class: "hidden" }, ` (${t("unread")})`)),
      make("p", {}, note.body),
      make("p", { class: "soft small" }, ago(note.created_at))),
    unread && button(t("Mark as read"), read, "chip"));
}

export async function showInbox(signal) {
  document.title = `${t("Inbox")} · Hives`;
  const list = make("ul", { class: "rows" });
  const all = button(t("Mark all as read"), async () => {
    await call("POST", "/inbox/read");
    for (const note of notes) note.read_at ??= new Date().toISOString();
    draw();
    await showUnread();
  }, "chip");
  const older = button(t("Show more"), () => load(), "chip more");
  const messages = make("div");
  main.replaceChildren(make("div", { class: "row between" }, make("h1", {}, t("Inbox")), link("#/alerts", t("Alerts"), "chip")), make("div", { class: "filters" }, all), list, messages);
  let notes = [], cursor = null;
  const draw = () => {
    all.hidden = notes.every((note) => note.read_at);
    list.replaceChildren(...notes.map((note) => noteRow(note, draw)));
    if (!notes.length) list.replaceChildren(make("li", {}, nothing(t("Nothing here yet"), t("Alerts and deals of your favourites arrive here."), " ", link("#/alerts", t("Set an alert")))));
  };
  const load = async () => {
    const page = await call("GET", `/inbox?limit=30${cursor ? `&cursor=${cursor}` : ""}`, undefined, { signal });
    notes = [...notes, ...page.items];
    cursor = page.next;
    draw();
    if (cursor) list.after(older); else older.remove();
  };
  await load();
  await showMessages(messages, signal);
}

// ---- what was written to places, and their answers

async function showMessages(place, signal) {
  const { items } = await call("GET", "/messages?limit=50", undefined, { signal });
  const answers = new Map();
  for (const each of items) if (each.in_reply_to) answers.set(each.in_reply_to, [...(answers.get(each.in_reply_to) ?? []), each]);
  const first = items.filter((each) => !each.in_reply_to);
  const row = (each) => make("li", { class: "note" }, make("div", {},
    make("p", {}, each.rating && make("span", { class: "rating", "aria-label": t("{n} of 5 stars", { n: each.rating }), role: "img" }, "★".repeat(each.rating)), " ", each.content),
    make("p", { class: "soft small" }, ago(each.created_at), each.hive_id && [" · ", link(`#/hive/${each.hive_id}`, t("the place"))]),
    (answers.get(each.id) ?? []).reverse().map((answer) => make("blockquote", {}, make("p", {}, answer.content), make("p", { class: "soft small" }, ago(answer.created_at))))));
  const ask = form([field({ name: "content", label: t("Question to the operators of this page"), type: "textarea", required: true, maxlength: 4000 })], t("Send"), async ({ content }, element) => {
    await call("POST", "/messages", { type: "support", content });
    element.reset();
    await showMessages(place, signal);
  }, { kind: "button plain" });
  place.replaceChildren(first.length ? make("h2", { class: "above" }, t("Your messages")) : "", make("ul", { class: "rows" }, first.map(row)), panel(t("Help"), ask));
}
