// A text field that offers what could come next: a field, a sign, a value, and or or. It only suggests; what is
// typed is read by Python alone. Every text is set as textContent: nothing foreign is ever parsed.
const SIGNS = {
  text: ["==", "!=", "in ("], number: [">", "<", ">=", "<=", "==", "!="], truth: ["==", "!="],
  choice: ["==", "!=", "in ("], set: [], time: [">=", "<"],
};
const MOST = 40;

const quoted = text => `"${text.replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"`;
const offer = (text, words, from, shown = text.trim()) => ({ text, words, from, shown });

// The beginnings of names that can stand at the caret: none outside of any(...), all(...) and count(...); within
// one "turn." or "label.", as its first field says, and both before that.
function scopes(before) {
  const open = [], said = before.replace(/"(?:[^"\\]|\\.)*"?/g, one => '"'.padEnd(one.length, "_"));
  for (const { 1: word, 2: sign, index, 0: all } of said.matchAll(/(\w*)\s*([()])/g)) {
    if (sign === "(") open.push(/^(any|all|count)$/i.test(word) ? index + all.length : open.at(-1) ?? -1);
    else open.pop();
  }
  if ((open.at(-1) ?? -1) < 0) return [""];
  const first = said.slice(open.at(-1)).match(/\b(turn|label)\.\w+\s/i);
  return first ? [`${first[1].toLowerCase()}.`] : ["turn.", "label."];
}

// Whether a field can stand where these names can.
const fits = (field, scopes) => scopes.some(one => one ? field.name.startsWith(one) : !field.name.includes("."));

function valuesOf(field) {
  if (field.kind === "truth") return ["True", "False", "None"];
  return field.values.map(quoted);
}

