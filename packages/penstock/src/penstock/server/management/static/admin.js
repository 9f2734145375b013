// Users and permissions, virtual hosts, policies, limits, parameters, definitions.
import { ask, get, part, session, watch } from "/static/api.js";
import { body, button, card, compact, confirm, dialog, download, h, json, link, number, pill, table, toast } from "/static/dom.js";
import { vhostField } from "/static/exchanges.js";
import { list } from "/static/table.js";

const TAGS = ["administrator", "monitoring", "policymaker", "management"];
const tags = row => (Array.isArray(row.tags) ? row.tags : String(row.tags).split(",")).filter(Boolean);
const pattern = value => h("code", null, value === "" ? "^$" : value);
const remove = (what, path, done) => button("Delete", () => confirm(`Delete ${what}`, `Delete ${what}?`, "Delete", async () => { await ask("DELETE", path); await done(); }), "plain danger");

export function users(view) {
  const add = button("Add user", () => userDialog("Add user", {}, name => { location.hash = `#/user/${part(name)}`; }), "primary");
  view.show(view.title("Users", add), list(view, {
    path: "/api/users", columns: [
      { label: "Name", field: "name", kind: "name", cell: row => h("a", { href: `#/user/${part(row.name)}`, "data-key": row.name }, row.name) },
      { label: "Tags", cell: row => tags(row).map(tag => pill(tag)) },
      { label: "Password", cell: row => row.password_hash ? "set" : pill("none", "warn") },
      { label: "Limits", cell: row => compact(row.limits) },
    ] }));
}

function userDialog(title, user, done) {
  dialog({ title, label: "Save", fields: [
    ...(user.name === undefined ? [{ name: "name", label: "Name", required: true }] : []),
    { name: "password", label: user.name === undefined ? "Password" : "New password (empty: unchanged)", type: "password" },
    ...TAGS.map(tag => ({ name: tag, label: `Tag ${tag}`, type: "check", value: user.name === undefined ? tag === "management" : tags(user).includes(tag) })),
    { name: "other", label: "Other tags", value: user.name === undefined ? "" : tags(user).filter(tag => !TAGS.includes(tag)).join(","), help: "Separated by commas, such as overlay" }],
  async act({ name = user.name, password, other, ...chosen }) {
    const given = [...TAGS.filter(tag => chosen[tag]), ...other.split(",").map(tag => tag.trim()).filter(Boolean)];
    const secret = password ? { password } : user.name === undefined ? { password_hash: "" } : { password_hash: user.password_hash, hashing_algorithm: user.hashing_algorithm };
    await ask("PUT", `/api/users/${part(name)}`, { tags: given.join(","), ...secret });
    done(name);
  } });
}

export async function user(view) {
  const [name] = view.names, path = `/api/users/${part(name)}`;
  const rights = h("div"), topics = h("div"), limits = h("div"), top = h("div");
  async function load() {
    const [one, granted, topic, limit] = await Promise.all([get(path), get(`${path}/permissions`), get(`${path}/topic-permissions`), get(`/api/user-limits/${part(name)}`)]);
    const edit = button("Edit", () => userDialog(`Edit ${name}`, one, load), "primary");
    top.replaceChildren(view.title(name, tags(one).map(tag => pill(tag)), edit, button("Delete", () => confirm("Delete user", `Delete ${name}? Its connections are closed.`, "Delete", async () => {
      await ask("DELETE", path);
      location.hash = "#/users";
    }), "danger")));
    rights.replaceChildren(table([["Virtual host", row => row.vhost], ["Configure", row => pattern(row.configure)], ["Write", row => pattern(row.write)], ["Read", row => pattern(row.read)],
      ["", row => [button("Edit", () => permission(row), "plain"), remove("the permissions", `/api/permissions/${part(row.vhost)}/${part(name)}`, load)], "num"]], granted, "No permissions: the user can use no virtual host"));
    topics.replaceChildren(table([["Virtual host", row => row.vhost], ["Exchange", row => row.exchange || "all"], ["Write", row => pattern(row.write)], ["Read", row => pattern(row.read)],
      ["", row => [button("Edit", () => topicPermission(row), "plain"), remove("the topic permissions", `/api/topic-permissions/${part(row.vhost)}/${part(name)}/${part(row.exchange)}`, load)], "num"]], topic, "None: every routing key is allowed"));
    const values = Object.entries(limit[0]?.value || {});
    limits.replaceChildren(table([["Limit", row => row[0]], ["Value", row => number(row[1]), "num"],
      ["", row => remove(`limit ${row[0]}`, `/api/user-limits/${part(name)}/${row[0]}`, load), "num"]], values, "None"));
  }
  const permission = (row = {}) => dialog({ title: "Permissions", label: "Save", text: "Regular expressions for names of queues and exchanges. An empty one matches nothing.",
    fields: [{ ...vhostField(view), ...(row.vhost ? { value: row.vhost } : {}) }, ...["configure", "write", "read"].map(kind => ({ name: kind, label: kind, value: row[kind] ?? ".*" }))],
    async act({ vhost, ...given }) { await ask("PUT", `/api/permissions/${part(vhost)}/${part(name)}`, given); await load(); } });
  const topicPermission = (row = {}) => dialog({ title: "Topic permissions", label: "Save", text: "Regular expressions for routing keys of a topic exchange.",
    fields: [{ ...vhostField(view), ...(row.vhost ? { value: row.vhost } : {}) }, { name: "exchange", label: "Exchange", value: row.exchange ?? "amq.topic" },
      ...["write", "read"].map(kind => ({ name: kind, label: kind, value: row[kind] ?? ".*" }))],
    async act({ vhost, ...given }) { await ask("PUT", `/api/topic-permissions/${part(vhost)}/${part(name)}`, given); await load(); } });
  const limit = () => dialog({ title: "Limit", label: "Save", fields: [{ name: "kind", label: "Limit", type: "choice", options: ["max-connections", "max-channels"] }, { name: "value", label: "At most", type: "number", value: 100, required: true }],
    async act({ kind, value }) { await ask("PUT", `/api/user-limits/${part(name)}/${kind}`, { value }); await load(); } });
  view.show(h("p", { class: "crumbs" }, link("users", "Users")), top, card("Permissions", [button("Set", () => permission())], rights),
    card("Topic permissions", [button("Set", () => topicPermission())], topics), card("Limits", [button("Set", limit)], limits));
  await load();
}

