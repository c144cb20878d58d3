"use strict";
// One box that finds parameters, modules, values and collectives, and goes to them.

const MOST = 14;  // results that are shown

function everyModule(module) {
  return [module, ...module.items.flatMap(everyModule)];
}

function moduleOfLine() {
  const found = {};
  for (const { module, lines } of Object.values(build.nodes)) {
    for (const line of lines) found[line] ??= module;
  }
  return found;
}

function searchable() {
  const owner = moduleOfLine();
  return [
    ...build.tensors.list.map(withLayout).map((t) => ({ kind: t.kind, text: t.name, more: t.axes, go: () => goToTensor(t) })),
    ...everyModule(build.tree).map((m) => ({ kind: "module", text: m.path || m.cls, more: `${m.cls} ${m.members}`, go: () => goTo(m.id, {}) })),
    ...Object.entries(build.exchanges).map(([node, e]) => ({ kind: "collective", text: e.title, more: e.facts.at(-1), go: () => goTo(build.nodes[node].module, { node }) })),
    ...Object.entries(build.lines).map(([line, { code }]) => ({ kind: "value", text: code, more: `line ${line}`, go: () => goTo(owner[line], { line }) })),
  ];
}

function goToTensor(tensor) {
  chooseTensor(tensor.name);
  if (tensor.module) goTo(tensor.module, { line: tensor.line });
  else openView("ranks");
}

function matches(things, words) {
  const found = things.filter(({ text, more }) => words.every((word) => `${text} ${more}`.toLowerCase().includes(word)));
  const rank = ({ text }) => (text.toLowerCase().startsWith(words[0]) ? 0 : words.every((w) => text.toLowerCase().includes(w)) ? 1 : 2);
  return found.sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
}

function startSearch() {
  const things = searchable();
  const input = find("#search input");
  const list = find("#search ol");
  let chosen = 0;
  let found = [];

  function show() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? matches(things, words) : [];
    chosen = Math.min(chosen, Math.max(found.length - 1, 0));
    list.replaceChildren(...found.map((thing, i) => element(
      "li", { class: i === chosen ? "chosen" : "", onmousedown: (event) => { event.preventDefault(); take(thing); } },
      element("span", { class: "kind" }, thing.kind), element("code", {}, thing.text), element("span", { class: "grey" }, ` ${thing.more}`))));
  }

  function take(thing) {
    input.value = "";
    show();
    input.blur();
    thing.go();
  }

  input.addEventListener("input", () => { chosen = 0; show(); });
  input.addEventListener("blur", () => list.replaceChildren());
  input.addEventListener("focus", show);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); chosen = Math.max(0, Math.min(found.length - 1, chosen + step)); show(); }
    if (event.key === "Enter" && found[chosen]) take(found[chosen]);
    if (event.key === "Escape") input.blur();
  });
}
