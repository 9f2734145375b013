// Favourites and places seen lately: in the account of who is signed in, else in this browser.
//
// The browser has a copy, so that hearts are right at once, and a place that was seen is in the list
// before the account has it. On sign-in what the browser had is added to the account.

import { call } from "./api.js";
import { icon, make, notice } from "./elements.js";
import { t } from "./language.js";
import { isSignedIn, onSessionChange } from "./session.js";
import { remembered } from "./storage.js";
import { record } from "./usage.js";

const HEART = "M12 20.5 4.3 12.9a4.9 4.9 0 0 1 7-6.9l.7.7.7-.7a4.9 4.9 0 0 1 7 6.9Z";
const MOST_RECENT = 12;

export const favourites = new Set(remembered.get("favourites", []));
const keep = () => remembered.set("favourites", [...favourites]);
export const recentHere = () => remembered.get("recent", []);

async function set(hive, on) {
  if (on) favourites.add(hive); else favourites.delete(hive);
  keep();
  record(on ? "favourite" : "unfavourite", { hive_id: hive });
  if (isSignedIn()) await call(on ? "PUT" : "DELETE", `/me/favourites/${hive}`);
}

export function heart(hive, name) {
  const button = make("button", { class: "icon-button heart", type: "button", "aria-label": t("Favourite: {name}", { name }) }, icon(HEART));
  const show = () => button.setAttribute("aria-pressed", favourites.has(hive));
  button.addEventListener("click", () => {
    set(hive, !favourites.has(hive)).catch(() => notice(t("This favourite is on this device only: there is no connection.")));
    show();
  });
  show();
  return button;
}

const unsent = new Set(remembered.get("unsent", [])); // places seen that the account does not have yet
/** The last one first. */
export const notInAccount = () => [...unsent].reverse();

let sending = Promise.resolve(); // one at a time: the order counts
function addToAccount(hive) {
  unsent.delete(hive); // now it is the last one
  remembered.set("unsent", [...unsent.add(hive)]);
  sending = sending.then(() => send(hive));
}

async function send(hive) {
  if (!unsent.has(hive)) return; // signed out meanwhile
  try {
    await call("PUT", `/me/recent/${hive}`, undefined, { keepalive: true });
  } catch (error) {
    if (!error.status) return; // offline: when the page is opened again
  }
  unsent.delete(hive);
  remembered.set("unsent", unsent.size ? [...unsent] : null);
}

export function visited(hive) {
  remembered.set("recent", [hive, ...recentHere().filter((each) => each !== hive)].slice(0, MOST_RECENT));
  record("view", { hive_id: hive });
  if (isSignedIn()) addToAccount(hive);
}
if (isSignedIn()) [...unsent].forEach(addToAccount);

/** After a sign-in: what the browser has is added to the account, and the other way round. */
export async function mergeFavourites() {
  recentHere().reverse().forEach(addToAccount);
  const held = new Set((await call("GET", "/me/favourites")).map((hive) => hive.id));
  const more = [...favourites].filter((hive) => !held.has(hive));
  // A place that is gone is no favourite any more.
  await Promise.all(more.map((hive) => call("PUT", `/me/favourites/${hive}`).then(() => held.add(hive), () => {})));
  favourites.clear();
  for (const hive of held) favourites.add(hive);
  keep();
}

onSessionChange(() => {
  if (isSignedIn()) return;
  favourites.clear(); // they are in the account
  keep();
  remembered.set("recent", null);
  unsent.clear();
  remembered.set("unsent", null);
});
