"use strict";
// The card beside the pointer: what is known of the thing below it.

function showCard(event, ...children) {
  const card = find("#card");
  card.replaceChildren(...children);
  card.hidden = false;
  const { width, height } = card.getBoundingClientRect();
  const right = event.clientX + 16 + width > innerWidth;
  const below = event.clientY + 16 + height > innerHeight;
  card.style.left = `${Math.max(4, right ? event.clientX - 16 - width : event.clientX + 16)}px`;
  card.style.top = `${Math.max(4, below ? event.clientY - 16 - height : event.clientY + 16)}px`;
}

function hideCard() {
  find("#card").hidden = true;
}

function aboutValues(values) {
  return values.flatMap(({ pieces, states }) => [element("p", {}, namedAxes(pieces)), statesTable(states)]);
}

function aboutTensor(name) {
  const tensor = tensorOf(name);
  const sizes = tensor.shape.join(" × ") || "scalar";
  const here = tensor.local.join(" × ") || "scalar";
  return element(
    "div", { class: "tensor" }, element("code", {}, tensor.name), " ", namedAxes(tensor.pieces),
    element("span", { class: "grey" }, here === sizes ? ` ${sizes}` : ` ${here} of ${sizes}`),
  );
}

function aboutLine(number) {
  const line = build.lines[number];
  if (!line) return [];
  const source = line.where ? `from ${line.where}${line.module ? ` in ${line.module}` : ""}` : "";
  return [
    element("p", { class: "said" }, element("code", {}, line.code)),
    ...aboutValues(line.values),
    ...line.tensors.map(aboutTensor),
    element("p", { class: "grey" }, element("span", { class: "where" }, source), source ? " · " : "", `line ${number} of model.py`),
  ];
}

function aboutExchange(name) {
  const exchange = build.exchanges[name];
  const [line] = build.nodes[name].lines;
  return [
    element("h3", {}, exchange.title),
    ...exchange.facts.map((fact) => element("p", {}, fact)),
    ...(line ? aboutLine(line) : aboutValues(exchange.values)),
  ];
}

function aboutNode(name) {
  if (name in build.exchanges) return aboutExchange(name);
  if (name in build.ends) return [element("h3", {}, build.ends[name].name), ...aboutValues(build.ends[name].values)];
  const lines = build.nodes[name]?.lines ?? [];
  return lines.length ? aboutLine(lines.at(-1)) : [];
}

function tensorOf(name) {
  return withLayout(build.tensors.list.find((tensor) => tensor.name === name));
}

function withLayout(tensor) {
  return { ...build.tensors.layouts[tensor.layout], ...tensor };
}
