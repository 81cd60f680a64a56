// Draws both softmaxes of a decision and, below them, the joint grid, as one SVG of the width there is.
const FONT = 12.5, HALF = 0.35 * FONT, ROW = 27, BAR = 19, GAP = 20, CELL = 34, INSET = 8;
const SLANT = 40 * Math.PI / 180;

const measure = document.createElement("canvas").getContext("2d");

function widest(texts, family, weight = 400) {
  measure.font = `${weight} ${FONT}px ${family}`;
  return Math.max(0, ...texts.map(text => measure.measureText(text).width));
}

function titled(node, words) {
  if (words) node.append(drawn("title", {}, words));
  return node;
}

function bars(group, options, { left, top, full, words }) {
  options.forEach((option, place) => {
    const middle = top + ROW * (place + 0.5), end = left + full * option.p;
    group.append(drawn("text", { x: left - INSET, y: middle + HALF, "text-anchor": "end" }, option.name));
    group.append(titled(drawn("rect", {
      x: left, y: middle - BAR / 2, width: full * option.p, height: BAR, fill: option.colour, "fill-opacity": option.chosen ? 1 : 0.4,
    }), option.title));
    const said = drawn("text", { x: words ?? end + 5, y: middle + HALF }, option.words);
    if (option.note) said.append(drawn("tspan", { dx: 7, "font-weight": option.chosen ? 700 : 400 }, option.note));
    group.append(said);
    if (option.other !== null) {
      const x = left + full * option.other, r = 6;
      group.append(drawn("path", { d: `M${x} ${middle - r} l${r} ${r} l${-r} ${r} l${-r} ${-r} Z`, class: "other" }));
    }
  });
}

function ring(group, x, y, width, height, dashes) {
  const box = { x: x + 2, y: y + 2, width: width - 4, height: height - 4, fill: "none", "pointer-events": "none" };
  group.append(drawn("rect", { ...box, stroke: "#FFFFFF", "stroke-opacity": 0.95, "stroke-width": 5 }));
  group.append(drawn("rect", { ...box, stroke: "#111827", "stroke-width": 2.5, ...(dashes ? { "stroke-dasharray": dashes } : {}) }));
}

// A cell that can be picked is a button, by pointer and by keyboard.
function pickable(node, words, chosen, pick) {
  for (const [name, value] of Object.entries({ class: "open", tabindex: 0, role: "button", "aria-label": words, "aria-pressed": chosen }))
    node.setAttribute(name, value);
  node.addEventListener("pointerdown", event => event.preventDefault());  // the focus stays: Enter then accepts
  node.addEventListener("click", pick);
  node.addEventListener("keydown", event => {
    if (event.key !== " " && (event.key !== "Enter" || chosen)) return;
    event.preventDefault();
    event.stopPropagation();
    pick();
  });
  return node;
}

function grid(group, data, { left, top, width, cell, slanted, pick }) {
  const size = (width - left) / data.columns.length;
  data.columns.forEach((name, place) => {
    const x = left + size * (place + 0.5), y = top - 8;
    group.append(slanted
      ? drawn("text", { transform: `translate(${x - 2} ${y}) rotate(-40)` }, name)
      : drawn("text", { x, y: y - 2, "text-anchor": "middle" }, name));
  });
  const rings = drawn("g", {});
  data.cells.forEach((row, line) => {
    const y = top + cell * line;
    group.append(drawn("text", { x: left - INSET, y: y + cell / 2 + HALF, "text-anchor": "end" }, data.roles[line].name));
    row.forEach((joint, place) => {
      const x = left + size * place;
      const box = titled(drawn("rect", {
        x: x + 1, y: y + 1, width: size - 2, height: cell - 2, fill: "#3375D0", "fill-opacity": 0.03 + 0.59 * joint.heat,
      }), joint.title);
      if (data.pick?.open[place]) pickable(box, joint.title, joint.chosen, () => pick(place, line));
      group.append(box);
      group.append(drawn("text", {
        x: x + size / 2, y: y + cell / 2 + HALF, "text-anchor": "middle", "font-weight": joint.chosen ? 700 : 400,
        "pointer-events": "none",
      }, joint.percent));
      if (joint.chosen) ring(rings, x, y, size, cell, "");
      else if (joint.proposed) ring(rings, x, y, size, cell, "9 4");
      else if (joint.likeliest) ring(rings, x, y, size, cell, "3 3");
    });
  });
  group.append(rings);
}

