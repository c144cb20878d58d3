"use strict";
// The document of the build, and elements made of it: a name from a model is text, never markup.

const build = JSON.parse(document.getElementById("build").textContent);
const colourOf = Object.fromEntries(build.mesh.map(({ axis, colour }) => [axis, colour]));

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function find(selector) {
  return document.querySelector(selector);
}

function chip(axis, text = axis) {
  return element("span", { class: "chip", style: `background: ${colourOf[axis] ?? "#6b7280"}` }, text);
}

// Named axes with the marks of mesh axes in their colours.
function namedAxes(pieces) {
  const parts = pieces.map(([text, axis]) => (axis ? element("b", { style: `--axis: ${colourOf[axis]}` }, text) : text));
  return element("code", { class: "axes" }, ...parts);
}

function statesTable(states) {
  const rows = states.map(({ axis, state }) => element("tr", {}, element("td", {}, chip(axis)), element("td", {}, state)));
  return element("table", { class: "states" }, ...rows);
}
