// Draws texts with their words tinted and underlined by how far each moves a choice.
function word([text, weight, title]) {
  if (!weight) return document.createTextNode(text);
  const size = Math.abs(weight), node = element("span", weight > 0 ? "for" : "against", text);
  node.style.setProperty("--tint", (0.08 + 0.37 * size).toFixed(3));
  node.style.setProperty("--line", `${(1.5 + 2 * size).toFixed(1)}px`);
  node.title = title;
  return node;
}

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".weighed");
  if (!root || !data) return;
  root.setAttribute("aria-label", data.said);
  root.replaceChildren(...data.blocks.flatMap(({ heading, pieces }) => {
    const text = element("div", "text");
    text.append(...pieces.map(word));
    return [element("h4", "", heading), text];
  }));
}