function draw(svg, data, pick) {
  const style = getComputedStyle(svg), family = style.fontFamily;
  const width = Math.max(220, Math.floor(svg.parentElement.clientWidth));
  const both = [...data.models, ...data.roles];
  const left = Math.ceil(widest(both.map(option => option.name), family)) + INSET + 2;
  const told = option => option.words + (option.note ? `  ${option.note}` : "");
  const beside = Math.ceil(widest(both.map(told), family, 600)) + 16;
  const full = Math.max(40, width - left - beside);
  // Beside another head's diamonds the words stand where none can lie on them.
  const words = both.some(option => option.other !== null) ? left + full + 12 : null;
  const group = drawn("g", { "font-family": family, "font-size": FONT, fill: style.color });
  const columns = widest(data.columns, family), slanted = columns > (width - left) / data.columns.length - 6;
  const names = slanted ? Math.ceil(columns * Math.sin(SLANT)) + 10 : 20;
  const gridHigh = data.cells.length ? names + CELL * data.cells.length : 0;
  const barsHigh = ROW * (data.models.length + data.roles.length) + GAP;
  // What is picked from comes first; else the grid follows from the bars above it.
  const barsTop = data.pick ? gridHigh + GAP : 0;
  bars(group, data.models, { left, top: barsTop, full, words });
  bars(group, data.roles, { left, top: barsTop + ROW * data.models.length + GAP, full, words });
  const gridTop = (data.pick ? 0 : barsHigh + GAP - 6) + names;
  if (gridHigh) grid(group, data, { left, top: gridTop, width, cell: CELL, slanted, pick });
  const height = barsHigh + (gridHigh ? GAP + gridHigh - (data.pick ? 0 : 6) : 0);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height + 2);
  svg.setAttribute("viewBox", `0 0 ${width} ${height + 2}`);
  const held = svg.querySelector(".open:focus")?.getAttribute("aria-label");
  svg.replaceChildren(group);
  if (held) [...svg.querySelectorAll(".open")].find(cell => cell.getAttribute("aria-label") === held)?.focus({ preventScroll: true });
}

// Keys of the whole page while a pair is picked: they rest in fields and dialogs, and Enter on whatever it presses itself.
function keysOf(data, pick, accept) {
  const chosen = () => {
    for (const [line, row] of data.cells.entries())
      for (const [place, joint] of row.entries()) if (joint.chosen) return [place, line];
    return [0, 0];
  };
  return event => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const at = event.composedPath()[0];
    if (at.closest?.("input, textarea, select, [contenteditable=true], [role=listbox], [role=dialog]")) return;
    if (document.querySelector("[role=dialog]")) return;
    if (event.key === "Enter") {
      if (at.matches?.(".open") || !at.closest?.("button, a, summary, [role=button], [role=radio], [role=tab]")) accept();
      return;
    }
    const [place, line] = chosen();
    const model = Number(event.key) - 1, role = data.pick.letters.indexOf(event.key.toUpperCase());
    if (event.key !== " " && data.pick.open[model]) pick(model, line);
    else if (role >= 0) pick(place, role);
  };
}

function handOver(blob, name) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function save(svg, { name, format }) {
  const alone = svg.cloneNode(true);
  alone.setAttribute("xmlns", SVG);
  for (const other of alone.querySelectorAll(".other"))  // no style sheet goes with it
    for (const [key, value] of Object.entries({ fill: "none", stroke: "#C2410C", "stroke-width": 2 }))
      other.setAttribute(key, value);
  const file = new Blob([new XMLSerializer().serializeToString(alone)], { type: "image/svg+xml" });
  if (format === "svg") return handOver(file, `${name}.svg`);
  const image = new Image();
  image.onload = () => {
    const canvas = element("canvas");
    canvas.width = 2 * image.width;
    canvas.height = 2 * image.height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    canvas.toBlob(blob => handOver(blob, `${name}.png`));
  };
  image.src = URL.createObjectURL(file);
}

// What ends the listening of each chart. Streamlit asks for it when a chart leaves the page, not when it is given new
// data: whoever listened for the data before would draw them over the new ones as soon as the width changes.
const ends = new WeakMap();

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const svg = parentElement.querySelector("svg.odds");
  const camera = parentElement.querySelector("button");
  if (!svg || !camera || !data) return;
  ends.get(svg)?.();
  svg.setAttribute("aria-label", data.said);
  camera.hidden = Boolean(data.pick);  // it would lie over a cell
  camera.title = `Save as ${data.saved.format.toUpperCase()}`;
  camera.setAttribute("aria-label", camera.title);
  camera.onclick = () => save(svg, data.saved);
  const pick = (...pair) => setTriggerValue("pick", pair);
  svg.setAttribute("role", data.pick ? "group" : "img");
  draw(svg, data, pick);
  let width = svg.parentElement.clientWidth;
  const watch = new ResizeObserver(() => {
    if (svg.parentElement.clientWidth === width) return;
    width = svg.parentElement.clientWidth;
    draw(svg, data, pick);
  });
  watch.observe(svg.parentElement);
  const keys = data.pick ? keysOf(data, pick, () => setTriggerValue("accept", true)) : null;
  if (keys) document.addEventListener("keydown", keys);
  const end = () => {
    watch.disconnect();
    if (keys) document.removeEventListener("keydown", keys);
  };
  ends.set(svg, end);
  return end;
}
