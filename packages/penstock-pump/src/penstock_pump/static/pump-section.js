// Components of the pump, and what happened to a file.
import { get, part, watch } from "/static/api.js";
import { body, bytes, card, duration, h, number, pill, table, time } from "/static/dom.js";

const STATES = { running: "good", stopped: "", died: "bad", invalid: "bad" };
const failed = code => Number(code) >= 400;

function pump(view) {
  const components = h("div"), hops = h("div"), file = h("input", { id: "file", placeholder: "name, end of a path, or *.csv", value: view.query.get("file") || "", "data-filter": true });
  const trace = () => view.run("", async () => {
    view.replaceQuery(new URLSearchParams(file.value ? { file: file.value } : {}));
    if (!file.value) return;
    hops.replaceChildren(h("p", { class: "empty" }, "Searching…"));
    const found = await get(`/api/sections/pump/trace?file=${part(file.value)}`, view.signal).catch(error => { hops.replaceChildren(h("p", { class: "empty" }, error.message)); return null; });
    if (found) hops.replaceChildren(table([["Time", row => time(Date.parse(row.at))], ["After", row => duration(row.after), "num"], ["Exchange", row => row.exchange], ["Event", row => [pill(row.kind), row.event]],
      ["Result", row => row.code === null ? "" : [pill(row.code, failed(row.code) ? "bad" : "good"), row.message]], ["By", row => [row.user, row.host].filter(Boolean).join("@")],
      ["Took", row => row.seconds === null ? "" : duration(row.seconds), "num"], ["File", row => h("code", null, row.relpath)], ["Size", row => row.size === null ? "" : bytes(row.size), "num"]], found, "No announcement of this file was found"));
  });
  view.show(view.title("Pump"), card("Components", components), card("History of a file", h("form", { class: "filters", onsubmit(event) { event.preventDefault(); trace(); } },
    h("div", { class: "field" }, h("label", { for: "file" }, h("span", null, "File")), file), h("button", { class: "primary" }, "Trace")), hops));
  watch("/api/sections/pump/components", 2, found => components.replaceChildren(table([["Component", row => row.name, "name"],
    ["State", row => [pill(row.state, STATES[row.state]), row.reason && h("div", { class: "quiet" }, row.reason)]], ["Received", row => number(row.received), "num"], ["Messages/s", row => row.rate === undefined ? "" : number(row.rate), "num"],
    ["Bytes", row => bytes(row.bytes), "num"], ["Queued", row => row.queued === null ? "–" : number(row.queued), "num"], ["Retries", row => number(row.postponed), "num"],
    ["Outcomes", row => Object.entries(row.codes || {}).map(([code, count]) => pill(`${code}: ${number(count)}`, failed(code) ? "bad" : "good"))],
    ["Rejected", row => Object.entries(row.rejected || {}).map(([why, count]) => h("div", null, `${why}: ${number(count)}`))], ["Lag", row => row.lag === undefined ? "" : duration(row.lag), "num"],
    ["Last", row => row.last ? time(row.last * 1000) : ""]], found, "No component is configured on this machine")), error => view.failed(error) || components.replaceChildren(h("p", { class: "empty" }, error.message)), view.signal);
  if (file.value) trace();
}

export const pages = [["pump", "Pump", pump, "monitoring"]];
