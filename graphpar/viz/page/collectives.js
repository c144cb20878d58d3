"use strict";
// Every collective of a step as a table that sorts and filters.

function column(title, field, more = {}) {
  return { title, field, headerFilter: "input", ...more };
}

function choice(title, field, more = {}) {
  return column(title, field, { headerFilter: "list", headerFilterParams: { valuesLookup: true, clearable: true }, ...more });
}

function bytes(title, field, said) {
  const least = { headerFilter: "number", headerFilterPlaceholder: "at least", headerFilterFunc: ">=" };
  return column(title, field, { ...least, hozAlign: "right", width: 112, formatter: (cell) => element("span", { title: `${cell.getValue()} B` }, cell.getData()[said]) });
}

function axisCell(cell) {
  return element("span", {}, ...cell.getValue().split(" ").map((axis) => chip(axis)));
}

function startCollectives() {
  const places = build.collectives.some((row) => row.place);
  find("#collectives p").append(
    `Bytes that a rank hands over${places ? ", at each place of the pipeline" : ""}; ${build.facts[2]}. A click on a row shows it in the graph.`,
  );
  const table = new Tabulator("#collectives > div", {
    data: build.collectives,
    layout: "fitColumns",
    height: "calc(100vh - 150px)",
    columnDefaults: { headerTooltip: false, tooltip: false, formatter: "plaintext" },
    columns: [
      ...(places ? [choice("place", "place", { width: 80 })] : []),
      choice("phase", "phase", { width: 92 }),
      choice("kind", "kind", { width: 120 }),
      choice("over", "axis", { width: 84, formatter: axisCell }),
      column("count", "count", { width: 76, hozAlign: "right", headerFilter: "number" }),
      bytes("bytes each", "each", "said"),
      bytes("bytes in all", "total", "total_said"),
      column("module", "module", { widthGrow: 2, minWidth: 120 }),
      column("reason", "reason", { widthGrow: 2, minWidth: 120 }),
      column("rule", "rule", { widthGrow: 1.4, minWidth: 90 }),
    ],
  });
  table.on("rowClick", (_, row) => {
    const { node } = row.getData();
    if (node) goTo(build.nodes[node].module, { node });
  });
}
