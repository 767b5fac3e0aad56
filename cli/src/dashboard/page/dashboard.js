// The dashboard: asks the command `fiber dashboard` for the sessions' statistics each second.
//
// The command computes all numbers, tables and texts; this only lays them out. All text is set as
// text, never as HTML: names of functions and pools come from programs.
"use strict";

const POLL = 1000;
const $ = (id) => document.getElementById(id);

// ---------------------------------------------------------------------------------- elements

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}
const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// ------------------------------------------------------------------------------------- words

const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });
const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

// ------------------------------------------------------------------------------------- state

let sessions = [];
let chosen = null;
let view = "overview";
let opened = null;
const expanded = new Set();
const session = () => sessions.find((one) => one.head === chosen);
const processesOf = (now) => now?.tables?.Processes.rows || [];
const processOf = (id) => processesOf(session()).find((row) => row.process === id);
const nameOf = (row) => row.cells[0].text;

async function ask(path, parameters) {
  const response = await fetch(path + "?" + new URLSearchParams(parameters), { cache: "no-store" });
  if (!response.ok) throw Object.assign(new Error(await response.text()), { status: response.status });
  return response;
}

async function poll() {
  await look();
  setTimeout(poll, POLL);
}

async function look() {
  try {
    const answer = await (await ask("api/state", opened ? { open: opened } : {})).json();
    sessions = answer.sessions;
    notice(answer.problem || "");
    online("live");
    if (!session()) chosen = (sessions.find((one) => one.tables) || sessions[0])?.head ?? null;
    noteSlices();
    if (view === "timeline") await loadTimeline();
    render();
  } catch (error) {
    if (error.status === 403 || error.status === 401) {
      online("refused", true);
      notice("This page's link is no longer valid. Open the one that `fiber dashboard` printed last.");
    } else if (error instanceof TypeError) {
      online("no connection", true);
      notice("The command `fiber dashboard` does not answer. The numbers below are its last.");
    } else {
      online("error", true);
      notice(String(error.message || error));
    }
  }
}

function online(text, lost) {
  const link = $("link");
  if (link.textContent !== text) link.textContent = text;
  link.classList.toggle("lost", Boolean(lost));
}
function notice(text) {
  const box = $("notice");
  if (box.textContent !== text) box.textContent = text;
  box.hidden = !text;
}

// ------------------------------------------------------------------------------------ render

function render() {
  // A person who selects text wants to copy it.
  const selection = window.getSelection();
  if (selection && !selection.isCollapsed && $("view").contains(selection.anchorNode)) return;
  renderHead();
  const now = session();
  const focused = document.activeElement?.dataset?.key;
  if (!now) {
    $("view").replaceChildren(h("p", { class: "empty" },
      "No program that uses fiber runs here, or none has started a pool, a process or another object."));
  } else if (now.problem) {
    $("view").replaceChildren(h("p", { class: "empty bad" }, now.problem));
  } else {
    VIEWS[view](now);
  }
  renderDetail();
  if (focused && document.activeElement?.dataset?.key !== focused)
    document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  document.body.dataset.rendered = String(Number(document.body.dataset.rendered || 0) + 1);
}

function renderHead() {
  const select = $("session");
  const names = sessions.map((one) => one.head + (one.program ? ` (${one.program})` : ""));
  if ([...select.options].map((option) => option.text).join("\n") !== names.join("\n"))
    select.replaceChildren(...sessions.map((one, i) => h("option", { value: one.head }, names[i])));
  if (select.value !== chosen) select.value = chosen;
  $("summary").textContent = session()?.summary || "";
}

const figure = (label, value, mark) =>
  h("div", { class: "figure " + mark }, h("b", {}, value), h("span", {}, label));

function bar([done, pending], label) {
  const part = (kind, share) => h("i", { class: kind, style: { width: 100 * share + "%" } });
  return h("div", { class: "bar", role: "img", "aria-label": label, title: label },
    part("done", done), part("pending", pending));
}

// The columns by which people have sorted tables, and whether from the largest value on.
const orders = new Map();

