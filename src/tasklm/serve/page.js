"use strict";

// Shown texts come from users: they are only ever set as text, never as HTML.
const at = (id) => document.getElementById(id);
const ALL = "all"; // no task has this name
let token = "";
let suffix = ""; // of addresses: /NAME for one of several tasks

function made(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

async function ask(path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The service does not answer.");
  }
  const found = await response.json().catch(() => ({}));
  if (response.status === 401) {
    at("token-form").hidden = false;
    at("of-all").hidden = true; // a link does not carry the token
  }
  if (!response.ok) throw new Error(found.detail || `The service answered with status ${response.status}.`);
  return found;
}

function tell(problem) {
  at("problem").textContent = problem;
  at("problem").hidden = !problem;
}

// The forms that an input may have, with their names: a text, two texts, or a row.
function formsOf(found) {
  const forms = [];
  if (found.text && found.texts !== 2) forms.push(["text", "a text"]);
  if (found.pair && found.texts !== 1) forms.push(["pair", "two texts"]);
  forms.push(["row", "a row"]);
  return forms;
}

function chosen() {
  return document.querySelector("input[name=form]:checked").value;
}

function showFields() {
  const form = chosen();
  at("of-text").hidden = form === "row";
  at("of-second").hidden = form !== "pair";
  at("of-row").hidden = form !== "row";
  at("first-name").textContent = form === "pair" ? "First text" : "Text";
}

// All tasks at once: an input may have any form that one of them takes.
function together(tasks) {
  const own = Object.values(tasks);
  const any = (name) => own.some((task) => task[name]);
  const texts = own.every((task) => task.texts === own[0].texts) ? own[0].texts : null;
  const needs = any("text") ? "" : own[0].needs;
  return { kind: `several, ${own.length} tasks`, labels: [], text: any("text"), pair: any("pair"), needs, texts, explains: false, sets: false };
}

// One task, or a choice of several and all of them.
function showTasks(found) {
  const names = found.tasks ? Object.keys(found.tasks) : [];
  const choice = at("tasks");
  at("of-tasks").hidden = !names.length;
  const all = made("option", "all tasks");
  all.value = ALL;
  choice.replaceChildren(...names.map((name) => made("option", name)), all);
  const show = () => {
    suffix = names.length ? `/${encodeURIComponent(choice.value)}` : "";
    at("answer").hidden = true;
    at("reasons").hidden = true;
    tell("");
    if (!names.length) showTask(found);
    else showTask(choice.value === ALL ? together(found.tasks) : found.tasks[choice.value]);
  };
  choice.onchange = show;
  show();
}

function showTask(found) {
  const labels = found.labels.length ? `, ${found.labels.length} labels` : "";
  at("about").textContent = `kind ${found.kind}${labels}`;
  at("hint").hidden = !found.needs;
  at("hint").textContent = found.needs ? `${found.needs[0].toUpperCase()}${found.needs.slice(1)}.` : "";
  const forms = formsOf(found);
  const box = at("forms");
  box.querySelectorAll("label").forEach((label) => label.remove());
  forms.forEach(([value, name], place) => {
    const label = made("label");
    const button = made("input");
    Object.assign(button, { type: "radio", name: "form", value, checked: place === 0 });
    button.addEventListener("change", showFields);
    label.append(button, name);
    box.append(label);
  });
  box.hidden = forms.length < 2;
  at("row").placeholder = found.pair && !found.text ? '{"question": "…", "context": "…"}' : '{"text": "…"}';
  if (!found.text && !found.pair) at("row").placeholder = '{"question": "…", "options": ["…", "…"]}';
  at("why").hidden = !found.explains;
  at("of-sets").hidden = !found.sets;
  if (!found.sets) at("coverage").value = "";
  at("ask").hidden = false;
  showFields();
}

function given() {
  const form = chosen();
  if (form === "text") return at("first").value;
  if (form === "pair") return [at("first").value, at("second").value];
  let row;
  try {
    row = JSON.parse(at("row").value);
  } catch (error) {
    throw new Error(`The row is not valid JSON: ${error.message}`);
  }
  if (row === null || typeof row !== "object" || Array.isArray(row)) throw new Error("The row is not a JSON object.");
  return row;
}

function bars(shares, best) {
  const list = made("dl", undefined, "bars");
  for (const [name, share] of shares) {
    const percent = `${(100 * share).toFixed(1)} %`;
    const track = made("dd", undefined, "track");
    const fill = made("div", undefined, "fill");
    fill.style.width = percent.replace(" ", "");
    track.append(fill);
    const className = best.includes(name) ? "best" : "";
    list.append(made("dt", name, className), track, made("dd", percent, `share ${className}`));
  }
  return list;
}

function words(answer) {
  const list = made("ul", undefined, "words");
  answer.words.forEach((word, place) => {
    const item = made("li", word);
    let below = answer.tags ? answer.tags[place] : "";
    if (answer.heads) below = `${answer.relations[place]} ← ${answer.heads[place] ? answer.words[answer.heads[place] - 1] : "root"}`;
    if (below && below !== "O") item.className = "named";
    item.append(made("small", below));
    list.append(item);
  });
  return list;
}

