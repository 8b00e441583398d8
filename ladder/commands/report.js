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
  node.append(...children.filter((child) => child !== null));
  return node;
}

const h = (tag, attributes = {}, ...children) =>
  make(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) =>
  make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const line = (kind, x1, y1, x2, y2) => s("line", { class: kind, x1, y1, x2, y2 });
const words = (kind, x, y, text, anchor = "start") =>
  s("text", { class: kind, x, y, "text-anchor": anchor }, text);

function button(text, action, pressed = null) {
  const made = h("button", { type: "button", "aria-pressed": pressed }, text);
  made.addEventListener("click", action);
  return made;
}

// Buttons of which one is pressed. Drawing makes them anew: the focus stays where it was.
function choice(host, options, chosen, draw) {
  const option = ([key, one]) =>
    button(one.button, () => {
      draw(key);
      host.querySelector("[aria-pressed=true]").focus();
    }, key === chosen);
  host.replaceChildren(...Object.entries(options).map(option));
}

const pairs = (list) =>
  h("dl", { class: "pairs" }, ...list.flatMap(([name, text]) => [
    h("dt", {}, name),
    h("dd", {}, name === "Again" ? h("code", {}, text) : text),
  ]));

// A box that scrolls, by keyboard too, so that the page itself never does sideways.
const scrolling = (name, child) =>
  h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, child);

const heading = (names) =>
  h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name))));

// ------------------------------------------------------------------------------ what is shown

// `cell`: where README's table, whose cells these are, has the number.
const METRICS = {
  tok: {
    button: "tok/s", title: "Tokens per second", cell: 3,
    tick: (value) => Math.round(value).toLocaleString("en-US"),
    limit: (climb) => climb.limit && climb.limit.tok,
  },
  mfu: {
    button: "MFU", title: "Model FLOPs utilisation", cell: 6,
    tick: (value) => `${Math.round(value * 100)}%`,
    limit: (climb) => climb.limit && 1,
  },
  memory: {
    button: "memory", title: "Peak memory", cell: 7,
    tick: (value) => `${value} GB`,
    limit: () => null,
  },
};
const seconds = (value) => `${value.toFixed(1)} s`;
const AXES = {
  step: { button: "steps", x: (point) => point[0], name: (value) => `step ${value}` },
  time: { button: "seconds", x: (point) => point[1], name: seconds },
  warm: {
    button: "seconds after the first step", x: (point, first) => point[1] - first[1], name: seconds,
  },
};
const state = { climb: null, rung: null, metric: "tok", axis: "step", at: 1, held: null };

const address = (climb, row) =>
  `#${encodeURIComponent(climb.id)}${row ? `/${encodeURIComponent(row.stem)}` : ""}`;
const ablationOf = (climb) => DATA.climbs.find((one) => one.beside === climb.id);
const withoutRung = (ablation, rung) =>
  (ablation && ablation.rows.find((one) => one.stem === `without_${rung.stem}`)) || null;
const barOf = (row) => `.bar[data-stem="${CSS.escape(row.stem)}"]`;
const startsBeyond = (rows, i) => i > 0 && rows[i].beyond && !rows[i - 1].beyond;

// Climbs of one kind, where there are several: only they can be compared.
const comparable = () =>
  ["climb", "ablate"]
    .map((kind) => DATA.climbs.filter((climb) => climb.kind === kind))
    .filter((group) => group.length > 1);

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
  state.held = state.rung && state.rung.stem;
  if (!state.climb || state.climb !== before.climb) {
    drawAll();
  } else {
    drawBars();
    drawLoss();
    // What was closed gives the focus back to its bar.
    if (before.rung) document.querySelector(barOf(before.rung)).focus();
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
  state.at = 1;
  if (climb) drawTables();
  drawCharts();
  drawFoot();
}

