// The charts, in Vega-Lite. Colours are the page's own variables, so that schemes and print need no new drawing.

const LOOKS = [
  { colour: "var(--c1)", dash: [1, 0], shape: "circle" },
  { colour: "var(--c2)", dash: [7, 3], shape: "M-.9,-.9H.9V.9H-.9Z" },
  { colour: "var(--c3)", dash: [2, 2], shape: "M0,-1.1L1,.8H-1Z" },
  { colour: "var(--c4)", dash: [9, 3, 2, 3], shape: "M0,-1.2L1.2,0L0,1.2L-1.2,0Z" },
  { colour: "var(--c5)", dash: [12, 4], shape: "M-1,-.35H-.35V-1H.35V-.35H1V.35H.35V1H-.35V.35H-1Z" },
  { colour: "var(--c6)", dash: [4, 2, 1, 2, 1, 2], shape: "M0,1.1L1,-.8H-1Z" },
];
const ROLES = {
  honest: { colour: "var(--honest)", dash: [1, 0], shape: "circle" },
  adversary: { colour: "var(--adversary)", dash: [5, 3], shape: "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z" },
};
const MANY = 30; // so many groups have a line of the dots
const font = getComputedStyle(document.body).fontFamily;
const CONFIG = {
  aria: false,
  background: "transparent",
  font,
  view: { stroke: null },
  axis: {
    labelColor: "var(--soft)", titleColor: "var(--soft)", domainColor: "var(--line)", tickColor: "var(--line)", gridColor: "var(--grid)",
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelPadding: 5, titlePadding: 8,
  },
  header: { labelColor: "var(--ink)", labelFontSize: 12.5, labelFontWeight: 600, labelAnchor: "start", labelPadding: 6, title: null },
};

const lookOf = (looks, names, part) => ({ domain: names, range: names.map((_, i) => looks[i][part]) });
const roleLook = (part) => lookOf(Object.values(ROLES), Object.keys(ROLES), part);
const ofRole = (part) => ({ field: "role", type: "nominal", scale: roleLook(part), legend: null });

/** Whether the page is as narrow as a phone. */
const narrow = () => by("main").clientWidth < 600;
const spacing = 28;

/** Columns and width of small charts beside each other. */
function facets(many) {
  const columns = narrow() ? 1 : many === 4 ? 2 : Math.min(many, 3);
  return { columns, width: Math.floor((by("main").clientWidth - 84 - spacing * (columns - 1)) / columns) };
}

/** Room for the names of groups at the left of a chart. */
function labels(names) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `12px ${font}`;
  const longest = Math.max(...names.map((name) => pen.measureText(name).width));
  return Math.ceil(Math.min(longest, narrow() ? 140 : 300)) + 12;
}

const facetOf = (every, columns, width) => ({
  facet: { field: "group", type: "nominal", sort: every.map(title), header: { labelLimit: width + 20 } }, columns, spacing: { row: 26, column: spacing },
});

/** An interval as it is drawn: of what cannot be below 0 it ends there, of a part of a whole at 100 % too. */
function band(value, half, unit) {
  const low = ["percent", "bytes", "seconds", "spread"].includes(unit) ? Math.max(0, value - half) : value - half;
  return { low, high: unit === "percent" ? Math.min(100, value + half) : value + half };
}

/** Rounds at which an axis has ticks, so many at most: whole numbers, which a renderer halves where there are few. */
function ticks(rows, most, field = "round") {
  const numbers = rows.map((row) => row[field]);
  const [first, last] = [field === "round" ? Math.min(...numbers) : 0, Math.max(...numbers)];
  const step = [1, 2, 5].flatMap((digit) => [0, 1, 2, 3, 4, 5].map((power) => digit * 10 ** power)).sort((a, b) => a - b)
    .find((size) => (last - first) / size < most);
  const begin = step === 1 ? first : Math.ceil(first / step) * step;
  return Array.from({ length: Math.floor((last - begin) / step) + 1 }, (_, i) => begin + i * step);
}

