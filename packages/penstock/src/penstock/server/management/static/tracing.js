// Tracing: which messages of a virtual host are recorded, their timelines, and one of them.
import { ask, part, watch } from "/static/api.js";
import { body, button, card, confirm, dialog, facts, h, link, number, pill, s } from "/static/dom.js";
import { DEFAULT, vhostFilter } from "/static/exchanges.js";
import { list } from "/static/table.js";

const EVENTS = ["published", "republished", "routed", "unroutable", "stored", "queued", "delivered", "acknowledged", "requeued", "rejected", "dead-lettered", "dropped", "refused"];
const KIND = { acknowledged: "good", unroutable: "bad", rejected: "bad", "dead-lettered": "bad", dropped: "bad", refused: "bad", requeued: "warn", republished: "warn" };
const FIELDS = [["queue", "Queue", "work"], ["event", "Event"], ["user", "User", "guest"], ["trace_id", "Trace id", "its beginning"]];
const MOST_EVENTS = 200;  // of one timeline, as in the broker

// Times are in seconds; a path often takes less than a millisecond.
const clock = seconds => {
  const at = new Date(seconds * 1000);
  return `${at.toLocaleTimeString("en-GB", { hour12: false })}.${String(at.getMilliseconds()).padStart(3, "0")}`;
};
const date = seconds => new Date(seconds * 1000).toLocaleDateString("en-GB");
const span = seconds => {
  const milliseconds = Math.max(0, seconds) * 1000;
  if (milliseconds < 1000) return `${milliseconds.toFixed(milliseconds < 10 ? 3 : 1)} ms`;
  return milliseconds < 60000 ? `${(milliseconds / 1000).toFixed(2)} s` : `${number(Math.round(milliseconds / 1000))} s`;
};
const percent = share => Number((share * 100).toPrecision(12));
const event = name => pill(name, KIND[name]);
const exchangeLink = (vhost, name) => link(`exchange/${part(vhost)}/${part(name || DEFAULT)}`, name || "(default)");
const queueLink = (vhost, name) => link(`queue/${part(vhost)}/${part(name)}`, name);
const several = links => links.flatMap((one, n) => n ? [", ", one] : [one]);

export function traces(view) {
  const vhost = view.query.get("vhost") || view.vhosts[0], rulesPath = `/api/message-traces/${part(vhost)}`;
  const status = h("span", { role: "status" }), details = h("div"), start = button("Start trace", begin, "primary");
  const stop = button("Stop trace", end, "danger"), firehose = button("", switchFirehose);
  let rules = null, hose = false;
  stop.hidden = true;
  firehose.hidden = true;

  function show(found) {
    ({ rules, firehose: hose } = found);
    status.replaceChildren(pill(rules ? "recording" : "not recording", rules ? "good" : ""));
    start.textContent = rules ? "Change" : "Start trace";
    stop.hidden = !rules;
    firehose.hidden = false;
    firehose.textContent = hose ? "Switch firehose off" : "Switch firehose on";
    details.replaceChildren(body(facts([
      ["Routing keys", rules && (rules.keys.length ? several(rules.keys.map(key => h("code", null, key))) : "all")],
      ["Sample", rules && (rules.sample === 1 ? "every message" : `${percent(rules.sample)} % of messages`)],
      ["Timelines kept", rules && `the latest ${number(rules.limit)}`],
      ["Recording", rules ? null : "Nothing is recorded. Recorded timelines stay until the next trace begins."],
      ["Firehose", hose ? ["on: copies of all messages at ", exchangeLink(vhost, "amq.rabbitmq.trace")] : "off"]])));
  }
  function begin() {
    dialog({ title: rules ? "Change the trace" : "Start a trace", label: rules ? "Start again" : "Start",
      text: "Timelines of the previous trace are deleted. A traced virtual host handles fewer messages per second.",
      fields: [{ name: "keys", label: "Routing keys, one pattern per line", type: "text area", rows: 3, value: (rules?.keys || []).join("\n"), placeholder: "orders.#", help: "As of a topic exchange: * is a word, # any number of words. Empty: all messages." },
        { name: "sample", label: "Sample in percent", type: "number", value: percent(rules?.sample ?? 1), required: true, help: "100: every message; 1: one in a hundred" },
        { name: "limit", label: "Timelines to keep", type: "number", value: rules?.limit ?? 1000, min: 1, required: true }],
      async act({ keys, sample, limit }) {
        await ask("PUT", rulesPath, { keys: keys.split("\n").map(key => key.trim()).filter(Boolean), sample: sample / 100, limit });
        follow();
      } });
  }
  function end() {
    return view.run("The trace has stopped; its timelines stay", async () => { await ask("DELETE", rulesPath); follow(); });
  }
  function switchFirehose() {
    const change = async on => { await ask("PUT", `/api/vhosts/${part(vhost)}`, { tracing: on }); follow(); };
    if (hose) view.run("The firehose is off", () => change(false));
    else confirm("Switch the firehose on", `The exchange amq.rabbitmq.trace of ${vhost} gets a copy of every message that is published or delivered.`, "Switch on", () => change(true));
  }

  // Asked again at once after a change; after that the broker tells of changes by others.
  let watching = new AbortController();
  function follow() {
    watching.abort();
    watching = new AbortController();
    watch(`${rulesPath}?columns=rules,firehose`, 2, show, error => view.failed(error) || refuse(error), AbortSignal.any([watching.signal, view.signal]));
  }
  function refuse(error) {
    [start, stop, firehose].forEach(one => { one.hidden = true; });
    status.replaceChildren();
    details.replaceChildren(h("p", { class: "empty", role: "alert" }, error.message));
  }

  const inputs = Object.fromEntries(FIELDS.map(([name, , hint]) => [name, name === "event"
    ? h("select", { id: "filter-event" }, h("option", { value: "" }, "any"), EVENTS.map(one => h("option", { value: one, selected: one === view.query.get("event") }, one)))
    : h("input", { id: `filter-${name}`, placeholder: hint, value: view.query.get(name) || "", autocomplete: "off", spellcheck: "false" })]));
  const given = () => FIELDS.map(([name]) => [name, inputs[name].value.trim()]).filter(([, value]) => value);
  function filter(wanted) {
    const query = new URLSearchParams(view.query);
    ["page", ...FIELDS.map(([name]) => name)].forEach(name => query.delete(name));
    wanted.forEach(([name, value]) => query.set(name, value));
    location.hash = query.size ? `#/traces?${query}` : "#/traces";
  }
  const form = h("form", { class: "card filters", "aria-label": "Filter timelines", onsubmit(submitted) { submitted.preventDefault(); filter(given()); } },
    FIELDS.map(([name, label]) => h("div", { class: "field" }, h("label", { for: `filter-${name}` }, h("span", null, label)), inputs[name])),
    h("div", { class: "actions" }, given().length > 0 && button("Clear", () => filter([])), h("button", { class: "primary" }, "Filter")));

  view.show(view.title("Tracing", status, vhostFilter(view, false), start, stop, firehose), card("Recording", details), form, list(view, {
    path: `/api/message-timelines/${part(vhost)}?${new URLSearchParams(given())}`, sort: "started", reverse: true, every: 1, placeholder: "Filter by routing key",
    empty: given().length ? "No timeline matches" : "No message was traced",
    columns: [
      { label: "Published", field: "started", kind: "when", cell: row => [h("a", { href: `#/trace/${part(vhost)}/${row.trace_id}`, "data-key": row.trace_id }, clock(row.started)), h("div", { class: "quiet" }, date(row.started))] },
      { label: "Routing key", field: "routing_key", kind: "name", cell: row => [row.routing_key, h("div", { class: "quiet" }, row.exchange || "(default)")] },
      { label: "Last event", field: "last_event", cell: row => event(row.last_event) },
      { label: "Path", kind: "path", cell: row => row.path.map(event) },
      { label: "Queues", cell: row => row.queues.map(name => h("div", null, name)) },
      { label: "Events", field: "events", kind: "num", cell: row => number(row.events) },
      { label: "Took", kind: "num", cell: row => span(row.last_time - row.started) },
    ] }));
  follow();
}

