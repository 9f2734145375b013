// Users and permissions, virtual hosts, policies, limits, parameters, definitions.
import { ask, get, part, session } from "/static/api.js";
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
  const limits = h("div"), top = h("div");
  async function load() {
    const [one, limit] = await Promise.all([get(path), get(`/api/user-limits/${part(name)}`)]);
    const edit = button("Edit", () => userDialog(`Edit ${name}`, one, load), "primary");
    top.replaceChildren(view.title(name, tags(one).map(tag => pill(tag)), edit, button("Delete", () => confirm("Delete user", `Delete ${name}? Its connections are closed.`, "Delete", async () => {
      await ask("DELETE", path);
      location.hash = "#/users";
    }), "danger")));
    const values = Object.entries(limit[0]?.value || {});
    limits.replaceChildren(table([["Limit", row => row[0]], ["Value", row => number(row[1]), "num"],
      ["", row => remove(`limit ${row[0]}`, `/api/user-limits/${part(name)}/${row[0]}`, load), "num"]], values, "None"));
  }
  const permission = (row = {}) => dialog({ title: "Permissions", label: "Save", text: "Regular expressions for names of queues and exchanges. An empty one matches nothing.",
    fields: [{ ...vhostField(view), ...(row.vhost ? { value: row.vhost } : {}) }, ...["configure", "write", "read"].map(kind => ({ name: kind, label: kind, value: row[kind] ?? ".*" }))],
    async act({ vhost, ...given }) { await ask("PUT", `/api/permissions/${part(vhost)}/${part(name)}`, given); rights.refresh(); } });
  const topicPermission = (row = {}) => dialog({ title: "Topic permissions", label: "Save", text: "Regular expressions for routing keys of a topic exchange.",
    fields: [{ ...vhostField(view), ...(row.vhost ? { value: row.vhost } : {}) }, { name: "exchange", label: "Exchange", value: row.exchange ?? "amq.topic" },
      ...["write", "read"].map(kind => ({ name: kind, label: kind, value: row[kind] ?? ".*" }))],
    async act({ vhost, ...given }) { await ask("PUT", `/api/topic-permissions/${part(vhost)}/${part(name)}`, given); topics.refresh(); } });
  const rights = list(view, { path: `${path}/permissions`, key: "rights.", title: "Permissions", sort: "vhost", placeholder: "Filter permissions", empty: "No permissions: the user can use no virtual host", tools: [button("Set", () => permission())], columns: [
    { label: "Virtual host", field: "vhost", cell: row => row.vhost }, ...["configure", "write", "read"].map(kind => ({ label: kind[0].toUpperCase() + kind.slice(1), field: kind, cell: row => pattern(row[kind]) })),
    { label: "", kind: "num", cell: row => [button("Edit", () => permission(row), "plain"), remove("the permissions", `/api/permissions/${part(row.vhost)}/${part(name)}`, () => rights.refresh())] }] });
  const topics = list(view, { path: `${path}/topic-permissions`, key: "topics.", title: "Topic permissions", sort: "vhost", placeholder: "Filter topic permissions", empty: "None: every routing key is allowed", tools: [button("Set", () => topicPermission())], columns: [
    { label: "Virtual host", field: "vhost", cell: row => row.vhost }, { label: "Exchange", field: "exchange", cell: row => row.exchange || "all" },
    { label: "Write", field: "write", cell: row => pattern(row.write) }, { label: "Read", field: "read", cell: row => pattern(row.read) },
    { label: "", kind: "num", cell: row => [button("Edit", () => topicPermission(row), "plain"), remove("the topic permissions", `/api/topic-permissions/${part(row.vhost)}/${part(name)}/${part(row.exchange)}`, () => topics.refresh())] }] });
  const limit = () => dialog({ title: "Limit", label: "Save", fields: [{ name: "kind", label: "Limit", type: "choice", options: ["max-connections", "max-channels"] }, { name: "value", label: "At most", type: "number", value: 100, required: true }],
    async act({ kind, value }) { await ask("PUT", `/api/user-limits/${part(name)}/${kind}`, { value }); await load(); } });
  view.show(h("p", { class: "crumbs" }, link("users", "Users")), top, rights, topics, card("Limits", [button("Set", limit)], limits));
  await load();
}

