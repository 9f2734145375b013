import { ask, part, watch } from "/static/api.js";
import { body, button, bytes, card, compact, confirm, duration, facts, h, json, link, number, pill, time } from "/static/dom.js";
import { list } from "/static/table.js";

const NAMED = name => h("a", { href: `#/connection/${part(name)}`, "data-key": name }, name);

export function connections(view) {
  view.show(view.title("Connections"), list(view, {
    path: "/api/connections", placeholder: "Filter by name or user", empty: "No client is connected",
    columns: [
      { label: "Name", field: "name", kind: "name", cell: row => [NAMED(row.name), row.client_properties?.connection_name && h("div", { class: "quiet" }, row.client_properties.connection_name)] },
      { label: "Protocol", field: "protocol", cell: row => row.protocol },
      { label: "User", field: "user", cell: row => row.user },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost },
      { label: "TLS", field: "ssl", cell: row => row.ssl ? pill("TLS", "good") : "" },
      { label: "State", field: "state", cell: row => pill(row.state, row.state === "running" ? "good" : "warn") },
      { label: "Channels", field: "channels", kind: "num", cell: row => number(row.channels) },
      { label: "Received", field: "recv_oct", kind: "num", cell: row => bytes(row.recv_oct) },
      { label: "Sent", field: "send_oct", kind: "num", cell: row => bytes(row.send_oct) },
      { label: "Connected", field: "connected_at", cell: row => time(row.connected_at) },
    ],
  }));
}

export async function connection(view) {
  const [name] = view.names, path = `/api/connections/${part(name)}`;
  const details = h("div");
  const close = button("Close connection", () => confirm("Close connection", `Close ${name}? The client sees an error.`, "Close", async () => {
    await ask("DELETE", path);
    location.hash = "#/connections";
  }), "danger");
  view.show(h("p", { class: "crumbs" }, link("connections", "Connections")), view.title(name, close), card("Connection", details),
    list(view, { path: `${path}/channels`, key: "channels.", title: "Channels", placeholder: "Filter channels", sort: "number", empty: "No channels", columns: CHANNEL }), consumerList(view, `${path}/consumers`));
  watch(path, 2, one => details.replaceChildren(body(facts([
    ["Protocol", one.protocol], ["User", one.user], ["Virtual host", one.vhost], ["State", one.state], ["Peer", `${one.peer_host}:${one.peer_port}`],
    ["TLS", one.ssl ? "yes" : "no"], ["Connected", time(one.connected_at)], ["Heartbeat", one.timeout === undefined ? null : duration(one.timeout)],
    ["Received", bytes(one.recv_oct)], ["Sent", bytes(one.send_oct)], ["Client", one.client_properties && h("pre", null, json(one.client_properties))],
  ]))), error => view.failed(error) || details.replaceChildren(h("p", { class: "empty" }, error.message)), view.signal);
}

const CHANNEL = [
  { label: "Channel", field: "number", kind: "name", cell: row => h("a", { href: `#/channel/${part(row.name)}`, "data-key": row.name }, row.name) },
  { label: "Mode", cell: row => [row.confirm && pill("confirm"), row.transactional && pill("tx")] },
  { label: "State", field: "state", cell: row => row.state && pill(row.state, row.state === "running" ? "good" : "") },
  { label: "Consumers", field: "consumer_count", kind: "num", cell: row => number(row.consumer_count) },
  { label: "Unacknowledged", field: "messages_unacknowledged", kind: "num", cell: row => number(row.messages_unacknowledged) },
  { label: "Unconfirmed", field: "messages_unconfirmed", kind: "num", cell: row => number(row.messages_unconfirmed) },
  { label: "Prefetch", field: "prefetch_count", kind: "num", cell: row => number(row.prefetch_count) },
];

// The consumers of a queue, a connection or a channel.
export const consumerList = (view, path) => list(view, { path, key: "consumers.", title: "Consumers", sort: "consumer_tag", placeholder: "Filter consumers", empty: "No consumers", columns: [
  { label: "Consumer", field: "consumer_tag", cell: row => row.consumer_tag },
  { label: "Queue", field: "queue.name", cell: row => link(`queue/${part(row.queue.vhost)}/${part(row.queue.name)}`, row.queue.name) },
  { label: "Connection", field: "channel_details.connection_name", cell: row => NAMED(row.channel_details.connection_name) },
  { label: "Prefetch", field: "prefetch_count", kind: "num", cell: row => number(row.prefetch_count) },
  { label: "Acknowledges", field: "ack_required", cell: row => row.ack_required ? "yes" : "automatic" },
  { label: "Exclusive", field: "exclusive", cell: row => row.exclusive ? "yes" : "" },
  { label: "Arguments", kind: "path", cell: row => compact(row.arguments) },
] });

export function channels(view) {
  view.show(view.title("Channels"), list(view, {
    path: "/api/channels", empty: "No channel is open",
    columns: [{ ...CHANNEL[0], label: "Name", field: "name" },
      { label: "User", field: "user", cell: row => row.user },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost }, ...CHANNEL.slice(1)],
  }));
}

export function channel(view) {
  const [name] = view.names, path = `/api/channels/${part(name)}`, details = h("div");
  view.show(h("p", { class: "crumbs" }, link("channels", "Channels")), view.title(name), card("Channel", details), consumerList(view, `${path}/consumers`));
  watch(`${path}?columns=connection_details,user,vhost,number,confirm,transactional,prefetch_count,messages_unacknowledged,messages_unconfirmed`, 2, one => details.replaceChildren(body(facts([
    ["Connection", NAMED(one.connection_details.name)], ["User", one.user], ["Virtual host", one.vhost], ["Number", number(one.number)],
    ["Publisher confirms", one.confirm ? "yes" : "no"], ["Transactions", one.transactional ? "yes" : "no"], ["Prefetch", number(one.prefetch_count)],
    ["Unacknowledged", number(one.messages_unacknowledged)], ["Unconfirmed", number(one.messages_unconfirmed)]]))),
  error => view.failed(error) || details.replaceChildren(h("p", { class: "empty" }, error.message)), view.signal);
}