export function trace(view) {
  const [vhost, id] = view.names, details = h("div"), timeline = h("div");
  view.show(h("p", { class: "crumbs" }, link(`traces?vhost=${part(vhost)}`, "Tracing"), ` / ${vhost}`), view.title("Timeline"), card("Message", details), card("Events", timeline));

  function show(one) {
    const { events, started } = one, total = events.length ? events[events.length - 1].time - started : 0;
    details.replaceChildren(body(facts([["Exchange", exchangeLink(vhost, one.exchange)], ["Routing key", h("code", null, one.routing_key)], ["Published", `${date(started)} ${clock(started)}`],
      ["Took", span(total)], ["Last event", one.last_event && event(one.last_event)], ["Trace id", h("code", null, one.trace_id)]])));
    timeline.replaceChildren(h("ol", { class: "timeline" }, events.map((each, n) => entry(each, n ? events[n - 1].time : started, started, total))),
      events.length >= MOST_EVENTS && h("p", { class: "empty" }, `The first ${MOST_EVENTS} events are recorded`) || "");
  }
  function entry({ time, event: name, queue, queues, exchange, connection, reason, ...rest }, before, started, total) {
    const places = [exchange !== undefined && ["exchange", exchangeLink(vhost, exchange)], queue && ["queue", queueLink(vhost, queue)], queues?.length && ["queues", several(queues.map(one => queueLink(vhost, one)))],
      reason && ["reason", pill(reason, "bad")], connection && ["connection", link(`connection/${part(connection)}`, connection)],
      ...Object.entries(rest).filter(([, value]) => value !== null && value !== false).map(([key, value]) => [key.replace("_", " "), value === true ? "yes" : h("code", null, String(value))])].filter(Boolean);
    const share = seconds => total > 0 ? Math.max(0, seconds) / total * 100 : 0;
    return h("li", { class: KIND[name] || "" },
      h("div", { class: "line" }, h("b", null, name), h("span", { class: "num" }, `+${span(time - started)}`), h("time", { class: "quiet", datetime: new Date(time * 1000).toISOString() }, clock(time)),
        s("svg", { class: "waited", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { class: "scale", width: 100, height: 6, rx: 1 }),
          s("rect", { x: Math.min(99, share(before - started)), width: Math.max(1, share(time - before)), height: 6 }))),
      places.length > 0 && h("dl", null, places.map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, value)))));
  }
  watch(`/api/message-traces/${part(vhost)}/${part(id)}`, 1, show, error => {
    if (view.failed(error)) return;
    details.replaceChildren(h("p", { class: "empty", role: "alert" }, error.message));
    timeline.replaceChildren();
  }, view.signal);
}
