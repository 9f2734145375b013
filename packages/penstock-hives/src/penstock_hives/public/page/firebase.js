// Sign-in with Firebase, where the installation uses it: with an address, with Google, with Apple.
//
// The REST interface of Firebase's accounts is called, without its SDK. Google and Apple send the
// reader back to this page, whose origin must be an authorised redirect URI of the project.

import { Refused } from "./api.js";
import { button, make, notice } from "./elements.js";
import { t, told } from "./language.js";

const NAMES = { "google.com": "Google", "apple.com": "Apple" };
const KEY = "hives.firebase"; // of a sign-in that has left this page
/** Firebase's codes in the words of the local issuer. */
const REASONS = {
  EMAIL_EXISTS: "this login exists already",
  INVALID_LOGIN_CREDENTIALS: "the login or the password is wrong",
  EMAIL_NOT_FOUND: "the login or the password is wrong",
  INVALID_PASSWORD: "the login or the password is wrong",
  TOO_MANY_ATTEMPTS_TRY_LATER: "too many wrong passwords for this login: try again later",
};

const settings = (await fetch("/page.json").then((answer) => answer.json())).firebase;

async function post(url, body, form = false) {
  if (!settings.key) throw new Refused(501, { detail: "PENSTOCK_HIVES_IDENTITY_API_KEY is not set" });
  const answer = await fetch(`${url}?key=${settings.key}`, {
    method: "POST", headers: { "content-type": form ? "application/x-www-form-urlencoded" : "application/json" },
    body: form ? new URLSearchParams(body) : JSON.stringify(body),
  });
  const said = await answer.json().catch(() => ({}));
  if (answer.ok) return said;
  const [code] = (said.error?.message ?? "").split(/[ :]/);
  throw new Refused(answer.status, { detail: REASONS[code] ?? said.error?.message ?? answer.statusText });
}

const accounts = (what, body) => post(`${settings.urls[0]}/v1/accounts:${what}`, body);
const session = ({ idToken, refreshToken, expiresIn, localId }) => ({ id_token: idToken, refresh_token: refreshToken, expires_in: Number(expiresIn), uid: localId, firebase: true });

export const signIn = async (email, password) => session(await accounts("signInWithPassword", { email, password, returnSecureToken: true }));
export const signUp = async (email, password) => session(await accounts("signUp", { email, password, returnSecureToken: true }));
export const forgotten = (email) => accounts("sendOobCode", { requestType: "PASSWORD_RESET", email }).catch((error) => { if (error.status !== 400) throw error; });

/** A new session; null if it has ended. */
export async function refresh({ refresh_token }) {
  try {
    const said = await post(`${settings.urls[1]}/v1/token`, { grant_type: "refresh_token", refresh_token }, true);
    return { id_token: said.id_token, refresh_token: said.refresh_token, expires_in: Number(said.expires_in), uid: said.user_id, firebase: true };
  } catch (error) {
    if (error.status === 400 || error.status === 401 || error.status === 403) return null;
    throw error;
  }
}

export function providers() {
  const leave = async (providerId) => {
    const { authUri, sessionId } = await accounts("createAuthUri", { providerId, continueUri: `${location.origin}/`, authFlowType: "CODE_FLOW" });
    sessionStorage.setItem(KEY, JSON.stringify({ providerId, sessionId, hash: location.hash }));
    location.assign(authUri);
  };
  return make("div", { class: "form" }, settings.providers.map((id) => button(t("Continue with {name}", { name: NAMES[id] }), () => leave(id).catch((error) => notice(told(error.message))), "button plain")));
}

/** The session of somebody who comes back from Google or Apple; null if nobody does. */
export async function returned() {
  const held = JSON.parse(sessionStorage.getItem(KEY) ?? "null");
  if (!held || !location.search) return null;
  sessionStorage.removeItem(KEY);
  const query = location.search.slice(1);
  const requestUri = `${location.origin}/${location.search}`;
  history.replaceState(null, "", `/${held.hash}`);
  if (new URLSearchParams(query).has("error")) { notice(t("The sign-in was cancelled.")); return null; }
  return session(await accounts("signInWithIdp", { requestUri, sessionId: held.sessionId, postBody: `${query}&providerId=${held.providerId}`, returnSecureToken: true }));
}
