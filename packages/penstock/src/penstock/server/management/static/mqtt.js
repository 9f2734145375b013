import { ask, get, part, watch } from "/static/api.js";
import { body, button, bytes, card, confirm, duration, facts, h, link, number, pill, time } from "/static/dom.js";
import { vhostFilter, within } from "/static/exchanges.js";
import { messageRow } from "/static/messages.js";
import { list } from "/static/table.js";

const expiry = row => row.never_expires ? "never" : row.expiry_interval ? duration(row.expiry_interval) : "on disconnect";
const state = row => row.connected ? pill("connected", "good") : [pill("disconnected", "warn"), row.disconnected_at && h("div", { class: "quiet" }, time(row.disconnected_at * 1000))];
const waiting = row => row.queue ? link(`messages/${part(row.vhost)}/${part(row.queue)}`, number(row.messages_waiting)) : number(0);
const named = (vhost, id) => h("a", { href: `#/session/${part(vhost)}/${part(id)}`, "data-key": `${vhost}/${id}` }, id);
const COLUMNS = "name,vhost,user,connected,connection,protocol,disconnected_at,expiry_interval,never_expires,queue,messages_waiting,messages_in_flight,subscription_count";

export function sessions(view) {
  view.show(view.title("MQTT clients and sessions"), list(view, {
    path: `${within(view, "/api/mqtt/sessions")}?columns=${COLUMNS}`, tools: [vhostFilter(view)], placeholder: "Filter by client id", empty: "No MQTT client is known",
    columns: [
      { label: "Client id", field: "name", kind: "name", cell: row => named(row.vhost, row.name) },
      { label: "State", field: "connected", cell: state },
      { label: "User", field: "user", cell: row => row.user },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost },
      { label: "Protocol", field: "protocol", cell: row => row.protocol || "" },
      { label: "Expires", field: "expiry_interval", cell: expiry },
      { label: "Subscriptions", field: "subscription_count", kind: "num", cell: row => number(row.subscription_count) },
      { label: "Waiting", field: "messages_waiting", kind: "num", cell: waiting },
      { label: "In flight", field: "messages_in_flight", kind: "num", cell: row => number(row.messages_in_flight) },
    ] }));
}

const SUBSCRIPTION = [
  { label: "Filter", field: "filter", kind: "name", cell: row => h("code", null, row.filter) },
  { label: "QoS", field: "qos", kind: "num", cell: row => number(row.qos) },
  { label: "Options", cell: row => [row.no_local && pill("no local"), row.retain_as_published && pill("retain as published"), row.identifier && pill(`identifier ${row.identifier}`)] },
];

export function session(view) {
  const [vhost, id] = view.names, path = `/api/mqtt/sessions/${part(vhost)}/${part(id)}`, details = h("div"), tools = h("span");
  const end = row => confirm("End session", `End the session of ${id} and delete its messages?`, "End", async () => {
    if (row.connection) await ask("DELETE", `/api/connections/${part(row.connection)}`);
    if (row.queue) await ask("DELETE", `/api/queues/${part(vhost)}/${part(row.queue)}`).catch(error => { if (error.status !== 404) throw error; });
    location.hash = "#/mqtt";
  });
  view.show(h("p", { class: "crumbs" }, link("mqtt", "MQTT clients and sessions"), ` / ${vhost}`), view.title(id, tools), card("Session", details),
    list(view, { path: `/api/mqtt/subscriptions/${part(vhost)}?client_id=${part(id)}`, key: "subscriptions.", title: "Subscriptions", sort: "filter", placeholder: "Filter subscriptions", empty: "No subscriptions", columns: SUBSCRIPTION }));
  watch(`${path}?columns=${COLUMNS}`, 2, row => {
    tools.replaceChildren(button("End session", () => end(row), "danger"));
    details.replaceChildren(body(facts([["State", state(row)], ["Connection", row.connection && link(`connection/${part(row.connection)}`, row.connection)], ["User", row.user], ["Protocol", row.protocol],
      ["Expires", expiry(row)], ["Waiting", waiting(row)], ["In flight", number(row.messages_in_flight)]])));
  }, error => {
    if (view.failed(error)) return;
    tools.replaceChildren();
    details.replaceChildren(h("p", { class: "empty" }, error.message));
  }, view.signal);
}

export function subscriptions(view) {
  view.show(view.title("MQTT subscriptions"), list(view, {
    path: within(view, "/api/mqtt/subscriptions"), tools: [vhostFilter(view)], sort: "filter", placeholder: "Filter by topic or client id", empty: "No MQTT client subscribes",
    columns: [SUBSCRIPTION[0],
      { label: "Client id", field: "client_id", kind: "name", cell: row => named(row.vhost, row.client_id) },
      { label: "User", field: "user", cell: row => row.user },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost }, ...SUBSCRIPTION.slice(1)],
  }));
}

export function retained(view) {
  const vhost = view.query.get("vhost") || view.vhosts[0], path = `/api/mqtt/retained/${part(vhost)}`;
  const show = row => view.run("", async () => {
    const message = await get(`${path}/${part(row.name)}`);
    const shown = h("dialog", { class: "wide", "aria-label": row.name }, h("div", { class: "filters" }, h("h2", null, row.name), h("span", { class: "space" }), button("Close", () => shown.close())), messageRow(message));
    shown.addEventListener("close", () => shown.remove());
    document.body.append(shown);
    shown.showModal();
  });
  view.show(view.title("Retained messages"), list(view, {
    path, tools: [vhostFilter(view, false)], placeholder: "Filter by topic", empty: "No message is retained", every: 5,
    columns: [
      { label: "Topic", field: "name", kind: "name", cell: row => h("button", { type: "button", class: "plain", "data-key": row.name, onclick: () => show(row) }, row.name) },
      { label: "Size", field: "payload_bytes", kind: "num", cell: row => bytes(row.payload_bytes) },
      { label: "", kind: "num", cell: row => button("Delete", () => confirm("Delete retained message", `Delete the retained message of ${row.name}?`, "Delete", () => ask("DELETE", `${path}/${part(row.name)}`)), "plain danger") },
    ] }));
}
