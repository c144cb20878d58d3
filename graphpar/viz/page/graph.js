"use strict";
// One picture at a time: laid out by graphviz, moved by svg-pan-zoom, and asked about by pointing at it.

const drawings = {};  // the SVG of each picture that was laid out
let graphviz;
let shown = "";
let panZoom;

function loadGraphviz() {
  const text = document.getElementById("layout").textContent;
  graphviz ??= import(URL.createObjectURL(new Blob([text], { type: "text/javascript" }))).then((m) => m.Graphviz.load());
  return graphviz;
}

async function showPicture(name) {
  if (shown === name) return;
  drawings[name] ??= (await loadGraphviz()).layout(build.pictures[name], "svg", "dot");
  shown = name;
  panZoom?.destroy();
  const svg = new DOMParser().parseFromString(drawings[name], "image/svg+xml").documentElement;
  const box = svg.viewBox.baseVal;
  const size = { width: box.width, height: box.height };
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  prepare(svg);
  find("#drawing").replaceChildren(svg);
  panZoom = svgPanZoom(svg, { controlIconsEnabled: true, fit: true, center: false, dblClickZoomEnabled: false, minZoom: 0.1, maxZoom: 60 });
  toWidth(size);
  showTrail(name);
  markTree(name);
}

// As wide as the pane where that can be read, with the top in sight.
function toWidth({ width }) {
  const pane = find("#drawing").getBoundingClientRect();
  const scale = Math.min(1.35, Math.max(1, (pane.width - 24) / width));
  panZoom.zoom((panZoom.getZoom() * scale) / panZoom.getSizes().realZoom);
  panZoom.pan({ x: Math.max(8, (pane.width - width * scale) / 2), y: 0 });
}

// Names go from graphviz's titles, which a browser would show, to where we find them.
function prepare(svg) {
  for (const group of svg.querySelectorAll("g.node, g.edge, g.cluster")) {
    const title = group.querySelector("title");
    group.dataset.name = title.textContent;
    title.remove();
  }
  for (const row of svg.querySelectorAll("g[id^='a_line']")) {
    row.dataset.line = row.id.replace("a_line", "");
    row.removeAttribute("id");  // each of its cells has the same
  }
  svg.querySelectorAll("a").forEach((link) => link.removeAttributeNS("http://www.w3.org/1999/xlink", "title"));
  svg.querySelector("g.graph > title")?.remove();
  for (const path of svg.querySelectorAll("g.edge > path")) {
    const wide = path.cloneNode();
    wide.setAttribute("class", "wide");
    path.after(wide);
  }
}

function lineAt(target) {
  return target.closest("g[data-line]")?.dataset.line;
}

function pointAt(event) {
  const line = lineAt(event.target);
  const node = event.target.closest("g.node");
  const edge = event.target.closest("g.edge");
  const about = line ? aboutLine(line) : node ? aboutNode(node.dataset.name) : edge ? aboutEdge(edge.dataset.name) : [];
  if (about.length) showCard(event, ...about);
  else hideCard();
}

function aboutEdge(name) {
  const [tail] = name.split("->");
  return [element("p", { class: "grey" }, "what flows here is made by"), ...aboutNode(tail)];
}

function showTrail(name) {
  const path = pathTo(build.tree, name);
  const steps = path.map((module) => element("button", { type: "button", onclick: () => showPicture(pictureOf(module)) }, module.path || module.cls));
  find("#trail").replaceChildren(element("span", {}, ...steps), element("small", { class: "grey" }, build.facts.join(" · ")));
}

function pictureOf(module) {
  return module.id in build.pictures ? module.id : build.overview;
}

function pathTo(module, name) {
  if (pictureOf(module) === name) return [module];
  const below = module.items.map((item) => pathTo(item, name)).find((path) => path.length);
  return below ? [module, ...below] : [];
}

// Show a module's picture with one of its nodes or lines in the middle.
async function goTo(module, { line, node }) {
  openView("graph");
  await showPicture(module in build.pictures ? module : build.overview);
  const svg = find("#drawing svg");
  const wanted = [...svg.querySelectorAll(line ? `g[data-line="${line}"]` : "g.node")].filter((g) => line || g.dataset.name === node);
  svg.querySelectorAll(".found").forEach((g) => g.classList.remove("found"));
  wanted.forEach((g) => g.classList.add("found"));
  if (wanted.length) toSight(wanted[0]);
}

function toSight(group) {
  const pane = find("#drawing").getBoundingClientRect();
  const box = group.getBoundingClientRect();
  if (box.top > pane.top && box.bottom < pane.bottom && box.left > pane.left && box.right < pane.right) return;
  panZoom.panBy({ x: pane.x + pane.width / 2 - box.x - box.width / 2, y: pane.y + pane.height / 2 - box.y - box.height / 2 });
}

function startGraph() {
  const pane = find("#drawing");
  let down = null;
  pane.addEventListener("mousemove", pointAt);
  pane.addEventListener("mouseleave", hideCard);
  pane.addEventListener("mousedown", (event) => { down = [event.clientX, event.clientY]; }, true);
  pane.addEventListener("click", (event) => {
    const dragged = down && Math.hypot(event.clientX - down[0], event.clientY - down[1]) > 4;
    if (dragged) return;
    const line = lineAt(event.target);
    const cluster = event.target.closest("g.cluster");
    if (line) goToLine(line);
    else if (cluster) showPicture(cluster.dataset.name.replace("cluster_", ""));
  });
  return showPicture(build.overview);
}