export function vhosts(view) {
  const canEdit = session.can("administrator");
  const limitDialog = (name, given) => dialog({ title: `Limits of ${name}`, label: "Save", text: "An empty field is no limit.",
    fields: ["max-connections", "max-queues"].map(kind => ({ name: kind, label: kind, type: "number", value: given[kind] })),
    async act(values) {
      for (const [kind, value] of Object.entries(values)) {
        if (value !== undefined) await ask("PUT", `/api/vhost-limits/${part(name)}/${kind}`, { value });
        else if (given[kind] !== undefined) await ask("DELETE", `/api/vhost-limits/${part(name)}/${kind}`);
      }
      rows.refresh();
    } });
  const rows = list(view, { path: "/api/vhosts", empty: "No virtual host", columns: [
    { label: "Name", field: "name", kind: "name", cell: row => row.name }, { label: "Description", field: "description", cell: row => row.description },
    { label: "Messages", field: "messages", kind: "num", cell: row => number(row.messages) },
    { label: "Limits", cell: row => Object.entries(row.limits).map(([kind, value]) => pill(`${kind} ${value}`)) },
    { label: "", kind: "num", cell: row => canEdit && [button("Limits", () => limitDialog(row.name, row.limits), "plain"), remove(`virtual host ${row.name} with all its queues`, `/api/vhosts/${part(row.name)}`, () => rows.refresh())] }] });
  const add = canEdit && button("Add virtual host", () => dialog({ title: "Add virtual host", label: "Add", fields: [{ name: "name", label: "Name", required: true }, { name: "description", label: "Description" }],
    async act({ name, ...given }) { await ask("PUT", `/api/vhosts/${part(name)}`, given); rows.refresh(); } }), "primary");
  view.show(view.title("Virtual hosts", add), rows);
}

const SETTINGS = [["max-length", 10000], ["max-length-bytes", 104857600], ["message-ttl", 60000], ["expires", 1800000], ["delivery-limit", 20], ["overflow", "reject-publish"],
  ["dead-letter-exchange", ""], ["dead-letter-routing-key", ""], ["max-age", "7D"], ["alternate-exchange", ""], ["federation-upstream-set", "all"]];