function sorted(one) {
  const order = orders.get(one.name);
  if (!order) return one.rows;
  const value = (row) => row.cells[order.column].number ?? row.cells[order.column].text;
  const compare = (a, b) => (typeof value(a) === "number" ? value(a) - value(b)
    : value(a).localeCompare(value(b), undefined, { numeric: true }));
  return [...one.rows].sort((a, b) => (order.down ? compare(b, a) : compare(a, b)));
}

function head(one, column, i, sortable) {
  const order = orders.get(one.name);
  const down = order?.column === i ? order.down : null;
  const sort = () => {
    orders.set(one.name, { column: i, down: down === null ? column.is_figure : !down });
    render();
  };
  return h("th", { class: column.is_figure ? "n" : null, scope: "col",
    "aria-sort": down === null ? null : down ? "descending" : "ascending" },
    sortable ? h("button", { class: "sort", type: "button", "data-key": "sort-" + column.head,
      title: "Sort by this column", onclick: sort }, column.head) : column.head);
}

// A table. The first cell of a row opens its process.
function table(one, empty, sortable) {
  if (!one.rows.length) return h("p", { class: "faint" }, empty || "None.");
  const content = (row, cell, i) => [
    i === 0 && row.process ? h("button", { class: "link " + row.mark, type: "button",
      "data-key": `open-${one.name}-${row.process}`, onclick: () => open(row.process) }, cell.text)
      : cell.text,
    cell.bar ? bar(cell.bar, cell.text) : null];
  const body = sorted(one).slice(0, one.most).map((row) => h("tr", { class: row.mark, title: row.note },
    row.cells.map((cell, i) => h("td", {
      class: `${one.columns[i].is_figure ? "n" : i === 0 ? "name" : ""} ${cell.mark}`,
      "data-head": one.columns[i].head }, content(row, cell, i)))));
  const more = one.rows.length - body.length;
  return [h("table", { "aria-label": one.name },
    h("thead", {}, h("tr", {}, one.columns.map((column, i) => head(one, column, i, sortable)))),
    h("tbody", {}, body)), more ? h("p", { class: "faint" }, `${more} more`) : null];
}

function card(now, name, empty, sortable) {
  const one = now.tables[name];
  return h("section", { class: "card" }, h("h2", {}, name), table(one, empty, sortable));
}

function spark(pool) {
  const values = pool.history.length > 1 ? pool.history : [0, 0];
  const most = Math.max(...values, 1);
  const points = values.map((value, i) =>
    [(600 * i) / (values.length - 1), 50 - (46 * value) / most].map((x) => x.toFixed(1)).join(","));
  const label = `Tasks completed in each of the last ${pool.history.length} seconds`;
  return s("svg", { class: "spark", viewBox: "0 0 600 52", preserveAspectRatio: "none", role: "img",
    "aria-label": label }, s("title", {}, label),
    s("path", { d: `M0,52 L${points.join(" L")} L600,52 Z` }),
    s("polyline", { points: points.join(" ") }));
}

function overview(now) {
  const { columns, rows } = now.tables.Pools;
  const pools = now.pools.map((pool, place) => {
    const [name, ...cells] = rows[place].cells;
    return h("section", { class: "card pool", "data-pool": pool.name, "aria-label": `Pool ${pool.name}` },
      h("h2", {}, name.text),
      h("div", { class: "figures" },
        cells.map((cell, i) => figure(columns[i + 1].head, cell.text, cell.mark))),
      spark(pool));
  });
  const filled = (names) => names.filter((name) => now.tables[name].rows.length);
  const others = filled(["Queues and pipes", "Rings", "Names and groups"]).map((name) => card(now, name));
  $("view").replaceChildren(
    ...now.notices.map(([mark, text]) => h("p", { class: "notice " + mark }, text)),
    pools.length ? h("div", { class: "columns" }, pools)
      : h("p", { class: "empty" }, "This session has no pools."),
    ...filled(["Actors"]).map((name) => card(now, name, "", true)),
    ...filled(["Calls"]).map((name) => card(now, name)),
    ...(pools.length ? [card(now, "Functions", "No task is complete yet.")] : []),
    h("div", { class: "columns" }, card(now, "Slowest tasks under way", "No task runs for more than 5 ms."),
      card(now, "Last events", "No worker has started, died or given a task up.")),
    ...(others.length ? [h("div", { class: "columns" }, others)] : []));
}