function drawCharts() {
  if (!state.climb) return drawCompare();
  drawBars();
  drawWorth();
  drawLoss();
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

// Rows below each other, each as high as it needs, with their names on the left, or above their
// marks on a narrow screen.
function layout(host, rows, heightOf) {
  const width = Math.max(host.clientWidth, 260);
  const narrow = width < 620;
  const lift = narrow ? 18 : 0;
  const longest = Math.max(...rows.map((row) => row.title.length));
  const left = narrow ? 4 : Math.min(300, 30 + 7.6 * longest);
  const lines = [];
  const tops = [];
  let bottom = 26;
  rows.forEach((row, i) => {
    if (startsBeyond(rows, i)) {
      lines.push(words("soft halo", 4, bottom + 18, "beyond the ten"));
      lines.push(line("zero", 108, bottom + 14, width, bottom + 14));
      bottom += 22;
    }
    tops.push(bottom + lift);
    bottom += lift + heightOf(row);
  });
  const name = (i) => {
    const y = narrow ? tops[i] - 3 : tops[i] + heightOf(rows[i]) / 2 + 4.5;
    return words("halo", 4, y, rows[i].title);
  };
  return { width, narrow, lift, left, tops, bottom, lines, name };
}

function picture(host, place, name, children) {
  const size = { viewBox: `0 0 ${place.width} ${place.bottom + 24}`, width: place.width };
  host.replaceChildren(s("svg", { ...size, role: "group", "aria-label": name }, ...children));
}

// Vertical lines with their values below.
const grid = (place, values, x, name, kind = () => "grid") =>
  values.flatMap((value) => [
    line(kind(value), x(value), 22, x(value), place.bottom),
    words("tick", x(value), place.bottom + 16, name(value), "middle"),
  ]);

function drawBars() {
  const { climb } = state;
  const metric = METRICS[state.metric];
  const limit = metric.limit(climb);
  const values = climb.rows.map((row) => row[state.metric] || null);
  const most = Math.max(limit || 0, ...values.filter(Boolean).flat()) || 1;
  const place = layout($("bars"), climb.rows, () => BAR);
  const x = (value) => place.left + (value / most) * (place.width - 78 - place.left);
  const scale = limit ? [line("limit", x(limit), 20, x(limit), place.bottom)] : [];
  const said = limit && `all FLOPs at matmul peak: ${metric.tick(limit)}`;
  picture($("bars"), place, `${metric.title} of each rung`, [
    ...grid(place, ticks(0, most, place.narrow ? 4 : 7), x, metric.tick),
    ...scale,
    ...place.lines,
    ...climb.rows.map((row, i) => bar(row, values[i], place, i, x, metric)),
    limit && words("limit-name halo", x(limit) + 4, 13, said, "end"),
  ]);
  $("bars-title").textContent = metric.title;
  $("bars-note").textContent = [
    state.metric === "memory"
      ? "The most that any run held."
      : "Median of the runs, with the 10th to the 90th percentile of their steps.",
    limit ? `The limit is ${climb.limit.times.toFixed(1)} times the fastest rung.` : "",
    "Choose a rung to see what it changes.",
  ].join(" ");
  choice($("metrics"), METRICS, state.metric, (key) => {
    state.metric = key;
    drawBars();
  });
}

const BAR = 28; // the height of a row

// One row of the bar chart: a button, also where a run failed and there is no bar.
function bar(row, value, place, i, x, metric) {
  const top = place.tops[i];
  const middle = top + BAR / 2;
  const full = row.failure ? row.cells[1] : row.cells[metric.cell];
  const text = full.length > 40 ? `${full.slice(0, 38)}…` : full;
  const [mid, low, high] = value || [0];
  const whisker = `M${x(low)} ${middle - 4}v8m0 -4H${x(high)}m0 -4v8`;
  const hit = { x: 0, y: top - place.lift + 1, width: place.width };
  const fill = { x: place.left, y: top + 5, width: x(mid) - place.left, height: BAR - 10 };
  const node = s("g", {
    class: `bar${state.rung === row ? " open" : ""}`,
    role: "button",
    tabindex: 0,
    "data-stem": row.stem,
    "aria-label": `${row.title}: ${row.failure ? "" : `${metric.title} `}${full}`,
    "aria-expanded": state.rung === row,
  },
  s("rect", { class: "hit", ...hit, height: BAR + place.lift - 2 }),
  place.name(i),
  value && s("rect", { class: "fill", ...fill }),
  high ? s("path", { class: "whisker", d: whisker }) : null,
  words("halo", value ? x(high || mid) + 7 : place.left + 2, middle + 4.5, text));
  const open = () => go(address(state.climb, row));
  node.addEventListener("click", open);
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open();
  });
  return node;
}

