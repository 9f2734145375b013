// Shows pushes, and the page with its last figures when there is no connection.
//
// Files and public reads are fetched from the server first; what was fetched last is used only when it
// cannot be reached. What lists and places need is kept from the first visit on. What needs a sign-in
// is never kept.

const CACHE = "hives-3";
const SHELL = ["/", "/icon.svg", "/first.js", "/page.js", "/place.js", "/chart.js", "/deals.js", "/own_places.js"];
const TEXTS = ["de", "fr"].filter((code) => navigator.languages.some((each) => each.startsWith(code))).map((code) => `/languages/${code}.json`);
const KEPT = /^\/v1\/(hives(\/\d+(\/(typical-week|forecast|today))?)?|deals(\/\d+)?|hive-types|popular|map)$/;
const MOST = 300;
const SLOW_MS = 4000; // a connection that answers no faster is as good as none, if something is kept

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll([...SHELL, ...TEXTS])).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const old = (names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)));
  event.waitUntil(caches.keys().then(old).then(() => self.clients.claim()));
});

const isKept = (request, url) => url.origin === location.origin && request.method === "GET" && !request.headers.has("authorization")
  && (KEPT.test(url.pathname) || !/^\/(v1|health|badge|metrics)\b/.test(url.pathname));

async function keep(request, answer) {
  const cache = await caches.open(CACHE);
  await cache.put(request, answer);
  const keys = await cache.keys();
  const reads = keys.filter((key) => new URL(key.url).pathname.startsWith("/v1/"));
  await Promise.all(reads.slice(0, Math.max(0, reads.length - MOST)).map((key) => cache.delete(key)));
}

async function answer(event) {
  const { request } = event;
  const network = fetch(request).then((found) => {
    if (found.ok) event.waitUntil(keep(request, found.clone()));
    return found;
  });
  network.catch(() => {});
  const cached = await caches.match(request, { cacheName: CACHE }) ?? (request.mode === "navigate" ? await caches.match("/", { cacheName: CACHE }) : undefined);
  if (!cached) return network;
  const late = new Promise((done) => setTimeout(done, SLOW_MS, cached));
  return Promise.race([network.then((found) => (found.status >= 500 ? cached : found), () => cached), late]);
}

self.addEventListener("fetch", (event) => {
  if (isKept(event.request, new URL(event.request.url))) event.respondWith(answer(event));
});

// ---- pushes

self.addEventListener("push", (event) => {
  let told = {};
  try { told = event.data?.json() ?? {}; } catch { told = { body: event.data?.text() }; }
  event.waitUntil(self.registration.showNotification(told.title ?? "Hives", { body: told.body ?? "", icon: "/icon-192.png", badge: "/icon-192.png", tag: told.link || undefined, data: { link: told.link } }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const link = event.notification.data?.link;
  const url = new URL(/^\/#\//.test(link ?? "") ? link : "/", location.origin).href;
  event.waitUntil(self.clients.matchAll({ type: "window", includeUncontrolled: true }).then(async ([open]) => {
    if (!open) return self.clients.openWindow(url);
    await open.focus();
    return open.navigate(url);
  }));
});