// ----------------------------------------------------------------------------------- workers

function workers(now) {
  const root = $("view");
  if (root.dataset.kind !== "workers" || root.dataset.head !== now.head || !root.querySelector(".legend")) {
    root.replaceChildren(h("div", { class: "legend" },
      now.states.map(([state, words]) => h("span", {}, h("i", { class: state }), words))));
    root.dataset.kind = "workers";
    root.dataset.head = now.head;
  }
  const wanted = new Set(now.pools.map((pool) => pool.key));
  for (const section of root.querySelectorAll("section"))
    if (!wanted.has(section.dataset.pool)) section.remove();
  if (!now.pools.length && !root.querySelector(".empty"))
    root.append(h("p", { class: "empty" }, "This session has no pools."));
  for (const pool of now.pools) {
    root.querySelector(".empty")?.remove();
    let section = [...root.querySelectorAll("section")].find((one) => one.dataset.pool === pool.key);
    if (!section) {
      section = h("section", { class: "card", "data-pool": pool.key }, h("h2"), h("div", {
        role: "group", "aria-label": `Workers of pool ${pool.name}: arrow keys move, Enter opens`,
        onkeydown: moveInGrid }));
      root.append(section);
    }
    const cells = pool.workers;
    section.firstChild.textContent = `${pool.name}: ${pool.counts}`;
    const grid = section.lastChild;
    const size = cells.length <= 24 ? "large" : cells.length <= 160 ? "medium" : "small";
    grid.className = "grid " + size;
    const old = new Map([...grid.children].map((cell) => [cell.dataset.id, cell]));
    const list = cells.map((cell) => {
      let node = old.get(cell.process);
      old.delete(cell.process);
      if (!node) {
        node = h("button", { type: "button", "data-id": cell.process, "data-key": "cell-" + cell.process,
          tabindex: -1, onclick: () => open(cell.process) });
        withTip(node, () => node.dataset.tip);
      }
      const [line, done] = cell.lines;
      const label = `${cell.name}: ${line}`;
      const kind = "cell " + cell.state;
      if (node.className !== kind) node.className = kind;
      node.dataset.tip = `${label}\n${done}`;
      node.setAttribute("aria-label", label);
      node.setAttribute("aria-pressed", String(cell.process === opened));
      const number = cell.name.match(/\d+$/)?.[0] || cell.name;
      const mark = cell.state === "slow" ? "!" : "";
      const wantedText = size === "large" ? label + done : size === "medium" ? mark + number : mark;
      if (node.dataset.text !== size + wantedText) {
        node.dataset.text = size + wantedText;
        if (size === "large")
          node.replaceChildren(h("b", {}, cell.name), h("span", {}, line), h("span", {}, done));
        else node.textContent = wantedText;
      }
      return node;
    });
    old.forEach((node) => node.remove());
    list.forEach((node, i) => { if (grid.children[i] !== node) grid.insertBefore(node, grid.children[i] || null); });
    if (list.length && !list.some((node) => node.tabIndex === 0)) list[0].tabIndex = 0;
  }
}

function moveInGrid(event) {
  const cells = [...event.currentTarget.children];
  const at = cells.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = cells.findIndex((cell) => cell.offsetTop !== cells[0].offsetTop);
  const across = columns < 0 ? cells.length : columns;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across,
    Home: -at, End: cells.length - 1 - at }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const next = cells[Math.min(cells.length - 1, Math.max(0, at + step))];
  cells[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function withTip(node, text) {
  const show = (event) => {
    const tip = $("tip");
    tip.textContent = text();
    tip.hidden = !tip.textContent;
    const box = node.getBoundingClientRect();
    place(event.type === "mousemove" ? event.clientX + 12 : box.left,
      event.type === "mousemove" ? event.clientY + 14 : box.bottom + 4);
  };
  const hide = () => { $("tip").hidden = true; };
  for (const kind of ["mouseenter", "focus"]) node.addEventListener(kind, show);
  for (const kind of ["mouseleave", "blur"]) node.addEventListener(kind, hide);
}
function place(x, y) {
  const tip = $("tip");
  tip.style.left = Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(y, innerHeight - tip.offsetHeight - 8)) + "px";
}

