import { chart, history } from "/static/chart.js";
import { ask, get, part, watch } from "/static/api.js";
import { body, button, bytes, card, compact, confirm, dialog, facts, h, json, link, number, pill, toast } from "/static/dom.js";
import { bindingList, DEFAULT, publishDialog, vhostField, vhostFilter, within } from "/static/exchanges.js";
import { consumerList } from "/static/connections.js";
import { messageRow, moveDialog } from "/static/messages.js";
import { list } from "/static/table.js";

const HINTS = [["x-message-ttl", 60000], ["x-expires", 1800000], ["x-max-length", 10000], ["x-max-length-bytes", 104857600], ["x-overflow", "reject-publish"],
  ["x-dead-letter-exchange", ""], ["x-dead-letter-routing-key", ""], ["x-max-priority", 10], ["x-single-active-consumer", true], ["x-delivery-limit", 20],
  ["x-consumer-timeout", 1800000], ["x-max-age", "7D"], ["x-stream-max-segment-size-bytes", 104857600]];
const features = row => [pill(row.arguments["x-queue-type"] === "quorum" ? "quorum" : row.type), row.durable && pill("durable"), row.auto_delete && pill("auto-delete"), row.exclusive && pill("exclusive"),
  row.arguments["x-dead-letter-exchange"] !== undefined && pill("DLX"), row.arguments["x-message-ttl"] !== undefined && pill("TTL"),
  (row.arguments["x-max-length"] ?? row.arguments["x-max-length-bytes"]) !== undefined && pill("limit"), row.arguments["x-max-priority"] !== undefined && pill("priority"), row.policy && pill(row.policy, "good")];
const rate = (row, name) => number(row.message_stats?.[`${name}_details`]?.rate);
const named = row => h("a", { href: `#/queue/${part(row.vhost)}/${part(row.name)}`, "data-key": `${row.vhost}/${row.name}` }, row.name);

function declare(view, type) {
  dialog({
    title: type === "stream" ? "Declare stream" : "Declare queue", label: "Declare",
    fields: [vhostField(view), { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", type: "choice", options: ["classic", "quorum", "stream"], value: type },
      { name: "durable", label: "Durable", type: "check", value: true }, { name: "auto_delete", label: "Delete when the last consumer leaves", type: "check" },
      { name: "arguments", label: "Arguments", type: "text area", json: true, value: "{}", hints: HINTS }],
    async act({ vhost, name, type: kind, arguments: given, ...settings }) {
      await ask("PUT", `/api/queues/${part(vhost)}/${part(name)}`, { ...settings, arguments: { ...(kind === "classic" ? {} : { "x-queue-type": kind }), ...given } });
      location.hash = `#/queue/${part(vhost)}/${part(name)}`;
    },
  });
}

export function queues(view) {
  view.show(view.title("Queues", button("Declare queue", () => declare(view, "classic"), "primary")), list(view, {
    path: within(view, "/api/queues"), tools: [vhostFilter(view)], empty: "No queue is declared",
    columns: [
      { label: "Name", field: "name", kind: "name", cell: named },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost },
      { label: "Features", cell: features },
      { label: "Ready", field: "messages_ready", kind: "num", cell: row => number(row.messages_ready) },
      { label: "Unacknowledged", field: "messages_unacknowledged", kind: "num", cell: row => number(row.messages_unacknowledged) },
      { label: "Total", field: "messages", kind: "num", cell: row => number(row.messages) },
      { label: "Size", field: "message_bytes", kind: "num", cell: row => bytes(row.message_bytes) },
      { label: "In/s", field: "message_stats.publish_details.rate", kind: "num", cell: row => rate(row, "publish") },
      { label: "Out/s", field: "message_stats.deliver_get_details.rate", kind: "num", cell: row => rate(row, "deliver_get") },
      { label: "Ack/s", field: "message_stats.ack_details.rate", kind: "num", cell: row => rate(row, "ack") },
      { label: "Consumers", field: "consumers", kind: "num", cell: row => number(row.consumers) },
    ],
  }));
}

export function streams(view) {
  const chosen = view.query.get("vhost");
  view.show(view.title("Streams", button("Declare stream", () => declare(view, "stream"), "primary")), list(view, {
    path: chosen ? `/api/streams?vhost=${part(chosen)}` : "/api/streams", tools: [vhostFilter(view)], empty: "No stream is declared",
    columns: [
      { label: "Name", field: "name", kind: "name", cell: named },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost },
      { label: "First offset", field: "first_offset", kind: "num", cell: row => number(row.first_offset) },
      { label: "Next offset", field: "next_offset", kind: "num", cell: row => number(row.next_offset) },
      { label: "Messages", field: "messages", kind: "num", cell: row => number(row.messages) },
      { label: "Size", field: "bytes", kind: "num", cell: row => bytes(row.bytes) },
      { label: "Segments", field: "segments", kind: "num", cell: row => number(row.segments) },
      { label: "Consumers", field: "consumers", kind: "num", cell: row => number(row.consumers) },
      { label: "Arguments", kind: "path", cell: row => h("span", { class: "quiet" }, compact(row.arguments)) },
    ],
  }));
}

