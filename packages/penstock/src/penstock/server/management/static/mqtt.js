import { ask, get, part } from "/static/api.js";
import { body, button, bytes, confirm, dialog, duration, h, link, number, pill, table, time, toast } from "/static/dom.js";
import { vhostFilter, within } from "/static/exchanges.js";
import { messageRow } from "/static/messages.js";
import { list } from "/static/table.js";

export function sessions(view) {
  const expiry = row => row.never_expires ? "never" : row.expiry_interval ? duration(row.expiry_interval) : "on disconnect";
  const end = row => confirm("End session", `End the session of ${row.name} and delete its messages?`, "End", async () => {
    if (row.connection) await ask("DELETE", `/api/connections/${part(row.connection)}`);
    if (row.queue) await ask("DELETE", `/api/queues/${part(row.vhost)}/${part(row.queue)}`).catch(error => { if (error.status !== 404) throw error; });
    toast("Ended");
  });
  view.show(view.title("MQTT clients and sessions"), list(view, {
    path: within(view, "/api/mqtt/sessions"), tools: [vhostFilter(view)], placeholder: "Filter by client id", empty: "No MQTT client is known",
    columns: [
      { label: "Client id", field: "name", kind: "name", cell: row => row.connection ? h("a", { href: `#/connection/${part(row.connection)}`, "data-key": row.name }, row.name) : row.name },
      { label: "State", field: "connected", cell: row => row.connected ? pill("connected", "good") : [pill("disconnected", "warn"), row.disconnected_at && h("div", { class: "quiet" }, time(row.disconnected_at * 1000))] },
      { label: "User", field: "user", cell: row => row.user },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost },
      { label: "Protocol", field: "protocol", cell: row => row.protocol || "" },
      { label: "Expires", field: "expiry_interval", cell: expiry },
      { label: "Subscriptions", cell: row => row.subscriptions.map(one => h("div", null, h("code", null, one.filter), " ", pill(`QoS ${one.qos}`))) },
      { label: "Waiting", field: "messages_waiting", kind: "num", cell: row => row.queue ? link(`messages/${part(row.vhost)}/${part(row.queue)}`, number(row.messages_waiting)) : number(0) },
      { label: "In flight", field: "messages_in_flight", kind: "num", cell: row => number(row.messages_in_flight) },
      { label: "", kind: "num", cell: row => button("End", () => end(row), "plain danger") },
    ] }));
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