// Series differ in form and colour; a hollow mark is a gain that is within the noise.
const SHAPES = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
  "M0 -6.2L6.2 0L0 6.2L-6.2 0Z",
  "M-4.6 -4.6H4.6V4.6H-4.6Z",
  "M0 -5.8L6 4.6H-6Z",
];
const ink = (k) => `var(--mark${k % SHAPES.length})`;
const mark = (k, x, y, hollow) =>
  s("path", {
    class: "dot",
    d: SHAPES[k % SHAPES.length],
    transform: `translate(${x} ${y})`,
    style: `stroke:${ink(k)};stroke-width:2;fill:${hollow ? "var(--bg)" : ink(k)}`,
  });

function legend(host, names) {
  const sample = { width: 16, height: 16, viewBox: "-8 -8 16 16", "aria-hidden": "true" };
  host.replaceChildren(
    ...names.map((name, k) => h("li", {}, s("svg", sample, mark(k, 0, 0, false)), name)));
}

const percent = (ratio) => {
  const sign = ratio < 1 ? "−" : ratio > 1 ? "+" : "";
  return `${sign}${Math.abs(Math.round((ratio - 1) * 100))} %`;
};
const GAIN_TICKS = [1, 2, 0.5, 4, 1.5, 0.75, 3, 1.25, 8, 6, 16, 1.1, 0.9, 32, 64];
const NOISE =
  "Hollow: within noise. Lines: 95 % intervals, cut at the edge; the table has their ends.";

// Dots and whiskers on a scale of ratios. rows: {title, beyond, cells}, where a cell is the row of
// a climb with the number of its series, and a letter where the marks alone could be mixed up.
function drawGains(host, rows, name) {
  const place = layout(host, rows, (row) => 14 * Math.max(row.cells.length, 1) + 12);
  const gains = rows.flatMap((row) => row.cells).map((cell) => cell.gain).filter(Boolean);
  const furthest = Math.max(...gains.map((gain) => gain.ratio), 1);
  const low = Math.max(0.25, Math.min(0.9, ...gains.map((gain) => gain.low))) * 0.97;
  const widest = Math.max(1.1, ...gains.map((gain) => gain.high));
  const high = Math.min(widest, Math.max(6, furthest * 1.5)) * 1.03;
  const [from, to] = [place.left + 6, place.width - 108];
  const x = (ratio) => {
    const inside = Math.min(Math.max(ratio, low), high);
    return from + (Math.log(inside / low) / Math.log(high / low)) * (to - from);
  };
  const shown = [];
  for (const tick of GAIN_TICKS) {
    const free = shown.every((other) => Math.abs(x(other) - x(tick)) > 56);
    if (tick > low && tick < high && free) shown.push(tick);
  }
  const dot = ({ gain, gain_text, series, letter }, y) => {
    const said = [letter, gain_text.split(" (")[0]].join(" ").trim(); // the interval is drawn
    const text = words(gain && !gain.noise ? "halo" : "soft halo", to + 12, y + 4.5, said);
    if (!gain) return [text];
    const whisker = { d: `M${x(gain.low)} ${y}H${x(gain.high)}`, style: `stroke:${ink(series)}` };
    const centre = mark(series, x(gain.ratio), y, gain.noise);
    return [s("path", { class: "whisker", ...whisker }), centre, text];
  };
  picture(host, place, name, [
    ...grid(place, shown, x, percent, (tick) => (tick === 1 ? "zero" : "grid")),
    ...place.lines,
    ...rows.map((_, i) => place.name(i)),
    ...rows.flatMap((row, i) =>
      row.cells.flatMap((cell, k) => dot(cell, place.tops[i] + 13 + 14 * k))),
  ]);
}

// Gains of a climb, with those of leaving one out beside them where they were measured.
function drawWorth() {
  const { climb } = state;
  const ablation = ablationOf(climb);
  const both = (row) =>
    [row, withoutRung(ablation, row)].map((one, series) => ({ ...one, series }));
  const rows = climb.rows.slice(1).map((row) => ({
    ...row, cells: both(row).filter((cell) => cell.gain_text),
  }));
  $("worth").hidden = !rows.some((row) => row.cells.some((cell) => cell.gain));
  if ($("worth").hidden) return;
  const over = climb.columns[4];
  const names = ablation ? [over, `${ablation.columns[4]} (leave-one-out)`] : [over];
  legend($("worth-legend"), names);
  $("worth-note").textContent = [
    climb.kind !== "climb" ? "" : "A gain over the row above depends on the order of the rungs.",
    ablation
      ? `Leave-one-out: each rung taken back alone from ${ablation.rows[0].title}, ` +
        `in a sitting of its own (commit ${ablation.commit}).`
      : "",
    NOISE,
  ].join(" ");
  drawGains($("gains"), rows, "Gain of each rung");
}

