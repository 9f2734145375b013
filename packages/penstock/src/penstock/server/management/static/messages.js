// Messages: one of them, the browser of a queue or stream, and redrive.
import { ask, get, part, watch } from "/static/api.js";
import { button, bytes, confirm, dialog, h, json, link, number, pill, table, time, toast } from "/static/dom.js";
import { vhostFilter, within } from "/static/exchanges.js";
import { list } from "/static/table.js";

const LARGE = 262144;  // bytes; the broker keeps longer bodies in files of their own and does not edit them

const text = message => {
  if (message.payload_encoding !== "string") return message.payload;
  try { return json(JSON.parse(message.payload)); } catch { return message.payload; }
};

// Whether a list has only the beginning of the payload.
const isCut = message => message.payload_bytes > (message.payload_encoding === "string" ? new TextEncoder().encode(message.payload).length : message.payload.length * 3 / 4);

// Where a message came from, its properties and payload; a dead letter with its history.
export function messageRow(message, ...tools) {
  const { headers = {}, ...properties } = message.properties;
  const deaths = Array.isArray(headers["x-death"]) ? headers["x-death"] : [];
  return h("article", { class: "message" },
    h("div", { class: "line" }, tools[0], message.id !== undefined && h("b", null, `#${message.id}`), h("span", null, message.exchange || "(default)"), h("code", null, message.routing_key),
      h("span", { class: "quiet" }, bytes(message.payload_bytes)), message.timestamp && h("span", { class: "quiet" }, time(message.timestamp)),
      message.redelivered && pill("redelivered", "warn"), message.payload_encoding === "base64" && pill("base64"), isCut(message) && pill("beginning only"), ...tools.slice(1)),
    deaths.length > 0 && table([["Died in", one => one.queue], ["Reason", one => pill(one.reason, "bad")], ["Times", one => one.count, "num"],
      ["First", one => time(one.time * 1000), "when"], ["Published to", one => `${one.exchange || "(default)"} · ${(one["routing-keys"] || []).join(", ")}`]], deaths),
    h("pre", { class: "payload", tabindex: "0" }, text(message)),
    Object.keys(properties).length + Object.keys(headers).length > 0 && h("details", null, h("summary", null, "Properties and headers"), h("pre", null, json(message.properties))));
}

export function deadLetters(view) {
  view.show(view.title("Dead letters"), list(view, {
    path: within(view, "/api/dead-letters"), tools: [vhostFilter(view)], empty: "No queue has dead letters",
    columns: [
      { label: "Queue", field: "name", kind: "name", cell: row => h("a", { href: `#/messages/${part(row.vhost)}/${part(row.name)}`, "data-key": `${row.vhost}/${row.name}` }, row.name) },
      { label: "Virtual host", field: "vhost", cell: row => row.vhost },
      { label: "Messages", field: "messages", kind: "num", cell: row => number(row.messages) },
      { label: "The first died in", field: "first_death.queue", cell: row => row.first_death.queue },
      { label: "Reason", field: "first_death.reason", cell: row => pill(row.first_death.reason, "bad") },
    ],
  }));
}

