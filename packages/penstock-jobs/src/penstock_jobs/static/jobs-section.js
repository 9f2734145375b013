// Jobs: counts, queues, workers, running and failed jobs, retry.
import { ask, get, part, session, watch } from "/static/api.js";
import { button, card, confirm, duration, h, link, number, pill, table, time } from "/static/dom.js";

const STATES = { done: "good", running: "warn", retrying: "warn", failed: "bad", refused: "bad" };
const ago = text => text ? duration((Date.now() - Date.parse(text)) / 1000) : "";

function jobs(view) {
  const canEdit = session.can("administrator"), state = view.query.get("state") || "", page = Number(view.query.get("page")) || 1;
  const counts = h("div", { class: "tiles" }), workers = h("div"), rows = h("div"), queues = h("div");
  const text = h("input", { type: "search", placeholder: "Part of an id", "aria-label": "Part of an id", value: view.query.get("text") || "", "data-filter": true, onchange: () => go({ text: text.value, page: "" }) });
  const go = changes => {
    const query = new URLSearchParams(view.query);
    for (const [name, value] of Object.entries(changes)) if (value) query.set(name, value); else query.delete(name);
    location.hash = `#/jobs?${query}`;
  };
  const act = (call, id, done) => view.run(done, () => ask("POST", `/api/sections/jobs/${call}`, { id }));
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
    counts, card("Queues", queues), card("Workers", workers), h("section", { class: "card" }, h("div", { class: "filters" }, text), rows));
  watch("/api/sections/jobs/counts", 3, found => counts.replaceChildren(...[["", "all"], ...Object.keys(found).map(name => [name, name])].map(([name, label]) =>
    h("a", { class: "card tile", href: name ? `#/jobs?state=${name}` : "#/jobs", "aria-current": name === state ? "true" : null },
      h("b", null, number(name ? found[name] : Object.values(found).reduce((sum, one) => sum + one, 0))), h("span", null, label)))), wrong(counts), view.signal);
  watch("/api/sections/jobs/workers", 2, found => workers.replaceChildren(table([["Worker", row => row.worker, "name"], ["Job", row => button(row.id, () => events(row), "plain")], ["Type", row => row.kind],
    ["Progress", row => `${Math.round(row.progress * 100)} %`, "num"], ["For", row => ago(row.start), "num"], ["", row => canEdit && button("Cancel", () => act("cancel", row.id, "Cancelled"), "plain danger"), "num"]], found, "No worker runs a job")), wrong(workers), view.signal);
  const query = new URLSearchParams({ page, state, text: text.value });
  watch(`/api/sections/jobs/list?${query}`, 3, ({ jobs: found, count }) => rows.replaceChildren(table([["Id", row => button(row.id, () => events(row), "plain"), "name"], ["Type", row => row.kind], ["State", row => pill(row.state, STATES[row.state] || "")],
    ["Progress", row => `${Math.round(row.progress * 100)} %`, "num"], ["Attempts", row => number(row.attempts), "num"], ["Submitted", row => time(Date.parse(row.submitted))], ["Worker", row => row.worker], ["Error", row => row.error && h("span", { class: "wrong" }, row.error)],
    ["", row => canEdit && (row.state === "failed" || row.state === "cancelled" ? button("Retry", () => act("retry", row.id, "Submitted again")) : ["scheduled", "waiting", "running", "retrying"].includes(row.state) ? button("Cancel", () => act("cancel", row.id, "Cancelled"), "plain danger") : ""), "num"]], found, "No jobs"),
  h("div", { class: "pager" }, `${number(count)} jobs`, page > 1 && button("‹ Previous", () => go({ page: page - 1 })), count > page * 50 && button("Next ›", () => go({ page: page + 1 })))), wrong(rows), view.signal);
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