// ------------------------------------------------------------------------------ losses

const DASHES = ["none", "7 3", "2 3"];
const stroke = (k, count) => ({
  style: `--hue:${Math.round(265 - (k / Math.max(count - 1, 1)) * 245)}`,
  "stroke-dasharray": DASHES[k % DASHES.length],
});

function drawLoss() {
  const host = $("curves");
  const axis = AXES[state.axis];
  const rows = state.climb.rows.filter((row) => row.loss);
  const curves = rows.map((row) =>
    row.loss.map((point) => [axis.x(point, row.loss[0]), point[2]]));
  const frame = lossFrame(host.clientWidth, curves.flat());
  const pixels = ([at, loss]) => `${frame.x(at).toFixed(1)},${frame.y(loss).toFixed(1)}`;
  const drawn = curves.map((points, k) => s("polyline", {
    class: `curve${rows[k].stem === state.held ? " held" : ""}`,
    points: points.map(pixels).join(" "),
    ...stroke(k, rows.length),
  }));
  const cursor = line("cursor", 0, 14, 0, frame.height - 30);
  const label = words("soft halo", 0, 10, "");
  host.replaceChildren(s("svg", {
    viewBox: `0 0 ${frame.width} ${frame.height}`,
    width: frame.width,
    class: state.held ? "chosen" : null,
    "aria-hidden": "true",
  }, ...frame.grid, ...drawn, cursor, label));
  choice($("axes"), AXES, state.axis, (key) => {
    Object.assign(state, { axis: key, at: 1 });
    drawLoss();
  });
  $("readout").replaceChildren(...rows.map((row, k) => curveButton(row, k, rows.length)));
  const stride = Math.max(...rows.map((row) => row.stride));
  $("loss-note").textContent = [
    "Training loss of each rung's first run. Seconds add up the times of its steps, with the",
    "compilation in the first.",
    stride > 1 ? `Every ${stride}th step is drawn.` : "",
    "Point at the chart for the values there, or move with the arrow keys.",
  ].join(" ");
  readLosses(host, { axis, rows, curves, frame, cursor, label });
}

// The scales of the chart and its grid.
function lossFrame(space, points) {
  const width = Math.max(space, 260);
  const height = width < 620 ? 260 : 340;
  const range = (values) => [Math.min(...values), Math.max(...values)];
  const [x0, x1] = range(points.map((point) => point[0]));
  const [y0, y1] = range(points.map((point) => point[1]));
  const x = (value) => 44 + ((value - x0) / (x1 - x0 || 1)) * (width - 60);
  const y = (value) => height - 30 - ((value - y0) / (y1 - y0 || 1)) * (height - 50);
  const unit = state.axis === "step" ? "" : " s";
  const whole = (value) => unit || Number.isInteger(value);
  return {
    width, height, x0, x1, x, y,
    grid: [
      ...ticks(y0, y1, 6).flatMap((value) => [
        line("grid", 44, y(value), width - 16, y(value)),
        words("tick", 38, y(value) + 4, String(value), "end"),
      ]),
      ...ticks(x0, x1, width < 620 ? 4 : 8).filter(whole).map((value) =>
        words("tick", x(value), height - 8, `${value}${unit}`, "middle")),
    ],
  };
}

// A line of the legend, with the loss where the chart is read. Pressed, its curve stands out.
function curveButton(row, k, count) {
  const held = row.stem === state.held;
  const made = button("", () => {
    state.held = held ? null : row.stem;
    drawLoss();
    $("readout").children[k].firstChild.focus();
  }, held);
  const sample = s("line", { class: "curve", x1: 0, x2: 28, y1: 5, y2: 5, ...stroke(k, count) });
  made.append(s("svg", { width: 28, height: 10, "aria-hidden": "true" }, sample), row.title);
  made.append(h("span", { class: "value" }));
  return h("li", {}, made);
}