// The page of a queue repeats its call every second; the consumers are a list of their own.
const SHOWN = "name,vhost,type,durable,auto_delete,exclusive,arguments,policy,operator_policy,effective_policy_definition,messages,messages_ready,messages_unacknowledged,"
  + "message_bytes,memory,consumers,message_stats,first_offset,next_offset";

export async function queue(view) {
  const [vhost, name] = view.names, path = `/api/queues/${part(vhost)}/${part(name)}`;
  const first = await get(`${path}?columns=${SHOWN}`, view.signal), isStream = first.type === "stream";
  const depth = chart(isStream ? ["messages"] : ["ready", "unacknowledged"]), gauge = history(isStream ? 1 : 2);
  const details = h("div"), bindings = bindingList(view, `${path}/bindings`, "bindings.", "Bindings", "source");
  const tools = [
    button("Publish", () => publishDialog(view, vhost, DEFAULT, name), "primary"),
    h("a", { class: "button", href: `#/messages/${part(vhost)}/${part(name)}${isStream ? "?offset=last" : ""}` }, "Browse"),
    !isStream && button("Get", () => getDialog(view, path)),
    button("Bind", () => dialog({ title: `Bind ${name} to an exchange`, label: "Bind",
      fields: [{ name: "source", label: "Exchange", required: true, value: "amq.topic" }, { name: "routing_key", label: "Routing key" },
        { name: "arguments", label: "Arguments", type: "text area", json: true, value: "{}" }],
      async act({ source, ...binding }) { await ask("POST", `/api/bindings/${part(vhost)}/e/${part(source)}/q/${part(name)}`, binding); bindings.refresh(); } })),
    button(isStream ? "Copy" : "Move", () => moveDialog(name, path, isStream)),
    !isStream && button("Purge", () => confirm("Purge queue", `Delete all ready messages of ${name}? They cannot be restored.`, "Purge", async () => {
      await ask("DELETE", `${path}/contents`);
      toast("Purged");
    }), "danger"),
    button("Delete", () => confirm(isStream ? "Delete stream" : "Delete queue", `Delete ${name} with all its messages?`, "Delete", async () => {
      await ask("DELETE", path);
      location.hash = isStream ? "#/streams" : "#/queues";
    }), "danger"),
  ];
  view.show(h("p", { class: "crumbs" }, isStream ? link("streams", "Streams") : link("queues", "Queues"), ` / ${vhost}`), view.title(name, ...tools.filter(Boolean)),
    h("div", { class: "grid" }, card("Messages", body(depth.element)), card(isStream ? "Stream" : "Queue", details)), bindings, consumerList(view, `${path}/consumers`));
  let last = first;
  const draw = () => depth.show(gauge(isStream ? [last.messages] : [last.messages_ready, last.messages_unacknowledged]));
  const timer = setInterval(draw, 1000);
  view.signal.addEventListener("abort", () => clearInterval(timer));
  watch(`${path}?columns=${SHOWN}`, 1, one => {
    last = one;
    details.replaceChildren(body(facts([
      ["Features", features(one)], ["Ready", number(one.messages_ready)], ["Unacknowledged", number(one.messages_unacknowledged)],
      ["Bodies", bytes(one.message_bytes)], ["Memory", isStream ? null : bytes(one.memory)], ["Consumers", number(one.consumers)],
      ["In", `${rate(one, "publish")}/s`], ["Out", isStream ? null : `${rate(one, "deliver_get")}/s`], ["Acknowledged", isStream ? null : `${rate(one, "ack")}/s`],
      ["Offsets", isStream ? `${number(one.first_offset)} to ${number(one.next_offset)}` : null], ["Policy", one.policy], ["Operator policy", one.operator_policy],
      ["Effective policy", Object.keys(one.effective_policy_definition || {}).length ? h("pre", null, json(one.effective_policy_definition)) : null],
      ["Arguments", Object.keys(one.arguments).length ? h("pre", null, json(one.arguments)) : "none"]])));
  }, error => view.failed(error) || details.replaceChildren(h("p", { class: "empty" }, error.message)), view.signal);
}

function getDialog(view, path) {
  dialog({ title: "Get messages", label: "Get", text: "Messages are taken from the head of the queue. With requeue they return to their place, marked as redelivered.",
    fields: [{ name: "count", label: "Messages", type: "number", value: 1, min: 1, required: true },
      { name: "ackmode", label: "Then", type: "choice", options: [["ack_requeue_true", "requeue"], ["ack_requeue_false", "acknowledge: remove them"],
        ["reject_requeue_true", "reject and requeue"], ["reject_requeue_false", "reject: dead-letter or drop them"]] }],
    async act(values) {
      const rows = await ask("POST", `${path}/get`, { ...values, encoding: "auto", truncate: 50000 });
      const shown = h("dialog", { class: "wide", "aria-label": "Messages" }, h("div", { class: "filters" }, h("h2", null, rows.length ? `${rows.length} messages` : "The queue is empty"),
        h("span", { class: "space" }), button("Close", () => shown.close())), rows.map(row => messageRow(row)));
      shown.addEventListener("close", () => shown.remove());
      document.body.append(shown);
      shown.showModal();
    } });
}
