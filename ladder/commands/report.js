"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

// ------------------------------------------------------------------------------ elements

// Logs and docstrings may hold anything: they enter the page as text nodes (append) and as values
// of fixed attributes only, never as markup.
function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child || child === 0));
  return node;
}

const h = (tag, attributes = {}, ...children) =>
  make(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) =>
  make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function button(attributes, action, ...children) {
  const made = h("button", { type: "button", ...attributes }, ...children);
  made.addEventListener("click", action);
  return made;
}

const terms = (kind, list) =>
  h("dl", { class: kind }, list.map(([name, text]) => h("div", {},
    h("dt", {}, name), h("dd", {}, name === "Again" ? h("code", {}, text) : text))));

// A box that scrolls, by keyboard too, so that the page itself never does sideways.
const scrolling = (name, child) =>
  h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, child);

const table = (name, columns, rows) =>
  scrolling(name, h("table", {},
    h("caption", {}, name),
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))),
    h("tbody", {}, rows)));
const line = (first, rest) =>
  h("tr", {}, h("th", { scope: "row" }, first), rest.map((text) => h("td", {}, text)));

// ------------------------------------------------------------------------------ what is shown

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const signed = new Intl.NumberFormat("en-US", { style: "percent", signDisplay: "exceptZero" });
const percent = (ratio) => signed.format(ratio - 1).replace("-", "−").replace("%", " %");

// `cell`: where README's table, whose cells these are, has the number.
const METRICS = {
  tok: { title: "Tokens per second", cell: 3, name: whole.format },
  mfu: { title: "Model FLOPs utilisation", cell: 6, name: (one) => `${whole.format(one * 100)}%` },
  memory: { title: "Peak memory", cell: 7, name: (value) => `${value} GB` },
};
const seconds = { unit: " s", name: (value) => `${value.toFixed(1)} s` };
const AXES = {
  step: { unit: "", x: (point) => point[0], name: (value) => `step ${value}` },
  time: { ...seconds, x: (point) => point[1] },
  warm: { ...seconds, x: (point, first) => point[1] - first[1] },
};
const chosen = (name) => document.querySelector(`[name=${name}]:checked`).value;
const state = { climb: undefined, rung: null };

const address = (climb, row) =>
  `#${encodeURIComponent(climb.id)}${row ? `/${encodeURIComponent(row.stem)}` : ""}`;
const ablationOf = (climb) => DATA.climbs.find((one) => one.beside === climb.id);
const withoutRung = (ablation, rung) =>
  ablation && ablation.rows.find((one) => one.left_out === rung.stem);
const startsBeyond = (rows, i) => i > 0 && rows[i].beyond && !rows[i - 1].beyond;

// Climbs of one kind, by the heading of their gains, where there are several: only they compare.
const comparable = () => {
  const groups = Object.groupBy(DATA.climbs, (climb) => climb.compared);
  return Object.entries(groups).filter(([heading, climbs]) => heading && climbs.length > 1);
};