// The chart is a slider: pointer and arrow keys choose where the losses are read.
function readLosses(host, { axis, rows, curves, frame, cursor, label }) {
  const { x0, x1 } = frame;
  function read(share) { // 0 to 1, along the axis
    const exact = x0 + Math.min(Math.max(share, 0), 1) * (x1 - x0);
    const at = state.axis === "step" ? Math.round(exact) : exact;
    state.at = x1 > x0 ? (at - x0) / (x1 - x0) : 1;
    make(cursor, { x1: frame.x(at), x2: frame.x(at) }, []);
    make(label, { x: frame.x(at), "text-anchor": state.at > 0.5 ? "end" : "start" }, []);
    label.textContent = axis.name(at);
    const last = curves.map((points) => points.filter((point) => point[0] <= at + 1e-9).pop());
    const texts = last.map((point) => (point ? point[1].toFixed(4) : "–"));
    $("readout").querySelectorAll(".value").forEach((node, k) => { node.textContent = texts[k]; });
    const said = rows.map((row, k) => `${row.title} ${texts[k]}`).join(", ");
    const range = { "aria-valuemin": x0, "aria-valuemax": x1, "aria-valuenow": at };
    make(host, { ...range, "aria-valuetext": `${axis.name(at)}: ${said}` }, []);
  }
  host.onpointermove = host.onpointerdown = (event) => {
    const box = host.firstChild.getBoundingClientRect();
    const at = (event.clientX - box.left) * (frame.width / box.width);
    read((at - 44) / (frame.width - 60));
  };
  host.onkeydown = (event) => {
    const step = state.axis === "step" ? 1 / Math.max(x1 - x0, 1) : 0.01;
    const [back, on] = [state.at - step, state.at + step];
    const keys = { ArrowLeft: back, ArrowDown: back, ArrowRight: on, ArrowUp: on, Home: 0, End: 1 };
    if (!(event.key in keys)) return;
    event.preventDefault();
    read(keys[event.key]);
  };
  read(state.at);
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
  const turn = (text, row) => {
    const made = button(text, () => go(address(climb, row)));
    made.disabled = !row;
    return made;
  };
  const close = button("Close", () => go(address(climb)));
  $("rung").append(
    title,
    h("nav", { class: "group", "aria-label": "Rungs" },
      turn("← before", climb.rows[at - 1]), turn("next →", climb.rows[at + 1]), close),
    ...inside(climb, rung));
  if (without) {
    const said = `Without it: ${without.gain_text || without.cells[1]}`;
    $("rung").append(
      h("h3", {}, `Left out of ${ablation.rows[0].title}`),
      h("details", { class: "left-out" }, h("summary", {}, said), ...inside(ablation, without)));
  }
  title.focus({ preventScroll: true });
  title.scrollIntoView({ block: "start" });
}

// All about one row of a climb: numbers, docstring, change, stages, logs.
function inside(climb, row) {
  const base = climb.rows.find((one) => one.stem === row.against);
  const figures = climb.columns.slice(1).map((name, i) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, row.cells[i + 1])));
  const failed = Object.entries(row.failed_runs).map(([name, why]) => `${name} failed: ${why}`);
  if (row.failure && !failed.length) failed.push(row.cells[1]);
  const ran = Object.entries(row.effective || {}).map(([name, value]) => `${name}: ${value}`);
  return [
    ...failed.map((text) => h("p", { class: "notice" }, text)),
    row.failure ? "" : h("dl", { class: "figures" }, ...figures),
    pairs(row.doc.map(([name, text]) => [name || "Docstring", text])),
    ...(ran.length ? [h("h3", {}, "What ran"), h("p", {}, ran.join(" · "))] : []),
    ...(base ? change(row, base) : []),
    ...(row.profile ? stages(row.profile) : []),
    ...(row.loss ? logs(row) : []),
  ];
}

// Where the scripts are from is said in words: a diff of other code than what ran misleads.
function change(row, base) {
  const from = row.source === row.base_source
    ? `Both scripts ${row.source}.`
    : `${row.title}: ${row.source}. ${base.title}: ${row.base_source}.`;
  let shown = h("p", {}, "There is no diff to show.");
  if (row.diff && row.diff.length) {
    const lines = numbered(row.diff);
    shown = scrolling("Diff", h("div", {}, sideBySide(lines), unified(lines)));
  } else if (row.diff) {
    shown = h("p", {}, "The code of the two is the same.");
  }
  return [
    h("h3", {}, `Change against ${base.title}`),
    h("p", { class: "soft source" }, `${from} Docstrings are left out.`),
    shown,
  ];
}

