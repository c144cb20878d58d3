"use strict";
// The modules as a tree that folds. A name opens the module's own picture; dots say over which axes it communicates.

function branch(module, parent) {
  const name = parent && module.path.startsWith(`${parent.path}.`) ? module.path.slice(parent.path.length + 1) : module.path;
  const label = element(
    "a", { href: "#graph", title: `${module.path} ${module.cls}`, "data-module": module.id, onclick: () => showPicture(pictureOf(module)) },
    name || module.cls, module.members ? element("b", {}, ` ${module.members}`) : "",
    ...module.over.map((axis) => element("i", { class: "dot", style: `background: ${colourOf[axis]}`, title: `communicates over ${axis}` })),
  );
  if (!module.items.length) return element("div", { class: "leaf" }, label);
  return element("details", { open: "" }, element("summary", {}, label), ...module.items.map((item) => branch(item, module)));
}

function markTree(name) {
  const path = pathTo(build.tree, name);
  const current = path.at(-1)?.id;
  document.querySelectorAll("#tree a").forEach((link) => link.classList.toggle("current", link.dataset.module === current));
}

function startTree() {
  find("#tree").append(branch(build.tree, null));
}
