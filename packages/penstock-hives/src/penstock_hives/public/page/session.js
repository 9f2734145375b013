// Who is signed in. Tokens are in this browser's storage; there are no cookies.
//
// A refresh token is valid once, so tabs take turns (Web Locks), and each looks first whether another
// one has renewed the session meanwhile.

import { remembered, watchRemembered } from "./storage.js";

const KEY = "session";
const EARLY_MS = 60_000; // an ID token is renewed that long before it expires
const changes = new Set();

const held = () => remembered.get(KEY);
export const isSignedIn = () => held() !== null;
export const onSessionChange = (call) => changes.add(call);
const tell = () => { for (const call of changes) call(); };
watchRemembered(KEY, tell);

export function keepSession(session) {
  const { id_token, refresh_token, expires_in, uid, firebase } = session;
  remembered.set(KEY, { id_token, refresh_token, uid, firebase, expires_at: Date.now() + expires_in * 1000 });
  tell();
}

export function forgetSession() {
  remembered.set(KEY, null);
  tell();
}

async function renew(session) {
  if (session.firebase) return (await import("./firebase.js")).refresh(session);
  const answer = await fetch("/v1/identity/refresh", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ refresh_token: session.refresh_token }),
  });
  if (answer.status === 401) return null;
  if (!answer.ok) throw new TypeError("the session could not be renewed");
  return answer.json();
}

const alone = (work) => (navigator.locks ? navigator.locks.request("hives.session", work) : work());
const lasts = (session, force) => session && !force && session.expires_at - Date.now() > EARLY_MS;

/** A valid ID token, or null if nobody is signed in. `refused` is one that was not accepted. */
export async function idToken(refused = null) {
  const session = held();
  if (!session || lasts(session, session.id_token === refused)) return session?.id_token ?? null;
  return alone(async () => {
    const now = held();
    if (!now || lasts(now, now.id_token === refused)) return now?.id_token ?? null;
    const renewed = await renew(now);
    if (renewed) keepSession(renewed); else forgetSession();
    return renewed?.id_token ?? null;
  });
}

export async function signOut() {
  const session = held();
  forgetSession();
  if (session && !session.firebase) {
    await fetch("/v1/identity/sign-out", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ refresh_token: session.refresh_token }),
    }).catch(() => {});
  }
}
