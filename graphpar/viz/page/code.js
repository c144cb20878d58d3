"use strict";
// The author's source beside the generated model.py. Pointing at a line marks what belongs to it on the other side.

function numbered(number, text, data) {
  const at = text.indexOf("  # ");
  const [code, comment] = at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at)];
  return element("div", { class: "line", ...data }, element("span", { class: "number" }, String(number)),
    element("code", {}, code, element("i", {}, comment)));
}

function programPane() {
  const lines = build.program.trimEnd().split("\n").map((text, i) => {
    const where = build.lines[i + 1]?.where ?? "";
    return numbered(i + 1, text, { "data-line": i + 1, ...(where ? { "data-where": where } : {}) });
  });
  return [element("h2", {}, "model.py, generated"), ...lines];
}

function sourcePane() {
  const files = Object.entries(build.quoted);
  if (!files.length) return [element("h2", {}, "source"), element("p", {}, "This build does not have the text of its source; each line on the right tells its place in it.")];
  return files.flatMap(([file, functions]) => [
    element("h2", {}, `${file}, as its author wrote it`),
    ...functions.map(({ first, text }) => element("div", { class: "function" },
      ...text.split("\n").map((line, i) => numbered(first + i, line, { "data-where": `${file}:${first + i}` })))),
  ]);
}

function together(where) {
  document.querySelectorAll("#code .line.same").forEach((line) => line.classList.remove("same"));
  const same = where ? [...document.querySelectorAll("#code .line")].filter((line) => line.dataset.where === where) : [];
  same.forEach((line) => line.classList.add("same"));
  return same;
}

function lineOf(event) {
  return event.target.closest("#code .line");
}

function follow(event) {
  const line = lineOf(event);
  if (!line) return;
  const side = line.closest("#source, #program");
  together(line.dataset.where).find((other) => !side.contains(other))?.scrollIntoView({ block: "center" });
}

function goToLine(number) {
  openView("code");
  const line = find(`#program .line[data-line="${number}"]`);
  line.scrollIntoView({ block: "center" });
  together(line.dataset.where).find((other) => other.closest("#source"))?.scrollIntoView({ block: "center" });
  document.querySelectorAll("#code .found").forEach((other) => other.classList.remove("found"));
  line.classList.add("found");
}

function startCode() {
  find("#program").append(...programPane());
  find("#source").append(...sourcePane());
  const code = find("#code");
  code.addEventListener("mousemove", (event) => {
    const line = lineOf(event);
    together(line?.dataset.where);
    const about = line?.dataset.line ? aboutLine(line.dataset.line) : [];
    if (about.length) showCard(event, ...about);
    else hideCard();
  });
  code.addEventListener("mouseleave", hideCard);
  code.addEventListener("click", follow);
}