// ------------------------------------------------------------------------------------ detail

let extras = { id: null };

function open(id) {
  opened = opened === id ? null : id;
  extras = { id: opened };
  render();
  if (!opened) return;
  $("detail").querySelector("button")?.focus({ preventScroll: true });
  look();
}

async function fetchInto(kind, path, parameters) {
  const mine = extras;
  mine[kind] = "…";
  renderDetail();
  try {
    mine[kind] = await (await ask(path, parameters)).text();
  } catch (error) {
    mine[kind] = String(error.message || error);
  }
  renderDetail();
}

function renderDetail() {
  const box = $("detail");
  const one = opened && processOf(opened);
  box.hidden = !opened;
  if (!opened) return void box.replaceChildren();
  const close = h("button", { class: "close", type: "button", "data-key": "close", "aria-label": "Close",
    onclick: () => open(opened) }, "✕");
  if (!one) return void box.replaceChildren(close, h("p", { class: "empty" }, "This process has ended."));
  const now = session();
  const details = now.opened?.id === opened ? now.opened : { terms: [], tail: [] };
  const parameters = { head: now.head, process: opened };
  box.replaceChildren(close, h("h2", {}, nameOf(one)),
    h("dl", {}, details.terms.map(([term, text, mark]) => [h("dt", {}, term), h("dd", { class: mark }, text)])),
    h("div", { class: "tools" },
      h("button", { type: "button", "data-key": "stack",
        onclick: () => fetchInto("stack", "api/stack", parameters) }, "Show its stacks"),
      h("button", { type: "button", "data-key": "profile",
        onclick: () => { profiled = opened; go("profile"); } }, "Profile it")),
    ...(extras.stack ? [h("pre", { tabindex: 0, "aria-label": "Stacks", id: "stack" }, extras.stack)] : []),
    ...(details.tail.length
      ? [h("h3", {}, "Last output"), h("pre", { tabindex: 0 }, details.tail.join("\n"))] : []));
}

// ---------------------------------------------------------------------------------- timeline

const slices = new Map();
const marks = new Map();
let recorded = { head: null, until: 0, problem: null };
let span = 60;
let focusAt = null;
const PALETTE = ["#2f7de1", "#18a07a", "#b267d6", "#d4803a", "#5a8f29", "#d2568d", "#3aa6c2", "#8c7a4e"];
const functions = [];
const color = (name) => {
  if (!functions.includes(name)) functions.push(name);
  return PALETTE[functions.indexOf(name) % PALETTE.length];
};

function addSlice(slice) {
  const row = `${slice.pool}/${slice.worker}`;
  const state = slice.failed ? "failed" : slice.kind === "ran" ? "done" : slice.kind;
  // It replaces what was seen of the task while it ran.
  slices.delete(`${row} ${slice.call} ${slice.first}`);
  slices.set(`${row} ${slice.thread} ${slice.call} ${slice.start}`, { ...slice, row, state,
    index: slice.first, end: slice.start + slice.duration });
}

// Tasks that run for a while are on the timeline even where the program records none.
function noteSlices() {
  const now = session();
  if (!now?.pools) return;
  if (recorded.head !== now.head) {
    recorded = { head: now.head, until: 0, problem: null };
    slices.clear();
    marks.clear();
  }
  for (const pool of now.pools)
    for (const worker of pool.workers)
      for (const task of worker.running) {
        const row = `${pool.name}/${worker.name}`;
        const key = `${row} ${task.call} ${task.index}`;
        const start = slices.get(key)?.start ?? now.taken_at - task.ran;
        slices.set(key, { ...task, row, start, end: now.taken_at, count: 1 });
      }
  for (const event of now.happened) {
    if (!event.worker || event.event === "worker-started") continue;
    marks.set(event.at + event.text, { ...event, row: `${event.pool}/${event.worker}` });
  }
  for (const [key, slice] of slices) if (slice.end < now.taken_at - 300) slices.delete(key);
  for (const [key, mark] of marks) if (mark.at < now.taken_at - 300) marks.delete(key);
}

