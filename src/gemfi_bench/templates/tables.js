// Tables: sorting by a click on a head, and the filters by method and by words.
// -- sorting --------------------------------------------------------------------------------------

const rowsOf = (body) => [...body.rows].filter((row) => !row.classList.contains("section"));

// numbers before texts before nothing, whatever the direction
function sortKey(row, at) {
  const cell = row.cells[at];
  const given = cell.dataset.value;
  if (given !== undefined) {
    const number = Number(given.replace("inf", "Infinity"));
    if (!Number.isNaN(number)) return { rank: 0, number };
  }
  const text = cell.textContent.trim();
  return cell.classList.contains("undefined") || !text ? { rank: 2 } : { rank: 1, text };
}

function compare(one, other, sign) {
  if (one.rank !== other.rank) return one.rank - other.rank;
  if (one.rank === 0) return one.number === other.number ? 0 : sign * (one.number - other.number);
  return one.rank === 1 ? sign * one.text.localeCompare(other.text, "en", { numeric: true }) : 0;
}

function sort(table, at, direction) {
  for (const body of table.tBodies) {
    const rows = rowsOf(body).sort((one, other) => one.dataset.order - other.dataset.order);
    if (direction) {
      const sign = direction === "ascending" ? 1 : -1;
      const keys = new Map(rows.map((row) => [row, sortKey(row, at)]));
      rows.sort((one, other) => compare(keys.get(one), keys.get(other), sign));
    }
    body.append(...rows);
  }
  for (const head of all("th[data-column]", table)) {
    if (direction && Number(head.dataset.column) === at) head.setAttribute("aria-sort", direction);
    else head.removeAttribute("aria-sort");
  }
}

// the better end first; a third time gives the order of the paper
function nextDirection(head, table) {
  const at = Number(head.dataset.column);
  const numeric = [...table.tBodies].some((body) =>
    rowsOf(body).some((row) => row.cells[at].dataset.value !== undefined));
  const falling = numeric && !head.textContent.includes("↓") && !table.matches(".ledger");
  const order = falling ? ["descending", "ascending", null] : ["ascending", "descending", null];
  return order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % order.length];
}

function setUpSorting() {
  for (const table of all("figure.table table")) {
    let order = 0;
    for (const body of table.tBodies) {
      for (const row of rowsOf(body)) row.dataset.order = order++;
    }
    for (const head of all("th[data-column]", table)) {
      const button = make("button", { type: "button", className: "sort", title: "Sort" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        sort(table, Number(head.dataset.column), nextDirection(head, table));
      });
    }
  }
}

// -- filters --------------------------------------------------------------------------------------

const texts = new WeakMap();

function textOf(element, read) {
  if (!texts.has(element)) texts.set(element, read(element).toLowerCase());
  return texts.get(element);
}

const describe = (card) =>
  [card.dataset.card, ...all("figcaption, thead, p", card).map((e) => e.textContent)].join(" ");

function leaveOut(element, out) {
  element.classList.toggle("left-out", out);
  return !out;
}

function state() {
  const boxes = all("#methods input");
  const off = new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
  const words = the("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const count = the("#methods .count");
  if (count) count.textContent = off.size ? `${boxes.length - off.size} of ${boxes.length}` : "";
  return { off, words, active: off.size > 0 || words.length > 0 };
}

const isMatch = (words, text) => words.every((word) => text.includes(word));

function filterTable(card, table, { off, words }) {
  const about = textOf(card, describe);
  let shown = 0;
  for (const body of table.tBodies) {
    const heading = the("tr.section", body);
    const before = `${about} ${heading ? heading.textContent.toLowerCase() : ""}`;
    let here = 0;
    for (const row of rowsOf(body)) {
      const text = `${before} ${textOf(row, (each) => each.textContent)}`;
      here += leaveOut(row, off.has(row.dataset.method) || !isMatch(words, text));
    }
    if (heading) leaveOut(heading, !here);
    shown += here;
  }
  leaveOut(card, words.length > 0 && !shown);
  the(".emptied", card)?.remove();
  if (!shown && !words.length && rowsOf(table.tBodies[0]).length) {
    const remark = "Every row is of a method that is not chosen.";
    the(".scroll", card).after(make("p", { className: "emptied", textContent: remark }));
  }
  return shown;
}

function filterRuns({ off, words, active }) {
  let shown = 0;
  for (const group of all("details.group")) {
    const name = the("summary", group);
    let here = 0;
    const runs = all("details.run", group);
    for (const run of runs) {
      const text = textOf(run, () => `${name.firstChild.textContent} ${the("summary", run).textContent}`);
      here += leaveOut(run, off.has(run.dataset.method) || !isMatch(words, text));
    }
    leaveOut(group, active && !here);
    the(".count", name).textContent = here < runs.length ? `${here} of ${runs.length}` : runs.length;
    shown += here;
  }
  return shown;
}

function filter() {
  const wanted = state();
  const found = { rows: 0, figures: 0 };
  for (const card of all("[data-card]")) {
    const table = the("table", card);
    if (table) found.rows += filterTable(card, table, wanted);
    else {
      const shown = leaveOut(card, !isMatch(wanted.words, textOf(card, describe)));
      found.figures += shown && card.matches(".plot");
    }
  }
  const runs = filterRuns(wanted);
  the("#found").textContent = wanted.active
    ? `${found.rows} rows, ${found.figures} figures, ${runs} runs` : "";
}

function setUpFilters() {
  the("#search").addEventListener("input", filter);
  const methods = the("#methods");
  if (!methods) return;
  methods.addEventListener("change", filter);
  methods.addEventListener("click", (event) => {
    const choice = event.target.dataset.choose;
    if (!choice) return;
    for (const box of all("input", methods)) box.checked = choice === "all";
    filter();
  });
  document.addEventListener("click", (event) => {
    if (!methods.contains(event.target)) methods.open = false;
  });
  methods.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    methods.open = false;
    the("summary", methods).focus();
  });
  filter(); // a browser may bring back what was typed before a reload
}
