// Components of the pump, and what happened to a file.
import { part } from "/static/api.js";
import { bytes, card, duration, h, number, pill, time } from "/static/dom.js";
import { list } from "/static/table.js";

const STATES = { running: "good", stopped: "", died: "bad", invalid: "bad" };
const failed = code => Number(code) >= 400;

function pump(view) {
  const hops = h("div"), file = h("input", { id: "file", placeholder: "name, end of a path, or *.csv", value: view.query.get("file") || "", "data-filter": true });
  const trace = () => {
    if (!file.value) { hops.replaceChildren(); return; }
    hops.replaceChildren(list(view, { path: `/api/sections/pump/trace?file=${part(file.value)}`, key: "hops.", title: `History of ${file.value}`, sort: "", every: 0,
      placeholder: "Filter the history", empty: "No announcement of this file was found", columns: [
        { label: "Time", field: "at", kind: "when", cell: row => time(Date.parse(row.at)) }, { label: "After", field: "after", kind: "num", cell: row => duration(row.after) },
        { label: "Exchange", field: "exchange", cell: row => row.exchange }, { label: "Event", field: "event", cell: row => [pill(row.kind), row.event] },
        { label: "Result", field: "code", cell: row => row.code === null ? "" : [pill(row.code, failed(row.code) ? "bad" : "good"), row.message] },
        { label: "By", cell: row => [row.user, row.host].filter(Boolean).join("@") }, { label: "Took", field: "seconds", kind: "num", cell: row => row.seconds === null ? "" : duration(row.seconds) },
        { label: "File", field: "relpath", kind: "path", cell: row => h("code", null, row.relpath) }, { label: "Size", field: "size", kind: "num", cell: row => row.size === null ? "" : bytes(row.size) }] }));
  };
  const search = event => {
    event.preventDefault();
    view.replaceQuery(new URLSearchParams(file.value ? { file: file.value } : {}));
    trace();
  };
  view.show(view.title("Pump"),
    list(view, { path: "/api/sections/pump/components", key: "components.", title: "Components", every: 2, placeholder: "Filter components", empty: "No component is configured on this machine", columns: [
      { label: "Component", field: "name", kind: "name", cell: row => row.name },
      { label: "State", field: "state", cell: row => [pill(row.state, STATES[row.state]), row.reason && h("div", { class: "quiet" }, row.reason)] },
      { label: "Received", field: "received", kind: "num", cell: row => number(row.received) }, { label: "Messages/s", field: "rate", kind: "num", cell: row => row.rate === undefined ? "" : number(row.rate) },
      { label: "Bytes", field: "bytes", kind: "num", cell: row => bytes(row.bytes) }, { label: "Queued", field: "queued", kind: "num", cell: row => row.queued === null ? "–" : number(row.queued) },
      { label: "Retries", field: "postponed", kind: "num", cell: row => number(row.postponed) },
      { label: "Outcomes", cell: row => Object.entries(row.codes || {}).map(([code, count]) => pill(`${code}: ${number(count)}`, failed(code) ? "bad" : "good")) },
      { label: "Rejected", cell: row => Object.entries(row.rejected || {}).map(([why, count]) => h("div", null, `${why}: ${number(count)}`)) },
      { label: "Lag", field: "lag", kind: "num", cell: row => row.lag === undefined ? "" : duration(row.lag) }, { label: "Last", field: "last", kind: "when", cell: row => row.last ? time(row.last * 1000) : "" }] }),
    card("History of a file", h("form", { class: "filters", onsubmit: search },
      h("div", { class: "field" }, h("label", { for: "file" }, h("span", null, "File")), file), h("button", { class: "primary" }, "Trace"))), hops);
  trace();
}

export const pages = [["pump", "Pump", pump, "monitoring"]];
