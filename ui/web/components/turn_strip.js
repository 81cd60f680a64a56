// Draws lanes of turn cells, moves the cursor at once on a click and tells Python where to go.
const OUTLINES = {
  circle: ["circle", { cx: 12, cy: 12, r: 11 }],
  square: ["rect", { x: 1.5, y: 1.5, width: 21, height: 21, rx: 3 }],
  triangle: ["path", { d: "M12 0.5 L23.5 22.5 L0.5 22.5 Z" }],
};

function token(cell) {
  const svg = drawn("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" });
  const [tag, attributes] = OUTLINES[cell.shape] ?? OUTLINES.square;
  svg.append(drawn(tag, { ...attributes, fill: cell.colour }));
  const letter = drawn("text", {
    x: 12, y: cell.shape === "triangle" ? 20 : 16.6, "text-anchor": "middle",
    "font-size": cell.shape === "triangle" ? 12 : 13.5, "font-weight": 700, fill: cell.ink,
  }, cell.letter);
  svg.append(letter);
  return svg;
}

function marked(mark, className) {
  const node = element("span", `${className} ${mark.tone}`);
  node.append(element("span", "", mark.glyph), element("span", "word", ` ${mark.word}`));
  return node;
}

function drawCell(cell, column) {
  const button = element("button", cell.pending ? "cell pending" : "cell");
  button.type = "button";
  button.style.setProperty("--model", cell.colour);
  button.title = cell.label;
  button.dataset.column = column;
  button.setAttribute("aria-label", cell.label);
  button.tabIndex = -1;
  const top = element("span", "top");
  top.append(token(cell), element("span", "model", cell.model));
  if (cell.verdict) top.append(marked(cell.verdict, "verdict"));
  const answer = element("span", cell.answer.tone === "quiet" ? "answer quiet" : "answer");
  answer.append(element("span", cell.answer.tone, cell.answer.glyph), element("span", "", cell.answer.word));
  button.append(top, answer);
  if (cell.marks.length) {
    const marks = element("span", "marks");
    marks.append(...cell.marks.map(mark => marked(mark, "mark")));
    button.append(marks);
  }
  const entropy = element("span", "entropy");
  if (cell.entropy !== null) {
    const level = element("i");
    level.style.width = `${Math.round(100 * cell.entropy)}%`;
    entropy.append(level);
  }
  button.append(entropy);
  return button;
}

// What an item shows, as text: a step changes few cells, so the others stay as they are.
const SHOWS = new WeakMap();

function keepOnly(parent, count) {
  while (parent.childElementCount > count) parent.lastElementChild.remove();
}

function drawItem(list, place, what, draw) {
  const old = list.children[place];
  if (old && SHOWS.get(old) === what) return old;
  const item = draw();
  SHOWS.set(item, what);
  if (old) old.replaceWith(item);
  else list.append(item);
  return item;
}

function drawLane(lanes, row, lane, data, go) {
  const list = lanes.children[row] ?? lanes.appendChild(element("ol"));
  list.className = lane.name ? "lane named" : "lane";
  const names = lane.name ? 1 : 0;
  keepOnly(list, names + lane.cells.length);
  if (names) drawItem(list, 0, lane.name, () => element("li", "name", lane.name));
  lane.cells.forEach((cell, place) => {
    const column = data.first + place;  // of a long episode only the turns around the cursor are here
    const item = drawItem(list, names + place, `${column} ${JSON.stringify(cell)}`, () => {
      const fresh = element("li");
      fresh.append(cell === null ? drawGap() : drawCell(cell, column));
      return fresh;
    });
    const button = item.querySelector("button.cell");
    if (button) button.onclick = () => go(column);
  });
}

function drawGap() {
  const gap = element("span", "gap", "–");
  gap.title = "no turn here";
  return gap;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".strip");
  const lanes = parentElement.querySelector(".lanes");
  const said = parentElement.querySelector(".said");
  if (!root || !lanes || !said || !data) return;

  const focused = lanes.contains(parentElement.activeElement ?? null);
  const scrolled = lanes.scrollLeft;
  root.classList.toggle("compact", data.compact);
  lanes.setAttribute("aria-label", data.name);

  const select = column => {
    for (const button of lanes.querySelectorAll("button.cell")) {
      const here = Number(button.dataset.column) === column;
      button.tabIndex = here ? 0 : -1;
      if (here) button.setAttribute("aria-current", "step");
      else if (button.hasAttribute("aria-current")) button.removeAttribute("aria-current");
    }
  };

  const go = column => { select(column); setTriggerValue("go", column); };
  keepOnly(lanes, data.lanes.length);
  data.lanes.forEach((lane, row) => drawLane(lanes, row, lane, data, go));
  select(data.cursor);

  // Enter and Space press the focused cell; they must not also press the page's own shortcuts.
  root.onkeydown = event => {
    if (event.key === "Enter" || event.key === " ") event.stopPropagation();
  };

  lanes.scrollLeft = scrolled;
  const current = lanes.querySelector('[aria-current="step"]');
  if (current) {
    const box = current.getBoundingClientRect();
    const view = lanes.getBoundingClientRect();
    if (box.left < view.left) lanes.scrollLeft -= view.left - box.left + 24;
    if (box.right > view.right) lanes.scrollLeft += box.right - view.right + 24;
    if (focused) current.focus({ preventScroll: true });
  }
  if (said.textContent !== data.said) said.textContent = data.said;

  return () => { root.onkeydown = null; };
}
