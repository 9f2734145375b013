// Flows of the pipeline: state, lag, batches, tables, dead letters, replay.
import { ask, get, part, session, watch } from "/static/api.js";
import { body, button, bytes, card, confirm, dialog, duration, facts, h, number, pill, table, time, toast } from "/static/dom.js";

const STATES = { running: "good", starting: "warn", waiting: "warn", stopped: "", failed: "bad", gone: "bad" };

function pipeline(view) {
  const flows = h("div"), tables = h("div"), letters = h("div"), replays = h("div");
  const dead = flow => view.run("", async () => {
    const rows = await get(`/api/sections/pipeline/dead-letters?flow=${part(flow)}&count=100`, view.signal);
    letters.replaceChildren(table([["Received", row => time(Date.parse(row.received_at))], ["Stream", row => row.stream], ["Offset", row => number(row.offset), "num"], ["Topic", row => h("code", null, row.topic)],
      ["Reason", row => pill(row.reason, "bad")], ["Bytes", row => h("code", null, (row.raw || "").slice(0, 160))]], rows, `${flow} has no dead letters`));
    letters.scrollIntoView({ block: "nearest" });
  });
  const replay = flow => dialog({ title: `Replay ${flow}`, label: "Replay", text: "Rebuilds the tables from bronze with Spark while the flow runs, and adopts them at the end.",
    fields: [{ name: "from", label: "Messages since (empty: all)", placeholder: "2026-05-31T12:00:00Z" }],
    async act({ from }) { await ask("POST", "/api/sections/pipeline/replay", { flow, from }); toast("Replay started"); } });
  view.show(view.title("Pipeline"), card("Flows", flows), card("Tables", tables), card("Dead letters", letters), card("Replays", replays));
  letters.replaceChildren(h("p", { class: "empty" }, "Choose a flow"));
  const wrong = place => error => view.failed(error) || place.replaceChildren(h("p", { class: "empty" }, error.message));
  watch("/api/sections/pipeline/status", 5, found => {
    flows.replaceChildren(table([["Flow", row => row.flow, "name"], ["State", row => [pill(row.state || "never run", STATES[row.state] || ""), row.reason && h("div", { class: "quiet" }, row.reason)]],
      ["Batch", row => number(row.done?.batch), "num"], ["Rows", row => number(row.done?.rows), "num"], ["Took", row => row.done ? duration(row.done.bronze_seconds + row.done.apply_seconds) : "", "num"],
      ["Rows/s", row => row.done ? number(Math.round(row.done.rate)) : "", "num"], ["Lag", row => row.lag.messages === null ? h("span", { class: "quiet", title: row.lag.reason }, "?") : `${number(row.lag.messages)} messages`, "num"],
      ["Behind", row => row.lag.seconds === null ? "" : duration(row.lag.seconds), "num"], ["Restarts", row => number(row.restarts), "num"],
      ["Dead letters", row => button(number(row.dead_letters), () => dead(row.flow), "plain"), "num"], ["", row => session.can("administrator") && button("Replay", () => replay(row.flow)), "num"]], found, "No flow has run with the data of this broker"));
    tables.replaceChildren(table([["Flow", row => row.flow], ["Table", row => row.name, "name"], ["Rows", row => number(row.rows), "num"], ["Files", row => number(row.files), "num"], ["Size", row => bytes(row.bytes), "num"]],
      found.flatMap(one => Object.entries(one.tables).map(([name, size]) => ({ flow: one.flow, name, ...size })))));
  }, wrong(flows), view.signal);
  watch("/api/sections/pipeline/replays", 5, found => replays.replaceChildren(table([["Flow", row => row.flow, "name"], ["Started", row => time(row.started * 1000)],
    ["State", row => row.running ? pill("running", "warn") : row.exit_status === 0 ? pill("done", "good") : row.exit_status === null ? "" : pill(`exit status ${row.exit_status}`, "bad")],
    ["Output", row => h("pre", null, row.output)]], found, "No replay was started here")), wrong(replays), view.signal);
}

export const pages = [["pipeline", "Pipeline", pipeline, "monitoring"]];
