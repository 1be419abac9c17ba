"use strict";

// Names of files and labels come from users: they are only ever set as text, never as HTML.
const at = (id) => document.getElementById(id);
const SIDE = 240; // of a picture on the page
let token = "";

function made(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function tell(problem) {
  at("problem").textContent = problem;
  at("problem").hidden = !problem;
}

async function ask(path, file) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers };
  if (file !== undefined) {
    options.method = "POST";
    options.body = file;
    headers["Content-Type"] = file.type === "image/png" ? "image/png" : "image/jpeg";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The service does not answer.");
  }
  const values = await response.json().catch(() => ({}));
  if (response.status === 401) {
    at("token-form").hidden = false;
    at("of-all").hidden = true; // a link does not carry the token
  }
  if (!response.ok) throw new Error(values.detail || `The service answered with status ${response.status}.`);
  return values;
}

function address(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

function bars(probabilities) {
  const list = made("dl", undefined, "bars");
  const sorted = Object.entries(probabilities).sort((one, other) => other[1] - one[1]).slice(0, 10);
  sorted.forEach(([label, share], place) => {
    list.append(made("dt", label, place ? "" : "best"));
    const track = made("dd", undefined, "track");
    const fill = made("div", undefined, "fill");
    fill.style.width = `${100 * share}%`;
    track.append(fill);
    list.append(track, made("dd", `${(100 * share).toFixed(1)} %`, "share"));
  });
  return list;
}

// The picture with its cells: blue ones speak for the label, red ones against it.
function drawn(source, cells) {
  const canvas = made("canvas");
  canvas.width = canvas.height = SIDE;
  const pen = canvas.getContext("2d");
  const image = new Image();
  image.onload = () => {
    pen.drawImage(image, 0, 0, SIDE, SIDE);
    const most = Math.max(1e-9, ...cells.flat().map(Math.abs));
    const step = SIDE / cells.length;
    cells.forEach((row, down) => row.forEach((value, right) => {
      const colour = value >= 0 ? "46,134,222" : "214,69,65";
      pen.fillStyle = `rgba(${colour},${(0.55 * Math.abs(value)) / most})`;
      pen.fillRect(right * step, down * step, step, step);
    }));
  };
  image.src = source;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "The picture; blue parts speak for the label, red ones against it.");
  return canvas;
}

async function show(file) {
  const source = await address(file);
  const answer = await ask("explain", file);
  const card = made("div", undefined, "of-task");
  card.append(made("h2", answer.label), made("p", file.name, "quiet"), drawn(source, answer.cells));
  card.append(bars(answer.probabilities));
  at("answer").prepend(card);
}

async function showAll(files) {
  tell("");
  for (const file of files) {
    try {
      await show(file);
    } catch (error) {
      tell(`${file.name}: ${error.message}`);
    }
  }
}

async function begin() {
  try {
    const task = await ask("task");
    at("about").textContent = `image: ${task.labels.join(", ")}`;
    at("token-form").hidden = true;
  } catch (error) {
    tell(error.message);
  }
}

at("file").addEventListener("change", (event) => showAll(event.target.files));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  showAll(event.dataTransfer.files);
});
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
  tell("");
  begin();
});
begin();
