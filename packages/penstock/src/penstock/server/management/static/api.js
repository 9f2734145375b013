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

// All calls that a page watches share one connection: a browser opens six to a server, for all tabs
// together. A hidden page has none.
const watched = new Set();
let stream = new AbortController(), soon;

function reopen(milliseconds) {
  clearTimeout(soon);
  soon = setTimeout(() => {
    stream.abort();
    stream = new AbortController();
    if (watched.size && !document.hidden) follow([...watched], stream.signal);
  }, milliseconds);
}
document.addEventListener("visibilitychange", () => reopen(0));

// The answer of a GET call, again whenever it changes, until `signal` aborts.
export function watch(path, seconds, show, fail, signal) {
  if (signal.aborted) return;
  const one = { path, seconds, show, fail, last: "" };
  watched.add(one);
  signal.addEventListener("abort", () => { watched.delete(one); reopen(100); }, { once: true });
  reopen(0);
}

// The connection is opened again when it is lost, and with a new token when the old one has expired.
async function follow(calls, signal) {
  const url = `/api/watch?every=${calls.map(one => one.seconds)}&path=${part(calls.map(one => one.path).join("\n"))}`;
  for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 8000)) {
    try {
      const response = await request("GET", url, undefined, signal);
      if (!response.ok) throw await refused(response);
      report(true);
      for await (const event of events(response.body)) {
        if (signal.aborted) return;
        pause = 500;
        if (!tell(calls[event.id], event)) break;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status < 500) {
        for (const one of calls) if (watched.has(one)) one.fail(error);
        return;
      }
    }
    report(false);
    await new Promise(resolve => setTimeout(resolve, pause));
  }
}

// False if the user is not signed in any more. What is wrong in a page is not a lost connection.
function tell(one, { name, data }) {
  if (!watched.has(one) || one.last === data) return true;
  const answer = JSON.parse(data), error = name === "error" && new ApiError(answer.status, answer.error, answer.reason);
  if (error.signedOut) return false;
  one.last = error ? "" : data;
  try { if (error) one.fail(error); else one.show(answer); } catch (wrong) { reportError(wrong); }
  return true;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const event = { id: 0, name: "message", data: "" };
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("id: ")) event.id = Number(line.slice(4));
        if (line.startsWith("event: ")) event.name = line.slice(7);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      if (event.data) yield event;
    }
  }
}
