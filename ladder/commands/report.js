"use strict";
const $ = (id) => document.getElementById(id);
const DATA = JSON.parse($("data").textContent);

// ------------------------------------------------------------------------------ elements

// Logs and docstrings may hold anything: they enter the page as text nodes (append) and as values
// of fixed attributes only, never as markup. Children that are null or false are left out.
function make(node, attributes, ...children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}

const h = (tag, attributes, ...children) =>
  make(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function button(attributes, action, ...children) {
  const made = h("button", { type: "button", ...attributes }, children);
  made.addEventListener("click", action);
  return made;
}

const terms = (kind, list) =>
  h("dl", { class: kind }, list.filter(([, text]) => text).map(([name, text]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, text))));

// A box that scrolls, by keyboard too, so that the page itself never does sideways.
const scrolling = (name, child) =>
  h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, child);

const table = (name, columns, rows) =>
  scrolling(name, h("table", {},
    h("caption", {}, name),
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))),
    h("tbody", {}, rows)));
const line = (first, rest, colspan = 1) =>
  h("tr", {}, h("th", { scope: "row" }, first), rest.map((text) => h("td", { colspan }, text)));

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
const GAIN = 4; // the cell of a gain
const seconds = { unit: " s", name: (value) => `${value.toFixed(1)} s` };
const AXES = {
  step: { unit: "", x: (point) => point[0], name: (value) => `step ${value}` },
  time: { ...seconds, x: (point) => point[1] },
  warm: { ...seconds, x: (point, first) => point[1] - first[1] },
};
const COMPARE = "#compare";
const chosen = (name) => document.querySelector(`[name=${name}]:checked`).value;
const state = { climb: undefined, rung: undefined }; // climb: null for the comparison

const address = (climb, row) =>
  `#${[climb.id, ...(row ? [row.stem] : [])].map(encodeURIComponent).join("/")}`;
const ablationOf = (climb) => DATA.climbs.find((one) => one.beside === climb.id);
const withoutRung = (climb, rung) =>
  ablationOf(climb)?.rows.find((one) => one.stem === `without_${rung.stem}`);
const baseOf = (climb, row) => climb.rows.find((one) => one.stem === row.against);
const startsBeyond = (rows, i) => i > 0 && rows[i].beyond && !rows[i - 1].beyond;

// Climbs of one kind, by the heading of their gains, where there are several: only they compare.
const comparable = () => {
  const groups = Object.groupBy(DATA.climbs, (climb) => climb.compared);
  return Object.entries(groups).filter(([heading, climbs]) => heading && climbs.length > 1);
};

// The address says what is open: #CLIMB/STEM, #CLIMB or #compare; else it is the first climb.
function follow() {
  const { hash } = location;
  const before = { ...state };
  const named = DATA.climbs.find((climb) => `${hash}/`.startsWith(`${address(climb)}/`));
  const compare = hash === COMPARE && comparable().length;
  state.climb = compare ? null : named || DATA.climbs[0];
  state.rung = state.climb?.rows.find((row) => address(state.climb, row) === hash);
  if (state.climb !== before.climb) {
    drawAll();
  } else {
    drawBars();
    hold(state.rung);
    // What was closed gives the focus back to its bar.
    const closed = state.climb.rows.indexOf(before.rung);
    if (closed >= 0) document.querySelectorAll(".bar")[closed].focus();
  }
  drawRung();
}

const go = (where) => { location.hash = where; };

