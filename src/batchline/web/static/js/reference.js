// The API's reference, from its own description.

const holder = document.getElementById("reference");
const api = await (await fetch("api/v1/openapi.json")).json();

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const resolve = (schema) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").at(-1)] : schema);

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return [...new Set(schema.anyOf.map(kind))].filter((name) => name !== "null").join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  return schema.type ?? "any";
}

function table(rows) {
  const made = element("table");
  const head = element("tr");
  for (const name of ["name", "kind", "default", "meaning"]) {
    const cell = element("th", name, "text");
    cell.scope = "col";
    head.append(cell);
  }
  made.append(head, ...rows.map(({ name, schema, required, description }) => {
    const line = element("tr");
    const shown = required ? "required" : schema?.default === undefined || schema.default === null ? "" : JSON.stringify(schema.default);
    line.append(element("td", name, "text"), element("td", kind(schema), "text"), element("td", shown, "text"), element("td", description ?? schema?.description ?? "", "text wrap"));
    return line;
  }));
  const scroll = element("div", undefined, "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-label", "fields");
  scroll.append(made);
  return scroll;
}

function properties(schema) {
  const found = resolve(schema);
  return Object.entries(found?.properties ?? {}).map(([name, field]) => ({ name, schema: field, required: found.required?.includes(name) }));
}

for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const section = element("section");
    section.append(element("h2", `${method.toUpperCase()} ${path}`), element("p", operation.description));
    const given = (operation.parameters ?? []).map(({ name, schema, required, description }) => ({ name, schema, required, description }));
    const body = operation.requestBody?.content?.["application/json"]?.schema;
    const rows = [...given, ...(body ? properties(body) : [])];
    if (rows.length) section.append(table(rows));
    holder.append(section);
  }
}
