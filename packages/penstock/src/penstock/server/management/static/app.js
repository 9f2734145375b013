// The frame of the console: sign-in, navigation, pages by the address behind `#/`.
import { basic, get, onConnection, part, session } from "/static/api.js";
import { finishLogin, startLogin } from "/static/login.js";
import { button, h, toast } from "/static/dom.js";
import { overview } from "/static/overview.js";
import { definitions, policies, transfers, user, users, vhosts as vhostList } from "/static/admin.js";
import { channel, channels, connection, connections } from "/static/connections.js";
import { exchange, exchanges } from "/static/exchanges.js";
import { cluster } from "/static/cluster.js";
import { content, overlay } from "/static/overlay.js";
import { deadLetters, delayed, messages } from "/static/messages.js";
import { retained, session as mqttSession, sessions, subscriptions } from "/static/mqtt.js";
import { queue, queues, streams } from "/static/queues.js";
import { trace, traces } from "/static/tracing.js";

const THEME = "penstock.theme";
// Path → page, its label, and the tag it needs. Installed packages add theirs (`/api/console`).
const MENU = [
  ["", [["overview", "Overview", overview], ["connections", "Connections", connections], ["channels", "Channels", channels],
    ["exchanges", "Exchanges", exchanges], ["queues", "Queues", queues], ["streams", "Streams", streams], ["dead-letters", "Dead letters", deadLetters],
    ["delayed", "Delayed messages", delayed, "administrator"], ["traces", "Tracing", traces, "administrator"]]],
  ["MQTT", [["mqtt", "Clients and sessions", sessions], ["subscriptions", "Subscriptions", subscriptions], ["retained", "Retained messages", retained]]],
  ["Overlay", [["overlay", "Map", overlay, "monitoring"], ["content", "Content console", content, "administrator"]]],
  ["Applications", []],
  ["Administration", [["cluster", "Cluster", cluster, "monitoring"], ["users", "Users", users, "administrator"], ["vhosts", "Virtual hosts", vhostList], ["policies", "Policies", policies],
    ["transfers", "Shovels and federation", transfers, "policymaker"], ["definitions", "Definitions", definitions, "administrator"]]],
];
const PARENTS = { messages: "queues", session: "mqtt" };  // in the menu
const DETAILS = { connection, channel, exchange, queue, messages, session: mqttSession, trace, user };

let leaving = new AbortController(), main, side, vhosts = [];
const pages = () => Object.fromEntries([...MENU.flatMap(([, items]) => items.map(([path, , page]) => [path, page])), ...Object.entries(DETAILS)]);

function theme(choice) {
  if (choice) localStorage.setItem(THEME, choice);
  const stored = localStorage.getItem(THEME);
  const dark = stored ? stored === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  return dark;
}

function signIn(reason) {
  leaving.abort();
  session.close();
  const wrong = h("p", { class: "wrong", role: "alert" }, reason || "");
  const user = h("input", { autocomplete: "username", required: true, id: "user" });
  const password = h("input", { type: "password", autocomplete: "current-password", id: "password" });
  const form = h("form", { class: "card sign-in", async onsubmit(event) {
    event.preventDefault();
    session.open(basic(user.value, password.value));
    try { await start(); } catch (error) { session.close(); wrong.textContent = error.message; password.select(); }
  } }, h("div", { class: "brand" }, h("img", { src: "/static/icon.svg", alt: "" }), "Penstock"),
    h("div", { class: "field" }, h("label", { for: "user" }, h("span", null, "User")), user),
    h("div", { class: "field" }, h("label", { for: "password" }, h("span", null, "Password")), password),
    wrong, h("button", { class: "primary" }, "Sign in"));
  document.body.replaceChildren(form);
  user.focus();
  offerToken(form, wrong);
}

// A broker that accepts tokens of OAuth 2 also accepts one here, and may know where to get one.
async function offerToken(form, wrong) {
  const response = await fetch("/api/auth", { credentials: "omit" });
  const auth = response.ok ? await response.json() : {};
  if (!auth.oauth_enabled) return;
  if (auth.oauth_client_id) form.append(button(`Sign in with ${new URL(auth.oauth_provider_url).host}`,
    () => startLogin(auth).catch(error => { wrong.textContent = error.message; }), "primary"));
  const token = h("input", { id: "token", autocomplete: "off", spellcheck: "false" });
  form.append(h("div", { class: "field" }, h("label", { for: "token" }, h("span", null, "Or an access token")), token),
    button("Sign in with the token", async () => {
      session.open(`Bearer ${token.value.trim()}`);
      try { await start(); } catch (error) { session.close(); wrong.textContent = error.message; }
    }));
}

async function start() {
  const who = await get("/api/whoami");
  session.name = who.name;
  session.tags = who.tags;
  const found = await get("/api/vhosts?columns=name");
  vhosts = found.map(one => one.name);
  const node = await get("/api/overview?columns=node,product_version");
  for (const section of await get("/api/sections")) await add(section);
  frame(node);
  route();
}

