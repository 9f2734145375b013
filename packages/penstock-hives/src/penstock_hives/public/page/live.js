// Figures as they change: by server-sent events, by polling where streams do not get through.

import { API } from "./api.js";
import { count, t } from "./language.js";
import { ago } from "./words.js";

const POLL_MS = 10_000;
const LATE_MS = 90_000; // no newer data than that is not live

export const figures = new Map(); // hive -> the latest figure there is
const watchers = new Map(); // hive -> functions that redraw what shows it

export const unwatchAll = () => watchers.clear();

function take(list) {
  for (const figure of list) {
    const known = figures.get(figure.hive_id);
    if (known && known.version > figure.version) continue;
    figures.set(figure.hive_id, figure);
    const changed = !known || known.version !== figure.version;
    for (const redraw of watchers.get(figure.hive_id) ?? []) redraw(figure, changed && Boolean(known));
  }
}

export function watch(hive, redraw) {
  if (!watchers.has(hive)) watchers.set(hive, []);
  watchers.get(hive).push(redraw);
  if (figures.has(hive)) redraw(figures.get(hive), false);
}

const pulse = document.querySelector("#pulse");
function showPulse(state, text) {
  if (pulse.dataset.state === state && pulse.lastElementChild.textContent === text) return; // or it is read out again
  pulse.dataset.state = state;
  pulse.lastElementChild.textContent = text;
}

// Live means that data arrives: a connection over which nothing new comes is shown as such.
let state = "waiting"; // waiting, stream, polling, lost
function showAge() {
  const newest = Math.max(...[...figures.values()].map((figure) => Date.parse(figure.as_of)));
  const known = Number.isFinite(newest);
  const lost = state === "lost" || !navigator.onLine;
  document.body.toggleAttribute("data-offline", lost);
  if (lost) showPulse("away", known ? t("Offline · data of {ago}", { ago: ago(newest) }) : t("Offline"));
  else if (state === "waiting" || !known) return;
  else if (Date.now() - newest >= LATE_MS) showPulse("late", t("Last data {ago}", { ago: ago(newest) }));
  else if (state === "polling") showPulse("polling", count(POLL_MS / 1000, "Every second", "Every {n} seconds"));
  else showPulse("live", t("Live"));
}
setInterval(showAge, 5000);
addEventListener("offline", showAge);
addEventListener("online", () => follow());

/** Figures that came with a page of the API: what there is when no stream gets through. */
export function seed(figure) {
  if (figure && !figures.has(figure.hive_id)) figures.set(figure.hive_id, figure);
  if (state === "lost") showAge();
}

let source, polling;
export function follow() {
  source?.close();
  stopPolling();
  source = new EventSource(`${API}/live`);
  source.addEventListener("open", () => {
    stopPolling();
    state = "stream";
    showAge();
  });
  source.addEventListener("figures", (event) => { take(JSON.parse(event.data)); showAge(); });
  source.addEventListener("error", () => {
    if (polling === undefined) {
      showPulse("away", t("Reconnecting…"));
      polling = setInterval(poll, POLL_MS);
      poll();
    }
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, POLL_MS);
  });
}

function stopPolling() {
  clearInterval(polling);
  polling = undefined;
}

let tag;
async function poll() {
  let found;
  try {
    const answer = await fetch(`${API}/live`, { headers: tag ? { "if-none-match": tag } : {}, cache: "no-store" });
    if (!answer.ok && answer.status !== 304) throw new TypeError(answer.statusText);
    tag = answer.headers.get("etag");
    if (answer.status === 200) take((await answer.json()).figures);
    found = "polling";
  } catch {
    found = "lost";
  }
  if (source.readyState !== EventSource.OPEN) state = found;
  showAge();
}