export async function vhosts(view) {
  const rows = h("div"), canEdit = session.can("administrator");
  async function load() {
    const [found, limits] = await Promise.all([get("/api/vhosts"), get("/api/vhost-limits")]);
    const of = Object.fromEntries(limits.map(row => [row.vhost, row.value]));
    rows.replaceChildren(table([["Name", row => row.name, "name"], ["Description", row => row.description], ["Messages", row => number(row.messages), "num"],
      ["Limits", row => Object.entries(of[row.name] || {}).map(([kind, value]) => pill(`${kind} ${value}`))],
      ["", row => canEdit && [button("Limits", () => limitDialog(row.name, of[row.name] || {}), "plain"), remove(`virtual host ${row.name} with all its queues`, `/api/vhosts/${part(row.name)}`, load)], "num"]], found));
  }
  const limitDialog = (name, given) => dialog({ title: `Limits of ${name}`, label: "Save", text: "An empty field is no limit.",
    fields: ["max-connections", "max-queues"].map(kind => ({ name: kind, label: kind, type: "number", value: given[kind] })),
    async act(values) {
      for (const [kind, value] of Object.entries(values)) {
        if (value !== undefined) await ask("PUT", `/api/vhost-limits/${part(name)}/${kind}`, { value });
        else if (given[kind] !== undefined) await ask("DELETE", `/api/vhost-limits/${part(name)}/${kind}`);
      }
      await load();
    } });
  const add = canEdit && button("Add virtual host", () => dialog({ title: "Add virtual host", label: "Add", fields: [{ name: "name", label: "Name", required: true }, { name: "description", label: "Description" }],
    async act({ name, ...given }) { await ask("PUT", `/api/vhosts/${part(name)}`, given); await load(); } }), "primary");
  view.show(view.title("Virtual hosts", add), h("section", { class: "card" }, rows));
  await load();
}

const SETTINGS = [["max-length", 10000], ["max-length-bytes", 104857600], ["message-ttl", 60000], ["expires", 1800000], ["delivery-limit", 20], ["overflow", "reject-publish"],
  ["dead-letter-exchange", ""], ["dead-letter-routing-key", ""], ["max-age", "7D"], ["alternate-exchange", ""], ["federation-upstream-set", "all"]];

export async function policies(view) {
  const own = h("div"), operator = h("div");
  const kinds = { policies: [own, session.can("policymaker")], "operator-policies": [operator, session.can("administrator")] };
  async function load() {
    for (const [kind, [place, canEdit]] of Object.entries(kinds)) {
      const found = await get(`/api/${kind}`);
      place.replaceChildren(table([["Name", row => row.name, "name"], ["Virtual host", row => row.vhost], ["Pattern", row => pattern(row.pattern)], ["Applies to", row => row["apply-to"]],
        ["Priority", row => number(row.priority), "num"], ["Definition", row => compact(row.definition)],
        ["", row => canEdit && [button("Edit", () => edit(kind, row), "plain"), remove(`policy ${row.name}`, `/api/${kind}/${part(row.vhost)}/${part(row.name)}`, load)], "num"]], found));
    }
  }
  const edit = (kind, row) => dialog({ title: row ? `Edit ${row.name}` : "Add policy", label: "Save",
    fields: [...(row ? [] : [vhostField(view), { name: "name", label: "Name", required: true }]), { name: "pattern", label: "Pattern of names", value: row?.pattern ?? "", required: true },
      { name: "apply-to", label: "Applies to", type: "choice", options: kind === "policies" ? ["all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"] : ["queues", "classic_queues", "quorum_queues", "streams"], value: row?.["apply-to"] },
      { name: "priority", label: "Priority", type: "number", value: row?.priority ?? 0 },
      { name: "definition", label: "Definition", type: "text area", json: true, value: json(row?.definition ?? {}), hints: SETTINGS }],
    async act({ vhost = row?.vhost, name = row?.name, ...given }) { await ask("PUT", `/api/${kind}/${part(vhost)}/${part(name)}`, given); await load(); } });
  view.show(view.title("Policies"), card("Policies", [kinds.policies[1] && button("Add", () => edit("policies"))].filter(Boolean), own),
    card("Operator policies", [kinds["operator-policies"][1] && button("Add", () => edit("operator-policies"))].filter(Boolean), operator));
  await load();
}