async function loadTimeline() {
  try {
    const answer = await (await ask("api/timeline", { head: chosen, since: recorded.until })).json();
    recorded.problem = null;
    for (const slice of answer) {
      addSlice(slice);
      recorded.until = Math.max(recorded.until, slice.start + slice.duration);
    }
  } catch (error) {
    recorded.problem = String(error.message || error);
  }
}

// The end of a name that has room: it tells workers apart.
function fitted(pen, name, room) {
  let cut = name;
  while (cut.length > 2 && pen.measureText(cut).width > room) cut = "…" + cut.slice(2);
  return cut;
}

function timeline(now) {
  const root = $("view");
  const rows = now.pools.flatMap((pool) => pool.workers.map((worker) => `${pool.name}/${worker.name}`));
  const known = new Set(rows);
  const from = now.taken_at - span;
  const shown = [...slices.values()].filter((slice) => slice.end > from);
  for (const one of [...shown, ...[...marks.values()].filter((mark) => mark.at > from)])
    if (!known.has(one.row)) { known.add(one.row); rows.push(one.row); }
  rows.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const height = Math.max(4, Math.min(24, Math.floor(620 / Math.max(1, rows.length))));
  if (root.dataset.kind !== "timeline") {
    root.replaceChildren(h("section", { class: "card" },
      h("div", { class: "tools" }, h("h2", {}, "What the workers ran"),
        [15, 60, 300].map((length) => h("button", { type: "button", "data-span": length,
          onclick: () => { span = length; render(); } }, length < 60 ? `${length} s` : `${length / 60} min`))),
      h("div", { class: "legend" }),
      h("div", { class: "scroll" }, h("canvas", { tabindex: 0, role: "img", "data-key": "canvas" })),
      h("p", { role: "status", class: "faint", id: "slice" },
        "Point at a task, or press the arrow keys, to see what it is.")));
    root.dataset.kind = "timeline";
    const canvas = root.querySelector("canvas");
    canvas.addEventListener("mousemove", pointAt);
    canvas.addEventListener("mouseleave", () => { $("tip").hidden = true; });
    canvas.addEventListener("keydown", stepSlice);
  }
  for (const button of root.querySelectorAll("[data-span]"))
    button.setAttribute("aria-pressed", String(Number(button.dataset.span) === span));
  const names = [...new Set(shown.map((slice) => slice.function))].slice(0, 8);
  root.querySelector(".legend").replaceChildren(
    ...names.map((name) => h("span", {}, h("i", { style: { background: color(name) } }), name)),
    h("span", {}, h("i", { class: "failed" }), "failed, or its worker died"),
    h("span", {}, h("b", { class: "bad" }, "✕ "), "death"), h("span", {}, h("b", { class: "slow" }, "↻ "), "tasks run again"),
    h("span", {}, h("b", { class: "slow" }, "⚠ "), "straggler"),
    recorded.problem ? h("span", { class: "faint" }, `Only tasks of more than 5 ms, seen each second: ${recorded.problem}`) : "");
  const canvas = root.querySelector("canvas");
  const width = canvas.parentElement.clientWidth - 4;
  const left = height >= 11 ? Math.min(170, Math.round(width / 3)) : 0;
  const tall = rows.length * height + 22;
  const sharp = devicePixelRatio || 1;
  canvas.width = width * sharp;
  canvas.height = tall * sharp;
  canvas.style.width = width + "px";
  canvas.style.height = tall + "px";
  const died = [...marks.values()].filter((mark) => mark.mark === "bad" && mark.at > from).length;
  canvas.setAttribute("aria-label", `The last ${span} s of ${plural(rows.length, "worker")}: ` +
    `${plural(shown.length, "span")} of tasks, ${plural(died, "death")}`);
  canvas.dataset.slices = shown.length;
  canvas.dataset.deaths = died;
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  const style = getComputedStyle(document.documentElement);
  const ink = (name) => style.getPropertyValue(name).trim();
  const x = (at) => left + ((width - left) * (at - from)) / span;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  rows.forEach((row, i) => {
    if (i % 2 === 0 && height >= 8) { pen.fillStyle = ink("--shade"); pen.fillRect(left, i * height, width, height); }
    if (left) { pen.fillStyle = ink("--text"); pen.fillText(fitted(pen, row, left - 8), 2, i * height + height / 2); }
  });
  pen.strokeStyle = ink("--line");
  pen.fillStyle = ink("--faint");
  // The outer times stand inside of their lines, and so half a time nearer to their neighbors.
  const room = 1.5 * pen.measureText(clock(from)).width + 8;
  const steps = Math.max(1, Math.min(6, Math.floor((width - left) / room)));
  for (let i = 0; i <= steps; i++) {
    const at = left + ((width - left) * i) / steps;
    pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, tall - 18); pen.stroke();
    pen.textAlign = i === 0 ? "left" : i === steps ? "right" : "center";
    pen.fillText(clock(from + (span * i) / steps), at, tall - 8);
  }
  pen.textAlign = "left";
  const place = new Map(rows.map((row, i) => [row, i]));
  hits = [];
  for (const slice of shown) {
    const row = place.get(slice.row);
    const begin = Math.max(left, x(slice.start));
    const wide = Math.max(1, x(slice.end) - begin - 0.5);
    pen.fillStyle = color(slice.function);
    pen.globalAlpha = slice.state === "failed" ? 0.5 : 1;
    pen.fillRect(begin, row * height + 1, wide, height - (height > 6 ? 2 : 1));
    pen.globalAlpha = 1;
    if (slice.state === "died" || slice.state === "failed") {
      pen.fillStyle = ink("--bad");
      pen.fillRect(begin + wide - 2, row * height + 1, 3, height - 2);
    }
    hits.push({ x: begin, wide, row, slice });
  }
  for (const mark of marks.values()) {
    if (mark.at < from) continue;
    const row = place.get(mark.row);
    const [bad, slow] = [mark.mark === "bad", mark.mark === "slow"];
    pen.fillStyle = bad ? ink("--bad") : slow ? ink("--text") : ink("--slow");
    pen.font = `bold ${Math.max(11, height - 6)}px system-ui, sans-serif`;
    pen.textAlign = "center";
    const sign = bad ? (mark.redelivered ? "✕ ↻" : "✕") : slow ? "⚠" : mark.redelivered ? "↻" : "·";
    pen.fillText(sign, x(mark.at), row * height + height / 2);
    pen.textAlign = "left";
    hits.push({ x: x(mark.at) - 7, wide: 14, row, mark });
  }
  hits.sort((a, b) => a.row - b.row || a.x - b.x);
  rowHeight = height;
  if (focusAt) showHit(hits.find((hit) => hit.slice === focusAt || hit.mark === focusAt));
}

