// Fetches the state of the run once a second and draws it. Everything is built from text nodes and attributes: no markup is ever parsed.
"use strict";

const EVERY = 1000, SETTLED = 5000, LONGEST = 60000; // milliseconds between requests: while running, after the end, without an answer
const HEIGHT = 190, RIGHT = 10, TOP = 10, BOTTOM = 22, COLOURS = 6;
const WORDS = { waiting: "not started", running: "running", finished: "finished", stopped: "stopped", ended: "ended" };
const HINTS = {
  waiting: "No process has started here yet.",
  stopped: "The process ended before the run was complete. Run the same command to continue.",
  ended: "The run completed the requested step; there is no report yet.",
};
const MARKS = { done: "done", now: "now", stopped: "stopped here", next: "to come" };
const NAMES = { rate: "learning rate", tokens_per_second: "tokens/s", tflops: "TFLOP/s", of_ceiling: "of this machine's peak", memory_gb: "GB of memory", dev: "dev score", "train score": "train score" };
const at = (id) => document.getElementById(id);
const drawn = new Map(); // key of a chart → its figure and what it shows
let spoken = "", wait = EVERY, timer = 0, shown = {};

function make(name, attributes = {}, ...children) {
  const svg = ["svg", "line", "polyline", "circle", "text", "g"].includes(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function put(id, key, build) { // rebuilds a part of the page only when its content has changed, so that nothing flickers or loses its position
  const text = JSON.stringify(key);
  if (shown[id] === text) return;
  shown[id] = text;
  build(at(id));
}

function short(value, digits = 4) { // a number for an axis or a legend
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9 || size < 1e-3) return value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e");
  if (size >= 1e6) return +(value / 1e6).toPrecision(digits) + "M";
  if (size >= 1e4) return +(value / 1e3).toPrecision(digits) + "k";
  return String(+value.toPrecision(digits));
}

function labels(marks) { // as short as possible while still distinct
  const near = Math.abs(marks[1] - marks[0]) / 100;
  let digits = 1;
  while (digits < 9 && marks.some((mark) => Math.abs(+mark.toPrecision(digits) - mark) > near)) digits += 1;
  return marks.map((mark) => short(mark, digits));
}

const counted = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : short(value));
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

function showHead(state) {
  put("name", state.name, (place) => { place.textContent = state.name; });
  put("status", state.status, (place) => {
    place.className = "status " + state.status;
    place.textContent = WORDS[state.status];
  });
  const budget = state.minutes ? ` of ${state.minutes} min` : "";
  const news = state.quiet ? `, last news ${state.quiet} ago` : "";
  at("clock").textContent = state.status === "waiting" ? "" : state.spent + budget + news;
  hint(HINTS[state.status] || "", false);
}

function hint(text, lost) {
  put("hint", [text, lost], (place) => {
    place.hidden = !text;
    place.className = lost ? "note lost" : "note";
    place.textContent = text;
  });
}

function showResult(state) {
  put("result", state.scores, (place) => {
    place.hidden = !state.scores;
    if (!state.scores) return;
    at("verdict").textContent = state.scores.verdict;
    const titles = [[state.scores.metric + " × 100", ""], ["dev", "n"], ["test", "n"]];
    at("score-head").replaceChildren(...titles.map(([title, kind]) => make("th", { scope: "col", class: kind }, title)));
    at("score-rows").replaceChildren(...state.scores.rows.map((row) => make("tr", { class: row.kind },
      make("th", { scope: "row" }, row.name), make("td", { class: "n" }, row.dev), make("td", { class: "n" }, row.test))));
  });
  put("report", [state.report, state.status, state.folder], (place) => {
    place.hidden = !state.report || state.status === "running";
    place.firstElementChild.textContent = state.report === "old" ? "Report of the previous run" : "Report";
    place.replaceChildren(place.firstElementChild, make("span", { class: "soft" }, ` ${state.folder}/report.html`));
  });
}

function showFlow(state) {
  put("flow", state.flow, (place) => place.replaceChildren(...state.flow.map((step) => {
    const item = make("li", { class: step.state }, step.name);
    if (step.state === "now") item.setAttribute("aria-current", "step");
    item.append(make("small", {}, step.state === "done" && step.took ? step.took : MARKS[step.state]));
    return item;
  })));
}

