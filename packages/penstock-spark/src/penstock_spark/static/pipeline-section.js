// Flows of the pipeline: state, lag, batches, tables, dead letters, replay.
import { ask, part, session } from "/static/api.js";
import { button, bytes, card, dialog, duration, h, number, pill, time, toast } from "/static/dom.js";
import { list } from "/static/table.js";

const STATES = { running: "good", starting: "warn", waiting: "warn", stopped: "", failed: "bad", gone: "bad" };
const took = done => done ? duration(done.bronze_seconds + done.apply_seconds) : "";
const lag = row => row.lag.messages === null ? h("span", { class: "quiet", title: row.lag.reason }, "?") : `${number(row.lag.messages)} messages`;
const outcome = row => row.running ? pill("running", "warn") : row.exit_status === 0 ? pill("done", "good") : row.exit_status === null ? "" : pill(`exit status ${row.exit_status}`, "bad");

function pipeline(view) {
  const letters = h("div");
  const dead = flow => {
    letters.replaceChildren(list(view, { path: `/api/sections/pipeline/dead-letters?flow=${part(flow)}`, key: "letters.", title: `Dead letters of ${flow}`, sort: "", every: 0,
      placeholder: "Filter by stream, topic or reason", empty: `${flow} has no dead letters`, columns: [
        { label: "Received", kind: "when", cell: row => time(Date.parse(row.received_at)) }, { label: "Stream", cell: row => row.stream }, { label: "Offset", kind: "num", cell: row => number(row.offset) },
        { label: "Topic", cell: row => h("code", null, row.topic) }, { label: "Reason", cell: row => pill(row.reason, "bad") }, { label: "Bytes", kind: "path", cell: row => h("code", null, (row.raw || "").slice(0, 160)) }] }));
    letters.scrollIntoView({ block: "nearest" });
  };
  const replay = flow => dialog({ title: `Replay ${flow}`, label: "Replay", text: "Rebuilds the tables from bronze with Spark while the flow runs, and adopts them at the end.",
    fields: [{ name: "from", label: "Messages since (empty: all)", placeholder: "2026-05-31T12:00:00Z" }],
    async act({ from }) { await ask("POST", "/api/sections/pipeline/replay", { flow, from }); toast("Replay started"); } });
  view.show(view.title("Pipeline"),
    list(view, { path: "/api/sections/pipeline/status", key: "flows.", title: "Flows", sort: "flow", every: 5, placeholder: "Filter flows", empty: "No flow has run with the data of this broker", columns: [
      { label: "Flow", field: "flow", kind: "name", cell: row => row.flow },
      { label: "State", field: "state", cell: row => [pill(row.state || "never run", STATES[row.state] || ""), row.reason && h("div", { class: "quiet" }, row.reason)] },
      { label: "Batch", field: "done.batch", kind: "num", cell: row => number(row.done?.batch) }, { label: "Rows", field: "done.rows", kind: "num", cell: row => number(row.done?.rows) },
      { label: "Took", kind: "num", cell: row => took(row.done) }, { label: "Rows/s", kind: "num", cell: row => row.done ? number(Math.round(row.done.rate)) : "" },
      { label: "Lag", field: "lag.messages", kind: "num", cell: lag }, { label: "Behind", field: "lag.seconds", kind: "num", cell: row => row.lag.seconds === null ? "" : duration(row.lag.seconds) },
      { label: "Restarts", field: "restarts", kind: "num", cell: row => number(row.restarts) },
      { label: "Dead letters", field: "dead_letters", kind: "num", cell: row => button(number(row.dead_letters), () => dead(row.flow), "plain") },
      { label: "", kind: "num", cell: row => session.can("administrator") && button("Replay", () => replay(row.flow)) }] }),
    list(view, { path: "/api/sections/pipeline/tables", key: "tables.", title: "Tables", sort: "", every: 5, placeholder: "Filter tables", empty: "No table has been written", columns: [
      { label: "Flow", field: "flow", cell: row => row.flow }, { label: "Table", field: "name", kind: "name", cell: row => row.name }, { label: "Rows", field: "rows", kind: "num", cell: row => number(row.rows) },
      { label: "Files", field: "files", kind: "num", cell: row => number(row.files) }, { label: "Size", field: "bytes", kind: "num", cell: row => bytes(row.bytes) }] }),
    letters,
    list(view, { path: "/api/sections/pipeline/replays", key: "replays.", title: "Replays", sort: "started", reverse: true, every: 5, placeholder: "Filter replays", empty: "No replay was started here", columns: [
      { label: "Flow", field: "flow", kind: "name", cell: row => row.flow }, { label: "Started", field: "started", kind: "when", cell: row => time(row.started * 1000) },
      { label: "State", cell: outcome }, { label: "Output", cell: row => h("pre", null, row.output) }] }));
  letters.replaceChildren(card("Dead letters", h("p", { class: "empty" }, "Choose the number of a flow's dead letters")));
}

export const pages = [["pipeline", "Pipeline", pipeline, "monitoring"]];
