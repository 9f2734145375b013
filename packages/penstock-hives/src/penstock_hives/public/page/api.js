// Calls of the API: `ask` reads what is public, from the cache; `call` acts as who is signed in.

import { forgetSession, idToken } from "./session.js";

export const API = "/v1";

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? String(status));
    this.status = status;
    this.errors = problem.errors;
    this.plans = problem.plans; // that include it, with status 402
  }
}

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const problemOf = async (answer) => new Refused(answer.status, await answer.json().catch(() => ({ detail: answer.statusText })));

export async function ask(path, signal) {
  for (let tries = 0; ; tries++) {
    const answer = await fetch(API + path, { signal, headers: { accept: "application/json" } });
    if (answer.ok) return answer.json();
    if (answer.status !== 503 || tries >= 5) throw await problemOf(answer);
    await pause(Number(answer.headers.get("retry-after")) || 2);
  }
}

export async function call(method, path, body, { signal, keepalive } = {}) {
  let token = await idToken();
  for (let tries = 0; ; tries++) {
    const headers = { accept: "application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (token) headers.authorization = `Bearer ${token}`;
    const answer = await fetch(API + path, { method, headers, signal, keepalive, body: body === undefined ? undefined : JSON.stringify(body) });
    if (answer.ok) return answer.status === 204 ? null : answer.json().catch(() => null);
    if (answer.status === 401 && token && tries === 0) {
      token = await idToken(token);
      if (token) continue;
    }
    if (answer.status === 401 && token) forgetSession(); // a token that was just made: the user is gone
    throw await problemOf(answer);
  }
}