let hits = [];
let rowHeight = 1;
const described = (hit) => hit.mark ? hit.mark.text
  : `${hit.slice.row}: ${hit.slice.function} ` +
    (hit.slice.count > 1 ? `(${hit.slice.count} tasks from ${hit.slice.index} on)` : hit.slice.index) +
    `, ${hit.slice.lasted || "runs"}, from ${clock(hit.slice.start)}` +
    (hit.slice.state && hit.slice.state !== "done" ? `, ${hit.slice.state}` : "");
function showHit(hit) {
  if (hit && $("slice")) $("slice").textContent = described(hit);
}
function pointAt(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const [x, row] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / rowHeight)];
  const found = [...hits].reverse().find((hit) => hit.row === row && x >= hit.x - 2 && x <= hit.x + hit.wide + 2);
  const tip = $("tip");
  tip.hidden = !found;
  if (!found) return;
  tip.textContent = described(found);
  place(event.clientX + 12, event.clientY + 14);
}
function stepSlice(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!hits.length || (!step && !down)) return;
  event.preventDefault();
  let at = hits.findIndex((hit) => (hit.slice || hit.mark) === focusAt);
  if (at < 0) at = 0;
  else if (step) at = Math.min(hits.length - 1, Math.max(0, at + step));
  else {
    const wanted = hits.filter((hit) => (hit.row - hits[at].row) * down > 0);
    const next = down > 0 ? wanted[0] : wanted[wanted.length - 1];
    if (next) at = hits.indexOf(next);
  }
  focusAt = hits[at].slice || hits[at].mark;
  showHit(hits[at]);
}

