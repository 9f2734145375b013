// Places of the reader: favourites, seen lately, popular; and deals chosen for who is signed in.

import { ask, call } from "./api.js";
import { dealCard } from "./deals.js";
import { link, main, make, nothing } from "./elements.js";
import { favourites, notInAccount, recentHere } from "./favourites.js";
import { t } from "./language.js";
import { dealsByHive, place } from "./places.js";
import { isSignedIn } from "./session.js";

const MOST_SEEN = 6;

const details = (hives, signal) => Promise.all(hives.map((hive) => ask(`/hives/${hive}`, signal).catch((error) => { if (error.status !== 404) throw error; }))).then((found) => found.filter(Boolean));

/** With places that the account gets at this moment. */
async function seenLately(signal) {
  if (!isSignedIn()) return details(recentHere().slice(0, MOST_SEEN), signal);
  const here = notInAccount().slice(0, MOST_SEEN);
  const [unsent, stored] = await Promise.all([details(here, signal), call("GET", `/me/recent?limit=${MOST_SEEN}`, undefined, { signal })]);
  return [...unsent, ...stored.filter((hive) => !here.includes(hive.id))].slice(0, MOST_SEEN);
}

export async function showFavourites(signal) {
  const list = make("ul", { class: "places" });
  const more = make("div");
  const told = isSignedIn() ? make("p", { class: "soft" }, t("In your account, on all your devices."))
    : make("p", { class: "soft" }, t("Kept on this device only."), " ", link("#/sign-in", t("Sign in to keep them in your account.")));
  main.replaceChildren(make("h1", {}, t("Your favourites")), told, make("div", { class: "filters" }), list, more);
  const [found, deals] = await Promise.all([details([...favourites], signal), ask("/deals?limit=100", signal)]);
  const counted = dealsByHive(deals.items);
  if (found.length) list.append(...found.map((hive) => place(hive, counted)));
  else list.replaceWith(nothing(t("No favourites yet"), t("Tap the heart of a place to find it here again.")));
  const section = (title, items, kind) => items.length && more.append(make("h2", { class: "above" }, title), make("ul", { class: kind }, items));
  if (isSignedIn()) {
    const recommended = await call("GET", "/me/deals/recommended?limit=6", undefined, { signal })
      .then((found) => found.map((each) => dealCard(each.deal, { reason: each.reason })))
      .catch((error) => {
        if (error.status !== 402) throw error;
        return [make("li", { class: "soft" }, t("Deals chosen for you are part of the plan {plan}.", { plan: error.plans.join(", ") }), " ", link("#/plan", t("Plans")))];
      });
    section(t("Recommended for you"), recommended, "deals");
  }
  section(t("Seen lately"), (await seenLately(signal)).filter((hive) => !favourites.has(hive.id)).map((hive) => place(hive, counted)), "places");
  const popular = await ask("/popular?limit=6", signal);
  const hives = await details(popular.map((each) => each.hive_id), signal);
  section(t("Popular this week"), hives.filter((hive) => !favourites.has(hive.id)).map((hive) => place(hive, counted)), "places");
}