// A section of an installed package: its module exports `pages`, as in MENU.
async function add({ module }) {
  const applications = MENU.find(([heading]) => heading === "Applications")[1];
  const { pages: found, details = {} } = await import(module);
  for (const page of found) if (!applications.some(([path]) => path === page[0])) applications.push(page);
  Object.assign(DETAILS, details);
}

function frame(node) {
  main = h("main", { tabindex: "-1", id: "main" });
  side = h("nav", { class: "side", "aria-label": "Pages" });
  const live = h("span", { class: "live", role: "status" }, "live");
  onConnection(up => { live.className = up ? "live" : "live off"; live.textContent = up ? "live" : "no connection"; });
  const shade = button("", () => { theme(theme() ? "light" : "dark"); label(); }, "plain");
  const label = () => { shade.textContent = theme() ? "☀" : "☾"; shade.setAttribute("aria-label", theme() ? "Light theme" : "Dark theme"); };
  label();
  const menu = h("button", { type: "button", class: "menu plain", "aria-label": "Menu", "aria-expanded": "false",
    onclick() { menu.setAttribute("aria-expanded", side.classList.toggle("open")); } }, "☰");
  document.body.replaceChildren(h("div", { class: "frame" },
    h("header", { class: "bar" }, menu, h("a", { class: "brand", href: "#/overview" }, h("img", { src: "/static/icon.svg", alt: "" }), "Penstock"),
      h("span", { class: "node" }, `${node.node} · ${node.product_version}`), h("span", { class: "space" }), live,
      h("span", { class: "user quiet" }, session.name), shade, button("Sign out", () => signIn())),
    side, main));
  side.append(...MENU.map(([heading, items]) => {
    const allowed = items.filter(([, , , tag]) => !tag || session.can(tag));
    return allowed.length ? h("div", null, heading ? h("h2", null, heading) : null, allowed.map(([path, name]) => h("a", { href: `#/${path}`, "data-path": path }, name))) : null;
  }).filter(Boolean), h("div", null, h("h2", null, "Help"), h("a", { href: "/docs", target: "_blank", rel: "noopener" }, "Documentation")));
}

// What a page gets: where to draw, its names and query, and how to report errors.
function view(names, query) {
  leaving.abort();
  leaving = new AbortController();
  return {
    names, query, vhosts, signal: leaving.signal,
    show(...children) { main.replaceChildren(...children.flat(Infinity).filter(Boolean)); },
    title(text, ...tools) { document.title = `${text} · Penstock`; return h("div", { class: "head" }, h("h1", null, text), h("span", { class: "space" }), ...tools); },
    replaceQuery(changed) {
      this.query = changed;
      const [path] = location.hash.split("?");
      history.replaceState(null, "", changed.size ? `${path}?${changed}` : path);
    },
    failed(error) { if (error.signedOut) signIn("The session has ended"); return Boolean(error.signedOut); },
    // For handlers of buttons: runs a call, says that it is done, shows an error.
    async run(done, call) {
      try { const result = await call(); if (done) toast(done); return result; }
      catch (error) { if (!this.failed(error)) toast(error.message, true); return undefined; }
    },
  };
}

export const go = (...names) => { location.hash = `#/${names.map(part).join("/")}`; };

function route() {
  if (!session.authorization) { signIn(); return; }
  if (!side) return; // the frame comes with the end of the sign-in, and draws the page
  const [path, query = ""] = location.hash.replace(/^#\//, "").split("?");
  const [page, ...names] = (path || "overview").split("/").map(decodeURIComponent);
  side.classList.remove("open");
  for (const one of side.querySelectorAll("a")) {
    if ([page, `${page}s`, PARENTS[page]].includes(one.dataset.path)) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  const draw = pages()[page];
  const given = view(names, new URLSearchParams(query));
  if (!draw) { given.show(given.title("Not found"), h("p", null, "There is no such page.")); return; }
  Promise.resolve(draw(given)).catch(error => {
    if (given.signal.aborted || given.failed(error)) return;
    given.show(given.title("Error"), h("p", { class: "banner bad", role: "alert" }, error.message));
  });
}

// Keys: `/` filters, `g` and a letter goes to a page, `?` lists the keys.
const KEYS = { o: "overview", c: "connections", h: "channels", e: "exchanges", q: "queues", s: "streams", d: "dead-letters", t: "traces", m: "mqtt", l: "overlay", u: "users", p: "policies" };
let before = "";
document.addEventListener("keydown", event => {
  if (!session.name || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") { document.querySelector("[data-filter]")?.focus(); event.preventDefault(); }
  else if (event.key === "?") toast("/ filter · " + Object.entries(KEYS).map(([key, page]) => `g ${key} ${page}`).join(" · "));
  else if (before === "g" && KEYS[event.key]) go(KEYS[event.key]);
  before = event.key;
});
addEventListener("hashchange", () => { route(); main?.focus({ preventScroll: true }); scrollTo(0, 0); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
theme();
const returned = finishLogin();
if (returned) returned.then(start).catch(error => signIn(error.message));
else if (session.authorization) start().catch(error => signIn(error.signedOut ? "" : error.message));
else signIn();