export function policies(view) {
  const rules = (kind, title, canEdit) => list(view, { path: `/api/${kind}`, key: `${kind}.`, title, placeholder: `Filter ${title.toLowerCase()}`, tools: [canEdit && button("Add", () => edit(kind))], columns: [
    { label: "Name", field: "name", kind: "name", cell: row => row.name }, { label: "Virtual host", field: "vhost", cell: row => row.vhost }, { label: "Pattern", field: "pattern", cell: row => pattern(row.pattern) },
    { label: "Applies to", field: "apply-to", cell: row => row["apply-to"] }, { label: "Priority", field: "priority", kind: "num", cell: row => number(row.priority) }, { label: "Definition", kind: "path", cell: row => compact(row.definition) },
    { label: "", kind: "num", cell: row => canEdit && [button("Edit", () => edit(kind, row), "plain"), remove(`policy ${row.name}`, `/api/${kind}/${part(row.vhost)}/${part(row.name)}`, () => lists[kind].refresh())] }] });
  const lists = { policies: rules("policies", "Policies", session.can("policymaker")), "operator-policies": rules("operator-policies", "Operator policies", session.can("administrator")) };
  const edit = (kind, row) => dialog({ title: row ? `Edit ${row.name}` : "Add policy", label: "Save",
    fields: [...(row ? [] : [vhostField(view), { name: "name", label: "Name", required: true }]), { name: "pattern", label: "Pattern of names", value: row?.pattern ?? "", required: true },
      { name: "apply-to", label: "Applies to", type: "choice", options: kind === "policies" ? ["all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"] : ["queues", "classic_queues", "quorum_queues", "streams"], value: row?.["apply-to"] },
      { name: "priority", label: "Priority", type: "number", value: row?.priority ?? 0 },
      { name: "definition", label: "Definition", type: "text area", json: true, value: json(row?.definition ?? {}), hints: SETTINGS }],
    async act({ vhost = row?.vhost, name = row?.name, ...given }) { await ask("PUT", `/api/${kind}/${part(vhost)}/${part(name)}`, given); lists[kind].refresh(); } });
  view.show(view.title("Policies"), ...Object.values(lists));
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
export function transfers(view) {
  const canEdit = session.can("administrator"), name = { label: "Name", field: "name", kind: "name", cell: row => row.name }, vhost = { label: "Virtual host", field: "vhost", cell: row => row.vhost };
  const shovels = list(view, { path: "/api/shovels", key: "shovels.", title: "Shovels", placeholder: "Filter shovels", columns: [name, vhost, { label: "State", field: "state", cell: row => pill(row.state, STATUS[row.state] || "bad") },
    { label: "From", cell: row => row.src_address || row.src_queue || row.src_exchange || row.src_uri }, { label: "To", cell: row => row.dest_address || row.dest_queue || row.dest_exchange || row.dest_uri }, { label: "", cell: row => row.reason }] });
  const links = list(view, { path: "/api/federation-links", key: "links.", title: "Federation links", placeholder: "Filter links", sort: "upstream", columns: [{ label: "Upstream", field: "upstream", kind: "name", cell: row => row.upstream }, vhost,
    { label: "Type", field: "type", cell: row => row.type }, { label: "Name", cell: row => row.exchange || row.queue }, { label: "State", field: "status", cell: row => pill(row.status, STATUS[row.status] || "bad") }, { label: "", cell: row => row.error }] });
  const parameters = list(view, { path: "/api/parameters", key: "parameters.", title: "Configuration", placeholder: "Filter parameters", columns: [{ label: "Component", field: "component", cell: row => row.component }, vhost, name, { label: "Value", kind: "path", cell: row => h("pre", null, json(row.value)) },
    { label: "", kind: "num", cell: row => canEdit && [button("Edit", () => edit(row), "plain"), remove(`${row.component} ${row.name}`, `/api/parameters/${part(row.component)}/${part(row.vhost)}/${part(row.name)}`, () => parameters.refresh())] }] });
  const edit = row => dialog({ title: row ? `Edit ${row.name}` : "Add shovel or upstream", label: "Save", wide: true,
    fields: [...(row ? [] : [{ name: "component", label: "Component", type: "choice", options: [["shovel", "shovel"], ["federation-upstream", "upstream of federation"], ["federation-upstream-set", "set of upstreams"]] }, vhostField(view), { name: "name", label: "Name", required: true }]),
      { name: "value", label: "Value", type: "text area", rows: 9, json: true, value: json(row?.value ?? { "src-protocol": "amqp091", "src-uri": "amqp://", "src-queue": "from", "dest-protocol": "amqp091", "dest-uri": "amqp://", "dest-queue": "to" }),
        hints: [["uri", "amqp://other"], ["src-delete-after", "queue-length"], ["ack-mode", "on-confirm"], ["reconnect-delay", 5]] }],
    async act({ component = row?.component, vhost = row?.vhost, name = row?.name, value }) { await ask("PUT", `/api/parameters/${part(component)}/${part(vhost)}/${part(name)}`, { value }); parameters.refresh(); } });
  view.show(view.title("Shovels and federation", canEdit && button("Add", () => edit(), "primary")), shovels, links, parameters);
}
