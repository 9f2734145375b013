import { ask, watch, session } from "/static/api.js";
import { body, button, bytes, card, confirm, facts, h, number, pill, table } from "/static/dom.js";

export function cluster(view) {
  const status = h("div"), members = h("div"), tools = h("span");
  view.show(view.title("Cluster", tools), card("Status", status), card("Members", members));
  watch("/api/cluster", 2, one => {
    tools.replaceChildren(...(session.can("administrator") && one.coordinator !== "manual" && (one.in_sync || []).length > 1
      ? [button("Resign leadership", () => confirm("Resign leadership", "Another in-sync member takes over. Clients reconnect.", "Resign", () => ask("POST", "/api/cluster/resign")), "danger")] : []));
    status.replaceChildren(body(facts([["Leader", one.leader], ["Epoch", number(one.epoch)], ["Coordinator", one.coordinator], ["In sync", (one.in_sync || []).join(", ")],
      ["Required in sync", number(one.min_in_sync)]])));
    members.replaceChildren(table([["Member", row => row.node, "name"], ["Role", row => row.role], ["State", row => pill(!row.connected ? "disconnected" : row.in_sync ? "in sync" : "catching up", !row.connected ? "bad" : row.in_sync ? "good" : "warn")],
      ["Behind", row => row.connected ? `${bytes(row.lag_bytes)}, ${number(row.lag_seconds)} s` : "–", "num"],
      ["", row => session.can("administrator") && row.connected === false && button("Remove", () => confirm("Remove member", `Remove ${row.node} from the cluster?`, "Remove", () => ask("POST", "/api/cluster/leave", { node: row.node })), "plain danger"), "num"]], one.members));
  }, error => {
    if (view.failed(error)) return;
    status.replaceChildren(h("p", { class: "empty" }, error.message));
    members.replaceChildren(h("p", { class: "empty" }, "One broker"));
  }, view.signal);
}
