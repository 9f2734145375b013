// Jobs: counts, queues, workers, running and failed jobs, retry.
import { ask, get, part, session, watch } from "/static/api.js";
import { button, card, confirm, duration, h, link, number, pill, table, time } from "/static/dom.js";
import { list } from "/static/table.js";

const STATES = { done: "good", running: "warn", retrying: "warn", failed: "bad", refused: "bad" };
const ago = text => text ? duration((Date.now() - Date.parse(text)) / 1000) : "";

async function jobs(view) {
  try { await get("/api/sections/jobs/counts", view.signal); } catch (error) {
    if (error.status !== 404) throw error;
    view.show(view.title("Jobs"), card("", h("p", { class: "empty" }, error.message)));
    return;
  }
  const canEdit = session.can("administrator"), state = view.query.get("state") || "";
  const counts = h("div", { class: "tiles" }), queues = h("div");
  const act = (call, id, done) => view.run(done, () => ask("POST", `/api/sections/jobs/${call}`, { id }));
  const progress = row => `${Math.round(row.progress * 100)} %`;
  const actions = row => canEdit && (row.state === "failed" || row.state === "cancelled" ? button("Retry", () => act("retry", row.id, "Submitted again"))
    : ["scheduled", "waiting", "running", "retrying"].includes(row.state) && button("Cancel", () => act("cancel", row.id, "Cancelled"), "plain danger"));
  const events = job => view.run("", async () => {
    const found = await get(`/api/sections/jobs/events?id=${part(job.id)}`);
    const shown = h("dialog", { class: "wide", "aria-label": job.id }, h("div", { class: "filters" }, h("h2", null, job.id), h("span", { class: "space" }), button("Close", () => shown.close())),
      table([["Time", row => time(Date.parse(row.at))], ["State", row => pill(row.state, STATES[row.state] || "")], ["Progress", row => `${Math.round(row.progress * 100)} %`, "num"], ["", row => row.text]], found));
    shown.addEventListener("close", () => shown.remove());
    document.body.append(shown);
    shown.showModal();
  });
  const wrong = place => error => view.failed(error) || place.replaceChildren(h("p", { class: "empty" }, error.message));
  view.show(view.title("Jobs", canEdit && button("Retry all failed", () => confirm("Retry all failed jobs", "Submit all failed jobs again?", "Retry", () => ask("POST", "/api/sections/jobs/retry-failed", {})))),
    counts, card("Queues", queues),
    list(view, { path: "/api/sections/jobs/workers", key: "workers.", title: "Workers", sort: "worker", every: 2, placeholder: "Filter workers", empty: "No worker runs a job", columns: [
      { label: "Worker", field: "worker", kind: "name", cell: row => row.worker }, { label: "Job", field: "id", cell: row => button(row.id, () => events(row), "plain") }, { label: "Type", field: "kind", cell: row => row.kind },
      { label: "Progress", field: "progress", kind: "num", cell: progress }, { label: "For", field: "start", kind: "num", cell: row => ago(row.start) }, { label: "", kind: "num", cell: actions }] }),
    list(view, { path: `/api/sections/jobs/list?state=${part(state)}`, sort: "submitted", reverse: true, placeholder: "Filter by part of an id", regex: false, empty: "No jobs", columns: [
      { label: "Id", field: "id", kind: "name", cell: row => button(row.id, () => events(row), "plain") }, { label: "Type", field: "kind", cell: row => row.kind }, { label: "State", field: "state", cell: row => pill(row.state, STATES[row.state] || "") },
      { label: "Progress", field: "progress", kind: "num", cell: progress }, { label: "Attempts", field: "attempts", kind: "num", cell: row => number(row.attempts) },
      { label: "Submitted", field: "submitted", kind: "when", cell: row => time(Date.parse(row.submitted)) }, { label: "Worker", field: "worker", cell: row => row.worker },
      { label: "Error", cell: row => row.error && h("span", { class: "wrong" }, row.error) }, { label: "", kind: "num", cell: actions }] }));
  watch("/api/sections/jobs/counts", 3, found => counts.replaceChildren(...[["", "all"], ...Object.keys(found).map(name => [name, name])].map(([name, label]) =>
    h("a", { class: "card tile", href: name ? `#/jobs?state=${name}` : "#/jobs", "aria-current": name === state ? "true" : null },
      h("b", null, number(name ? found[name] : Object.values(found).reduce((sum, one) => sum + one, 0))), h("span", null, label)))), wrong(counts), view.signal);
  view.run("", async () => {
    const names = await get("/api/sections/jobs/queues"), prefix = names[0].request.split(".")[0];
    const path = `/api/queues?columns=name,vhost,messages,consumers&sort=name&page=1&page_size=500&name=${part(`${prefix}.`)}`;
    watch(path, 3, ({ items: found }) => {
      const of = name => found.find(one => one.name === name);
      const cell = (name, page) => of(name) ? link(`${page}/${part(of(name).vhost)}/${part(name)}`, number(of(name).messages)) : "–";
      queues.replaceChildren(table([["Type", row => row.kind, "name"], ["Waiting", row => cell(row.request, "queue"), "num"], ["Consumers", row => number(of(row.request)?.consumers), "num"], ["Dead letters", row => cell(row.dead, "messages"), "num"]],
        names.filter(row => of(row.request)), "No queue of jobs is declared"));
    }, wrong(queues), view.signal);
  });
}

export const pages = [["jobs", "Jobs", jobs, "monitoring"]];
