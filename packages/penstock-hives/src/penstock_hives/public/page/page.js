// The public page: its views by the hash of its address, and the head of the page. Modules without a
// framework or a build step; views that few visits need are loaded when they are opened.

import { main, make, nothing, notice } from "./elements.js";
import { LANGUAGES, language, t, told, translatePage } from "./language.js";
import { follow, unwatchAll } from "./live.js";
import { choice, showPlaces } from "./places.js";
import { isSignedIn, onSessionChange } from "./session.js";
import { remembered } from "./storage.js";
import { record } from "./usage.js";

const account = () => import("./account.js");
const deals = () => import("./deals.js");
/** By the first part of the hash: the tab it is under, the module it needs, whether it needs a sign-in. */
const VIEWS = {
  "": { tab: "places", show: (_, parts, signal) => showPlaces(signal, route) },
  favourites: { tab: "favourites", load: () => import("./own_places.js"), show: (places, parts, signal) => places.showFavourites(signal) },
  map: { tab: "map", load: () => import("./map.js"), show: (map, [hive], signal) => map.showMap(Number(hive) || null, signal) },
  hive: { load: () => import("./place.js"), show: (place, [hive], signal) => place.showHive(Number(hive), signal) },
  deals: { tab: "deals", load: deals, show: (module, parts, signal) => module.showDeals(signal) },
  deal: { tab: "deals", load: deals, show: (module, [deal], signal) => module.showDeal(Number(deal), signal) },
  verify: { signedIn: true, load: deals, show: (module) => module.showVerify() },
  "sign-in": { load: account, show: (module, parts, signal) => module.showSignIn(signal) },
  "sign-up": { load: account, show: (module, parts, signal) => module.showSignUp(signal) },
  forgotten: { load: account, show: (module, parts, signal) => module.showForgotten(signal) },
  reset: { load: account, show: (module, [token]) => module.showReset(token) },
  confirm: { load: account, show: (module, [token]) => module.showConfirm(token) },
  account: { signedIn: true, tab: "account", load: account, show: (module, parts, signal) => module.showAccount(signal) },
  plan: { signedIn: true, tab: "account", load: () => import("./plan.js"), show: (plan, parts, signal) => plan.showPlan(signal) },
  privacy: { load: account, show: (module) => module.showPrivacy() },
  alerts: { signedIn: true, load: () => import("./alerts.js"), show: (alerts, parts, signal) => alerts.showAlerts(parts, signal) },
  inbox: { signedIn: true, tab: "inbox", load: () => import("./inbox.js"), show: (inbox, parts, signal) => inbox.showInbox(signal) },
};

let asking;
function failed(error) {
  if (error.name === "AbortError") return;
  const offline = !error.status;
  const text = error.status === 404 ? t("This page does not exist any more.") : t("This cannot be shown at the moment.");
  main.replaceChildren(nothing(text, offline ? t("There is no connection, and nothing was kept of it.") : error.status === 404 ? "" : told(error.message)), make("p", { class: "empty" }, make("a", { href: "#/" }, t("All places"))));
  if (offline && error.name !== "TypeError") console.error(error);
}

async function route(event) {
  asking?.abort();
  asking = new AbortController();
  unwatchAll();
  const inside = main.contains(document.activeElement);
  document.title = t("Hives · how busy is it right now?");
  // Links in older mails are #reset=TOKEN.
  const [path] = location.hash.replace(/^#reset=/, "#/reset/").replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/");
  const view = VIEWS[name] ?? VIEWS[""];
  for (const tab of document.querySelectorAll("[data-tab]")) {
    if (tab.dataset.tab === view.tab) tab.setAttribute("aria-current", "page"); else tab.removeAttribute("aria-current");
  }
  try {
    if (view.signedIn && !isSignedIn()) { location.replace(`#/sign-in?to=${path}`); return; }
    const { signal } = asking;
    const module = await view.load?.();
    signal.throwIfAborted(); // another view was opened meanwhile
    await view.show(module, parts, signal);
    // What had the focus may not be drawn again. Who searches stays in the field.
    const isLost = inside && document.activeElement === document.body;
    if (isLost || (event?.type === "hashchange" && !search.contains(document.activeElement))) main.focus({ preventScroll: true });
    if (event?.type === "hashchange") scrollTo(0, 0);
  } catch (error) {
    failed(error);
  }
  delete document.documentElement.dataset.view; // it is drawn
  if (name !== "hive" && event) record("view");
}

// ---- the head and the foot of the page

const search = document.querySelector("#search");
const toPlaces = () => { if (location.hash.length > 2) location.hash = "#/"; else route(); };
let typing;
function searched() {
  clearTimeout(typing);
  choice.name = search.elements.name.value;
  toPlaces();
}
search.addEventListener("submit", (event) => { event.preventDefault(); searched(); });
search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(searched, 250); });

const near = document.querySelector("#near");
near.addEventListener("click", () => {
  const show = (place) => {
    Object.assign(choice, { near: place, sort: place ? "distance" : "name" });
    near.setAttribute("aria-pressed", String(Boolean(place)));
    toPlaces();
  };
  if (choice.near) { show(null); return; }
  if (!navigator.geolocation) { notice(t("This browser does not say where it is.")); return; }
  navigator.geolocation.getCurrentPosition(
    ({ coords }) => show([coords.latitude, coords.longitude]),
    () => notice(t("Where you are is not known; search by name, town or ZIP code instead.")),
    { timeout: 10_000, maximumAge: 300_000 });
});

const theme = document.querySelector("#theme");
const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function dress(name) {
  if (name) document.documentElement.dataset.theme = name;
  theme.setAttribute("aria-pressed", String(dark()));
}
theme.addEventListener("click", () => { const name = dark() ? "light" : "dark"; remembered.set("theme", name); dress(name); });

const tongue = document.querySelector("#language");
tongue.append(...Object.entries(LANGUAGES).map(([code, name]) => make("option", { value: code, selected: code === language, lang: code }, name)));
tongue.addEventListener("change", () => { remembered.set("language", tongue.value); location.reload(); });

function showWho() {
  const signedIn = isSignedIn();
  const who = document.querySelector("#who");
  who.setAttribute("href", signedIn ? "#/account" : "#/sign-in");
  who.setAttribute("aria-label", signedIn ? t("Your account") : t("Sign in"));
  who.toggleAttribute("data-on", signedIn);
  document.querySelector("#inbox").hidden = !signedIn;
  if (signedIn) import("./inbox.js").then((inbox) => inbox.showUnread()).catch(() => {});
}

translatePage();
dress(remembered.get("theme"));
onSessionChange(showWho);
showWho();
addEventListener("hashchange", route);
// Who comes back from Google or Apple has a query; nobody else has.
if (location.search && sessionStorage.getItem("hives.firebase")) {
  const { returned } = await import("./firebase.js");
  const session = await returned().catch((error) => { notice(told(error.message)); return null; });
  if (session) await (await account()).enter(session).catch(() => {});
}
route();
follow();
if ("serviceWorker" in navigator) addEventListener("load", () => navigator.serviceWorker.register("/service-worker.js").catch(() => {}));