function showWork(state) {
  const titles = state.bars.map((bar) => bar.title);
  put("work", [titles, state.doing], (place) => place.replaceChildren(...titles.map((title) => make("div", { class: "work" },
    make("p", {}, make("span", {}, (state.doing ? state.doing + ": " : "") + title), make("span", {})),
    make("div", { class: "track", role: "progressbar", "aria-label": title, "aria-valuemin": 0, "aria-valuemax": 100 }, make("span", { class: "fill" }))))));
  state.bars.forEach((bar, number) => {
    const [words, track] = at("work").children[number].children;
    const share = bar.total ? Math.min(1, bar.done / bar.total) : null;
    const amount = share === null ? (bar.done ? counted(bar.done) : "") : `${Math.floor(100 * share)} %, ${counted(bar.done)} of ${counted(bar.total)}`;
    words.lastElementChild.textContent = [amount, bar.about].filter(Boolean).join(", ");
    track.classList.toggle("unknown", share === null);
    if (share === null) track.removeAttribute("aria-valuenow");
    else {
      track.setAttribute("aria-valuenow", Math.floor(100 * share));
      track.setAttribute("aria-valuetext", [Math.floor(100 * share) + " %", bar.about].filter(Boolean).join(", "));
      track.firstElementChild.style.width = 100 * share + "%";
    }
  });
}

function showTiles(state) {
  const numbers = Object.entries(state.latest);
  put("tiles", numbers, (place) => {
    place.hidden = !numbers.length;
    place.replaceChildren(...numbers.map(([name, value]) => make("div", {}, make("dt", {}, NAMES[name] || "loss: " + name),
      make("dd", {}, name === "of_ceiling" ? Math.round(100 * value) + " %" : short(value)))));
  });
}

function showMessages(state) {
  put("said", state.messages, (place) => {
    at("messages").hidden = !state.messages.length;
    place.replaceChildren(...state.messages.map((one) => make("li", {}, make("time", { datetime: new Date(one.time * 1000).toISOString() }, clock(one.time)),
      make("span", {}, (one.of ? one.of + ": " : "") + one.text))));
  });
}

function say(state) { // for screen readers: a new step, another tenth, the end; not every second
  const step = state.flow.find((one) => one.state === "now");
  const bar = state.bars[0];
  const tenth = bar && bar.total ? ` ${10 * Math.floor((10 * bar.done) / bar.total)} percent` : "";
  const words = state.status === "running" ? `${step ? step.name : ""}${bar ? ", " + bar.title + tenth : ""}` : WORDS[state.status];
  if (words !== spoken) at("said-aloud").textContent = words;
  spoken = words;
  document.title = `${bar && bar.total ? Math.floor((100 * bar.done) / bar.total) + " % " : ""}${step ? step.name : WORDS[state.status]} · ${state.name}`;
}

function showCurves(state) {
  const groups = state.curves, names = groups.map((group) => [group.of, group.title, group.charts.map((chart) => chart.title)]);
  put("curves", [names, state.doing], (place) => {
    drawn.clear();
    place.replaceChildren(...groups.map((group) => {
      const title = (group.of ? group.of + ": " : "") + group.title;
      const figures = group.charts.map((chart) => {
        const figure = make("figure", {}, make("figcaption", {}, make("b", {}, chart.title), make("span", {})));
        const key = title + "/" + chart.title;
        drawn.set(key, { figure, text: "", width: 0, chart, name: `${title}, ${chart.title}` });
        watchPointer(drawn.get(key));
        return figure;
      });
      const charts = make("div", { class: "charts" }, ...figures);
      if (!group.of) return make("section", { "aria-label": "Curves of " + title }, make("h2", {}, title), charts);
      const folded = make("details", group.of === state.doing ? { open: "" } : {}, make("summary", {}, make("h2", {}, "comparison " + title)), charts);
      folded.addEventListener("toggle", redraw); // a chart that is not shown has no width
      return folded;
    }));
  });
  for (const group of groups) {
    for (const chart of group.charts) {
      const one = drawn.get((group.of ? group.of + ": " : "") + group.title + "/" + chart.title);
      const text = JSON.stringify(chart);
      if (one.text === text) continue;
      Object.assign(one, { chart, text });
      draw(one);
    }
  }
}

function ticks(low, high, about) { // round numbers that span the range
  if (low === high) [low, high] = low === 0 ? [-0.5, 0.5] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
  const raw = (high - low) / about, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((size) => size >= raw * 0.999);
  const found = [];
  for (let number = Math.floor(low / step + 1e-9); number <= Math.ceil(high / step - 1e-9); number += 1) found.push(+(number * step).toPrecision(12));
  return found;
}