export async function definitions(view) {
  const options = [["", "all virtual hosts"], ...view.vhosts.map(name => [name, name])];
  const where = chosen => chosen ? `/api/definitions/${part(chosen)}` : "/api/definitions";
  view.show(view.title("Definitions"), card(null, body(h("p", null, "Users, virtual hosts, permissions, policies, limits, exchanges, queues and bindings as one JSON file, which RabbitMQ also reads and writes."),
    h("p", { class: "actions" }, button("Export", () => dialog({ title: "Export definitions", label: "Export", fields: [{ name: "vhost", label: "Of", type: "choice", options }],
      async act({ vhost }) { download("definitions.json", json(await get(where(vhost)))); } }), "primary"),
    button("Import", () => dialog({ title: "Import definitions", label: "Import", fields: [{ name: "file", label: "File", type: "file", accept: ".json,application/json", required: true }, { name: "vhost", label: "Into", type: "choice", options }],
      async act({ file, vhost }) {
        let found;
        try { found = JSON.parse(await file.text()); } catch (error) { throw new Error(`${file.name} is not JSON: ${error.message}`); }
        await ask("POST", where(vhost), found);
        toast("Imported");
      } }))))));
}

const STATUS = { running: "good", starting: "warn" };
export async function transfers(view) {
  const shovels = h("div"), links = h("div"), parameters = h("div"), canEdit = session.can("administrator");
  const status = (path, place, columns) => watch(path, 3, rows => place.replaceChildren(table(columns, rows)), error => view.failed(error) || place.replaceChildren(h("p", { class: "empty" }, error.message)), view.signal);
  async function load() {
    const rows = await get("/api/parameters");
    parameters.replaceChildren(table([["Component", row => row.component], ["Virtual host", row => row.vhost], ["Name", row => row.name, "name"], ["Value", row => h("pre", null, json(row.value))],
      ["", row => canEdit && [button("Edit", () => edit(row), "plain"), remove(`${row.component} ${row.name}`, `/api/parameters/${part(row.component)}/${part(row.vhost)}/${part(row.name)}`, load)], "num"]], rows));
  }
  const edit = row => dialog({ title: row ? `Edit ${row.name}` : "Add shovel or upstream", label: "Save", wide: true,
    fields: [...(row ? [] : [{ name: "component", label: "Component", type: "choice", options: [["shovel", "shovel"], ["federation-upstream", "upstream of federation"], ["federation-upstream-set", "set of upstreams"]] }, vhostField(view), { name: "name", label: "Name", required: true }]),
      { name: "value", label: "Value", type: "text area", rows: 9, json: true, value: json(row?.value ?? { "src-protocol": "amqp091", "src-uri": "amqp://", "src-queue": "from", "dest-protocol": "amqp091", "dest-uri": "amqp://", "dest-queue": "to" }),
        hints: [["uri", "amqp://other"], ["src-delete-after", "queue-length"], ["ack-mode", "on-confirm"], ["reconnect-delay", 5]] }],
    async act({ component = row?.component, vhost = row?.vhost, name = row?.name, value }) { await ask("PUT", `/api/parameters/${part(component)}/${part(vhost)}/${part(name)}`, { value }); await load(); } });
  view.show(view.title("Shovels and federation", canEdit && button("Add", () => edit(), "primary")), card("Shovels", shovels), card("Federation links", links), card("Configuration", parameters));
  status("/api/shovels", shovels, [["Name", row => row.name, "name"], ["Virtual host", row => row.vhost], ["State", row => pill(row.state, STATUS[row.state] || "bad")],
    ["From", row => row.src_address || row.src_queue || row.src_exchange || row.src_uri], ["To", row => row.dest_address || row.dest_queue || row.dest_exchange || row.dest_uri], ["", row => row.reason]]);
  status("/api/federation-links", links, [["Upstream", row => row.upstream, "name"], ["Virtual host", row => row.vhost], ["Type", row => row.type], ["Name", row => row.exchange || row.queue],
    ["State", row => pill(row.status, STATUS[row.status] || "bad")], ["", row => row.error]]);
  await load();
}
