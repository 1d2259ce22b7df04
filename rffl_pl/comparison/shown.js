// What the page knows, what of it is shown in which order, and how numbers are said.

const page = JSON.parse(document.getElementById("data").textContent);
for (const run of page.runs) run.measures = run.measures.map((value) => (value === "∞" ? Infinity : value)); // JSON has none
const FIRST = 6; // so many groups have curves
const state = { off: page.settings.map(() => new Set()), sort: "number", down: false, measure: 0, worst: 0 };
const by = (id) => document.getElementById(id);

/** What accuracies over the rounds were measured on. */
const watched = () => {
  const names = { validation: "held-out training examples", test: "the test set" };
  return [...new Set(page.runs.map((run) => names[run.watched] ?? "examples that no file names"))].join(" or, by run, ");
};

const known = (values) => values.filter((value) => value !== null && value !== undefined);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Mean over seeds, and half the width of its 95 % interval of Student's t; null of one seed. */
function estimate(values) {
  const there = known(values);
  const n = there.length;
  if (!n) return null;
  const m = mean(there);
  if (!Number.isFinite(m)) return { mean: m, half: null, n };
  const spread = Math.sqrt(there.reduce((sum, value) => sum + (value - m) ** 2, 0) / (n - 1));
  return { mean: m, half: n > 1 ? (page.t[n - 2] * spread) / Math.sqrt(n) : null, n };
}

/** One value per seed: runs of the same seed are no further evidence. */
function perSeed(runs, valueOf) {
  const found = new Map();
  for (const run of runs) {
    const value = valueOf(run) ?? null;
    const seed = run.seed ?? run.name;
    if (value !== null) found.set(seed, [...(found.get(seed) ?? []), value]);
  }
  return [...found.values()].map(mean);
}

const UNITS = {
  percent: { factor: 100, digits: 1, sign: "%" },
  ratio: { factor: 100, digits: 1, sign: "%" },
  points: { factor: 100, digits: 1, sign: "points" },
  spread: { factor: 100, digits: 1, sign: "points" },
  number: { factor: 1, digits: 3, sign: "" },
  bytes: { factor: 1e-6, digits: 2, sign: "MB" },
  seconds: { factor: 1, digits: 1, sign: "s" },
};

/** A measure as a heading, with its unit: numbers stand without. */
const heading = ({ name, unit }) => (UNITS[unit].sign ? `${name},\u00a0${UNITS[unit].sign}` : name);

function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  if (value === Infinity) return "∞";
  const { factor, digits } = UNITS[unit];
  const plus = unit === "points" && value > 0 ? "+" : "";
  return plus + (factor * value).toFixed(digits).replace(/^-(?=[0.]+$)/, "").replace("-", "−"); // no minus before zeros
}

function shownHalf(found, unit) {
  if (!found || found.half === null) return "";
  return `± ${(UNITS[unit].factor * found.half).toFixed(UNITS[unit].digits)}`;
}

const shownEstimate = (found, unit) => [shown(found?.mean, unit), shownHalf(found, unit)].filter(Boolean).join(" ");

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;
const title = (group) => `${group.number} · ${group.name}`;

const isShown = (run) => run.settings.every((value, i) => !state.off[i].has(value));

/** The groups that have a run left, in the order that is asked for. */
function groups() {
  const runs = page.runs.filter(isShown);
  const found = page.groups
    .map((group) => ({ ...group, runs: runs.filter((run) => run.called === group.number) }))
    .filter((group) => group.runs.length);
  for (const group of found) {
    group.seeds = perSeed(group.runs, () => 0).length;
    group.estimates = page.measures.map((_, m) => estimate(perSeed(group.runs, (run) => run.measures[m])));
    group.settings = page.settings.map((_, i) => {
      const values = [...new Set(group.runs.map((run) => run.settings[i]))];
      return values.length > 1 ? `${values.length} values` : values[0];
    });
  }
  return found.sort((a, b) => compare(sortKey(a), sortKey(b)) || a.number - b.number);
}

function sortKey(group) {
  if (state.sort === "number") return group.number;
  const [kind, place] = state.sort.split(" ");
  return kind === "setting" ? group.settings[place] : group.estimates[place]?.mean;
}

/** Numbers by value, words by the alphabet, what is missing last in both directions. */
function compare(a, b) {
  const missing = (a ?? null) === null ? ((b ?? null) === null ? 0 : 1) : (b ?? null) === null ? -1 : null;
  if (missing !== null) return missing;
  const numbers = [Number(a), Number(b)];
  const order = numbers.some(Number.isNaN) ? String(a).localeCompare(String(b)) : numbers[0] - numbers[1];
  return state.down ? -order : order;
}
