// Elements of the page, made and found in few words.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * An HTML element.
 * @param {string} name its tag, with classes after dots: "p.soft".
 * @param {object} about attributes; `text` is its text, `on…` are listeners, `vars` are CSS
 *   properties, which the policy of the page allows from a script alone.
 */
export function html(name, about = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  return filled(document.createElement(tag), classes, about, children);
}

/** The same for SVG. */
export function svg(name, about = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  return filled(document.createElementNS(SVG, tag), classes, about, children);
}

function filled(element, classes, about, children) {
  element.classList.add(...classes);
  for (const [name, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "vars") setVars(element, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}

/** CSS properties of an element, by name. */
export function setVars(element, values) {
  for (const [name, value] of Object.entries(values)) element.style.setProperty(name, value);
}

/** Show or hide. */
export function shown(element, is) {
  element.hidden = !is;
}

/** Whether the reader asked for less motion. */
export function isCalm() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