function dots(every, measures) {
  const here = every.slice(0, MANY);
  const rows = measures.flatMap((m) => {
    const { unit } = page.measures[m];
    const scale = UNITS[unit].factor;
    return here.filter((group) => Number.isFinite(group.estimates[m]?.mean)).map((group) => {
      const { mean: middle, half } = group.estimates[m];
      const value = scale * middle;
      return {
        group: title(group), panel: heading(page.measures[m]), value, ...band(value, scale * (half ?? 0), unit),
        said: shownEstimate(group.estimates[m], unit),
      };
    });
  });
  if (!rows.length) return null;
  const panels = [...new Set(rows.map((row) => row.panel))];
  const label = labels(here.map(title));
  const columns = narrow() ? 1 : panels.length;
  const width = Math.floor((by("main").clientWidth - label - 30 - (columns - 1) * spacing) / columns);
  const tooltip = [{ field: "group", title: "group" }, { field: "said", title: "value" }];
  return {
    data: { values: rows },
    facet: { field: "panel", type: "nominal", sort: panels }, columns, spacing: { row: 26, column: spacing },
    resolve: { scale: { x: "independent" }, axis: { x: "independent" } },
    spec: {
      width, height: { step: 26 },
      encoding: {
        y: { field: "group", type: "nominal", sort: here.map(title), title: null, axis: { labelLimit: label - 10, labelColor: "var(--ink)", domain: false, ticks: false, grid: true } },
        tooltip,
      },
      layer: [
        { mark: { type: "rule", strokeWidth: 2.5, color: "var(--c1)", opacity: 0.55 }, encoding: { x: { field: "low", type: "quantitative", title: null, scale: { zero: false, nice: true }, axis: { tickCount: 5, grid: false } }, x2: { field: "high" } } },
        { mark: { type: "point", filled: true, size: 75, color: "var(--c1)", opacity: 1 }, encoding: { x: { field: "value", type: "quantitative" } } },
      ],
    },
  };
}

function accuracy(every) {
  const first = every.slice(0, FIRST);
  const rows = first.flatMap((group) => accuracyOf(group).map(({ round, found }) => ({
    group: title(group), number: String(group.number), round, value: 100 * found.mean, ...(found.half === null ? {} : band(100 * found.mean, 100 * found.half, "percent")),
    said: shownEstimate(found, "percent") + (found.n < group.seeds ? `, of ${found.n} of ${group.seeds} seeds` : ""),
  })));
  if (!rows.length) return null;
  const names = first.map(title);
  const look = (part) => ({ field: "group", type: "nominal", scale: lookOf(LOOKS, names, part), legend: null });
  const last = Math.max(...rows.map((row) => row.round));
  const step = Math.max(1, Math.ceil(last / 8));
  const marked = new Set();
  for (const row of rows) {
    const aside = Math.floor((names.indexOf(row.group) * step) / FIRST); // side by side, not upon each other
    const slot = `${row.group} ${Math.floor((row.round + aside) / step)}`;
    if (!marked.has(slot)) { marked.add(slot); row.mark = true; }
  }
  const ends = first.map((group) => rows.filter((row) => row.group === title(group)).at(-1)).filter(Boolean);
  const tooltip = [{ field: "group" }, { field: "round" }, { field: "said", title: "accuracy" }];
  const x = { field: "round", type: "quantitative", title: "round", scale: { domain: [Math.min(...rows.map((row) => row.round)), last], nice: false }, axis: { values: ticks(rows, narrow() ? 5 : 10), format: "d", grid: false } };
  const y = { type: "quantitative", title: "accuracy, %", scale: { zero: false }, axis: { tickCount: 6 } };
  const banded = (row) => row.low !== undefined; // of one seed there is no interval
  const height = narrow() ? 260 : 360;
  const [lowest, highest] = [Math.min(...rows.map((row) => row.low ?? row.value)), Math.max(...rows.map((row) => row.high ?? row.value))];
  return {
    data: { values: rows }, width: by("main").clientWidth - 86, height,
    encoding: { x },
    layer: [
      ...(rows.some(banded) ? [{ transform: [{ filter: "isValid(datum.low)" }], mark: { type: "area", opacity: 0.14 }, encoding: { y: { ...y, field: "low" }, y2: { field: "high" }, color: look("colour") } }] : []),
      { mark: { type: "line", strokeWidth: 2 }, encoding: { y: { ...y, field: "value" }, color: look("colour"), strokeDash: look("dash"), tooltip } },
      { transform: [{ filter: "datum.mark" }], mark: { type: "point", filled: true, size: 55, opacity: 1 }, encoding: { y: { field: "value", type: "quantitative" }, color: look("colour"), shape: look("shape"), tooltip } },
      { data: { values: apart(ends, (15 / height) * (highest - lowest), highest) }, mark: { type: "text", align: "left", dx: 8, fontSize: 13, fontWeight: 600 }, encoding: { y: { field: "at", type: "quantitative" }, text: { field: "number" }, color: look("colour") } },
    ],
  };
}

/** The ends of curves with heights for their labels, ascending and at least so far from each other. */
function apart(ends, gap, highest) {
  const sorted = [...ends].sort((a, b) => a.value - b.value).map((end) => ({ ...end, at: end.value }));
  for (let i = 1; i < sorted.length; i++) sorted[i].at = Math.max(sorted[i].at, sorted[i - 1].at + gap);
  let above = highest + gap;
  for (const end of sorted.reverse()) above = end.at = Math.min(end.at, above - gap);
  return sorted;
}