// The address says what is open: #CLIMB/STEM, #CLIMB or #compare; else it is the first climb.
function follow() {
  let parts = [];
  try {
    parts = location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch { /* malformed: as if there were none */ }
  const before = { ...state };
  state.climb = DATA.climbs.find((climb) => climb.id === parts[0]) || DATA.climbs[0];
  if (parts[0] === "compare" && comparable().length) state.climb = null;
  state.rung = (state.climb && state.climb.rows.find((row) => row.stem === parts[1])) || null;
  if (state.climb !== before.climb) {
    drawAll();
  } else if (state.climb) {
    drawBars();
    hold(state.rung && state.rung.stem);
    // What was closed gives the focus back to its bar.
    const closed = state.climb.rows.indexOf(before.rung);
    if (closed >= 0) document.querySelectorAll(".bar")[closed].focus();
  }
  drawRung();
}

function go(where) {
  if (location.hash === where) follow();
  else location.hash = where;
}

function drawAll() {
  const { climb } = state;
  $("one").hidden = !climb;
  $("compare").hidden = Boolean(climb);
  // An ablation beside a climb has no option of its own.
  const option = climb && (DATA.climbs.find((one) => one.id === climb.beside) || climb);
  $("climb").value = climb ? address(option) : "#compare";
  $("caption").textContent = climb ? `${climb.caption}.` : "";
  $("progress").hidden = !(climb && climb.progress);
  $("progress").textContent = climb && climb.progress ? `Not finished: ${climb.progress}.` : "";
  const beside = climb ? [climb, ablationOf(climb)].filter(Boolean) : DATA.climbs;
  $("foot").replaceChildren(
    ...beside.flatMap((one) => [h("h3", {}, one.label), terms("pairs", one.foot)]));
  if (!climb) return drawCompare();
  drawBars();
  drawWorth();
  drawLoss();
  $("tables").replaceChildren(...beside.map((one) => numbers(one, climb)));
}

// ------------------------------------------------------------------------------ charts of rungs

// Some `about` round values between two bounds.
function ticks(low, high, about) {
  const rough = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.max(Math.floor(high / step + 1e-9) - first + 1, 0);
  return Array.from({ length: count }, (_, k) => Number(((first + k) * step).toPrecision(12)));
}

// What is drawn stands at shares (0 to 1) of its chart: CSS alone fits a chart to the screen.
const share = (value) => `${(value * 100).toFixed(4)}%`;
const span = (kind, from, to) =>
  h("span", { class: kind, style: `left:${share(from)};width:${share(to - from)}` });
const tick = (at, text, kind = "") =>
  h("span", { class: kind, style: `--at:${share(at)}` }, h("small", {}, text));

// Rows below each other, each of lanes: marks on a track, and words on the right. `nodes` holds
// the element that is a row, and the lanes in it.
function chart(host, rows, scale, nodes) {
  host.style.setProperty("--name", `${Math.max(...rows.map((row) => row.title.length)) + 2}ch`);
  const lane = ({ marks, said, style }) => h("span", { class: "lane", style },
    h("span", { class: "track" }, marks), h("span", { class: "said" }, said));
  const drawn = rows.flatMap((row, i) => {
    const { node, lanes } = nodes[i];
    node.classList.add("row");
    node.append(h("span", { class: "name" }, row.title), h("span", {}, ...lanes.map(lane)));
    return startsBeyond(rows, i) ? [h("p", { class: "beyond" }, "beyond the ten"), node] : [node];
  });
  host.replaceChildren(h("div", { class: "scale" }, scale), ...drawn);
}

function drawBars() {
  const { climb } = state;
  const key = chosen("metric");
  const metric = METRICS[key];
  const limit = climb.limit && climb.limit[key];
  const values = climb.rows.map((row) => row[key] || []);
  const most = Math.max(limit || 0, ...values.flat()) || 1;
  const scale = ticks(0, most, 7).map((value) => tick(value / most, metric.name(value)));
  if (limit) {
    scale.push(tick(limit / most, `all FLOPs at matmul peak: ${metric.name(limit)}`, "limit"));
  }
  const nodes = climb.rows.map((row, i) => bar(row, values[i], most, metric));
  chart($("bars"), climb.rows, scale, nodes);
  $("bars-title").textContent = metric.title;
  $("bars-note").textContent = [
    key === "memory"
      ? "Median of the most that each run held."
      : "Median of the runs, with the 10th to the 90th percentile of their steps.",
    limit ? `The limit is ${climb.limit.times.toFixed(1)} times the fastest rung.` : "",
    "Choose a rung to see what it changes.",
  ].join(" ");
}

// One row of the bar chart: a button, also where a run failed and there is no bar.
function bar(row, [mid, low, high], most, metric) {
  const text = row.failure ? row.cells[1] : row.cells[metric.cell];
  const open = state.rung === row;
  const end = (high || mid || 0) / most;
  return {
    node: button({
      class: open ? "bar open" : "bar",
      "data-stem": row.stem,
      "aria-label": `${row.title}: ${row.failure ? "" : `${metric.title} `}${text}`,
      "aria-expanded": open,
    }, () => go(address(state.climb, row))),
    lanes: [{ marks: [
      mid && span("fill", 0, mid / most),
      high && span("whisker", low / most, high / most),
      h("span", { class: "value", style: `left:${share(end)}` }, text),
    ] }],
  };
}

// Series differ in form and colour; a hollow mark is a gain that is within the noise.
const SHAPES = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
  "M0 -6.2L6.2 0L0 6.2L-6.2 0Z",
  "M-4.6 -4.6H4.6V4.6H-4.6Z",
  "M0 -5.8L6 4.6H-6Z",
];
const ink = (k) => `--ink:var(--mark${k % SHAPES.length})`;
const mark = (k, hollow) =>
  s("svg", { class: "mark", viewBox: "-8 -8 16 16", style: ink(k), "aria-hidden": "true" },
    s("path", { class: hollow ? "dot hollow" : "dot", d: SHAPES[k % SHAPES.length] }));