// The lines of a unified diff with their numbers in the two files.
function numbered(lines) {
  let [before, after] = [0, 0];
  return lines.map((text) => {
    const head = /^@@ -(\d+),\d+ \+(\d+),\d+ @@$/.exec(text);
    if (head) {
      [before, after] = [Number(head[1]), Number(head[2])];
      return { kind: "hunk", text };
    }
    const kind = { "-": "del", "+": "add" }[text[0]] || "same";
    const found = { kind, text: text.slice(1), before: "", after: "" };
    if (kind !== "add") found.before = String(before++);
    if (kind !== "del") found.after = String(after++);
    return found;
  });
}

const SIGNS = { add: "+", del: "−", same: " " };
const hunk = (one, columns) =>
  h("tr", { class: "hunk" }, h("td", { colspan: columns }, one.text));

function unified(lines) {
  const row = (one) => h("tr", { class: one.kind },
    h("td", { class: "no" }, one.before),
    h("td", { class: "no" }, one.after),
    h("td", { class: "sign" }, SIGNS[one.kind]),
    h("td", { class: "text" }, one.text));
  const rows = lines.map((one) => (one.kind === "hunk" ? hunk(one, 4) : row(one)));
  return h("table", { class: "diff narrow" }, h("tbody", {}, ...rows));
}

function sideBySide(lines) {
  const rows = [];
  const [olds, news] = [[], []];
  const side = (one, number) => (one ? [
    h("td", { class: `no ${one.kind}` }, one[number]),
    h("td", { class: `sign ${one.kind}` }, SIGNS[one.kind]),
    h("td", { class: `text ${one.kind}` }, one.text),
  ] : [h("td", { class: "none", colspan: 3 })]);
  const both = (left, right) => h("tr", {}, ...side(left, "before"), ...side(right, "after"));
  const flush = () => { // what went out beside what came in
    while (olds.length || news.length) rows.push(both(olds.shift(), news.shift()));
  };
  for (const one of lines) {
    if (one.kind === "del") olds.push(one);
    else if (one.kind === "add") news.push(one);
    else {
      flush();
      rows.push(one.kind === "hunk" ? hunk(one, 6) : both(one, one));
    }
  }
  flush();
  const columns = [0, 1].flatMap(() => [
    h("col", { style: "width:2.8rem" }), h("col", { style: "width:1.4rem" }), h("col"),
  ]);
  return h("table", { class: "diff wide" },
    h("colgroup", {}, ...columns), h("tbody", {}, ...rows));
}

function stages(found) {
  const parts = Object.entries(found.stages);
  const sum = parts.reduce((total, [, ms]) => total + ms, 0);
  const share = ([name, ms]) =>
    h("span", { class: name, style: `width:${(ms / sum) * 100}%` }, name);
  const times = [...parts, ["sum", sum], ["step left alone", found.step]].map(([name, ms]) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, ms.toFixed(1))));
  const kernels = found.kernels.map((one) => h("tr", {},
    h("td", { class: "name" }, one.name),
    h("td", {}, one.ms.toFixed(1)),
    h("td", {}, `${(one.share * 100).toFixed(1)}%`),
    h("td", {}, String(one.calls))));
  const from = `From ladder profile, a run of its own: ${found.folder}, commit ${found.commit}.`;
  const most = `The ${kernels.length} most expensive, by self time`;
  return [
    h("h3", {}, "Where the time goes"),
    h("p", { class: "soft" }, from),
    h("div", { class: "stack", "aria-hidden": "true" }, ...parts.map(share)),
    scrolling("Stages", h("table", {}, heading(["stage", "ms"]), h("tbody", {}, ...times))),
    scrolling(most, h("table", {},
      h("caption", {}, most), heading(["kernel", "ms", "share", "calls"]),
      h("tbody", {}, ...kernels))),
  ];
}

const FEWER_LOGS = {
  1: "To keep the page small, it has the log of the first run only.",
  0: "To keep the page small, the logs are left out.",
};

function logs(row) {
  const less = FEWER_LOGS[DATA.logs_kept];
  const one = (log) =>
    h("details", {}, h("summary", {}, log.name), h("pre", { tabindex: 0 }, log.text));
  return [
    h("h3", {}, "Raw logs"),
    less ? h("p", { class: "soft" }, less) : "",
    ...row.logs.map(one),
  ];
}

