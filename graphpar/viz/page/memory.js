"use strict";
// What a rank stores, as stacked bars: one for each place along a pipeline.

const STORED = ["#1f6fb2", "#c2410c", "#d9a441", "#6b7280"];

function memoryTable({ kinds, places }) {
  const row = (tag, cells) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
  return [row("th", ["", ...kinds, "in all"]), ...places.map((place) => row("td", [place.name, ...place.said, place.total_said]))];
}

function startMemory() {
  const { unit, bytes, kinds, places } = build.memory;
  const ink = getComputedStyle(document.body).color;
  find("#memory p").append(`Bytes on one rank, without activations. ${build.facts[0]}.`);
  find("#memory table").append(...memoryTable(build.memory));
  find("#memory .chart").style.height = `${90 + Math.max(18, Math.min(46, 560 / places.length)) * places.length}px`;
  const axis = { stacked: true, ticks: { color: ink }, grid: { color: "#80808040" } };
  new Chart(find("#memory canvas"), {
    type: "bar",
    data: {
      labels: places.map((place) => place.name),
      datasets: kinds.map((kind, i) => ({
        label: kind, backgroundColor: STORED[i], maxBarThickness: 30, data: places.map((place) => place.stored[i] / bytes),
      })),
    },
    options: {
      indexAxis: "y", animation: false, maintainAspectRatio: false,
      scales: { x: { ...axis, title: { display: true, text: unit, color: ink } }, y: axis },
      plugins: {
        legend: { labels: { color: ink } },
        tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${places[item.dataIndex].said[item.datasetIndex]}` } },
      },
    },
  });
}