function reputation(every) {
  const first = every.slice(0, FIRST);
  const rows = reputationRows(first);
  if (!rows.length) return null;
  const there = first.filter((group) => rows.some((row) => row.number === group.number));
  const { columns, width } = facets(there.length);
  return {
    data: { values: rows }, ...facetOf(there, columns, width),
    spec: {
      width, height: 190, mark: { type: "line", strokeWidth: 1.7 },
      encoding: {
        x: { field: "round", type: "quantitative", title: "round", scale: { nice: false }, axis: { values: ticks(rows, 5), format: "d", grid: false } },
        y: { field: "value", type: "quantitative", title: "reputation", axis: { tickCount: 5 } },
        detail: { field: "who" }, color: ofRole("colour"), strokeDash: ofRole("dash"),
        tooltip: [{ field: "who", title: "participant" }, { field: "role" }, { field: "round" }, { field: "value", title: "reputation", format: ".4f" }],
      },
    },
  };
}

function alone(every) {
  const first = every.slice(0, FIRST);
  const rows = comparedRows(every).map((row) => ({ ...row, alone: 100 * row.alone, final: 100 * row.final }))
    .sort((a, b) => (a.role === "adversary") - (b.role === "adversary")); // adversaries above
  if (!rows.length) return null;
  const ends = rows.flatMap((row) => [row.alone, row.final]);
  const margin = Math.max(1, 0.05 * (Math.max(...ends) - Math.min(...ends)));
  const domain = [Math.max(0, Math.min(...ends) - margin), Math.min(100, Math.max(...ends) + margin)];
  const there = first.filter((group) => rows.some((row) => row.number === group.number));
  const { columns, width } = facets(there.length);
  const line = there.flatMap((group) => domain.map((end) => ({ group: title(group), alone: end, final: end })));
  const axis = (name) => ({ type: "quantitative", scale: { domain, nice: false }, title: name, axis: { tickCount: 5 } });
  return {
    data: { values: [...rows, ...line.map((entry) => ({ ...entry, line: true }))] }, ...facetOf(there, columns, width),
    spec: {
      width, height: Math.min(width, 260),
      encoding: { x: { field: "alone", ...axis("alone, %") }, y: { field: "final", ...axis("final, %") } },
      layer: [
        { transform: [{ filter: "datum.line" }], mark: { type: "line", color: "var(--soft)", strokeWidth: 1, strokeDash: [3, 3] } },
        {
          transform: [{ filter: "!datum.line" }], mark: { type: "point", filled: true, size: 60, opacity: 0.85 },
          encoding: {
            color: ofRole("colour"), shape: ofRole("shape"),
            tooltip: [{ field: "run" }, { field: "who", title: "participant" }, { field: "does", title: "role" }, { field: "examples" }, { field: "alone", format: ".1f", title: "alone, %" }, { field: "final", format: ".1f", title: "final, %" }],
          },
        },
      ],
    },
  };
}

function removed(every) {
  const rows = participantRows(every.slice(0, MANY)).filter((row) => row.removed !== null);
  if (!rows.length) return null;
  const there = every.slice(0, MANY).filter((group) => rows.some((row) => row.number === group.number));
  const roles = Object.keys(ROLES).filter((role) => rows.some((row) => row.role === role));
  const most = Math.max(...there.flatMap((group) => group.runs.map((run) => run.rounds)));
  const label = labels(there.map(title));
  return {
    data: { values: rows },
    transform: [{ aggregate: [{ op: "count", as: "many" }], groupby: ["group", "role", "removed"] }],
    width: by("main").clientWidth - label - 30, height: { step: 30 },
    encoding: {
      y: { field: "group", type: "nominal", sort: there.map(title), title: null, axis: { labelLimit: label - 10, labelColor: "var(--ink)", domain: false, ticks: false, grid: true } },
      x: { field: "removed", type: "quantitative", title: "round", scale: { domain: [0, most], nice: false }, axis: { values: ticks([{ most }], narrow() ? 5 : 10, "most"), format: "d", grid: false } },
      tooltip: [{ field: "group" }, { field: "role" }, { field: "removed", title: "round" }, { field: "many", title: "how many" }],
    },
    layer: roles.map((role, i) => {
      const yOffset = 14 * (i - (roles.length - 1) / 2); // one role above the line, the other below
      return {
        transform: [{ filter: { field: "role", equal: role } }],
        layer: [
          { mark: { type: "point", filled: true, size: 80, opacity: 1, yOffset }, encoding: { color: ofRole("colour"), shape: ofRole("shape") } },
          { mark: { type: "text", dx: 9, align: "left", fontSize: 11, color: "var(--ink)", yOffset }, encoding: { text: { field: "many" } } },
        ],
      };
    }),
  };
}

