import { ask, part, watch } from "/static/api.js";
import { body, button, card, compact, confirm, dialog, facts, h, json, link, pill } from "/static/dom.js";
import { list } from "/static/table.js";

export const DEFAULT = "amq.default";
const TYPES = ["direct", "topic", "fanout", "headers", "x-content", "x-delayed-message", "x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random", "x-recent-history"];
const HINTS = [["alternate-exchange", ""], ["x-delayed-type", "direct"], ["hash-header", ""], ["hash-property", "message_id"], ["x-recent-history-length", 20]];

const flags = row => [row.durable && pill("durable"), row.auto_delete && pill("auto-delete"), row.internal && pill("internal"), row.policy && pill(row.policy, "good")];
export const vhostField = view => ({ name: "vhost", label: "Virtual host", type: "choice", options: view.vhosts, value: view.query.get("vhost") || view.vhosts[0] });

// A choice of the virtual host beside a list; only with several. A list of one virtual host has no
// choice for all.
export function vhostFilter(view, all = true) {
  if (view.vhosts.length < 2) return null;
  const chosen = view.query.get("vhost") ?? (all ? "" : view.vhosts[0]);
  return h("select", { "aria-label": "Virtual host", onchange(event) {
    const query = new URLSearchParams(view.query);
    query.delete("page");
    if (event.target.value) query.set("vhost", event.target.value); else query.delete("vhost");
    location.hash = `${location.hash.split("?")[0]}?${query}`;
  } }, all && h("option", { value: "" }, "All virtual hosts"), view.vhosts.map(name => h("option", { value: name, selected: name === chosen }, name)));
}
export const within = (view, path) => view.query.get("vhost") ? `${path}/${part(view.query.get("vhost"))}` : path;

export function exchanges(view) {
  const declare = button("Declare exchange", () => dialog({
    title: "Declare exchange", label: "Declare",
    fields: [vhostField(view), { name: "name", label: "Name", required: true }, { name: "type", label: "Type", type: "choice", options: TYPES },
      { name: "durable", label: "Durable", type: "check", value: true }, { name: "auto_delete", label: "Delete when the last binding is removed", type: "check" },
      { name: "internal", label: "Internal: clients cannot publish to it", type: "check" },
      { name: "arguments", label: "Arguments", type: "text area", json: true, value: "{}", hints: HINTS }],
    async act({ vhost, name, ...settings }) {
      await ask("PUT", `/api/exchanges/${part(vhost)}/${part(name)}`, settings);
      location.hash = `#/exchange/${part(vhost)}/${part(name)}`;
    },
  }), "primary");
  view.show(view.title("Exchanges", declare), list(view, {
    path: within(view, "/api/exchanges"), tools: [vhostFilter(view)],
    columns: [
      { label: "Name", field: "name", kind: "name", cell: row => h("a", { href: `#/exchange/${part(row.vhost)}/${part(row.name || DEFAULT)}`, "data-key": `${row.vhost}/${row.name}` }, row.name || "(default)") },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost },
      { label: "Type", field: "type", cell: row => row.type },
      { label: "Features", cell: flags },
      { label: "Arguments", kind: "path", cell: row => h("span", { class: "quiet" }, compact(row.arguments)) },
    ],
  }));
}

export function exchange(view) {
  const [vhost, name] = view.names, path = `/api/exchanges/${part(vhost)}/${part(name)}`;
  const details = h("div"), isDefault = name === DEFAULT;
  const out = bindingList(view, `${path}/bindings/source`, "out.", "Bindings to queues and exchanges", "destination");
  const into = bindingList(view, `${path}/bindings/destination`, "into.", "Bindings from other exchanges", "source");
  const tools = [button("Publish", () => publishDialog(view, vhost, name), "primary"), !isDefault && button("Bind", () => bindFrom(view, vhost, name, out.refresh)),
    !isDefault && button("Delete", () => confirm("Delete exchange", `Delete ${name} and its bindings?`, "Delete", async () => {
      await ask("DELETE", path);
      location.hash = "#/exchanges";
    }), "danger")];
  view.show(h("p", { class: "crumbs" }, link("exchanges", "Exchanges"), ` / ${vhost}`), view.title(isDefault ? "(default)" : name, ...tools.filter(Boolean)),
    card("Exchange", details), out, into);
  watch(path, 5, one => details.replaceChildren(body(facts([["Type", one.type], ["Features", flags(one)], ["Policy", one.policy],
    ["Arguments", Object.keys(one.arguments).length ? h("pre", null, json(one.arguments)) : "none"]]))),
  error => view.failed(error) || details.replaceChildren(h("p", { class: "empty" }, error.message)), view.signal);
}