const legend = (host, names) =>
  host.replaceChildren(...names.map((name, k) => h("li", {}, mark(k, false), name)));

const GAIN_TICKS = [1, 2, 0.5, 4, 1.5, 0.75, 3, 1.25, 8, 6, 16, 1.1, 0.9, 32, 64];
const NOISE =
  "Hollow: within noise. Lines: 95 % intervals, cut at the edge; the table has their ends.";

// Dots and whiskers on a scale of ratios. rows: {title, beyond, cells}, where a cell is the row of
// a climb with the number of its series, and a letter where the marks alone could be mixed up.
function drawGains(host, rows) {
  const gains = rows.flatMap((row) => row.cells).map((cell) => cell.gain).filter(Boolean);
  const furthest = Math.max(...gains.map((gain) => gain.ratio), 1);
  const low = Math.max(0.25, Math.min(0.9, ...gains.map((gain) => gain.low))) * 0.97;
  const widest = Math.max(1.1, ...gains.map((gain) => gain.high));
  const high = Math.min(widest, Math.max(6, furthest * 1.5)) * 1.03;
  const x = (ratio) =>
    Math.log(Math.min(Math.max(ratio, low), high) / low) / Math.log(high / low);
  const shown = [];
  for (const one of GAIN_TICKS) {
    const free = shown.every((other) => Math.abs(x(other) - x(one)) > 0.16);
    if (one > low && one < high && free) shown.push(one);
  }
  const scale = shown.map((one) => tick(x(one), percent(one), one === 1 ? "zero" : ""));
  const dot = ({ gain, gain_text, series, letter }) => {
    // The interval is drawn.
    const words = [letter, gain_text.split(" (")[0]].join(" ").trim();
    const said = h("span", { class: gain && !gain.noise ? "" : "soft" }, words);
    if (!gain) return { said };
    const centre = h("span", { class: "centre", style: `left:${share(x(gain.ratio))}` },
      mark(series, gain.noise));
    const marks = [span("whisker", x(gain.low), x(gain.high)), centre];
    return { said, marks, style: ink(series) };
  };
  chart(host, rows, scale, rows.map((row) => ({ node: h("div"), lanes: row.cells.map(dot) })));
}

// Gains of a climb, with those of leaving one out beside them where they were measured.
function drawWorth() {
  const { climb } = state;
  const ablation = ablationOf(climb);
  const rows = climb.rows.slice(1).map((row) => ({
    ...row,
    cells: [row, withoutRung(ablation, row)]
      .map((one, series) => ({ ...one, series })).filter((cell) => cell.gain_text),
  }));
  $("worth").hidden = !rows.some((row) => row.cells.some((cell) => cell.gain));
  if ($("worth").hidden) return;
  const names = [climb.columns[4]];
  if (ablation) names.push(`${ablation.columns[4]} (leave-one-out)`);
  legend($("worth-legend"), names);
  $("worth-note").textContent = [
    climb.against === "above" ? "A gain over the row above depends on the order of the rungs." : "",
    ablation
      ? `Leave-one-out: each rung taken back alone from ${ablation.rows[0].title}, ` +
        `in a sitting of its own (commit ${ablation.commit}).`
      : "",
    NOISE,
  ].join(" ");
  drawGains($("gains"), rows);
}

// ------------------------------------------------------------------------------ losses

const DASHES = ["none", "7 3", "2 3"];

