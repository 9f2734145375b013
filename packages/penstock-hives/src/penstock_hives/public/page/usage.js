// What is viewed, searched and opened, sent in batches in the background. There is no cookie and no
// identifier that outlives the page: the session is a random number in memory. Whoever is signed in
// sends as themselves. Nothing is sent after an opt-out, or if the browser asks not to be tracked.

import { call } from "./api.js";
import { remembered } from "./storage.js";

const EVERY_MS = 10_000;
const MOST = 50;
const session = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(36)).join("");
let queue = [];

const asksNotTo = () => navigator.globalPrivacyControl === true || navigator.doNotTrack === "1";
export const isRecording = () => remembered.get("usage", true) && !asksNotTo();
export function setRecording(on) {
  remembered.set("usage", on);
  if (!on) queue = [];
}

export function record(action, details = {}) {
  if (!isRecording()) return;
  const page = location.hash.replace(/^#\/?/, "").split("/").slice(0, 2).join("/").replace(/[^\w/.:-]/g, "");
  queue.push({ action, page_identifier: page.startsWith("reset") || page.startsWith("confirm") ? "" : page, at: new Date().toISOString(), ...details });
  if (queue.length >= MOST) flush();
}

async function flush() {
  if (!queue.length) return;
  const events = queue.splice(0, 100);
  try {
    await call("POST", "/events", { session_id: session, events }, { keepalive: true });
  } catch (error) {
    if (!error.status) queue = [...events, ...queue].slice(-MOST); // offline: later
  }
}

setInterval(flush, EVERY_MS);
addEventListener("visibilitychange", () => { if (document.visibilityState === "hidden") flush(); });
