// Notifications on this device: a push subscription of the browser, registered with the account.

import { call } from "./api.js";
import { button, make, notice } from "./elements.js";
import { language, t, told } from "./language.js";
import { remembered } from "./storage.js";

const isPossible = () => "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;

const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));

/** Asks for permission, subscribes and registers. Called on request only. */
async function enable() {
  if (await Notification.requestPermission() !== "granted") throw new Error(t("The browser does not allow notifications of this page. Change it in its settings."));
  const [registration, { key }] = await Promise.all([navigator.serviceWorker.ready, call("GET", "/push/key")]);
  const subscription = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytes(key) });
  const { endpoint, keys } = subscription.toJSON();
  const device = await call("POST", "/push/devices", { kind: "webpush", address: endpoint, keys, locale: language });
  remembered.set("device", device.id);
}

/** This device gets no pushes any more; before a sign-out, too. */
export async function disable() {
  if (remembered.get("device") === null) return;
  const registration = await navigator.serviceWorker.ready;
  const subscription = await registration.pushManager.getSubscription();
  await subscription?.unsubscribe();
  const device = remembered.get("device");
  remembered.set("device", null);
  if (device) await call("DELETE", `/push/devices/${device}`).catch((error) => { if (error.status !== 404) throw error; });
}

export function pushSwitch() {
  if (!isPossible()) return make("p", { class: "soft" }, t("This browser has no notifications. Alerts are in the inbox."));
  const place = make("div", { class: "row" });
  const draw = () => {
    const on = remembered.get("device") !== null && Notification.permission === "granted";
    place.replaceChildren(make("p", {}, on ? t("Notifications arrive on this device.") : t("Get notifications on this device, even when this page is closed.")),
      button(on ? t("Turn off") : t("Turn on"), async (event) => {
        event.target.disabled = true;
        try { await (on ? disable() : enable()); } catch (error) { notice(error.status ? told(error.message) : error.message); }
        draw();
      }, on ? "button plain" : "button"));
  };
  draw();
  return place;
}