// What could stand at the caret: texts to put in place of everything from `from` on.
function offers(before, fields) {
  const byName = new Map(fields.map(field => [field.name, field]));
  const value = before.match(/([A-Za-z_][\w.]*)\s*(?:==|!=|\bin\s*[([](?:[^)\]]*,)?)\s*("?[^"()[\],]*)$/);
  if (value && byName.has(value[1])) {
    const begun = value[2].replace(/^"/, "").toLowerCase();
    return valuesOf(byName.get(value[1]))
      .filter(text => text.toLowerCase().replace(/^"/, "").includes(begun.trim()) && text !== value[2].trim())
      .map(text => offer(text, "", before.length - value[2].length));
  }
  const here = scopes(before);
  const flag = before.match(/(?:^|[\s(])("[^"]*)$/);
  if (flag) {
    return fields.filter(field => field.kind === "set" && fits(field, here))
      .flatMap(field => field.values.map(one => [field, one]))
      .filter(([, one]) => one.includes(flag[1].slice(1).toLowerCase()))
      .map(([field, one]) => offer(`${quoted(one)} in ${field.name} `, "", before.length - flag[1].length));
  }
  const sign = before.match(/([A-Za-z_][\w.]*)\s+$/);
  if (sign && byName.has(sign[1]) && !/\bin\s+[\w.]+\s+$/.test(before)) {
    return SIGNS[byName.get(sign[1]).kind].map(text => offer(text === "in (" ? text : `${text} `, "", before.length));
  }
  if (/(?:["\d)\]]|\b(?:True|False|None)|\bin\s+[\w.]+)\s+$/.test(before)) {
    return ["and ", "or "].map(text => offer(text, "", before.length));
  }
  const word = before.match(/([A-Za-z_][\w.]*)$/)?.[1] ?? "";
  if (!word && !/(?:^|\(|\b(?:and|or|not)\s)\s*$/i.test(before)) return [];
  const begun = word.toLowerCase(), from = before.length - word.length;
  const names = fields.filter(field => fits(field, here) && field.name.includes(begun));
  names.sort((a, b) => rank(a, begun) - rank(b, begun));
  const found = names.map(field => field.kind === "set"
    ? offer('"', field.words, from, `"…" in ${field.name}`) : offer(`${field.name} `, field.words, from));
  if (here[0] === "") {
    for (const [text, words, about] of [
      ["any(turn.", "some turn is …", "turn"], ["all(turn.", "every turn is …", "turn"],
      ["count(turn.", "so many turns are …", "turn"], ["any(label.", "somebody said …", "label"],
      ['search("', "words in the question or a reply", "turn"],
    ]) if (text.startsWith(begun) || about.startsWith(begun)) found.push(offer(text, words, from));
  }
  return found.filter(one => one.text.trim() !== word || one.text.startsWith('"'));
}

const bare = name => name.replace(/^(turn|label)\./, "");
const rank = (field, begun) => bare(field.name).startsWith(bare(begun)) ? 0 : 1;

export default function ({ parentElement, data, setTriggerValue }) {
  const line = parentElement.querySelector(".line");
  const input = parentElement.querySelector("input");
  const list = parentElement.querySelector("ul");
  const clear = parentElement.querySelector(".clear");
  let found = [], chosen = -1;

  if (input.dataset.sent !== data.value) { input.value = data.value; input.dataset.sent = data.value; }
  input.placeholder = data.placeholder;
  input.maxLength = data.longest;
  line.classList.toggle("wrong", data.wrong);
  input.setAttribute("aria-invalid", data.wrong);

  const hide = () => {
    found = []; chosen = -1; list.hidden = true; list.replaceChildren();
    input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant");
  };
  const mark = index => {
    chosen = index;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", i === index));
    if (index < 0) return input.removeAttribute("aria-activedescendant");
    list.children[index].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", list.children[index].id);
  };
  const show = () => {
    clear.hidden = !input.value;
    found = offers(input.value.slice(0, input.selectionStart), data.fields).slice(0, MOST);
    if (!found.length) return hide();
    list.replaceChildren(...found.map((one, i) => {
      const item = document.createElement("li");
      item.id = `offer-${i}`; item.setAttribute("role", "option"); item.dataset.index = i;
      const code = document.createElement("code"), words = document.createElement("span");
      code.textContent = one.shown; words.textContent = one.words;
      item.append(code, words);
      return item;
    }));
    list.hidden = false; input.setAttribute("aria-expanded", "true"); mark(-1);
  };
  const take = index => {
    const one = found[index], after = input.value.slice(input.selectionStart);
    const start = input.value.slice(0, one.from) + one.text;
    input.value = start + after;
    input.setSelectionRange(start.length, start.length);
    input.focus();
    show();
  };
  const submit = () => {
    hide();
    input.dataset.sent = input.value.trim();
    setTriggerValue("submit", input.value.trim());
  };

  input.oninput = show;
  input.onfocus = show;
  input.onclick = show;
  input.onblur = hide;
  input.onkeydown = event => {
    event.stopPropagation(); // letters typed here are no shortcuts of the page
    if (event.key === "Enter") { event.preventDefault(); if (chosen >= 0) take(chosen); else submit(); }
    else if (event.key === "Tab" && chosen < 0 && found.length && input.value.trim() && !event.shiftKey) {
      event.preventDefault(); take(0);
    }
    else if (event.key === "Tab" && chosen >= 0 && !event.shiftKey) { event.preventDefault(); take(chosen); }
    else if (event.key === "Escape") hide();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!found.length) show();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (found.length) mark((chosen + step + found.length + (chosen < 0 && step < 0 ? 1 : 0)) % found.length);
    }
  };
  list.onmousedown = event => {
    event.preventDefault(); // the field keeps the focus
    const item = event.target.closest("li");
    if (item) take(Number(item.dataset.index));
  };
  clear.onclick = () => { input.value = ""; submit(); };
  clear.hidden = !input.value;
  return () => { hide(); input.oninput = input.onfocus = input.onclick = input.onblur = input.onkeydown = null; };
}