// Messages that wait for their time. A million may wait: the oldest are shown, and those with an id.
export function delayed(view) {
  const vhost = view.query.get("vhost") || view.vhosts[0], path = `/api/delayed-messages/${part(vhost)}`, rows = h("div"), count = h("span", { class: "quiet", role: "status" });
  const id = h("input", { type: "search", placeholder: "Message id  ( / )", "aria-label": "Message id", value: view.query.get("id") || "", "data-filter": true, onchange() {
    const query = new URLSearchParams(view.query);
    if (id.value) query.set("id", id.value); else query.delete("id");
    view.replaceQuery(query);
    follow();
  } });
  const cancel = row => confirm("Cancel message", `Delete the message to ${row.routing_key || row.exchange} that is due at ${time(row.due * 1000)}?`, "Delete", async () => { await ask("DELETE", `${path}/${part(row.id)}`); follow(); });
  const cancelAll = () => confirm("Cancel messages", `Delete all waiting messages with the message id ${id.value}?`, "Delete", async () => {
    const { cancelled } = await ask("DELETE", `${path}?message_id=${part(id.value)}`);
    toast(`${number(cancelled)} cancelled`);
    follow();
  });
  const all = button("Cancel all with this id", cancelAll, "danger");
  let watching = new AbortController();
  function follow() {
    watching.abort();
    watching = new AbortController();
    all.hidden = !id.value;
    watch(`${path}?limit=100${id.value ? `&message_id=${part(id.value)}` : ""}`, id.value ? 30 : 3, ({ waiting, messages: found }) => {  // ids are searched in the log
      count.textContent = `${number(waiting)} wait; ${number(found.length)} shown`;
      rows.replaceChildren(table([["Due", row => time(row.due * 1000), "when"], ["Exchange", row => row.exchange || "(default)"], ["Routing key", row => h("code", null, row.routing_key)], ["Message id", row => row.message_id],
        ["Size", row => bytes(row.payload_bytes), "num"], ["", row => button("Cancel", () => cancel(row), "plain danger"), "num"]], found, id.value ? "No message with this id waits" : "No message waits"));
    }, error => view.failed(error) || rows.replaceChildren(h("p", { class: "empty", role: "alert" }, error.message)), AbortSignal.any([watching.signal, view.signal]));
  }
  view.show(view.title("Delayed messages", count, vhostFilter(view, false)), h("section", { class: "card" }, h("div", { class: "filters" }, id, all), rows));
  follow();
}

// Fields that name where messages go, and what the call of a redrive takes.
const targets = origin => [{ name: "where", label: "To", type: "choice", options: [...(origin ? [["origin", "the queue where each first died"]] : []), ["queue", "a queue"], ["exchange", "an exchange"]] },
  { name: "target", label: "Name of the queue or exchange" }, { name: "routing_key", label: "Routing key (exchange; empty: unchanged)" }];
function destination({ where, target: to, routing_key: key }) {
  if (where === "queue") return { to: { queue: to } };
  return where === "exchange" ? { to: { exchange: to, ...(key ? { routing_key: key } : {}) } } : {};
}

// Moves messages; what does not arrive stays, and the error says why.
async function transfer(path, request, isStream) {
  const { moved, failed } = await ask("POST", `${path}/redrive`, request);
  if (failed.length) throw new Error(`${moved} moved; ${failed.length} not: ${failed[0].reason}`);
  toast(`${number(moved)} ${isStream ? "copied" : "moved"}`);
}

// All messages of a queue to another place; those of a stream are copied.
export const moveDialog = (name, path, isStream) => dialog({ title: isStream ? `Copy the messages of ${name}` : `Move the messages of ${name}`, label: isStream ? "Copy" : "Move",
  text: isStream ? "All messages are copied." : "All ready messages are moved. Browse selects some of them.", fields: targets(false),
  act: values => transfer(path, { filter: {}, ...destination(values) }, isStream) });

const FIELDS = [["key", "Routing key", "orders.*.eu or #"], ["headers", "Headers", '{"region": "eu"}'], ["where", "Content", "[total,>,100],[address/city,eq,'Oslo']"],
  ["text", "Text in the body", ""], ["from", "From", "2026-05-31T12:00:00Z"], ["to", "To", "2026-05-31T13:00:00Z"]];