// The bindings of an exchange or a queue.
export function bindingList(view, path, key, title, sort) {
  const unbind = row => confirm("Remove binding", `Remove the binding from ${row.source} to ${row.destination} with key "${row.routing_key}"?`, "Remove", async () => {
    await ask("DELETE", `/api/bindings/${part(row.vhost)}/e/${part(row.source)}/${row.destination_type === "queue" ? "q" : "e"}/${part(row.destination)}/${part(row.properties_key)}`);
    bindings.refresh();
  });
  const place = (kind, vhost, name) => link(`${kind}/${part(vhost)}/${part(name || DEFAULT)}`, name || "(default)");
  const bindings = list(view, { path, key, title, sort, every: 5, placeholder: "Filter bindings", empty: "No bindings", columns: [
    { label: "From", field: "source", cell: row => place("exchange", row.vhost, row.source) },
    { label: "Routing key", field: "routing_key", cell: row => h("code", null, row.routing_key) },
    { label: "To", field: "destination", cell: row => [place(row.destination_type === "queue" ? "queue" : "exchange", row.vhost, row.destination), " ", pill(row.destination_type)] },
    { label: "Arguments", kind: "path", cell: row => h("span", { class: "quiet" }, compact(row.arguments)) },
    { label: "", kind: "num", cell: row => row.source && button("Remove", () => unbind(row), "plain danger") },
  ] });
  return bindings;
}

function bindFrom(view, vhost, source, changed) {
  dialog({ title: `Bind from ${source}`, label: "Bind",
    fields: [{ name: "kind", label: "To", type: "choice", options: [["q", "queue or stream"], ["e", "exchange"]] }, { name: "to", label: "Name", required: true },
      { name: "routing_key", label: "Routing key" }, { name: "arguments", label: "Arguments", type: "text area", json: true, value: "{}" }],
    async act({ kind, to, ...binding }) { await ask("POST", `/api/bindings/${part(vhost)}/e/${part(source)}/${kind}/${part(to)}`, binding); changed(); } });
}

export function publishDialog(view, vhost, exchange, key = "") {
  dialog({ title: `Publish to ${exchange === DEFAULT ? "the default exchange" : exchange}`, label: "Publish", wide: true,
    fields: [{ name: "routing_key", label: "Routing key", value: key }, { name: "payload", label: "Payload", type: "text area", rows: 6 },
      { name: "payload_encoding", label: "Encoding", type: "choice", options: [["string", "text"], ["base64", "base64"]] },
      { name: "persistent", label: "Persistent", type: "check", value: true },
      { name: "headers", label: "Headers", type: "text area", json: true, value: "{}" },
      { name: "properties", label: "Other properties", type: "text area", json: true, value: "{}",
        hints: [["content_type", "application/json"], ["correlation_id", ""], ["reply_to", ""], ["expiration", "60000"], ["message_id", ""], ["priority", 0], ["type", ""]] }],
    async act({ persistent, headers, properties, ...message }) {
      const answer = await ask("POST", `/api/exchanges/${part(vhost)}/${part(exchange)}/publish`,
        { ...message, properties: { delivery_mode: persistent ? 2 : 1, headers, ...properties } });
      if (!answer.routed) throw new Error("The message was not routed: no queue is bound with this key");
      view.run("Published", async () => {});
    } });
}