function drawLoss() {
  const axis = AXES[chosen("axis")];
  const rows = state.climb.rows.filter((row) => row.loss);
  const curves = rows.map((row) =>
    row.loss.map((point) => [axis.x(point, row.loss[0]), point[2]]));
  const bounds = (k) => {
    const values = curves.flat().map((point) => point[k]);
    return [Math.min(...values), Math.max(...values)];
  };
  const [[x0, x1], [y0, y1]] = [bounds(0), bounds(1)];
  const x = (value) => (value - x0) / (x1 - x0 || 1);
  const y = (value) => (y1 - value) / (y1 - y0 || 1);
  const stroke = (k) => ({
    style: `--hue:${Math.round(265 - (k / Math.max(rows.length - 1, 1)) * 245)}`,
    "stroke-dasharray": DASHES[k % DASHES.length],
  });
  const polyline = (points, k) => s("polyline", {
    class: "curve", "data-curve": rows[k].stem, ...stroke(k),
    points: points.map(([at, loss]) => `${x(at) * 1000},${y(loss) * 1000}`).join(" "),
  });
  const along = ticks(x0, x1, 8).filter((value) => axis.unit || Number.isInteger(value));
  const cursor = tick(1, "", "cursor");
  $("curves").replaceChildren(
    h("div", { class: "scale" },
      along.map((value) => tick(x(value), `${value}${axis.unit}`)), cursor),
    h("div", { class: "scale y" }, ticks(y0, y1, 6).map((value) => tick(y(value), value))),
    s("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true" },
      ...curves.map(polyline)));
  $("readout").replaceChildren(...rows.map((row, k) => h("li", {},
    button({ "data-curve": row.stem },
      ({ currentTarget }) => hold(currentTarget.ariaPressed === "true" ? null : row.stem),
      s("svg", { width: 28, height: 10, "aria-hidden": "true" },
        s("line", { class: "curve", x1: 0, x2: 28, y1: 5, y2: 5, ...stroke(k) })),
      row.title, h("span", { class: "value" })))));
  const stride = Math.max(...rows.map((row) => row.stride));
  $("stride").textContent = stride > 1 ? `Every ${stride}th step is drawn.` : "";

  const read = () => {
    const at = Number($("at").value);
    cursor.style = `--at:${share(x(at))}`;
    cursor.firstChild.textContent = axis.name(at);
    const last = curves.map((points) => points.findLast((point) => point[0] <= at + 1e-9));
    const texts = last.map((point) => (point ? point[1].toFixed(4) : "–"));
    $("readout").querySelectorAll(".value").forEach((node, k) => { node.textContent = texts[k]; });
    const said = rows.map((row, k) => `${row.title} ${texts[k]}`).join(", ");
    $("at").setAttribute("aria-valuetext", `${axis.name(at)}: ${said}`);
  };
  make($("at"), { min: x0, max: x1, step: axis.unit ? "any" : 1 }, []);
  $("at").value = x1;
  $("at").oninput = read;
  $("curves").onpointermove = $("curves").onpointerdown = (event) => {
    const box = $("curves").getBoundingClientRect();
    $("at").value = x0 + ((event.clientX - box.left) / box.width) * (x1 - x0);
    read();
  };
  read();
  hold(state.rung && state.rung.stem);
}

// One curve stands out, with its button pressed; none for null.
function hold(stem) {
  $("curves").classList.toggle("chosen", Boolean(stem));
  for (const node of document.querySelectorAll("[data-curve]")) {
    node.setAttribute("aria-pressed", node.dataset.curve === stem);
  }
}

// ------------------------------------------------------------------------------ one rung

function drawRung() {
  const { climb, rung } = state;
  $("rung").hidden = !rung;
  $("rung").replaceChildren();
  if (!rung) return;
  const at = climb.rows.indexOf(rung);
  const ablation = ablationOf(climb);
  const without = withoutRung(ablation, rung);
  const title = h("h2", { id: "rung-title", tabindex: -1 }, rung.title);
  const turn = (text, row) =>
    button({ disabled: row ? null : "" }, () => go(address(climb, row)), text);
  make($("rung"), {}, [
    title,
    h("nav", { class: "group", "aria-label": "Rungs" },
      turn("← before", climb.rows[at - 1]), turn("next →", climb.rows[at + 1]),
      button({}, () => go(address(climb)), "Close")),
    inside(climb, rung),
    without && [
      h("h3", {}, `Left out of ${ablation.rows[0].title}`),
      h("details", { class: "left-out" },
        h("summary", {}, `Without it: ${without.gain_text || without.cells[1]}`),
        inside(ablation, without)),
    ],
  ].flat());
  title.focus({ preventScroll: true });
  title.scrollIntoView({ block: "start" });
}

