import { chart, history, rates } from "/static/chart.js";
import { get, session, watch } from "/static/api.js";
import { body, bytes, card, duration, facts, h, link, number, table } from "/static/dom.js";

const tile = (to, value, label) => h("a", { class: "card tile", href: `#/${to}` }, h("b", null, value), h("span", null, label));
const perSecond = details => `${number(details?.rate ?? 0)}/s`;

export function overview(view) {
  const messages = chart(["published", "delivered", "acknowledged"], value => `${number(value)}/s`);
  const queued = chart(["ready", "unacknowledged"]);
  const traffic = chart(["received", "sent"], value => `${bytes(value)}/s`);
  const gauges = history(2);
  const tiles = h("div", { class: "tiles" }), alarms = h("div"), node = h("div"), listeners = h("div");
  view.show(view.title("Overview"), alarms, tiles,
    h("div", { class: "grid" }, card("Messages", body(messages.element)), card("Queued messages", body(queued.element)),
      card("Network", body(traffic.element)), card("Node", node)),
    card("Listeners", listeners));
  let last;
  watch("/api/overview?msg_rates_age=61", 1, shown => {
    last = shown;
    const { message_stats: stats, object_totals: objects, queue_totals: totals } = shown;
    tiles.replaceChildren(
      tile("queues?sort=messages&reverse=true", number(totals.messages), "messages in queues"), tile("queues?sort=messages_unacknowledged&reverse=true", number(totals.messages_unacknowledged), "unacknowledged"),
      tile("exchanges", perSecond(stats.publish_details), "published"), tile("queues", perSecond(stats.deliver_get_details), "delivered"),
      tile("connections", number(objects.connections), "connections"), tile("channels", number(objects.channels), "channels"),
      tile("exchanges", number(objects.exchanges), "exchanges"), tile("queues", number(objects.queues), "queues and streams"),
      tile("queues?sort=consumers&reverse=true", number(objects.consumers), "consumers"));
    messages.show([rates(stats.publish_details), rates(stats.deliver_get_details), rates(stats.ack_details)]);
    traffic.show([rates(shown.traffic.recv_oct_details), rates(shown.traffic.send_oct_details)]);
    const problems = [...shown.alarms.map(name => `Alarm: ${name}. Publishers are blocked.`),
      ...(shown.damage ? [`${shown.damage} damaged parts of logs were skipped; see the broker's log.`] : [])];
    alarms.replaceChildren(...problems.map(text => h("p", { class: "banner bad", role: "alert" }, text)));
    listeners.replaceChildren(table([["Protocol", row => row.protocol], ["Address", row => h("code", null, row.url)]], shown.listeners));
    if (!session.can("monitoring")) node.replaceChildren(body(facts([["Node", shown.node], ["Version", shown.product_version]])));
  }, error => view.failed(error), view.signal);
  const timer = setInterval(() => { if (last) queued.show(gauges([last.queue_totals.messages_ready, last.queue_totals.messages_unacknowledged])); }, 1000);
  view.signal.addEventListener("abort", () => clearInterval(timer));
  if (session.can("monitoring")) watch("/api/nodes", 5, ([one]) => node.replaceChildren(body(facts([
    ["Name", one.name], ["Up for", duration(one.uptime / 1000)],
    ["Memory", `${bytes(one.mem_used)}; messages take ${bytes(one.message_memory)} of ${bytes(one.mem_limit)}`],
    ["Disk free", `${bytes(one.disk_free)} (limit ${bytes(one.disk_free_limit)})`],
    ["Open files", `${number(one.fd_used)} of ${number(one.fd_total)}`], ["Processors", one.processors], ["Data", h("code", null, one.db_dir)],
  ]))), error => view.failed(error), view.signal);
}
