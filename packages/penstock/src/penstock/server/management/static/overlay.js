// The map of the overlay: brokers, links and clients; commands, heartbeats, injection and traces.
import { ask, get, part, session, watch } from "/static/api.js";
import { body, button, bytes, card, confirm, dialog, duration, facts, h, number, pill, s, table, time, toast } from "/static/dom.js";
import { LAYOUTS } from "/static/layouts.js";

const SILENT = 10;  // seconds without a report
const EDGE = 70;  // around the picture, for names
const state = { layout: "spring", clients: true };  // kept between visits

export function overlay(view) {
  const canEdit = session.can("administrator");
  let brokers = [], links = [], before = new Map(), chosen = view.query.get("broker"), places = new Map(), placed = "", path = [];
  const picture = s("svg", { role: "group", "aria-label": "Brokers and their links" });
  const aside = h("aside"), summary = h("span", { class: "quiet" }), failures = h("div"), trace = h("div"), wrong = h("p", { class: "banner bad", role: "alert", hidden: true });
  const layout = h("select", { "aria-label": "Layout", onchange() { state.layout = layout.value; placed = ""; draw(); } }, Object.keys(LAYOUTS).map(name => h("option", { value: name, selected: name === state.layout }, name)));
  const clients = h("input", { type: "checkbox", checked: state.clients, onchange() { state.clients = clients.checked; draw(); } });
  const beats = h("input", { type: "checkbox", disabled: !canEdit, onchange: () => view.run("", () => ask("PUT", "/api/overlay/heartbeats", { enabled: beats.checked })) });

  // The links between known brokers; `recent` is the traffic since the last report. Of two reports
  // that disagree, the later one counts: a broker that was disconnected reports no more.
  function linked() {
    const found = new Map(), known = new Map(brokers.map(one => [one.brokerID, one]));
    for (const one of brokers) for (const [other, up] of Object.entries(one.links)) {
      const peer = known.get(other);
      if (!peer || (!(one.brokerID in peer.links) && peer.age < one.age)) continue;
      const pair = [one.brokerID, other].sort(), key = pair.join(" ");
      const edge = found.get(key) || { pair, up: true, count: 0, recent: 0 };
      const count = one.link_messages[other] || 0;
      edge.up &&= up;
      edge.count = Math.max(edge.count, count);
      edge.recent = Math.max(edge.recent, count - (before.get(one.brokerID)?.link_messages[other] ?? count));
      found.set(key, edge);
    }
    return [...found.values()];
  }

  const silent = one => one.age > SILENT;
  const status = one => silent(one) ? "silent" : one.status.toLowerCase();
  const tint = one => silent(one) || one.status !== "RUNNING" ? "warn" : "good";

  function place() {
    const names = brokers.map(one => one.brokerID), edges = links.map(edge => edge.pair);
    const { clientWidth: width, clientHeight: height } = picture;
    const key = JSON.stringify([names, edges, state.layout, width, height]);
    if (key === placed || !width) return;
    placed = key;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const found = LAYOUTS[state.layout](names, edges);
    places = new Map(names.map((name, n) => [name, [width / 2 + found[n][0] * (width / 2 - EDGE), height / 2 + found[n][1] * (height / 2 - EDGE)]]));
  }

  function draw() {
    place();
    const focused = picture.contains(document.activeElement) && document.activeElement.dataset.broker;
    const hops = new Set(path.map(hop => [hop.from, hop.to].sort().join(" "))), reached = new Set(path.flatMap(hop => [hop.from, hop.to]));
    const lines = links.map(edge => {
      const [a, b] = edge.pair.map(name => places.get(name));
      if (!a || !b) return "";
      const width = hops.has(edge.pair.join(" ")) ? 5 : 1.5 + Math.min(9, Math.log2(1 + edge.recent));
      return s("g", null, s("line", { class: `link${edge.up ? "" : " down"}${hops.has(edge.pair.join(" ")) ? " hop" : ""}`, x1: a[0], y1: a[1], x2: b[0], y2: b[1], "stroke-width": width }),
        s("text", { class: "count", x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 + 4 }, number(edge.count)));
    });
    const nodes = brokers.map(one => {
      const [x, y] = places.get(one.brokerID) || [0, 0], choose = () => { chosen = one.brokerID; draw(); detail(); };
      const around = state.clients ? one.clients.slice(0, 24).map((_, n) => {
        const angle = 2 * Math.PI * n / Math.min(24, one.clients.length);
        return s("circle", { class: "client", r: 4, cx: x + 30 * Math.cos(angle), cy: y + 30 * Math.sin(angle) });
      }) : [];
      return s("g", { class: `broker ${one.status}${silent(one) ? " silent" : ""}${chosen === one.brokerID ? " chosen" : ""}${reached.has(one.brokerID) ? " hop" : ""}`,
        tabindex: "0", role: "button", "data-broker": one.brokerID, "aria-label": `${one.brokerID}, ${status(one)}`, "aria-pressed": String(chosen === one.brokerID), onclick: choose,
        onkeydown(event) { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } } },
      around, s("circle", { r: 17, cx: x, cy: y }), s("text", { x, y: y + 50 }, one.brokerID));
    });
    picture.replaceChildren(...lines, ...nodes);
    if (focused) picture.querySelector(`[data-broker="${CSS.escape(focused)}"]`)?.focus();
    summary.textContent = `${brokers.length} ${brokers.length === 1 ? "broker" : "brokers"}, ${links.length} ${links.length === 1 ? "link" : "links"}`;
  }

  const command = (broker, text, other) => view.run("Sent", () => ask("POST", "/api/overlay", { broker, command: text, ...(other ? { other } : {}) }));

  function detail() {
    const open = [...aside.querySelectorAll("details[open] summary")].map(one => one.textContent);
    const one = brokers.find(each => each.brokerID === chosen);
    if (!one) {
      aside.replaceChildren(table([["Broker", row => button(row.brokerID, () => { chosen = row.brokerID; draw(); detail(); }, "plain")], ["State", row => pill(status(row), tint(row))],
        ["Clients", row => number(row.clients.length), "num"], ["Pub/s", row => number(Math.round(row.publication_rate * 10) / 10), "num"]], brokers, "No report yet"));
      return;
    }
    const listed = (label, found) => h("details", { open: open.includes(label) }, h("summary", null, label), typeof found === "object" ? h("pre", null, Object.entries(found).map(([id, text]) => `${id}  ${text}`).join("\n") || "none") : number(found));
    const { enabled, interval, timeout, threshold } = one.heartbeat || {};
    aside.replaceChildren(h("div", { class: "head" }, h("h2", null, one.brokerID), pill(status(one), tint(one)), h("span", { class: "space" }), button("All brokers", () => { chosen = null; draw(); detail(); }, "plain")),
      canEdit && h("div", { class: "actions" }, one.status === "STOPPED" ? button("Resume", () => command(one.brokerID, "RESUME")) : button("Stop", () => command(one.brokerID, "STOP")),
        button("Connect", () => connect(one)), one.neighbours.length > 0 && button("Disconnect", () => disconnect(one)), button("Heartbeat", () => heartbeat(one)), button("Inject", () => inject(one.brokerID)),
        button("Shut down", () => confirm("Shut down", `Shut down ${one.brokerID}?`, "Shut down", () => ask("POST", "/api/overlay", { broker: one.brokerID, command: "SHUTDOWN" })), "danger")),
      facts([["URI", h("code", null, one.uri)], ["Neighbours", one.neighbours.join(", ") || "none"], ["Clients", one.clients.join(", ") || "none"], ["Last report", `${duration(one.age)} ago`],
        ["Publications", `${number(one.incoming_publications)}, ${number(Math.round(one.publication_rate * 10) / 10)}/s`], ["Control messages", number(one.incoming_control)], ["Waiting", number(one.input_queue_size)],
        ["Heartbeat", one.heartbeat && (enabled ? `every ${interval} s, timeout ${timeout} s, ${threshold} misses` : "off")], ["Runtime", `${one.runtime}, ${one.os}, ${one.cpus} CPUs`], ["Memory", `${bytes(one.memory_used)} of ${bytes(one.memory_total)}`],
        ["Refused links", one.refused && Object.entries(one.refused).map(([address, why]) => h("div", { class: "wrong" }, `${address}: ${why}`))]]),
      listed("Advertisements", one.advertisements), listed("Subscriptions", one.subscriptions));
  }

  const connect = one => dialog({ title: `Connect ${one.brokerID} to a broker`, label: "Connect", fields: [{ name: "other", label: "Address", required: true, placeholder: "padres://USER:PASSWORD@host:5680/ID" }],
    text: "The user needs the tag overlay at the other broker. A broker that is not this one connects only to addresses in its settings.", act: ({ other }) => command(one.brokerID, "OVERLAY-CONNECT", other) });
  const disconnect = one => dialog({ title: `Disconnect ${one.brokerID}`, label: "Disconnect", danger: true, fields: [{ name: "other", label: "From", type: "choice", options: one.neighbours }], act: ({ other }) => command(one.brokerID, "OVERLAY-DISCONNECT", other) });
  const heartbeat = one => dialog({ title: `Heartbeat of ${one.brokerID}`, label: "Save", fields: [{ name: "enabled", label: "Enabled", type: "check", value: one.heartbeat?.enabled },
    { name: "interval", label: "Interval in seconds", type: "number", value: one.heartbeat?.interval }, { name: "timeout", label: "Timeout in seconds", type: "number", value: one.heartbeat?.timeout },
    { name: "threshold", label: "Missed answers until a failure", type: "number", value: one.heartbeat?.threshold }], act: values => ask("PUT", `/api/overlay/heartbeats/${part(one.brokerID)}`, values) });
  const KINDS = ["publish", "subscribe", "advertise", "unsubscribe", "unadvertise"];
  const inject = (broker, kind, text = "", step = false) => dialog({ title: "Inject messages", label: "Inject", wide: true,
    fields: [{ name: "at", label: "At", type: "choice", options: brokers.map(one => one.brokerID), value: broker }, { name: "kind", label: "Kind", type: "choice", options: KINDS, value: kind },
      { name: "messages", label: "Messages, one per line", type: "text area", rows: 5, value: text, placeholder: "[class,stock],[price,5]" },
      { name: "file", label: "Or a file of them", type: "file", accept: ".txt,text/plain" },
      { name: "step", label: "One at a time", type: "check", value: step },
      { name: "name", label: "Name, to withdraw a subscription or advertisement by it" }],
    async act({ at, kind: chosen, messages, file, step: stepwise, name }) {
      const lines = `${messages}\n${file ? await file.text() : ""}`.split("\n").map(line => line.trim()).filter(Boolean);
      if (!lines.length) throw new Error("No message is given");
      let last;
      for (const message of stepwise ? [lines.shift()] : lines.splice(0)) last = await ask("POST", `/api/overlay/inject/${part(at)}`, { kind: chosen, message, name });
      follow(last.trace);
      if (lines.length) inject(at, chosen, lines.join("\n"), true);
      else toast("Injected");
    } });

  // The trace of a message, of the last injected one at first; its hops are marked in the picture.
  let following = new AbortController();
  const traced = h("input", { "aria-label": "Id of a trace", placeholder: "Id of a trace", class: "mono", autocomplete: "off", onchange: () => traced.value.trim() && follow(traced.value.trim()) });
  function follow(id) {
    following.abort();
    following = new AbortController();
    traced.value = id;
    watch(`/api/overlay/traces/${part(id)}`, 1, hops => {
      path = hops;
      trace.replaceChildren(table([["Hop", row => hops.indexOf(row) + 1, "num"], ["From", row => row.from], ["To", row => row.to]], hops, "No hop yet: no other broker needs the message"));
      draw();
    }, error => view.failed(error) || trace.replaceChildren(h("p", { class: "empty" }, error.message)), AbortSignal.any([following.signal, view.signal]));
  }

  view.show(view.title("Overlay", summary, h("label", { class: "check" }, "Layout", layout), h("label", { class: "check" }, clients, "Clients"), h("label", { class: "check" }, beats, "Heartbeats"),
    canEdit && button("Inject", () => inject(chosen), "primary")), wrong, h("section", { class: "card map" }, picture, aside),
  h("div", { class: "grid" }, card("Trace of a message", [traced], trace), card("Failures", failures)));
  trace.replaceChildren(h("p", { class: "empty" }, "Inject a message to see its way"));
  watch("/api/overlay", 2, found => {
    brokers = found;
    links = linked();
    before = new Map(brokers.map(one => [one.brokerID, one]));
    beats.checked = brokers.some(one => one.heartbeats);
    wrong.hidden = true;
    draw();
    if (!aside.contains(document.activeElement) || document.activeElement.tagName !== "SUMMARY") detail();
    const log = brokers.flatMap(one => (one.failures || []).map(entry => ({ ...entry, detector: one.brokerID }))).sort((a, b) => b.time - a.time).slice(0, 50);
    failures.replaceChildren(table([["Time", row => time(row.time * 1000)], ["Detected by", row => row.detector], ["Broker", row => row.neighbour],
      ["", row => pill(row.type === "FAILURE_CLEARED" ? "cleared" : "detected", row.type === "FAILURE_CLEARED" ? "good" : "bad")]], log, "No failure was detected by heartbeats"));
  }, error => { if (!view.failed(error)) { wrong.textContent = error.message; wrong.hidden = false; } }, view.signal);
  addEventListener("resize", draw, { signal: view.signal });
}

