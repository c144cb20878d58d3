"use strict";
// The step of a pipeline as a Gantt chart that plays: a line moves through it, and what runs is marked.

const SECONDS = 12;  // that a step takes to play

function startSchedule() {
  const { svg, note, runs, ranks, axis } = build.schedule;
  const pane = find("#schedule .gantt");
  pane.replaceChildren(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement);
  find("#schedule p").append(note);
  const boxes = [...pane.querySelectorAll("rect.action")];
  const left = Math.min(...boxes.map((box) => box.x.baseVal.value));
  const right = Math.max(...boxes.map((box) => box.x.baseVal.value + box.width.baseVal.value));
  const end = Math.max(...runs.map((run) => run.end));
  const line = boxes[0].cloneNode();
  line.setAttribute("class", "now");
  line.setAttribute("width", 2);
  line.setAttribute("y", 56);
  line.setAttribute("height", pane.firstChild.height.baseVal.value - 96);
  pane.firstChild.append(line);

  const button = find("#schedule button");
  const slider = find("#schedule input");
  let playing = null;  // when the line stood, or would have stood, at the start

  function show(share) {
    const now = share * end;
    line.setAttribute("x", left + share * (right - left) - 1);
    slider.value = share * slider.max;
    const doing = new Map(ranks.map((rank) => [rank, "waits"]));
    runs.forEach((run, i) => {
      const on = run.start <= now && now < run.end;
      boxes[i].classList.toggle("on", on);
      if (on) doing.set(run.rank, run.action);
    });
    find("#schedule output").replaceChildren(...[...doing].map(([rank, action]) => element("span", {}, `${axis} ${rank} `, element("b", {}, action))));
  }

  function step(time) {
    if (playing === null) return;
    const share = (time - playing) / (1000 * SECONDS);
    show(Math.min(share, 1));
    pane.scrollLeft = line.x.baseVal.value - 0.7 * pane.clientWidth;  // the line stays in sight
    if (share < 1) requestAnimationFrame(step);
    else stop();
  }

  function stop() {
    playing = null;
    button.textContent = "play";
  }

  button.addEventListener("click", () => {
    if (playing !== null) return stop();
    const from = Number(slider.value) >= slider.max ? 0 : slider.value / slider.max;
    playing = performance.now() - from * 1000 * SECONDS;
    button.textContent = "pause";
    requestAnimationFrame(step);
  });
  slider.addEventListener("input", () => { stop(); show(slider.value / slider.max); });
  show(0);
}