export async function messages(view) {
  const [vhost, name] = view.names, path = `/api/queues/${part(vhost)}/${part(name)}`;
  const { type } = await get(`${path}?columns=type`, view.signal), isStream = type === "stream";
  const inputs = Object.fromEntries(FIELDS.map(([field, label, hint]) => [field, h("input", { placeholder: hint, value: view.query.get(field) || "", id: `filter-${field}`, "data-filter": field === "key" })]));
  const start = h("input", { id: "filter-offset", value: view.query.get("offset") || "", placeholder: isStream ? "first, last or an offset" : "messages to skip", size: 10 });
  const rows = h("section", { class: "card" }), status = h("p", { class: "quiet", role: "status" });
  let shown = [], chosen = new Set(), following = null;

  const filter = () => Object.fromEntries(FIELDS.map(([field]) => [field, inputs[field].value.trim()]).filter(([, value]) => value));
  async function load(more) {
    const query = new URLSearchParams({ ...filter(), ...(more ? { offset: following } : start.value ? { offset: start.value } : {}) });
    if (!more) { view.replaceQuery(query); chosen = new Set(); shown = []; }
    const found = await get(`${path}/messages?${query}`, view.signal);
    shown.push(...found.messages);
    following = found.next;
    status.textContent = `${number(shown.length)} messages shown; ${number(found.scanned)} read` + (following === null ? ", to the end" : "");
    draw();
  }
  const again = more => view.run("", () => load(more));
  function draw() {
    rows.replaceChildren(...shown.map(message => messageRow(message,
      h("input", { type: "checkbox", "aria-label": `Select message ${message.id}`, checked: chosen.has(message.id), onchange(event) { chosen[event.target.checked ? "add" : "delete"](message.id); tally(); } }),
      button("Edit", () => edit(message)))), shown.length ? "" : h("p", { class: "empty" }, "No messages"),
    following !== null ? h("div", { class: "pager" }, button("More", () => again(true))) : "");
    tally();
  }
  const some = h("span"), tally = () => { some.textContent = chosen.size ? `${chosen.size} selected` : "all that match"; };
  const selection = () => chosen.size ? { ids: [...chosen] } : { filter: filter() };
  const target = (label, fields, danger) => ({
    title: label, label, danger, fields, wide: fields.length > 4,
    text: chosen.size ? `${chosen.size} selected messages` : Object.keys(filter()).length ? "All messages that match the filter" : `All messages of ${name}`,
  });
  const TO = targets(!isStream);
  async function move(body) {
    try { await transfer(path, body, isStream); } finally { await load(false); }
  }
  const redrive = () => dialog({ ...target(isStream ? "Copy" : "Redrive", TO), act: values => move({ ...selection(), ...destination(values) }) });
  const discard = () => confirm("Discard messages", chosen.size ? `Delete ${chosen.size} selected messages?` : `Delete all messages of ${name} that match the filter?`, "Discard", async () => {
    const { discarded } = await ask("POST", `${path}/discard`, selection());
    toast(`${discarded} discarded`);
    await load(false);
  });
  // The list has the beginning of a long payload; what is edited is all of it.
  const isLarge = message => message.payload_bytes > LARGE;
  const whole = async message => isCut(message) && !isLarge(message) ? (await get(`${path}/messages?id=${part(message.id)}&truncate=${message.payload_bytes}`, view.signal)).messages[0] : message;
  const edit = listed => view.run("", async () => {
    const message = await whole(listed);
    if (!message) throw new Error(`Message ${listed.id} is gone`);
    editDialog(message);
  });
  const editDialog = message => dialog({ title: `Edit message ${message.id} and ${isStream ? "copy" : "redrive"} it`, label: isStream ? "Copy" : "Redrive", wide: true,
    text: isLarge(message) && `The body of ${bytes(message.payload_bytes)} is too large to be edited.`,
    fields: [...(isLarge(message) ? [] : [{ name: "payload", label: `Payload (${message.payload_encoding === "string" ? "text" : "base64"})`, type: "text area", rows: 8, value: message.payload }]),
      { name: "properties", label: "Properties", type: "text area", rows: 6, json: true, value: json(message.properties) }, ...TO],
    act: ({ payload = message.payload, properties, ...values }) => move({ ids: [message.id], ...destination(values),
      edit: { [message.id]: { ...(payload === message.payload ? {} : { payload, payload_encoding: message.payload_encoding }), ...(json(properties) === json(message.properties) ? {} : { properties }) } } }) });

  view.show(h("p", { class: "crumbs" }, link(isStream ? "streams" : "queues", isStream ? "Streams" : "Queues"), ` / ${vhost} / `, link(`queue/${part(vhost)}/${part(name)}`, name)),
    view.title(`Messages of ${name}`, some, button(isStream ? "Copy" : "Redrive", redrive, "primary"), !isStream && button("Discard", discard, "danger")),
    h("form", { class: "card filters", onsubmit(event) { event.preventDefault(); again(false); } },
      FIELDS.map(([field, label]) => h("div", { class: "field" }, h("label", { for: `filter-${field}` }, h("span", null, label)), inputs[field])),
      h("div", { class: "field" }, h("label", { for: "filter-offset" }, h("span", null, isStream ? "Offset" : "Skip")), start), h("button", { class: "primary" }, "Browse")), status, rows);
  tally();
  await load(false);
}