const CHARTS = {
  dots: { spec: (every) => dots(every, [state.measure]), says: () => `${page.measures[state.measure].name} of every group`, empty: "No group that is shown has a finite mean of this measure." },
  accuracy: { spec: accuracy, says: () => "Accuracy over the rounds, a curve for each group", empty: "These runs measured no accuracy on the way." },
  reputation: { spec: reputation, says: () => "Reputation over the rounds, a small chart for each group", empty: "These runs have no reputations." },
  alone: { spec: alone, says: () => "Final against standalone accuracy, a small chart for each group", empty: "These runs have no standalone reference." },
  removed: { spec: removed, says: () => "Rounds in which participants were removed, a line for each group", empty: "Nobody was removed." },
  cost: { spec: (every) => dots(every, costs()), says: () => "Bytes and seconds of every group", empty: "Neither bytes nor seconds are known of these runs." },
};

/** Which of the groups have no chart of final against standalone accuracy. */
function withoutReference(every) {
  const there = new Set(comparedRows(every).map((row) => row.number));
  const lacking = every.slice(0, FIRST).filter((group) => !there.has(group.number)).map((group) => group.number);
  return there.size && lacking.length ? ` Without a standalone reference: group ${lacking.join(", ")}.` : "";
}

/** Which of the groups have no dot, since their mean is none that an axis has. */
function infinite(every) {
  const beyond = every.slice(0, MANY).filter((group) => group.estimates[state.measure]?.mean === Infinity).map((group) => group.number);
  return beyond.length ? ` Without a dot, since their mean is ∞: group ${beyond.join(", ")}.` : "";
}

const NOTES = {
  dots: (_, every) => `Dot: mean over seeds. Line: its 95\u00a0% interval.${infinite(every)}`,
  accuracy: (first) => `Mean accuracy of the honest on ${watched()}${first}. Line: mean over seeds. Band: its 95 % interval, where two seeds and more are left; runs may end before others. The number at the end is the group's.`,
  reputation: (first) => `Everybody's reputation, or weight under servers without reputations, mean over seeds${first}. Whoever is removed drops to 0.`,
  alone: (first, every) => `Test accuracy of every participant: training alone, and at the end of the federation${first}. Above the dashed line a participant gained; all seeds together.${withoutReference(every)}`,
  removed: () => "Beside each mark: how many participants, all seeds together.",
};

function swatch({ colour, dash, shape }, line, point) {
  const mark = shape === "circle" ? '<circle r="4"/>' : `<path d="${shape}" transform="scale(4)"/>`;
  const stroke = line ? `<line x1="-17" x2="17" stroke="${colour}" stroke-width="2" stroke-dasharray="${dash[1] ? dash.join(" ") : "none"}"/>` : "";
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ viewBox: line ? "-18 -7 36 14" : "-7 -7 14 14", width: line ? 36 : 14, height: 14, "aria-hidden": "true" })) made.setAttribute(name, value);
  made.innerHTML = stroke + (point ? `<g fill="${colour}">${mark}</g>` : "");
  return made;
}

function drawKeys(every) {
  for (const key of document.querySelectorAll("[data-key]")) {
    const of = key.dataset.key;
    const entries = of === "groups" ? every.slice(0, FIRST).map((group, i) => [title(group), LOOKS[i]]) : Object.entries(ROLES);
    key.replaceChildren(...entries.map(([name, look]) => element("li", {}, swatch(look, of !== "roles-points", of !== "roles-lines"), name)));
  }
}

const views = {};

async function drawCharts(every) {
  drawKeys(every);
  const first = every.length > FIRST ? `; the first ${FIRST} groups in the order above` : "";
  for (const [name, say] of Object.entries(NOTES)) by(`${name}-note`).textContent = say(first, every);
  await Promise.all([...document.querySelectorAll("[data-chart]")].map((place) => drawChart(place, every)));
}

async function drawChart(place, every) {
  const name = place.dataset.chart;
  const { spec, says, empty } = CHARTS[name];
  const made = every.length ? spec(every) : null;
  views[name]?.finalize();
  delete views[name];
  place.classList.toggle("empty", !made);
  const inner = element("div");
  if (!made) {
    place.replaceChildren(element("p", {}, every.length ? empty : "No run is left; tick more in the filter."));
    return;
  }
  inner.setAttribute("role", "img");
  inner.setAttribute("aria-label", `${says()}; the table below has its numbers.`);
  place.replaceChildren(inner);
  const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const options = { mode: "vega-lite", actions: false, renderer: "svg", config: CONFIG, defaultStyle: false, tooltip: { theme } };
  const result = await vegaEmbed(inner, made, options);
  inner.querySelector("svg").setAttribute("aria-hidden", "true"); // the label and the table speak for it
  if (inner.isConnected) views[name] = result; else result.finalize();
}