// All about one row of a climb: numbers, docstring, change, stages, logs.
function inside(climb, row) {
  const base = climb.rows.find((one) => one.stem === row.against);
  const failed = Object.entries(row.failed_runs).map(([name, why]) => `${name} failed: ${why}`);
  if (row.failure && !failed.length) failed.push(row.failure);
  const ran = Object.entries(row.effective || {}).map(([name, value]) => `${name}: ${value}`);
  return [
    failed.map((text) => h("p", { class: "notice" }, text)),
    row.failure
      ? null
      : terms("figures", climb.columns.slice(1).map((name, i) => [name, row.cells[i + 1]])),
    terms("pairs", row.doc.map(([name, text]) => [name || "Docstring", text])),
    ran.length ? [h("h3", {}, "What ran"), h("p", {}, ran.join(" · "))] : null,
    base && change(row, base),
    row.profile && stages(row.profile),
    row.loss && logs(row),
  ].flat();
}

// Where the scripts are from is said in words: a diff of other code than what ran misleads.
function change(row, base) {
  const from = row.source === row.base_source
    ? `Both scripts ${row.source}.`
    : `${row.title}: ${row.source}. ${base.title}: ${row.base_source}.`;
  const none = row.diff ? "The code of the two is the same." : "There is no diff to show.";
  return [
    h("h3", {}, `Change against ${base.title}`),
    h("p", { class: "soft source" }, `${from} Docstrings are left out.`),
    row.diff && row.diff.length ? scrolling("Diff", diff(row.diff)) : h("p", {}, none),
  ];
}

// A unified diff with the numbers of its lines in both files. What went out and what came in
// instead are a pair of blocks: one above the other, or side by side where there is room.
function diff(lines) {
  const host = h("div", { class: "diff" });
  let [before, after, pair] = [0, 0, null];
  const code = (sign, text) => h("div", { class: "code" },
    h("span", { class: "no" }, sign === "+" ? null : before++),
    h("span", { class: "no" }, sign === "-" ? null : after++),
    h("span", { class: "sign" }, sign.replace("-", "−")), h("span", { class: "text" }, text));
  for (const text of lines) {
    const head = /^@@ -(\d+)\S* \+(\d+)\S* @@$/.exec(text);
    if (head) {
      [before, after, pair] = [Number(head[1]), Number(head[2]), null];
      host.append(h("div", { class: "hunk" }, text));
    } else if (text[0] === " ") {
      pair = null;
      host.append(code(" ", text.slice(1)));
    } else {
      if (!pair) {
        pair = { "-": h("div", { class: "del" }), "+": h("div", { class: "add" }) };
        host.append(h("div", { class: "pair" }, pair["-"], pair["+"]));
      }
      pair[text[0]].append(code(text[0], text.slice(1)));
    }
  }
  return host;
}

function stages(found) {
  const parts = Object.entries(found.stages);
  const sum = parts.reduce((total, [, ms]) => total + ms, 0);
  const part = ([name, ms], k) =>
    h("span", { style: `width:${share(ms / sum)};${ink(k)}` }, name);
  const times = [...parts, ["sum", sum], ["step left alone", found.step]];
  const kernels = found.kernels.map((one) => line(one.name,
    [one.ms.toFixed(1), `${(one.share * 100).toFixed(1)}%`, one.calls]));
  const most = `The ${kernels.length} most expensive, by self time`;
  return [
    h("h3", {}, "Where the time goes"),
    h("p", { class: "soft" },
      `From ladder profile, a run of its own: ${found.folder}, commit ${found.commit}.`),
    h("div", { class: "stack", "aria-hidden": "true" }, parts.map(part)),
    terms("figures", times.map(([name, ms]) => [name, `${ms.toFixed(1)} ms`])),
    h("div", { class: "kernels" }, table(most, ["kernel", "ms", "share", "calls"], kernels)),
  ];
}

