// Accounts: sign up, in and out; a forgotten password; profile, password, address, export, deletion.

import { ask, call } from "./api.js";
import { back, button, confirmed, field, form, link, main, make, notice, panel } from "./elements.js";
import { favourites, mergeFavourites } from "./favourites.js";
import { language, t, told } from "./language.js";
import { disable } from "./push.js";
import { forgetSession, idToken, keepSession, signOut } from "./session.js";
import { remembered } from "./storage.js";
import { isRecording, setRecording } from "./usage.js";
import { dateOf } from "./words.js";

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const address = (label = t("E-mail address"), more = {}) => field({ name: "login", label, type: "email", required: true, maxlength: 254, autocomplete: "username", ...more });
const oldPassword = (label = t("Password")) => field({ name: "password", label, type: "password", required: true, maxlength: 256, autocomplete: "current-password" });
const newPassword = (name = "password") => field({ name, label: t("New password"), type: "password", required: true, minlength: 10, maxlength: 256, autocomplete: "new-password", hint: t("Ten characters or more.") });

function page(title, ...children) {
  document.title = `${title} · Hives`;
  main.replaceChildren(make("div", { class: "narrow" }, make("h1", {}, title), ...children));
}

/** Where the reader wanted to go before signing in. */
function goOn() {
  const [, to] = location.hash.split("?to=");
  location.hash = `#/${/^[\w/-]+$/.test(to ?? "") ? to : "account"}`;
}

export async function enter(session) {
  keepSession(session);
  const had = favourites.size;
  await mergeFavourites();
  const added = had && t("Your favourites are in your account now.");
  if (added) notice(added);
  goOn();
}

const carried = () => (location.hash.includes("?to=") ? `?to=${location.hash.split("?to=")[1]}` : "");
/** Sign-in with Firebase where it is configured; the same forms, another issuer. */
const firebase = async (signal) => ((await ask("/identity", signal)).issuer === "local" ? null : import("./firebase.js"));

export async function showSignIn(signal) {
  const other = await firebase(signal);
  page(t("Sign in"),
    other?.providers(),
    form([address(), oldPassword()], t("Sign in"), async ({ login, password }) => enter(await (other ? other.signIn(login, password) : call("POST", "/identity/sign-in", { login, password })))),
    make("p", { class: "above" }, link("#/forgotten", t("Forgot your password?"))),
    make("p", {}, t("New here?"), " ", link(`#/sign-up${carried()}`, t("Create an account"))));
}

export async function showSignUp(signal) {
  const other = await firebase(signal);
  page(t("Create an account"),
    make("p", { class: "soft" }, t("For favourites on all your devices, alerts and deals. We need an address and nothing else.")),
    other?.providers(),
    form([address(), newPassword()], t("Create an account"), async ({ login, password }) => {
      await enter(await (other ? other.signUp(login, password) : call("POST", "/identity/sign-up", { login, password })));
      await call("PATCH", "/me", { locale: language, time_zone: ZONE }).catch(() => {});
    }),
    make("p", { class: "above" }, t("You have an account?"), " ", link(`#/sign-in${carried()}`, t("Sign in"))));
}

export async function showForgotten(signal) {
  const other = await firebase(signal);
  page(t("Forgot your password?"),
    form([address()], t("Send me a link"), async ({ login }) => {
      await (other ? other.forgotten(login) : call("POST", "/identity/password/forgotten", { login }));
      page(t("Look into your mail"), make("p", {}, t("If there is an account with this address, a link to set a new password is on its way. It is valid for an hour.")), link("#/sign-in", t("Sign in")));
    }, { above: make("p", { class: "soft" }, t("We send you a link to set a new one.")) }));
}

export function showReset(token) {
  page(t("Set a new password"),
    form([newPassword()], t("Set password"), async ({ password }) => {
      await call("POST", "/identity/password/reset", { token: token ?? "", password });
      forgetSession();
      location.replace("#/sign-in");
      notice(t("Your password was changed. Sign in with it."));
    }),
    make("p", { class: "above" }, link("#/forgotten", t("Send another link"))));
}

export function showConfirm(token) {
  page(t("Confirm your new address"),
    form([], t("Confirm"), async () => {
      await call("POST", "/identity/login/confirm", { token: token ?? "" });
      location.replace("#/account");
      notice(t("From now on you sign in with your new address."));
    }, { above: make("p", {}, t("You will sign in with this address instead of the old one.")) }));
}

// ---- the account

const ages = () => [["", t("I would rather not say")], ["under_18", t("under 18")], ["18_24", "18–24"], ["25_34", "25–34"], ["35_49", "35–49"], ["50_64", "50–64"], ["65_over", t("65 and over")]];
const genders = () => [["", t("I would rather not say")], ["female", t("female")], ["male", t("male")], ["other", t("other")]];

