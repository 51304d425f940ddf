// Rows for models of tables: a field for each column, or one text for all of them.

import { html } from "./dom.js";

const MOST_FIELDS = 40; // more than that are typed as one text

/**
 * The numbers of a text: commas, semicolons, tabs or spaces between them; a header is skipped, and
 * so are brackets.
 * @param {boolean} isWhole whether all lines are wanted, not the first alone.
 */
export function numbersOf(text, isWhole = false) {
  const plain = text.replace(/[[\](){}]/g, " ").trim();
  if (isWhole) return plain.split(/[\s,;]+/).filter(Boolean).map(Number);
  const lines = plain.split(/\r?\n/).filter((line) => line.trim());
  const parts = (line) => line.trim().split(/\s*[,;\t]\s*|\s+/);
  const rows = lines.map((line) => parts(line).map((part) => (part === "" ? NaN : Number(part))));
  const isHeader = rows.length > 1 && rows[0].every(Number.isNaN);
  return (isHeader ? rows.slice(1) : rows)[0] ?? [];
}

/**
 * A row by the names of its columns, or the problem with it.
 * @param {string[]} cells one for each column.
 * @param {{name: string, kind: string, missing: boolean}[]} columns as the server describes them.
 */
export function rowOf(cells, columns) {
  if (cells.length !== columns.length) return { problem: `${cells.length} of ${columns.length} cells.` };
  const row = {};
  for (const [at, { name, kind, missing }] of columns.entries()) {
    const cell = cells[at].trim();
    row[name] = cell === "" ? null : kind === "number" ? Number(cell) : cell;
    if (kind === "number" && (cell === "" ? !missing : !Number.isFinite(row[name]))) {
      return { problem: `Cell ${at + 1} (${name}) is missing or is no number.` };
    }
  }
  return { row };
}

/** A text and its fields on the page, each of which follows the other. */
function placed(place, { text, fields, names, fromText, fromFields }) {
  const labels = fields.map((field, at) => html("label.field", {}, html("span", {
    text: names[at], title: names[at],
  }), field));
  text.addEventListener("input", fromText);
  for (const field of fields) field.addEventListener("input", fromFields);
  place.replaceChildren(
    html("label.row-label", { for: "row-text", text: "Paste a row" }), text,
    html("div.fields", {}, ...labels),
  );
  return {
    set(value) {
      text.value = value;
      fromText();
    },
  };
}

/** The form of a row with categories or missing values; as `rowForm`. */
function tableForm(place, columns, tells) {
  const text = html("textarea", {
    id: "row-text", rows: 2, spellcheck: "false",
    placeholder: `${columns.length} cells, with commas, semicolons or tabs between them`,
  });
  const fields = columns.map((column) => html("input", {
    autocomplete: "off", placeholder: column.kind === "number" ? "" : column.categories.join(", "),
  }));
  const names = columns.map(({ name }) => name);

  function told(cells) {
    const { row, problem } = rowOf(cells, columns);
    if (problem) tells.onPart(problem);
    else tells.onRow(row);
  }

  function fromText() {
    const cells = text.value.trim().split(/[,;\t]/);
    fields.forEach((field, at) => {
      field.value = (cells[at] ?? "").trim();
    });
    told(cells);
  }

  function fromFields() {
    text.value = fields.map((field) => field.value).join(", ");
    told(fields.map((field) => field.value));
  }

  return placed(place, { text, fields, names, fromText, fromFields });
}

/**
 * The form of a row.
 * @param {HTMLElement} place where it goes.
 * @param {object} model as the server describes it.
 * @param {{onRow: (row: number[] | object) => void, onPart: (text: string) => void}} tells
 */
export function rowForm(place, model, tells) {
  if (model.columns?.some((each) => each.kind === "category" || each.missing)) {
    return tableForm(place, model.columns, tells);
  }
  const size = model.input.shape.reduce((product, each) => product * each, 1);
  const isText = model.input.kind === "text"; // of any length, up to that size
  const names = model.feature_names ?? Array.from({ length: size }, (_, at) => `feature ${at + 1}`);
  const text = html("textarea", {
    id: "row-text", rows: size > MOST_FIELDS ? 8 : 2, spellcheck: "false",
    placeholder: `${isText ? `1 to ${size} token ids` : `${size} numbers`}, with commas, tabs or ` +
      "spaces between them",
  });
  const fields = isText || size > MOST_FIELDS ? [] : names.map(() =>
    html("input", { inputmode: "decimal", autocomplete: "off" }));

  function told(values) {
    const bad = values.findIndex((value) => !Number.isFinite(value));
    const fits = isText ? values.length >= 1 && values.length <= size : values.length === size;
    if (!fits) {
      tells.onPart(`${values.length} of ${size} numbers.`);
    } else if (bad >= 0) {
      tells.onPart(`Number ${bad + 1} (${names[bad]}) is missing or is no number.`);
    } else {
      tells.onRow(values);
    }
  }

  function fromText() {
    const values = numbersOf(text.value, model.input.kind !== "row");
    fields.forEach((field, at) => {
      field.value = Number.isFinite(values[at]) ? values[at] : "";
    });
    told(values);
  }

  function fromFields() {
    const values = fields.map((field) => (field.value.trim() ? Number(field.value) : NaN));
    text.value = values.map((value) => (Number.isNaN(value) ? "" : value)).join(", ");
    told(values);
  }

  return placed(place, { text, fields, names, fromText, fromFields });
}

/** An array of numbers in the shape that the model takes. */
export function shaped(values, shape) {
  if (shape.length <= 1) return values;
  const step = values.length / shape[0];
  return Array.from({ length: shape[0] }, (_, at) =>
    shaped(values.slice(at * step, (at + 1) * step), shape.slice(1)));
}