function drawAll() {
  const { climb } = state;
  const shown = climb ? [climb, ablationOf(climb)].filter(Boolean) : DATA.climbs;
  // An ablation beside a climb has no option of its own.
  const option = climb && (DATA.climbs.find((one) => one.id === climb.beside) || climb);
  $("climb").value = climb ? address(option) : COMPARE;
  $("one").hidden = !climb;
  $("compare").hidden = Boolean(climb);
  $("caption").textContent = climb?.caption;
  $("progress").textContent = climb?.progress;
  $("foot").replaceChildren(...shown.flatMap(
    (one) => [h("h3", {}, one.label), terms("pairs", Object.entries(one.foot))]));
  if (!climb) return drawCompare();
  drawBars();
  drawWorth();
  drawLoss();
  $("tables").replaceChildren(...shown.map((one) => numbers(one, climb)));
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
const span = (kind, from, to, ...children) =>
  h("span", { class: kind, style: `left:${share(from)};width:${share(to - from)}` }, children);
const tick = (at, text, kind = "") =>
  h("span", { class: kind, style: `--at:${share(at)}` }, h("small", {}, text));

// Rows below each other, each with lanes: marks on a track, and words on the right. nodeOf and
// lanesOf tell of a row the element that it is, and its lanes.
function chart(host, rows, scale, nodeOf, lanesOf) {
  host.style.setProperty("--name", `${Math.max(...rows.map((row) => row.title.length)) + 2}ch`);
  const lane = ({ marks, said, style }) => h("span", { class: "lane", style },
    h("span", { class: "track" }, marks), h("span", { class: "said" }, said));
  host.replaceChildren(h("div", { class: "scale" }, scale), ...rows.flatMap((row, i) => [
    ...(startsBeyond(rows, i) ? [h("p", { class: "beyond" }, "beyond the ten")] : []),
    make(nodeOf(row), {},
      h("span", { class: "name" }, row.title), h("span", {}, lanesOf(row).map(lane))),
  ]));
}

function drawBars() {
  const { climb, rung } = state;
  const key = chosen("metric");
  const metric = METRICS[key];
  const limit = climb.limit?.[key];
  const most = Math.max(limit || 0, ...climb.rows.flatMap((row) => row[key] || [])) || 1;
  const scale = ticks(0, most, 7).map((value) => tick(value / most, metric.name(value)));
  if (limit) {
    scale.push(tick(limit / most, `all FLOPs at matmul peak: ${metric.name(limit)}`, "limit"));
  }
  const text = (row) => row.cells[row.tok ? metric.cell : 1]; // or why it failed
  // Each row is a button, also where a run failed and there is no bar. The open one closes.
  const bar = (row) => button({
    class: row === rung ? "row bar open" : "row bar",
    "data-stem": row.stem,
    "aria-label": `${row.title}: ${row.tok ? `${metric.title} ` : ""}${text(row)}`,
    "aria-expanded": row === rung,
  }, () => go(address(climb, row === rung ? null : row)));
  chart($("bars"), climb.rows, scale, bar, (row) => {
    const [mid, low, high] = row[key] || [];
    return [{ marks: [
      mid && span("fill", 0, mid / most),
      high && span("whisker", low / most, high / most),
      h("span", { class: "value", style: `left:${share((high || mid || 0) / most)}` }, text(row)),
    ] }];
  });
  $("bars-title").textContent = metric.title;
  $("limit").textContent =
    limit ? `The limit is ${climb.limit.times.toFixed(1)} times the fastest rung.` : "";
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

const GAIN_TICKS = [1, 2, 0.5, 4, 1.5, 0.75, 3, 1.25, 8, 6, 16, 1.1, 0.9, 32, 64];
const NOISE =
  "Hollow: within noise. Lines: 95 % intervals, cut at the edge; the table has their ends.";
const letterOf = (k) => String.fromCharCode(65 + k);

// A legend, dots and whiskers on a scale of ratios, and a note. Each row has `series`: for each
// name the row of a climb, or nothing. `letters`: where the marks alone could be mixed up.
function drawGains(host, names, rows, note, letters) {
  const gains = rows.flatMap((row) => row.series).map((one) => one?.gain).filter(Boolean);
  const low = Math.max(0.25, Math.min(0.9, ...gains.map((gain) => gain.low))) * 0.97;
  const furthest = Math.max(4, ...gains.map((gain) => gain.ratio)) * 1.5;
  const high = Math.min(furthest, Math.max(1.1, ...gains.map((gain) => gain.high))) * 1.03;
  const x = (ratio) =>
    Math.log(Math.min(Math.max(ratio, low), high) / low) / Math.log(high / low);
  const shown = [];
  for (const one of GAIN_TICKS.filter((ratio) => ratio > low && ratio < high)) {
    if (shown.every((other) => Math.abs(x(other) - x(one)) > 0.16)) shown.push(one);
  }
  const scale = shown.map((one) => tick(x(one), percent(one), one === 1 ? "zero" : ""));
  const lane = (one, k) => {
    if (!one?.cells[GAIN]) return [];
    const { gain } = one;
    const [words] = one.cells[GAIN].split(" ("); // the interval is drawn
    const said = h("span", { class: gain && !gain.noise ? "" : "soft" },
      letters && `${letterOf(k)} `, words);
    const marks = gain && [
      span("whisker", x(gain.low), x(gain.high)),
      span("centre", x(gain.ratio), x(gain.ratio), mark(k, gain.noise)),
    ];
    return [{ said, marks, style: ink(k) }];
  };
  const bars = h("div", { class: "chart gains" });
  chart(bars, rows, scale, () => h("div", { class: "row" }), (row) => row.series.flatMap(lane));
  host.replaceChildren(
    h("ul", { class: "legend" }, names.map((name, k) => h("li", {}, mark(k, false), name))),
    bars, h("figcaption", {}, note, NOISE));
}

// Gains of a climb, with those of leaving one out beside them where they were measured.
function drawWorth() {
  const { climb } = state;
  const ablation = ablationOf(climb);
  const rows = climb.rows.slice(1).map(
    (row) => ({ ...row, series: [row, withoutRung(climb, row)] }));
  $("worth").hidden = !rows.some((row) => row.series.some((one) => one?.gain));
  const names = [climb.columns[GAIN]];
  if (ablation) names.push(`${ablation.columns[GAIN]} (leave-one-out)`);
  drawGains($("gains"), names, rows, [
    climb.against === "above" && "A gain over the row above depends on the order of the rungs. ",
    ablation && `Leave-one-out: each rung taken back alone from ${ablation.rows[0].title}, ` +
      `in a sitting of its own (commit ${ablation.commit}). `,
  ], false);
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
  const [x0, x1, y0, y1] = [...bounds(0), ...bounds(1)];
  const x = (value) => (value - x0) / (x1 - x0 || 1);
  const y = (value) => (y1 - value) / (y1 - y0 || 1);
  const curve = (tag, k, attributes) => s(tag, {
    class: "curve",
    style: `--hue:${Math.round(265 - (k / Math.max(rows.length - 1, 1)) * 245)}`,
    "stroke-dasharray": DASHES[k % DASHES.length],
    ...attributes,
  });
  const along = ticks(x0, x1, 8).filter((value) => axis.unit || Number.isInteger(value));
  const cursor = tick(1, "", "cursor");
  $("curves").replaceChildren(
    h("div", { class: "scale" },
      along.map((value) => tick(x(value), `${value}${axis.unit}`)), cursor),
    h("div", { class: "scale y" }, ticks(y0, y1, 6).map((value) => tick(y(value), value))),
    s("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true" },
      curves.map((points, k) => curve("polyline", k, {
        "data-curve": rows[k].stem,
        points: points.map(([at, loss]) => `${x(at) * 1000},${y(loss) * 1000}`).join(" "),
      }))));
  $("readout").replaceChildren(...rows.map((row, k) => h("li", {},
    button({ "data-curve": row.stem },
      ({ currentTarget }) => hold(currentTarget.ariaPressed === "true" ? null : row),
      s("svg", { width: 28, height: 10, "aria-hidden": "true" },
        curve("line", k, { x2: 28, y1: 5, y2: 5 })),
      row.title, h("span", { class: "value" })))));

  const read = () => {
    const at = Number($("at").value);
    const losses = curves.map((points) => points.findLast((point) => point[0] <= at + 1e-9)?.[1]);
    const texts = losses.map((loss) => loss?.toFixed(4) || "–");
    cursor.style = `--at:${share(x(at))}`;
    cursor.firstChild.textContent = axis.name(at);
    $("readout").querySelectorAll(".value").forEach((node, k) => { node.textContent = texts[k]; });
    const said = rows.map((row, k) => `${row.title} ${texts[k]}`).join(", ");
    $("at").setAttribute("aria-valuetext", `${axis.name(at)}: ${said}`);
  };
  make($("at"), { min: x0, max: x1, step: axis.unit ? "any" : 1 });
  $("at").value = x1;
  $("at").oninput = read;
  $("curves").onpointermove = $("curves").onpointerdown = (event) => {
    const box = $("curves").getBoundingClientRect();
    $("at").value = x0 + ((event.clientX - box.left) / box.width) * (x1 - x0);
    read();
  };
  read();
  hold(state.rung);
}

// The curve of one row stands out, with its button pressed; none without a row.
function hold(row) {
  $("curves").classList.toggle("chosen", Boolean(row));
  for (const node of document.querySelectorAll("[data-curve]")) {
    node.setAttribute("aria-pressed", node.dataset.curve === row?.stem);
  }
}

// ------------------------------------------------------------------------------ one rung

function drawRung() {
  const { climb, rung } = state;
  $("rung").hidden = !rung;
  if (!rung) return;
  const at = climb.rows.indexOf(rung);
  const without = withoutRung(climb, rung);
  const title = h("h2", { id: "rung-title", tabindex: -1 }, rung.title);
  const turn = (text, row) =>
    button({ disabled: row ? null : "" }, () => go(address(climb, row)), text);
  $("rung").replaceChildren();
  make($("rung"), {},
    title,
    h("nav", { class: "group", "aria-label": "Rungs" },
      turn("← before", climb.rows[at - 1]), turn("next →", climb.rows[at + 1]),
      button({}, () => go(address(climb)), "Close")),
    inside(climb, rung),
    without && [
      h("h3", {}, `Left out of ${ablationOf(climb).rows[0].title}`),
      h("details", { class: "left-out" },
        h("summary", {}, `Without it: ${without.cells[GAIN] || without.cells[1]}`),
        inside(ablationOf(climb), without)),
    ]);
  title.focus({ preventScroll: true });
  title.scrollIntoView();
}

// All about one row of a climb: numbers, docstring, change, stages, logs.
function inside(climb, row) {
  const ran = Object.entries(row.effective || {}).map(([name, value]) => `${name}: ${value}`);
  return [
    row.tok
      ? terms("figures", climb.columns.map((name, i) => [name, row.cells[i]]).slice(1))
      : h("p", { class: "notice" }, row.cells[1]),
    terms("pairs", row.doc),
    row.tok && [h("h3", {}, "What ran"), h("p", {}, ran.join(" · "))],
    row.against && change(row, baseOf(climb, row)),
    row.profile && stages(row.profile),
    row.tok && [
      h("h3", {}, "Raw logs"),
      h("p", { class: "soft" }, DATA.logs_note),
      row.logs.map(([name, text]) =>
        h("details", {}, h("summary", {}, name), h("pre", { tabindex: 0 }, text))),
    ],
  ];
}

// Where the scripts are from is said in words: a diff of other code than what ran misleads.
function change(row, base) {
  const from = row.source === base.source
    ? `Both scripts ${row.source}.`
    : `${row.title}: ${row.source}. ${base.title}: ${base.source}.`;
  const none = row.diff ? "The code of the two is the same." : "There is no diff to show.";
  return [
    h("h3", {}, `Change against ${base.title}`),
    h("p", { class: "soft" }, `${from} Docstrings are left out.`),
    row.diff?.length ? scrolling("Diff", diff(row.diff)) : h("p", {}, none),
  ];
}

// A unified diff with the numbers of its lines in both files. What went out and what came in
// instead are a pair of blocks: one above the other, or side by side where there is room.
function diff(lines) {
  const host = h("div", { class: "diff" });
  let [before, after, pair] = [];
  const code = (sign, text) => h("div", { class: "code" },
    h("span", { class: "no" }, sign !== "+" && before++),
    h("span", { class: "no" }, sign !== "-" && after++),
    h("span", { class: "sign" }, sign.replace("-", "−")), h("span", { class: "text" }, text));
  for (const text of lines) {
    const head = /^@@ -(\d+)\S* \+(\d+)\S* @@$/.exec(text);
    if (head) {
      [before, after, pair] = [Number(head[1]), Number(head[2])];
      host.append(h("div", { class: "hunk" }, text));
    } else if (text[0] === " ") {
      pair = null;
      host.append(code(" ", text.slice(1)));
    } else {
      pair ||= host.appendChild(
        h("div", { class: "pair" }, h("div", { class: "del" }), h("div", { class: "add" })));
      pair.children["-+".indexOf(text[0])].append(code(text[0], text.slice(1)));
    }
  }
  return host;
}

function stages(found) {
  const { step, ...parts } = found.median_ms;
  const sum = Object.values(parts).reduce((total, ms) => total + ms);
  const times = Object.entries({ ...parts, sum, "step left alone": step });
  const kernels = found.kernels.map((one) => line(one.name,
    [one.ms.toFixed(1), `${(one.share * 100).toFixed(1)}%`, one.calls]));
  const most = `The ${kernels.length} most expensive, by self time`;
  return [
    h("h3", {}, "Where the time goes"),
    h("p", { class: "soft" },
      `From ladder profile, a run of its own: ${found.folder}, commit ${found.commit}.`),
    h("div", { class: "stack", "aria-hidden": "true" }, Object.entries(parts).map(([name, ms], k) =>
      h("span", { style: `width:${share(ms / sum)};${ink(k)}` }, name))),
    terms("figures", times.map(([name, ms]) => [name, `${ms.toFixed(1)} ms`])),
    h("div", { class: "kernels" }, table(most, ["kernel", "ms", "share", "calls"], kernels)),
  ];
}

// ------------------------------------------------------------------------------ tables

// The numbers of a climb as in README.md. A rung that was left out opens where its climb has it.
function numbers(climb, home) {
  const wide = climb.columns.length;
  const rows = climb.rows.map((row, i) => {
    const to = home.rows.find((one) => one.stem === row.stem.replace(/^without_/, ""));
    const name = to ? h("a", { href: address(home, to) }, row.title) : row.title;
    const beyond = h("th", { colspan: wide, scope: "rowgroup" }, "beyond the ten");
    return [
      startsBeyond(climb.rows, i) && h("tr", { class: "beyond" }, beyond),
      row.tok ? line(name, row.cells.slice(1)) : line(name, [row.cells[1]], wide - 1),
    ];
  });
  return table(`${climb.label}, commit ${climb.commit}`, climb.columns, rows);
}

// One row for each script and what it was measured against: gains over other rows do not compare.
function comparedRows(climbs) {
  const found = {};
  climbs.forEach((climb, k) => climb.rows.filter((row) => row.against).forEach((row) => {
    const base = baseOf(climb, row).title;
    const one = (found[`${row.stem}/${row.against}`] ||= { ...row, base, series: [] });
    one.series[k] = row;
  }));
  const rows = Object.values(found).sort(
    (a, b) => a.beyond - b.beyond || (a.title < b.title ? -1 : 1));
  const twice = (row) => rows.filter((other) => other.stem === row.stem).length > 1;
  return rows.map((row) => ({
    ...row, title: twice(row) ? `${row.title} (over ${row.base})` : row.title,
  }));
}

function drawCompare() {
  $("compared").replaceChildren(...comparable().flatMap(([heading, climbs]) => {
    const rows = comparedRows(climbs);
    const chart = h("figure", {});
    drawGains(chart, climbs.map((climb, k) => `${letterOf(k)}: ${climb.label}`), rows, [], true);
    const lines = rows.map((row) =>
      line(row.title, climbs.map((_, k) => row.series[k]?.cells[GAIN] || "–")));
    return [h("h2", {}, heading), chart,
      table(heading, ["rung", ...climbs.map((_, k) => letterOf(k))], lines)];
  }));
}

// ------------------------------------------------------------------------------ start

const options = DATA.climbs.filter((one) => !one.beside).map((one) => [address(one), one.label]);
if (comparable().length) options.push([COMPARE, "Compare the gains of all climbs"]);
make($("climb"), {}, options.map(([value, label]) => h("option", { value }, label)));
$("made").textContent = DATA.made;
$("climb").addEventListener("change", (event) => go(event.target.value));
$("metrics").addEventListener("change", drawBars);
$("axes").addEventListener("change", drawLoss);
addEventListener("hashchange", follow);
follow();