function range(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function draw(one) {
  const { figure, chart } = one, width = Math.max(200, figure.clientWidth - 20), floor = HEIGHT - BOTTOM;
  one.width = figure.clientWidth;
  const points = chart.lines.flatMap((line) => line.points);
  const [first, last] = range(points.map((point) => point[0])), [low, high] = range(points.map((point) => point[1]));
  const marks = ticks(low, high, 4), bottom = marks[0], top = marks[marks.length - 1], names = labels(marks);
  const left = 12 + 7 * Math.max(...names.map((name) => name.length)); // wide enough for the labels
  const xOf = (x) => (last > first ? left + ((x - first) / (last - first)) * (width - left - RIGHT) : (left + width - RIGHT) / 2);
  const yOf = (y) => floor - ((y - bottom) / (top - bottom)) * (floor - TOP);
  const axes = marks.flatMap((y, number) => [
    make("line", { x1: left, x2: width - RIGHT, y1: yOf(y), y2: yOf(y), class: "grid" }),
    make("text", { x: left - 6, y: yOf(y) + 4, "text-anchor": "end" }, names[number]),
  ]);
  const steps = ticks(first, last, width < 340 ? 3 : 5).filter((x) => x >= first && x <= last && Number.isInteger(x));
  for (const x of steps) axes.push(make("text", { x: Math.min(xOf(x), width - 4 * short(x).length), y: HEIGHT - 5, "text-anchor": "middle" }, short(x)));
  const lines = chart.lines.flatMap((line, number) => {
    const kind = style(number), path = line.points.map(([x, y]) => xOf(x).toFixed(1) + "," + yOf(y).toFixed(1)).join(" ");
    const dots = line.points.length > 30 ? line.points.slice(-1) : line.points;
    return [make("polyline", { points: path, class: "line " + kind }),
      ...dots.map(([x, y]) => make("circle", { cx: xOf(x).toFixed(1), cy: yOf(y).toFixed(1), r: 2.5, class: "dot " + kind.slice(0, 2) }))];
  });
  const ends = chart.lines.map((line) => `${line.name} ${short(line.points[line.points.length - 1][1])}, at first ${short(line.points[0][1])}`);
  const label = `${one.name}, up to step ${counted(last)}: ${ends.join("; ")}`;
  const picture = make("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": label }, ...axes, ...lines,
    make("line", { y1: TOP, y2: floor, class: "cursor", visibility: "hidden" }));
  const legend = make("ul", { class: "legend" }, ...chart.lines.map((line, number) => make("li", {},
    make("svg", { viewBox: "0 0 20 10", "aria-hidden": "true" }, make("line", { x1: 0, x2: 20, y1: 5, y2: 5, class: "line " + style(number) })),
    ` ${line.name} `, make("b", {}))));
  one.scale = { first, last, left, width, xOf };
  figure.replaceChildren(figure.firstElementChild, picture, legend);
  pointAt(one, one.pointer);
}

function redraw() {
  for (const one of drawn.values()) if (one.text && one.figure.clientWidth !== one.width) draw(one);
}

function style(number) { // after six colours they repeat, dashed
  return "c" + (number % COLOURS) + (number % (2 * COLOURS) >= COLOURS ? " dashed" : "");
}

function pointAt(one, x) { // writes the values at a step into the legend: under the pointer, or the last
  const { figure, chart, scale } = one, cursor = figure.querySelector(".cursor");
  const step = x === undefined ? scale.last : scale.first + ((x - scale.left) / (scale.width - scale.left - RIGHT)) * (scale.last - scale.first);
  let near = scale.last;
  chart.lines.forEach((line, number) => {
    const best = line.points.reduce((one, other) => (Math.abs(other[0] - step) < Math.abs(one[0] - step) ? other : one));
    if (number === 0) near = best[0];
    figure.querySelectorAll(".legend b")[number].textContent = short(best[1]);
  });
  cursor.setAttribute("visibility", x === undefined ? "hidden" : "visible");
  for (const end of ["x1", "x2"]) cursor.setAttribute(end, scale.xOf(near));
  figure.querySelector("figcaption span").textContent = "step " + counted(near);
}

function watchPointer(one) {
  one.figure.addEventListener("pointermove", (event) => {
    const picture = one.figure.querySelector("svg");
    if (!one.scale || event.target.closest("svg") !== picture) return;
    one.pointer = (event.offsetX / picture.clientWidth) * one.scale.width;
    pointAt(one, one.pointer);
  });
  one.figure.addEventListener("pointerleave", () => {
    one.pointer = undefined;
    if (one.scale) pointAt(one);
  });
}

function show(state) {
  at("live").hidden = false;
  for (const part of [showHead, showResult, showFlow, showWork, showTiles, showCurves, showMessages, say]) part(state);
}

async function look() {
  window.clearTimeout(timer);
  let problem = "";
  try {
    const answer = await fetch("state.json", { cache: "no-store" });
    if (answer.ok) {
      const state = await answer.json();
      show(state);
      wait = state.status === "running" || state.status === "waiting" ? EVERY : SETTLED;
    } else problem = await answer.text();
  } catch {
    problem = "The page's server has stopped. This is the last known state; the run itself may still be going.";
  }
  if (problem) {
    at("live").hidden = false;
    hint(problem, true);
    wait = Math.min(LONGEST, 2 * Math.max(wait, SETTLED));
  }
  if (!document.hidden) timer = window.setTimeout(look, wait);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
window.addEventListener("resize", redraw);
look();
