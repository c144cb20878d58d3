"use strict";
// The head of the page, and its views: each is made when it is first looked at.

const VIEWS = {
  graph: { title: "Graph", start: startGraph },
  code: { title: "Source and program", start: startCode },
  collectives: { title: "Collectives", start: startCollectives },
  memory: { title: "Memory", start: startMemory },
  ...(build.schedule ? { schedule: { title: "Schedule", start: startSchedule } } : {}),
  ranks: { title: "Who has which part", start: startRanks },
};
const started = new Set();

function showView() {
  const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "graph";
  hideCard();
  document.querySelectorAll("main > section").forEach((section) => section.classList.toggle("current", section.id === name));
  document.querySelectorAll("nav a").forEach((link) => link.classList.toggle("current", link.hash === `#${name}`));
  if (started.has(name)) return;
  started.add(name);
  VIEWS[name].start();
}

function openView(name) {
  location.hash = `#${name}`;
  showView();
}

function startHead() {
  find("#model").append(build.model, element("small", {}, build.source));
  find("#mesh").append(...build.mesh.map(({ axis, ranks }) => chip(axis, `${axis} = ${ranks}`)), `${build.ranks} ranks`);
  find("#layout-rules").append(...build.layout.map(({ rule, colour }) => element("code", { style: `--axis: ${colour}` }, rule)));
  find("nav").append(...Object.entries(VIEWS).map(([name, { title }]) => element("a", { href: `#${name}` }, title)));
}

startHead();
startTree();
startSearch();
addEventListener("hashchange", showView);
showView();
