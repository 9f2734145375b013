// Calls of the management API, and calls that are repeated by the broker (server-sent events).
const KEY = "penstock.authorization", REFRESH = "penstock.refresh";
let renewing = null;

export class ApiError extends Error {
  constructor(status, word, reason) { super(reason || word || `status ${status}`); this.status = status; this.word = word; }
  get signedOut() { return this.status === 401 && this.word === "not_authorized"; }
}

// `authorization` is the header of every call. It lives as long as the browser's tab.
export const session = {
  authorization: sessionStorage.getItem(KEY), name: "", tags: [],
  open(authorization, refreshToken = "") {
    this.authorization = authorization;
    sessionStorage.setItem(KEY, authorization);
    sessionStorage.setItem(REFRESH, refreshToken);
  },
  close() { this.authorization = null; this.name = ""; this.tags = []; [KEY, REFRESH].forEach(key => sessionStorage.removeItem(key)); },
  // Once for all calls that find that the token has expired.
  async renew(expired) {
    const token = sessionStorage.getItem(REFRESH);
    if (!token || this.authorization !== expired) return this.authorization !== expired && Boolean(this.authorization);
    renewing ||= requestToken({ refresh_token: token }).finally(() => { renewing = null; });
    try { await renewing; return true; } catch { return false; }
  },
  // As in the broker: each tag includes those before it, except `policymaker`.
  can(level) {
    const has = tag => this.tags.includes(tag);
    return { management: this.tags.length > 0, policymaker: has("policymaker") || has("administrator"),
      monitoring: has("monitoring") || has("administrator"), administrator: has("administrator") }[level];
  },
};

export const basic = (user, password) =>
  "Basic " + btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${password}`)));

export const part = encodeURIComponent;  // a name in a path

async function request(method, path, body, signal) {
  const authorization = session.authorization;
  // Without "omit" the browser would open its own dialog when a password is wrong.
  const send = () => fetch(path, {
    method, signal, credentials: "omit", cache: "no-store",
    headers: { Authorization: session.authorization, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const response = await send();
  return response.status === 401 && await session.renew(authorization) ? send() : response;
}

// An access token for a code of the issuer, or for a refresh token.
export async function requestToken(body) {
  const response = await fetch("/api/auth/token", {
    method: "POST", credentials: "omit", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  if (!response.ok) throw await refused(response);
  const found = await response.json();
  session.open(`Bearer ${found.access_token}`, found.refresh_token || body.refresh_token || "");
}

async function refused(response) {
  let answer = {};
  try { answer = await response.json(); } catch { /* not JSON */ }
  return new ApiError(response.status, answer.error, answer.reason);
}

export async function ask(method, path, body, signal) {
  const response = await request(method, path, body, signal);
  if (!response.ok) throw await refused(response);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

export const get = (path, signal) => ask("GET", path, undefined, signal);

const listeners = new Set();
export const onConnection = listener => listeners.add(listener);
const report = isUp => listeners.forEach(listener => listener(isUp));

// A hidden page watches nothing: a browser opens six connections to a server for all tabs together.
let hiding = new AbortController();
document.addEventListener("visibilitychange", () => { if (document.hidden) hiding.abort(); else hiding = new AbortController(); });
const shown = () => document.hidden && new Promise(resolve => document.addEventListener("visibilitychange", resolve, { once: true }));

// The answer of a GET call, again whenever it changes, until `signal` aborts. The connection is
// opened again when it is lost.
export async function watch(path, seconds, show, fail, signal) {
  const url = `/api/watch?every=${seconds}&path=${part(path)}`;
  for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 8000)) {
    await shown();
    const hidden = hiding.signal;
    try {
      const response = await request("GET", url, undefined, AbortSignal.any([signal, hidden]));
      if (!response.ok) throw await refused(response);
      report(true);
      for await (const event of events(response.body)) {
        if (signal.aborted) return;
        pause = 500;
        const answer = JSON.parse(event.data);
        if (event.name === "error") fail(new ApiError(answer.status, answer.error, answer.reason));
        else show(answer);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (hidden.aborted) { pause = 250; continue; }
      if (error instanceof ApiError && error.status < 500) { fail(error); return; }
    }
    report(false);
    await new Promise(resolve => setTimeout(resolve, pause));
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const event = { name: "message", data: "" };
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      if (event.data) yield event;
    }
  }
}
