// Sign-in at the broker's token issuer: authorization code with PKCE. The broker exchanges the code.
import { get, requestToken } from "/static/api.js";

const KEY = "penstock.login";
const base64url = bytes => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));
const redirect = () => `${location.origin}/`;

// Goes to the issuer, which returns to this page with a code.
export async function startLogin(auth) {
  if (!crypto.subtle) throw new Error("Sign-in at an issuer needs HTTPS, or a browser on the broker's machine");
  const verifier = random(), state = random();
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const { authorization_endpoint: endpoint } = await get("/api/auth/provider");
  sessionStorage.setItem(KEY, JSON.stringify({ verifier, state, issuer: auth.oauth_provider_url, hash: location.hash }));
  const url = new URL(endpoint);
  const query = { response_type: "code", client_id: auth.oauth_client_id, redirect_uri: redirect(), scope: auth.oauth_scopes,
    state, code_challenge: base64url(new Uint8Array(digest)), code_challenge_method: "S256" };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  location.assign(url);
}

// If this page is opened by the issuer, a promise: the session is open, or the reason why not.
export function finishLogin() {
  const query = new URLSearchParams(location.search);
  if (!query.has("state")) return null;
  const started = JSON.parse(sessionStorage.getItem(KEY) || "{}");
  sessionStorage.removeItem(KEY);
  history.replaceState(null, "", `/${started.hash || ""}`);
  return finish(query, started);
}

async function finish(query, { verifier, state, issuer }) {
  if (!state || query.get("state") !== state || query.get("iss") && query.get("iss") !== issuer) {
    throw new Error("The sign-in did not begin in this window: try again");
  }
  if (query.has("error")) throw new Error(query.get("error_description") || query.get("error"));
  await requestToken({ code: query.get("code"), code_verifier: verifier, redirect_uri: redirect() });
}