// -------------------------------------------------------------------------------------- tree

const GROUP = 12;

function tree(now) {
  // The rows are in the order of the tree.
  const { columns, rows } = now.tables.Processes;
  const [roots, children, path] = [[], new Map(), []];
  for (const row of rows) {
    children.set(row, []);
    (row.depth ? children.get(path[row.depth - 1]) : roots).push(row);
    path[row.depth] = row;
  }
  const nodes = [];
  const lines = [];
  let row = 0;
  const visit = (one, depth) => {
    const below = [];
    const groups = new Map();
    for (const child of children.get(one)) {
      const key = one.process + nameOf(child).slice(0, nameOf(child).lastIndexOf("/") + 1);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(child);
    }
    for (const [key, members] of groups) {
      if (members.length > GROUP) {
        const node = { group: members, key, depth: depth + 1, y: row++ };
        nodes.push(node);
        below.push(node.y);
        if (expanded.has(key)) for (const member of members) {
          const start = row;
          const made = visit(member, depth + 2);
          lines.push([depth + 1, node.y, depth + 2, made.y]);
          row = Math.max(row, start + 1);
        }
      } else for (const member of members) below.push(visit(member, depth + 1).y);
    }
    const y = below.length ? (below[0] + below[below.length - 1]) / 2 : row++;
    const node = { one, depth, y };
    nodes.push(node);
    for (const other of below) lines.push([depth, y, depth + 1, other]);
    return node;
  };
  for (const one of roots) visit(one, 0);
  const [wide, tall, gapX, gapY] = [230, 40, 290, 50];
  const deepest = Math.max(...nodes.map((node) => node.depth));
  const drawing = s("svg", { class: "tree", role: "group", "aria-label": "Processes",
    width: deepest * gapX + wide + 12, height: row * gapY + 8 });
  for (const [x1, y1, x2, y2] of lines) {
    const [ax, ay, bx, by] = [x1 * gapX + wide + 4, y1 * gapY + tall / 2 + 4, x2 * gapX + 4, y2 * gapY + tall / 2 + 4];
    drawing.append(s("path", { d: `M${ax},${ay} C${ax + 30},${ay} ${bx - 30},${by} ${bx},${by}` }));
  }
  const clip = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  for (const node of nodes.sort((a, b) => a.y - b.y)) {
    const [x, y] = [node.depth * gapX + 4, node.y * gapY + 4];
    const shown = node.group || [node.one];
    const [first, last] = [nameOf(shown[0]), nameOf(shown[shown.length - 1])];
    const title = node.group ? `${first} … ${last}` : first;
    const name = node.group ? `${shown.length} processes` : first.split("/").slice(-2).join("/");
    const [place, memory] = ["PLACE", /^[PR]SS$/].map((head) =>
      columns.findIndex((column) => column.head.match(head))).map((i) => shown[0].cells[i].text);
    const state = shown.every((one) => one.mark === "plain") ? "running"
      : shown.some((one) => one.mark === "slow") ? "waiting" : "starting";
    const sub = node.one ? `${place} · ${memory}`
      : expanded.has(node.key) ? "▾ press to fold" : "▸ press to unfold";
    const act = () => {
      if (node.one) open(node.one.process);
      else { expanded.has(node.key) ? expanded.delete(node.key) : expanded.add(node.key); render(); }
    };
    drawing.append(s("g", { role: "button", tabindex: 0, "data-key": "tree-" + (node.one?.process || node.key),
      "aria-label": `${title}, ${sub}, ${state}`, "aria-expanded": node.group ? String(expanded.has(node.key)) : null,
      transform: `translate(${x},${y})`, onclick: act,
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } } },
      s("title", {}, title),
      node.group ? s("rect", { x: 5, y: 5, width: wide, height: tall, rx: 7 }) : null,
      s("rect", { width: wide, height: tall, rx: 7 }),
      s("circle", { class: "dot-" + state, cx: 14, cy: 14, r: 4.5 }),
      // An element of its own cuts wide letters at its border.
      s("svg", { width: wide - 6, height: tall }, s("text", { x: 25, y: 18 }, clip(name, 29)),
        s("text", { class: "sub", x: 25, y: 32 }, clip(sub, 36)))));
  }
  const unfolded = $("supervisors")?.open;
  const scrolled = $("view").querySelector(".scroll")?.scrollTop || 0;
  $("view").replaceChildren(
    h("section", { class: "card" }, h("h2", {}, "Processes"), h("div", { class: "scroll" }, drawing)),
    now.supervisors.length ? h("details", { class: "card", id: "supervisors", open: unfolded },
      h("summary", { "data-key": "supervisors" }, "Supervisors"), now.supervisors.map((tree) => h("pre", {}, tree))) : "");
  $("view").querySelector(".scroll").scrollTop = scrolled;
}

