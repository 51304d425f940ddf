// The report beyond being read: theme, contents, figures. With `tables.js` and `runs.js` it is one
// script in one block. It runs in the head, so that the theme is right from the first; the rest waits
// for the body.
const root = document.documentElement;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const the = (selector, within = document) => within.querySelector(selector);

// the id that a link within the page, or the address of the page, leads to
const targetOf = (place) => decodeURIComponent(place.hash.slice(1));

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// -- theme ----------------------------------------------------------------------------------------

const KEPT = "gemfi-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");

function kept() {
  try {
    return window.localStorage.getItem(KEPT);
  } catch {
    return null; // a browser may refuse it to a file
  }
}

function keep(theme) {
  try {
    window.localStorage.setItem(KEPT, theme);
  } catch {
    // then the choice lasts as long as the page
  }
}

let chosen = ["light", "dark"].includes(kept()) ? kept() : null;
const theme = () => chosen ?? (system.matches ? "dark" : "light");

function paint() {
  if (chosen) root.dataset.theme = chosen;
  const button = the("#theme");
  if (button) button.textContent = theme() === "dark" ? "Light" : "Dark";
}

function setUpTheme() {
  the("#theme").addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    keep(chosen);
    paint();
  });
  system.addEventListener("change", paint);
  paint();
}

// -- figures --------------------------------------------------------------------------------------

function enlarge(button) {
  const figure = button.closest("figure");
  const dialog = the("#enlarged");
  const picture = the(".picture", dialog);
  const image = the("img", button);
  the("h2", dialog).textContent = the("figcaption", figure).textContent;
  picture.classList.remove("full");
  picture.replaceChildren(
    make("img", { src: the(".vectors", figure)?.href ?? image.src, alt: image.alt }));
  dialog.showModal();
}

function setUpFigures() {
  for (const button of all("button.zoom")) button.addEventListener("click", () => enlarge(button));
  const picture = the("#enlarged .picture");
  picture.addEventListener("click", () => picture.classList.toggle("full"));
  for (const dialog of all("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target !== dialog) return;
      const box = dialog.getBoundingClientRect();
      const inside = event.clientX >= box.left && event.clientX <= box.right
        && event.clientY >= box.top && event.clientY <= box.bottom;
      if (!inside) dialog.close(); // the dimmed page around it
    });
  }
}

// -- contents -------------------------------------------------------------------------------------

// scrolls the list alone, never the page
function follow(list, link) {
  const outer = list.getBoundingClientRect();
  const inner = link.getBoundingClientRect();
  if (inner.top < outer.top) list.scrollTop -= outer.top - inner.top;
  if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom;
}

function setUpContents() {
  const contents = the("#contents");
  const button = the("#show-contents");
  button.addEventListener("click", () => {
    button.setAttribute("aria-expanded", String(contents.classList.toggle("shown")));
  });
  const links = new Map(all("a", contents).map((link) => [targetOf(link), link]));
  const seen = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) seen.add(target.id);
      else seen.delete(target.id);
    }
    const current = [...links.keys()].filter((id) => seen.has(id)).pop();
    for (const [id, link] of links) {
      if (id === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    if (current) follow(contents, links.get(current));
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const id of links.keys()) {
    const target = document.getElementById(id);
    if (target) watcher.observe(target);
  }
}

// -- start ----------------------------------------------------------------------------------------

paint();
root.classList.add("scripted");
document.addEventListener("DOMContentLoaded", () => {
  the(".bar").hidden = false;
  for (const setUp of [setUpTheme, setUpSorting, setUpNumbers, setUpFilters, setUpFigures,
    setUpContents, setUpRecords]) setUp();
});