const FEWER_LOGS = ["the logs are left out.", "it has the log of the first run only."];

const logs = (row) => [
  h("h3", {}, "Raw logs"),
  h("p", { class: "soft" },
    DATA.logs_kept === null ? "" : `To keep the page small, ${FEWER_LOGS[DATA.logs_kept]}`),
  row.logs.map((log) =>
    h("details", {}, h("summary", {}, log.name), h("pre", { tabindex: 0 }, log.text))),
].flat();

// ------------------------------------------------------------------------------ tables

// The numbers of a climb as in README.md. A rung that was left out opens where its climb has it.
function numbers(climb, home) {
  const wide = climb.columns.length;
  const rows = climb.rows.flatMap((row, i) => {
    const to = home.rows.find((one) => one.stem === (row.left_out || row.stem));
    const name = to ? h("a", { href: address(home, to) }, row.title) : row.title;
    const made = line(name, row.failure ? [row.cells[1]] : row.cells.slice(1));
    if (row.failure) make(made.lastChild, { class: "reason", colspan: wide - 1 }, []);
    const beyond = h("th", { colspan: wide, scope: "rowgroup" }, "beyond the ten");
    return startsBeyond(climb.rows, i) ? [h("tr", { class: "beyond" }, beyond), made] : [made];
  });
  return table(`${climb.label}, commit ${climb.commit}`, climb.columns, rows);
}

// ------------------------------------------------------------------------------ comparison

const letterOf = (k) => String.fromCharCode(65 + k);

// One row for each script and what it was measured against: gains over other rows do not compare.
// Its cells are in the order of the climbs, those left out that have none.
function comparedRows(climbs) {
  const steps = new Map();
  climbs.forEach((climb, series) => climb.rows.forEach((row) => {
    const base = climb.rows.find((one) => one.stem === row.against);
    if (!base) return;
    const key = `${row.stem}/${row.against}`;
    if (!steps.has(key)) steps.set(key, { ...row, base: base.title, cells: [] });
    if (row.gain_text) steps.get(key).cells.push({ ...row, series, letter: letterOf(series) });
  }));
  const rows = [...steps.values()].sort(
    (a, b) => a.beyond - b.beyond || (a.title < b.title ? -1 : 1));
  const twice = (row) => rows.filter((other) => other.stem === row.stem).length > 1;
  return rows.map((row) => ({
    ...row, title: twice(row) ? `${row.title} (over ${row.base})` : row.title,
  }));
}

function drawCompare() {
  $("compare").replaceChildren(h("p", {},
    "Milliseconds and tokens per second of two machines, or of two sittings, do not compare. " +
    "Gains do: how many times faster a rung is than the same row above it in the same climb."));
  for (const [heading, climbs] of comparable()) {
    const rows = comparedRows(climbs);
    const [names, bars] = [h("ul", { class: "legend" }), h("div", { class: "chart gains" })];
    const text = (row, k) => (row.cells.find((cell) => cell.series === k) || {}).gain_text || "–";
    const lines = rows.map((row) => line(row.title, climbs.map((_, k) => text(row, k))));
    legend(names, climbs.map((climb, k) => `${letterOf(k)}: ${climb.label}`));
    drawGains(bars, rows);
    make($("compare"), {}, [
      h("h2", {}, heading),
      h("figure", {}, names, bars, h("figcaption", {}, NOISE)),
      table(heading, ["rung", ...climbs.map((_, k) => letterOf(k))], lines),
    ]);
  }
}

// ------------------------------------------------------------------------------ start

for (const climb of DATA.climbs.filter((one) => !one.beside)) {
  $("climb").append(h("option", { value: address(climb) }, climb.label));
}
if (comparable().length) {
  $("climb").append(h("option", { value: "#compare" }, "Compare the gains of all climbs"));
}
$("made").textContent = DATA.made;
$("climb").addEventListener("change", (event) => go(event.target.value));
$("metrics").addEventListener("change", drawBars);
$("axes").addEventListener("change", drawLoss);
addEventListener("hashchange", follow);
follow();