// The console of a content space: one command per line.
export function content(view) {
  const output = h("pre", { class: "console-output", role: "log", "aria-live": "polite", tabindex: "0" });
  const vhost = h("select", { "aria-label": "Virtual host" }, view.vhosts.map(name => h("option", { value: name }, name)));
  const line = h("input", { "aria-label": "Command", placeholder: "help", autocomplete: "off", spellcheck: "false", "data-filter": true, class: "mono" });
  const typed = [];
  let at = 0;
  line.addEventListener("keydown", event => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    at = Math.max(0, Math.min(typed.length, at + step));
    line.value = typed[at] || "";
  });
  const say = (text, kind) => { output.append(h("div", { class: kind }, text)); output.scrollTop = output.scrollHeight; };
  async function run(command) {
    typed.push(command);
    at = typed.length;
    if (command === "cls") { output.replaceChildren(); return; }
    say(`>>> ${command}`, "quiet");
    const answer = await view.run("", () => ask("POST", `/api/content/${part(vhost.value)}/console`, { command }));
    if (answer?.output) say(answer.output);
    if (answer?.error) say(answer.error, "wrong");
  }
  view.show(view.title("Content console", view.vhosts.length > 1 && vhost), card(null, body(output, h("form", { class: "filters", onsubmit(event) {
    event.preventDefault();
    const command = line.value.trim();
    line.value = "";
    if (command) run(command);
  } }, line, h("button", { class: "primary" }, "Run")))));
  line.focus();
  return run("info");
}
