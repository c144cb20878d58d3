"use strict";
// The mesh with one cell per rank, coloured by which part of a chosen tensor it holds.

const MANY = 64;  // ranks, above which a cell has its number alone

function partColour(part, of) {
  return `hsl(${Math.round(210 + (part * 360) / of) % 360} 55% 42%)`;
}

function slices(tensor, part) {
  const rows = part.map((held, dim) => element("tr", {}, element("td", {}, tensor.dims[dim]), element("td", {}, held)));
  return element("table", { class: "states" }, ...(rows.length ? rows : [element("tr", {}, element("td", {}, "a single number"))]));
}

function cell(rank, tensor) {
  const { parts, of } = tensor;
  const part = of[rank];
  const none = part === null;
  const look = none ? "" : `background: ${partColour(part, parts.length)}; color: #fff`;
  const about = (event) => showCard(event, element("h3", {}, `rank ${rank}: ${place(rank)}`),
    none ? element("p", {}, "its stages do not have this tensor") : slices(tensor, parts[part]));
  return element("div", { class: none ? "cell none" : "cell", style: look, "data-rank": rank, onmousemove: about, onmouseleave: hideCard },
    element("span", {}, "rank "), String(rank), element("small", {}, none ? "none" : `part ${part}`));
}

function coordinates(rank) {
  const found = [];
  for (const { axis, ranks } of [...build.mesh].reverse()) {
    found.unshift([axis, rank % ranks]);
    rank = Math.floor(rank / ranks);
  }
  return found;
}

function place(rank) {
  return coordinates(rank).map(([axis, index]) => `${axis} ${index}`).join(", ");
}

// The last axis counts across, the one before it down; the others give a block each.
function blocks(tensor) {
  const across = build.mesh.at(-1)?.ranks ?? 1;
  const down = build.mesh.at(-2)?.ranks ?? 1;
  const count = build.ranks / (across * down);
  return Array.from({ length: count }, (_, block) => {
    const first = block * across * down;
    const words = coordinates(first).slice(0, -2).map(([axis, index]) => `${axis} ${index}`).join(", ");
    const rows = Array.from({ length: down }, (_, row) => element("tr", {},
      ...(build.mesh.length > 1 ? [element("th", {}, chip(build.mesh.at(-2).axis, `${build.mesh.at(-2).axis} ${row}`))] : []),
      ...Array.from({ length: across }, (_, i) => element("td", {}, cell(first + row * across + i, tensor)))));
    const head = element("tr", {}, ...(build.mesh.length > 1 ? [element("th")] : []),
      ...Array.from({ length: across }, (_, i) => element("th", {}, build.mesh.length ? chip(build.mesh.at(-1).axis, `${build.mesh.at(-1).axis} ${i}`) : "")));
    return element("div", {}, element("h3", {}, words), element("table", {}, head, ...rows));
  });
}

function partList(tensor) {
  const { parts, of } = tensor;
  return parts.map((part, i) => {
    const holders = of.flatMap((held, rank) => (held === i ? [rank] : []));
    return element("li", { style: `--part: ${partColour(i, parts.length)}` },
      element("b", {}, `part ${i}`), ` on rank${holders.length > 1 ? "s" : ""} ${holders.join(" ")}`, slices(tensor, part));
  });
}

let chosen = null;  // the tensor that is shown, or will be when its view is opened

function chooseTensor(name) {
  chosen = name;
  if (started.has("ranks")) showTensor(name);
}

function showTensor(name) {
  const tensor = tensorOf(name);
  find("#ranks select").value = name;
  const sums = tensor.grad_sum.length ? `; its gradient is summed over ${tensor.grad_sum.join(" ")}` : "";
  find("#ranks .about").replaceChildren(
    element("p", {}, namedAxes(tensor.pieces), ` ${tensor.kind}, ${tensor.dtype}, ${tensor.shape.join(" × ") || "scalar"}, on a rank ${tensor.local.join(" × ") || "scalar"}${sums}`),
    statesTable(tensor.states));
  find("#ranks .mesh").classList.toggle("many", build.ranks > MANY);
  find("#ranks .mesh").replaceChildren(...blocks(tensor));
  find("#ranks .parts").replaceChildren(...partList(tensor));
}

function startRanks() {
  const select = find("#ranks select");
  select.append(...build.tensors.list.map(({ name }) => element("option", { value: name }, name)));
  select.addEventListener("change", () => chooseTensor(select.value));
  const cut = build.tensors.list.find(({ layout }) => build.tensors.layouts[layout].parts.length > 1);
  const first = chosen ?? (cut ?? build.tensors.list[0])?.name;
  if (first) showTensor(first);
}