export async function showAccount(signal) {
  const [me, local] = await Promise.all([call("GET", "/me", undefined, { signal }), call("GET", "/identity/login", undefined, { signal }).catch((error) => { if (![404, 501].includes(error.status)) throw error; })]);
  const zones = Intl.supportedValuesOf ? ["UTC", ...Intl.supportedValuesOf("timeZone")] : [me.time_zone];
  if (!zones.includes(me.time_zone)) zones.unshift(me.time_zone);
  const profile = form([
    field({ name: "nickname", label: t("Nickname"), maxlength: 40, value: me.nickname ?? "", autocomplete: "nickname" }),
    field({ name: "time_zone", label: t("Time zone"), options: zones.map((zone) => [zone, zone.replaceAll("_", " ")]), value: me.time_zone, hint: t("Quiet hours are in this time zone.") }),
    field({ name: "age_band", label: t("Age"), options: ages(), value: me.age_band, hint: t("Voluntary. Businesses see groups of ten people or more, never you.") }),
    field({ name: "gender", label: t("Gender"), options: genders(), value: me.gender }),
  ], t("Save"), async (values) => {
    const given = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value || null]));
    await call("PATCH", "/me", given);
    notice(t("Saved."));
  });
  document.title = `${t("Your account")} · Hives`;
  main.replaceChildren(
    make("div", { class: "row between" }, make("div", {}, make("h1", {}, me.nickname || t("Your account")), make("p", { class: "soft" }, [local?.login, t("Plan: {plan}", { plan: me.plan }), t("since {date}", { date: dateOf(me.created_at) })].filter(Boolean).join(" · "))),
      button(t("Sign out"), async () => { await disable().catch(() => {}); await signOut(); location.hash = "#/"; notice(t("You are signed out.")); }, "button plain")),
    make("nav", { class: "row cards", "aria-label": t("Your account") },
      link("#/inbox", t("Inbox"), "card"), link("#/alerts", t("Alerts"), "card"), link("#/favourites", t("Favourites"), "card"), link("#/deals", t("Deals and codes"), "card"), link("#/plan", t("Your plan"), "card"),
      me.memberships.length ? link("#/verify", t("Check a code"), "card") : null),
    make("div", { class: "one" },
      make("section", { class: "panel wide tall" }, make("h2", {}, t("Profile")), profile),
      local && panel(t("Password"), passwordForm()),
      local && panel(t("E-mail address"), addressForm(local.login)),
      panel(t("Privacy"), usageChoice(), make("p", { class: "soft small" }, t("Everything that is stored about you, in one file.")), button(t("Export my data"), exportData, "button plain")),
      panel(t("Delete account"), make("p", {}, t("Your favourites, alerts, messages and activity are erased. This cannot be undone.")), button(t("Delete my account"), remove, "button danger"))));
}

const passwordForm = () => form([oldPassword(t("Old password")), newPassword("new_password")], t("Change password"), async ({ password, new_password }, element) => {
  keepSession(await call("PUT", "/identity/password", { password, new_password }));
  element.reset();
  notice(t("Your password was changed. Other devices are signed out."));
}, { kind: "button plain" });

const addressForm = (login) => form([address(t("New address"), { autocomplete: "email", placeholder: login }), oldPassword()], t("Change address"), async (given, element) => {
  await call("PUT", "/identity/login", given);
  element.reset();
  notice(t("A link is on its way to the new address. It is valid for an hour."));
}, { kind: "button plain" });

async function exportData() {
  const token = await idToken();
  const answer = await fetch("/v1/me/export", { headers: { authorization: `Bearer ${token}` } });
  if (!answer.ok) { notice(t("This cannot be shown at the moment.")); return; }
  const url = URL.createObjectURL(await answer.blob());
  make("a", { href: url, download: "hives-export.json" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function remove() {
  if (!await confirmed(t("Delete your account?"), t("Your favourites, alerts, messages and activity are erased. This cannot be undone."), t("Delete my account"))) return;
  try {
    await call("DELETE", "/me");
    forgetSession();
    for (const name of ["recent", "device"]) remembered.set(name, null);
    location.hash = "#/";
    notice(t("Your account is deleted."));
  } catch (error) {
    notice(error.status ? told(error.message) : t("No connection. Try again."));
  }
}

// ---- privacy

function usageChoice() {
  const box = field({ name: "usage", label: t("Count what I view and search"), type: "checkbox", value: isRecording(), hint: t("It makes lists of popular places. Without an account it is anonymous, and there are no cookies.") });
  box.addEventListener("change", (event) => { setRecording(event.target.checked); notice(t("Saved.")); });
  return box;
}

export function showPrivacy() {
  main.replaceChildren(back("#/", t("All places")), make("div", { class: "narrow" }, make("h1", {}, t("Privacy")),
    make("p", {}, t("People are counted at doors; nobody is identified.")), panel(null, usageChoice())));
}