// ----------------------------------------------------------------------------------- profile

let profiled = null;

function profile(now) {
  const root = $("view");
  if (root.dataset.kind !== "profile") {
    const seconds = h("input", { type: "number", id: "seconds", min: 1, max: 60, value: 5, "aria-label": "Seconds" });
    const idle = h("input", { type: "checkbox", id: "idle" });
    const record = h("button", { type: "submit", "data-key": "record" }, "Record");
    const frame = h("div", { id: "graph" });
    const submit = (event) => {
      event.preventDefault();
      if (record.disabled) return;
      const length = Math.min(60, Math.max(1, Number(seconds.value) || 5));
      const process = $("who").value;
      const wait = h("p", { class: "empty", role: "status" }, `Takes samples for ${length} s …`);
      const source = "api/flamegraph?" + new URLSearchParams({ head: chosen, process, seconds: length,
        idle: idle.checked ? 1 : 0, name: processOf(process) ? nameOf(processOf(process)) : "" });
      record.disabled = true;
      const done = () => { record.disabled = false; wait.remove(); };
      frame.replaceChildren(wait, h("iframe", { title: "Flame graph", sandbox: "allow-scripts",
        src: source, onload: done, onerror: done }));
    };
    root.replaceChildren(h("section", { class: "card" }, h("h2", {}, "Flame graph"),
      h("form", { class: "tools", onsubmit: submit, action: "#" },
        h("label", {}, "Process ", h("select", { id: "who", "data-key": "who",
          onchange: (event) => { profiled = event.target.value; } })),
        h("label", {}, "for ", seconds, " s"), h("label", {}, idle, " threads that wait, too"), record),
      frame));
    root.dataset.kind = "profile";
  }
  const select = $("who");
  const wanted = processesOf(now).map((one) => one.process).join();
  if (select.dataset.ids !== wanted) {
    select.dataset.ids = wanted;
    select.replaceChildren(...processesOf(now).map((one) => h("option", { value: one.process }, nameOf(one))));
  }
  if (profiled && processOf(profiled)) select.value = profiled;
}

// ---------------------------------------------------------------------------------- controls

const VIEWS = { overview, workers, timeline, tree, profile };

function go(name) {
  view = VIEWS[name] ? name : "overview";
  history.replaceState(null, "", "#" + view);
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const current = tab.dataset.view === view;
    tab.setAttribute("aria-selected", String(current));
    tab.tabIndex = current ? 0 : -1;
    if (current) $("view").setAttribute("aria-labelledby", tab.id);
  }
  delete $("view").dataset.kind;
  $("view").replaceChildren();
  $("tip").hidden = true;
  render();
}

document.querySelector("[role=tablist]").addEventListener("click", (event) => {
  if (event.target.dataset.view) go(event.target.dataset.view);
});
document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  next.focus();
  go(next.dataset.view);
});
$("session").addEventListener("change", (event) => {
  chosen = event.target.value;
  opened = null;
  noteSlices();
  go(view);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && opened) open(opened);
});
const stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
if (stored) document.documentElement.dataset.theme = stored;
$("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* It lasts as long as the page. */ }
  render();
});
window.addEventListener("resize", () => { if (view === "timeline") render(); });

go(location.hash.slice(1));
poll();