function shares(answer, input) {
  if (!Array.isArray(answer.probabilities)) return Object.entries(answer.probabilities).sort((one, other) => other[1] - one[1]);
  const options = Object.values(input).find((value) => Array.isArray(value) && value.length === answer.probabilities.length);
  return answer.probabilities.map((share, place) => [options ? String(options[place]) : `option ${place + 1}`, share]);
}

// The candidates of a set with a promised coverage; null for an ordinary answer.
function setOf(answer, input) {
  if (answer.options) {
    const given = Object.values(input).find((value) => Array.isArray(value)) || [];
    return answer.options.map(({ number, probability }) => [String(given[number] ?? `option ${number + 1}`), probability]);
  }
  return answer.labels && !Array.isArray(answer.labels) ? Object.entries(answer.labels) : null;
}

function titleOf(answer) {
  if (answer.unknown !== undefined) return "unknown";
  if (answer.interval) return answer.interval.map((end) => end.toPrecision(4)).join(" to ");
  if (answer.label !== undefined) return answer.label;
  if (answer.labels) return answer.labels.join(", ") || "no label";
  if (answer.option !== undefined) return answer.option;
  if (answer.answer !== undefined) return answer.answerable ? answer.answer : "the text contains no answer";
  if (answer.target !== undefined) return answer.target;
  if (answer.score !== undefined) return answer.score.toPrecision(4);
  return "";
}

// The answer of one task, or of each of several under its name.
function showAnswer(answer, input) {
  const box = at("answer");
  box.replaceChildren();
  if (suffix === `/${ALL}`) {
    for (const [name, one] of Object.entries(answer.tasks)) {
      const part = made("section", undefined, "of-task");
      part.append(made("h3", name));
      fill(part, one, input);
      box.append(part);
    }
  } else fill(box, answer, input);
  box.hidden = false;
}

function fill(box, answer, input) {
  const set = setOf(answer, input);
  const title = set ? set.map(([name]) => name).join(", ") : titleOf(answer);
  if (title) box.append(made("h2", title));
  if (answer.unknown !== undefined) box.append(made("p", answer.unknown));
  if (set) box.append(bars(set, []));
  if (answer.probabilities) box.append(bars(shares(answer, input), [title, ...(answer.labels || [])]));
  if (answer.words) box.append(words(answer));
  if (answer.entities && answer.entities.length) {
    const list = made("ul");
    for (const entity of answer.entities) list.append(made("li", `${entity.text}: ${entity.type}`));
    box.append(made("h3", "Entities"), list);
  }
  const details = made("details");
  details.append(made("summary", "as JSON"), made("pre", JSON.stringify(answer, null, 2)));
  box.append(details);
}

// Marks the words that a text of training shares with the input.
function marked(text, shared) {
  const paragraph = made("p");
  const known = new Set(shared.map((word) => word.toLowerCase()));
  for (const piece of text.split(/([\p{L}\p{N}\p{M}]+)/u)) {
    paragraph.append(known.has(piece.toLowerCase()) ? made("mark", piece) : piece);
  }
  return paragraph;
}

function showSide(box, attributions, kind, label) {
  for (const [side, word] of [[attributions.supporting, "for"], [attributions.opposing, "against"]]) {
    box.append(made("h3", `${kind} that ${word === "for" ? "support" : "speak against"} ${label}`));
    if (!side.length) {
      box.append(made("p", "none", "quiet"));
      continue;
    }
    const list = made("ul", undefined, `attributions ${word}`);
    for (const attribution of side) {
      const item = made("li");
      const line = made("p");
      line.append(made("span", (attribution.score > 0 ? "+" : "") + attribution.score.toFixed(3), "score"));
      line.append(made("span", ` ${attribution.label ? `${attribution.label} · ` : ""}${attribution.where}`, "quiet"));
      item.append(line, marked(attribution.text, attribution.shared));
      list.append(item);
    }
    box.append(list);
  }
  box.append(made("p", `${attributions.compared} of ${attributions.in_all} compared`, "quiet"));
}

function showReasons(found) {
  const box = at("reasons");
  box.replaceChildren();
  showSide(box, found.examples, "Training examples", found.label);
  if (found.passages) showSide(box, found.passages, "Selected passages", found.label);
  box.hidden = false;
}

async function act(withReasons) {
  const buttons = [at("predict"), at("why")];
  tell("");
  at("reasons").hidden = true;
  buttons.forEach((button) => (button.disabled = true));
  try {
    const input = given();
    const asked = at("coverage").value;
    const body = asked ? { inputs: [input], coverage: Number(asked) } : { inputs: [input] };
    const { answers } = await ask(`predict${suffix}`, body);
    showAnswer(answers[0], input);
    if (withReasons) showReasons(await ask(`explain${suffix}`, { input, top: 5 }));
  } catch (error) {
    tell(error.message);
  } finally {
    buttons.forEach((button) => (button.disabled = false));
  }
}

async function begin() {
  tell("");
  try {
    showTasks(await ask("task"));
    at("token-form").hidden = true;
  } catch (error) {
    tell(error.message);
  }
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  act(false);
});
at("why").addEventListener("click", () => act(true));
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  begin();
});
begin();
