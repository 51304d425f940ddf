// Runs: the way from a number to the records that it comes from, and what a record shows.
// -- from a number to its runs --------------------------------------------------------------------

// the group's head and the column's own
function headOf(table, at) {
  const head = the(`th[data-column="${at}"]`, table);
  let column = 0;
  let group = "";
  for (const each of table.tHead.rows[0].cells) {
    if (column <= at && at < column + each.colSpan && each.scope === "colgroup") {
      group = `${each.textContent}, `;
    }
    column += each.colSpan;
  }
  return group + head.textContent;
}

function runLink(key) {
  const record = document.getElementById(`run-${key}`);
  if (!record) return make("li", {}, `${key}: its record is not in this report`);
  return make("li", {},
    make("a", { href: `#run-${key}`, textContent: the(".name", record).textContent }), ` ${key}`);
}

function showRuns(cell) {
  const table = cell.closest("table");
  const name = the(".said", cell.parentElement) ?? the("th", cell.parentElement);
  const keys = cell.dataset.keys.split(" ");
  const dialog = the("#runs-of");
  the("h2", dialog).textContent = name.textContent;
  const shown = make("span", {}, ...[...the("button", cell).childNodes].map((e) => e.cloneNode(true)));
  all("sup", shown).forEach((each) => each.remove());
  const count = keys.length === 1 ? "one run" : `${keys.length} runs`;
  the(".value", dialog).textContent = table.matches(".ledger")
    ? `Rests on ${count}:` : `${headOf(table, cell.cellIndex)}: ${shown.textContent}, from ${count}:`;
  the("ol", dialog).replaceChildren(...keys.map(runLink));
  dialog.showModal();
}

// one stop of the tabulator a table; the arrows go on from there
function setUpNumbers() {
  for (const table of all("figure.table table")) {
    all("td[data-keys]", table).forEach((cell, index) => {
      const button = make("button", {
        type: "button", className: "value", title: "Its runs", tabIndex: index ? -1 : 0,
      });
      button.append(...cell.childNodes);
      cell.append(button);
    });
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("td[data-keys]");
      if (cell) showRuns(cell);
    });
    table.addEventListener("keydown", move);
  }
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function move(event) {
  const button = event.target.closest("button.value");
  const step = STEPS[event.key];
  if (!button || !step) return;
  event.preventDefault();
  const table = event.currentTarget;
  const rows = all("tbody tr:not(.section, .left-out)", table);
  let row = rows.indexOf(button.closest("tr")) + step[0];
  let column = button.closest("td").cellIndex + step[1];
  for (; rows[row]?.cells[column]; row += step[0], column += step[1]) {
    const next = the("button.value", rows[row].cells[column]);
    if (!next) continue;
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    return;
  }
}

// -- records --------------------------------------------------------------------------------------

function reveal() {
  const id = targetOf(window.location);
  const target = id ? document.getElementById(id) : null;
  if (!target) return;
  for (let each = target; each; each = each.parentElement) {
    each.classList.remove("left-out");
    if (each.matches("details.group, details.run")) each.open = true;
  }
  target.scrollIntoView();
  if (target.matches("details.run")) the("summary", target).focus({ preventScroll: true });
}

function uses(record) {
  const key = record.id.slice("run-".length);
  const figures = all(`td[data-keys~="${CSS.escape(key)}"]`).map((td) => td.closest("figure"));
  const links = [...new Set(figures)].map((figure) =>
    make("a", { href: `#${figure.id}`, textContent: figure.id }));
  if (!links.length) return;
  const line = make("p", { className: "uses" }, "Numbers of this run are in ");
  links.forEach((link, index) => line.append(index ? ", " : "", link));
  the(".facets", record).after(line);
}

async function unpack(pre) {
  const packed = pre.dataset.packed;
  delete pre.dataset.packed;
  if (!("DecompressionStream" in window)) {
    pre.textContent = "This browser cannot unpack it; the same is a line of records.jsonl.";
    return;
  }
  const bytes = Uint8Array.from(window.atob(packed), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  pre.textContent = laidOut(await new Response(stream).text());
}

// JSON over many lines, each number as it is recorded
function laidOut(text) {
  let depth = 0;
  const line = (step) => {
    depth += step;
    return `\n${" ".repeat(depth)}`;
  };
  return text.replace(/"(?:[^"\\]|\\.)*"|\{\}|\[\]|[{[\]}]|, /g, (token) => {
    if (token === "{" || token === "[") return token + line(1);
    if (token === "}" || token === "]") return line(-1) + token;
    return token === ", " ? `,${line(0)}` : token;
  });
}

function opened(event) {
  const details = event.target;
  if (!details.open) return;
  if (details.matches("details.run") && !the(".uses", details)) uses(details);
  const pre = details.matches("details.raw") ? the("pre[data-packed]", details) : null;
  if (pre) unpack(pre);
}

function setUpRecords() {
  document.addEventListener("toggle", opened, true); // it does not bubble
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link) return;
    link.closest("dialog")?.close();
    the("#contents").classList.remove("shown");
    the("#show-contents").setAttribute("aria-expanded", "false");
    if (link.hash === window.location.hash) reveal(); // else the hash changes, and that reveals
  });
  const openAll = the(".open-all");
  openAll?.addEventListener("click", () => {
    const open = openAll.textContent === "Open all";
    for (const each of all("details.group, details.run")) each.open = open;
    openAll.textContent = open ? "Close all" : "Open all";
  });
  reveal();
}
