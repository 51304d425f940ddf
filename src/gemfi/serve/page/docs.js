// The page of the API: every route of /openapi.json, what it takes, what it answers, and examples.

import { byId, html, shown } from "./dom.js";

const MOST_DEPTH = 6;

async function start() {
  let document_;
  try {
    const response = await fetch("/openapi.json");
    if (!response.ok) throw new Error(`The server answered ${response.status}.`);
    document_ = await response.json();
  } catch (error) {
    byId("gone").firstElementChild.textContent = `The description is not here. ${error.message}`;
    shown(byId("gone"), true);
    return;
  }
  byId("lead").textContent = `${document_.info.description} gemfi ${document_.info.version}.`;
  for (const [path, operations] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const route = new Route(document_, path, method, operation);
      byId("contents").append(html("li", {}, html("a", { href: `#${route.id}`, text: path })));
      byId("routes").append(route.card());
    }
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

/** One route of the document, as a card. */
class Route {
  constructor(whole, path, method, operation) {
    this.whole = whole;
    this.path = path;
    this.method = method;
    this.operation = operation;
    this.id = operation.operationId;
  }

  card() {
    const { summary, description, security } = this.operation;
    return html(
      "section.card.route",
      { id: this.id, "aria-label": `${this.method.toUpperCase()} ${this.path}` },
      html(
        "h2",
        {},
        html("span.method", { text: this.method.toUpperCase(), "data-method": this.method }),
        html("code", { text: this.path }),
        security ? html("span.lock", { text: "with the token" }) : null,
      ),
      html("p", { text: [summary, description].filter(Boolean).join(". ") }),
      this.parameters(),
      this.body(),
      this.examples(),
      this.answers(),
    );
  }

  parameters() {
    const found = this.operation.parameters ?? [];
    if (found.length === 0) return null;
    const rows = found.flatMap((each) => [
      html("dt", {}, html("code", { text: each.name })),
      html("dd", { text: `${this.words(each.schema)}. ${each.description ?? ""}` }),
    ]);
    return html("div", {}, html("h3", { text: "In the query" }), html("dl.list", {}, ...rows));
  }

  body() {
    const contents = Object.entries(this.operation.requestBody?.content ?? {});
    if (contents.length === 0) return null;
    const parts = contents.flatMap(([kind, { schema }]) => {
      const choices = schema.oneOf ?? [schema];
      const forms = choices.map((each) => this.fields(each, 0));
      const some = forms.length > 1 ? ", one of" : "";
      return [html("p", {}, html("code", { text: kind }), some), ...forms];
    });
    return html("div", {}, html("h3", { text: "The body" }), ...parts);
  }

  examples() {
    const lines = [...this.commands()].flatMap(([title, command]) => [
      html("p.soft", { text: title }),
      html("pre", { tabindex: 0, role: "group", "aria-label": title }, html("code", { text: command })),
    ]);
    const title = lines.length > 2 ? "Examples" : "Example";
    return html("div", {}, html("h3", { text: title }), ...lines);
  }

  *commands() {
    const token = this.operation.security ? " -H \"Authorization: Bearer $TOKEN\"" : "";
    const url = `${location.origin}${this.path}`;
    const content = this.operation.requestBody?.content ?? {};
    if (Object.keys(content).length === 0) {
      const post = this.method === "post" ? " -X POST" : "";
      yield ["From the shell", `curl${post}${token} ${url}`];
    }
    for (const { summary, value } of Object.values(content["application/json"]?.examples ?? {})) {
      const json = "-H 'Content-Type: application/json'";
      yield [summary, `curl${token} ${json} -d '${JSON.stringify(value)}' ${url}`];
    }
    if (content["multipart/form-data"]) {
      yield ["A file from the disk", `curl${token} -F file=@image.png ${url}`];
    }
  }

  answers() {
    const responses = Object.entries(this.operation.responses);
    const rows = responses.flatMap(([code, { description }]) => [
      html("dt", {}, html("code", { text: code })),
      html("dd", { text: description }),
    ]);
    const good = Object.values(this.operation.responses["200"]?.content ?? {})[0]?.schema;
    const form = good && this.resolved(good).properties ? this.fields(good, 0) : null;
    return html(
      "details",
      {},
      html("summary", { text: "What is answered" }),
      form,
      html("dl.list", {}, ...rows),
    );
  }

  /** The fields of an object, those of objects in it below them. */
  fields(schema, depth) {
    const { properties = {}, description } = this.resolved(schema);
    const items = Object.entries(properties).map(([name, each]) => {
      const text = [this.words(each), each.description].filter(Boolean).join(". ");
      const inner = depth < MOST_DEPTH ? this.inside(each) : null;
      return html(
        "li",
        {},
        html("code", { text: name }),
        html("span.soft", { text: ` ${text}` }),
        inner && this.fields(inner, depth + 1),
      );
    });
    return html("ul.fields", { "aria-label": description ?? "Fields" }, ...items);
  }

  /** The object that a field holds, alone or in an array; null where there is none. */
  inside(schema) {
    const choices = this.resolved(schema).anyOf ?? [schema];
    for (const each of choices) {
      const found = this.resolved(each);
      if (found.properties) return found;
      const items = found.type === "array" ? this.inside(found.items ?? {}) : null;
      if (items) return items;
    }
    return null;
  }

  /** What a value is, in words. */
  words(schema) {
    const { type, anyOf, items, enum: choices, const: only, format, ...rest } = this.resolved(schema);
    if (anyOf) return anyOf.map((each) => this.words(each)).join(" or ");
    if (only !== undefined) return JSON.stringify(only);
    if (choices) return choices.map((each) => JSON.stringify(each)).join(", ");
    if (type === "array") return `${lengthWords(rest)} ${this.plural(items ?? {})}`;
    if (type === "string" && format === "binary") return "a file";
    const bounds = boundWords(rest);
    return `${type ?? "any value"}${bounds && ` ${bounds}`}`;
  }

  plural(schema) {
    const found = this.resolved(schema);
    if (found.type === "array") return `arrays, each of ${this.words(found).replace(/^array of /, "")}`;
    const words = this.words(found);
    return words.replace(/^(integer|number|string|object)/, "$1s").replace(/^a file/, "files");
  }

  resolved(schema) {
    const name = schema.$ref?.split("/").pop();
    return name ? this.whole.components.schemas[name] : schema;
  }
}

function lengthWords({ minItems, maxItems }) {
  if (minItems === undefined || maxItems === undefined) return "array of";
  return minItems === maxItems ? `array of ${minItems}` : `array of ${minItems} to ${maxItems}`;
}

function boundWords({ minimum, maximum, exclusiveMaximum }) {
  const low = minimum === undefined ? null : Number(minimum.toPrecision(3));
  if (exclusiveMaximum !== undefined) return `from ${low} to below ${exclusiveMaximum}`;
  if (low === null || maximum === undefined || maximum > 1e30) return "";
  return `from ${low} to ${maximum}`;
}

start();