// ------------------------------------------------------------------------------ tables

function drawTables() {
  const { climb } = state;
  const ablation = ablationOf(climb);
  $("tables").replaceChildren(table(climb, climb, "The climb"));
  if (ablation) {
    $("tables").append(table(ablation, climb, `Leave-one-out, commit ${ablation.commit}`));
  }
}

// The numbers of a climb as in README.md. A rung that was left out opens where its climb has it.
function table(climb, home, name) {
  const link = (row) => {
    const to = home.rows.find((one) => [one.stem, `without_${one.stem}`].includes(row.stem));
    return to ? h("a", { href: address(home, to) }, row.title) : row.title;
  };
  const wide = climb.columns.length;
  const line = (row) => h("tr", {},
    h("th", { scope: "row" }, link(row)),
    ...(row.failure
      ? [h("td", { class: "reason", colspan: wide - 1 }, row.cells[1])]
      : row.cells.slice(1).map((cell) => h("td", {}, cell))));
  const beyond = () =>
    h("tr", { class: "beyond" }, h("th", { colspan: wide, scope: "rowgroup" }, "beyond the ten"));
  const rows = climb.rows.flatMap((row, i) =>
    (startsBeyond(climb.rows, i) ? [beyond(), line(row)] : [line(row)]));
  return scrolling(name, h("table", { class: "sticky numbers" },
    h("caption", {}, name), heading(climb.columns), h("tbody", {}, ...rows)));
}

// ------------------------------------------------------------------------------ comparison

const letter = (k) => String.fromCharCode(65 + k);

// One row for each script and what it was measured against: gains over other rows do not compare.
// Its cells are in the order of the climbs, those left out that have none.
function comparedRows(climbs) {
  const steps = new Map();
  climbs.forEach((climb, k) => climb.rows.forEach((row) => {
    if (row.against === null) return;
    const base = climb.rows.find((one) => one.stem === row.against).title;
    const key = `${row.stem}/${row.against}`;
    const { title, beyond, stem } = row;
    if (!steps.has(key)) steps.set(key, { title, beyond, stem, base, cells: [] });
    if (row.gain_text) steps.get(key).cells.push({ ...row, series: k, letter: letter(k) });
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
  for (const climbs of comparable()) {
    const rows = comparedRows(climbs);
    const left = climbs[0].kind === "ablate";
    const title = left ? "Left out of the top rung" : "Gain over the row above";
    const [names, chart] = [h("ul", { class: "legend" }), h("div")];
    const text = (row, k) => (row.cells.find((cell) => cell.series === k) || {}).gain_text || "–";
    const lines = rows.map((row) => h("tr", {},
      h("th", { scope: "row" }, row.title), ...climbs.map((_, k) => h("td", {}, text(row, k)))));
    $("compare").append(
      h("h2", {}, title),
      h("figure", {}, names, chart, h("figcaption", {}, NOISE)),
      scrolling(title, h("table", { class: "sticky" },
        heading(["rung", ...climbs.map((_, k) => letter(k))]), h("tbody", {}, ...lines))));
    legend(names, climbs.map((climb, k) => `${letter(k)}: ${climb.label}`));
    drawGains(chart, rows, title);
  }
}

function drawFoot() {
  const { climb } = state;
  const shown = climb ? [climb, ablationOf(climb)].filter(Boolean) : DATA.climbs;
  $("foot").replaceChildren(
    ...shown.flatMap((one) => [h("h3", {}, one.label), pairs(one.foot)]));
  $("made").textContent = `Made by ladder report on ${DATA.made}, from logs, scripts and profiles; nothing was typed in.`;
}

// ------------------------------------------------------------------------------ start

for (const climb of DATA.climbs.filter((one) => !one.beside)) {
  $("climb").append(h("option", { value: address(climb) }, climb.label));
}
if (comparable().length) {
  $("climb").append(h("option", { value: "#compare" }, "Compare the gains of all climbs"));
}
$("climb").addEventListener("change", (event) => go(event.target.value));
addEventListener("hashchange", follow);

// Charts are drawn for the width there is, so that their text keeps its size.
let drawnFor = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== drawnFor) drawCharts();
  drawnFor = innerWidth;
});

// Paper has no details to open.
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of closed) one.open = false;
});
follow();
