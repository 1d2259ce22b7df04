// What the page knows, what is shown of it, and its tables. Everything is drawn anew when filter or order change.

const page = JSON.parse(document.getElementById("data").textContent);
const FIRST = 6; // so many groups have curves
const state = { off: page.settings.map(() => new Set()), sort: "number", down: false, measure: 0, worst: 0 };
const by = (id) => document.getElementById(id);

// ---- numbers and words

const known = (values) => values.filter((value) => value !== null && value !== undefined);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Mean over seeds, and half the width of its 95 % interval of Student's t; null of one seed. */
function estimate(values) {
  const there = known(values);
  const n = there.length;
  if (!n) return null;
  const m = mean(there);
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
  points: { factor: 100, digits: 1, sign: "points" },
  number: { factor: 1, digits: 3, sign: "" },
  bytes: { factor: 1e-6, digits: 2, sign: "MB" },
  seconds: { factor: 1, digits: 1, sign: "s" },
};

/** A measure as a heading, with its unit: numbers stand without. */
const heading = ({ name, unit }) => (UNITS[unit].sign ? `${name},\u00a0${UNITS[unit].sign}` : name);

function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  const { factor, digits } = UNITS[unit];
  const plus = unit === "points" && value > 0 ? "+" : "";
  return plus + (factor * value).toFixed(digits).replace("-", "−");
}

function shownHalf(found, unit) {
  if (!found || found.half === null) return "";
  return `± ${(UNITS[unit].factor * found.half).toFixed(UNITS[unit].digits)}`;
}

const shownEstimate = (found, unit) => [shown(found?.mean, unit), shownHalf(found, unit)].filter(Boolean).join(" ");

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;
const title = (group) => `${group.number} · ${group.name}`;

// ---- what is shown

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

// ---- elements

function element(tag, attributes = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined && value !== false) made.setAttribute(name, value);
  made.append(...inside.filter((part) => part !== undefined && part !== null));
  return made;
}

let tables = 0;

/** What a table shows, and the table in a region that scrolls. */
function boxed(caption, made) {
  const id = `table-${(tables += 1)}`;
  made.setAttribute("aria-labelledby", id);
  const region = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": id }, made);
  return element("div", { class: "box" }, element("p", { class: "caption", id }, caption), region);
}

/** Columns: name, of(row), and whether it is a number, heads its row, is long, sorts. */
function table(caption, columns, rows) {
  const head = columns.map((column) => {
    const sorted = column.sort && state.sort === column.sort ? (state.down ? "descending" : "ascending") : undefined;
    const name = column.sort ? element("button", { type: "button", "data-sort": column.sort }, column.name) : column.name;
    return element("th", { scope: "col", class: column.number && "number", "aria-sort": sorted, title: column.says }, name);
  });
  const body = rows.map((row) =>
    element("tr", {}, ...columns.map((column) => {
      const value = column.of(row);
      const attributes = { scope: column.heads && "row", class: column.number ? "number" : column.long && "long" };
      return element(column.heads ? "th" : "td", attributes, value instanceof Node ? value : String(value ?? "–"));
    })),
  );
  return boxed(caption, element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
}

// ---- tables

const settingColumns = (sortable) =>
  page.settings.map((setting, i) => ({ name: setting.name, of: (row) => row.settings[i], sort: sortable && `setting ${i}`, says: setting.option }));
const numberColumn = (sortable) => ({ name: "Group", of: (row) => row.number ?? row.called, heads: true, sort: sortable && "number" });

function estimateCell(found, unit, seeds) {
  const few = found && found.n < seeds ? ` (n=${found.n})` : "";
  const half = shownHalf(found, unit);
  return element("span", {}, shown(found?.mean, unit), half && element("span", { class: "half" }, ` ${half}`), few);
}

const isOfAdversaries = (measure) => /removed|removal|attack|target|adversar/i.test(measure.name);
const isCost = (measure) => ["bytes", "seconds"].includes(measure.unit);
const places = (wanted) => page.measures.flatMap((measure, m) => (wanted(measure) ? [m] : []));
const costs = () => places(isCost);

function measureColumns(measures, sortable) {
  return measures.map((m) => ({
    name: heading(page.measures[m]), says: page.measures[m].says, number: true, sort: sortable && `measure ${m}`,
    of: (group) => estimateCell(group.estimates[m], page.measures[m].unit, group.seeds),
  }));
}

/** Numbers that are the same for all groups stand in the caption. */
function counted(every) {
  const columns = { Seeds: (group) => String(group.seeds), Rounds: (group) => [...new Set(group.runs.map((run) => run.rounds))].join(", ") };
  const same = Object.entries(columns).filter(([, of]) => new Set(every.map(of)).size === 1);
  const differ = Object.entries(columns).filter(([, of]) => new Set(every.map(of)).size > 1);
  const said = same.map(([name, of]) => `${of(every[0])} ${of(every[0]) === "1" ? name.slice(0, -1) : name}`.toLowerCase()).join(", ");
  return { said: said ? `; ${said}` : "", columns: differ.map(([name, of]) => ({ name, of, number: true })) };
}

function resultsTables(every) {
  if (!every.length) return [];
  const { said, columns } = counted(every);
  const settings = settingColumns(true).filter((_, i) => page.settings[i].name !== "seed");
  const results = places((measure) => !isCost(measure) && !isOfAdversaries(measure));
  const detection = places((measure) => isOfAdversaries(measure));
  const caption = (what) => `${what}: mean over seeds ± 95 % interval${said}`;
  const made = [table(caption("Accuracy, fairness and gain"), [numberColumn(true), ...settings, ...columns, ...measureColumns(results, true)], every)];
  const attacked = every.some((group) => detection.some((m) => group.estimates[m] && page.measures[m].key !== "honest_removed"));
  if (attacked) made.push(table(caption("Detection and attack"), [{ ...numberColumn(true), of: title }, ...measureColumns(detection, true)], every));
  return made;
}

const COLUMNS_OF_ROUNDS = 8;

/** At most so many of all rounds, evenly spread, the first and the last among them. */
function someRounds(rows) {
  const all = [...new Set(rows.map((row) => row.round))].sort((a, b) => a - b);
  if (all.length <= COLUMNS_OF_ROUNDS) return all;
  return Array.from({ length: COLUMNS_OF_ROUNDS }, (_, i) => all[Math.round((i * (all.length - 1)) / (COLUMNS_OF_ROUNDS - 1))]);
}

/** A row per key with the values of some rounds. */
function roundsTable(caption, columns, rows, keyOf, cell) {
  const lines = new Map();
  for (const row of rows) {
    if (!lines.has(keyOf(row))) lines.set(keyOf(row), { ...row, at: new Map() });
    lines.get(keyOf(row)).at.set(row.round, row);
  }
  const rounds = someRounds(rows).map((round) => ({ name: `Round ${round}`, number: true, of: (line) => (line.at.has(round) ? cell(line.at.get(round)) : "–") }));
  return table(`${caption}; metrics.csv of every run has all rounds`, [...columns, ...rounds], [...lines.values()]);
}

const TABLES = {
  "every-run": (every) => {
    const runs = every.flatMap((group) => group.runs);
    const named = [{ name: "Run", of: (run) => run.name, heads: true, long: true }, { name: "Group", of: (run) => run.called, number: true }];
    const settings = [{ name: "Date", of: (run) => run.date }, ...settingColumns(false), { name: "Rounds", of: (run) => run.rounds, number: true }];
    const measured = (wanted) => places(wanted).map((m) => ({ name: heading(page.measures[m]), of: (run) => shown(run.measures[m], page.measures[m].unit), number: true }));
    const isResult = (measure) => !isOfAdversaries(measure) && !isCost(measure);
    return [
      table("Every run: settings, accuracy, fairness and gain", [...named, ...settings, ...measured(isResult)], runs),
      table("Every run: detection, attack and cost", [...named, ...measured((measure) => !isResult(measure))], runs),
    ];
  },
  dots: (every) => estimatesTable(every, [state.measure]),
  cost: (every) => estimatesTable(every, costs()),
  accuracy: (every) => {
    const rows = every.slice(0, FIRST).flatMap((group) => accuracyOf(group).map((entry) => ({ ...entry, group })));
    const caption = "Accuracy of the honest on held-out training examples in %, mean over seeds ± 95 % interval";
    const columns = [{ name: "Group", of: (line) => title(line.group), heads: true }];
    return roundsTable(caption, columns, rows, (row) => row.group.number, (row) => estimateCell(row.found, "percent", row.group.seeds));
  },
  reputation: (every) => {
    const columns = [
      { name: "Group", of: (line) => line.group, heads: true },
      { name: "Participant", of: (line) => line.who, number: true },
      { name: "Role", of: (line) => line.role },
    ];
    const rows = reputationRows(every.slice(0, FIRST));
    return roundsTable("Reputation, mean over seeds", columns, rows, (row) => `${row.number} ${row.who}`, (row) => row.value.toFixed(4));
  },
  alone: (every) => {
    const columns = [
      { name: "Run", of: (row) => row.run, heads: true, long: true },
      { name: "Group", of: (row) => row.number, number: true },
      { name: "Participant", of: (row) => row.who, number: true },
      { name: "Role", of: (row) => row.does },
      { name: "Examples", of: (row) => row.examples, number: true },
      { name: "Alone, %", of: (row) => shown(row.alone, "percent"), number: true },
      { name: "Final, %", of: (row) => shown(row.final, "percent"), number: true },
      { name: "Gain, points", of: (row) => shown(row.final - row.alone, "points"), number: true },
    ];
    return table("Test accuracy alone and after the federation", columns, comparedRows(every));
  },
  removed: (every) => {
    const columns = [
      { name: "Run", of: (row) => row.run, heads: true, long: true },
      { name: "Group", of: (row) => row.number, number: true },
      { name: "Participant", of: (row) => row.who, number: true },
      { name: "Role", of: (row) => row.does },
      { name: "Removed in round", of: (row) => row.removed, number: true },
    ];
    return table("Removals", columns, participantRows(every).filter((row) => row.removed !== null));
  },
};

function estimatesTable(every, measures) {
  const columns = [{ name: "Group", of: title, heads: true }, { name: "Seeds", of: (group) => group.seeds, number: true }, ...measureColumns(measures, false)];
  return table(`${measures.map((m) => page.measures[m].name).join(", ")}: mean over seeds ± 95 % interval`, columns, every);
}

// ---- rows that tables and charts share

function participantRows(every) {
  return every.flatMap((group) =>
    group.runs.flatMap((run) =>
      run.participants.examples.map((examples, who) => ({
        number: group.number, group: title(group), run: run.name, who, examples,
        role: who < run.honest ? "honest" : "adversary",
        does: who < run.honest ? "honest" : `adversary${run.participants.attack[who - run.honest] ? `, ${run.participants.attack[who - run.honest]}` : ""}`,
        alone: run.participants.standalone[who], final: run.participants.final[who], removed: run.participants.removed[who],
      })),
    ),
  );
}

/** Of the first groups, whoever has both accuracies. */
const comparedRows = (every) => participantRows(every.slice(0, FIRST)).filter((row) => known([row.alone, row.final]).length === 2);

/** By round the estimate over seeds of a curve. */
function overRounds(runs, curveOf) {
  const rounds = [...new Set(runs.flatMap((run) => run.curves.rounds))].sort((a, b) => a - b);
  return rounds.flatMap((round) => {
    const found = estimate(perSeed(runs, (run) => curveOf(run)?.[run.curves.rounds.indexOf(round)]));
    return found ? [{ round, found }] : [];
  });
}

const accuracyOf = (group) => overRounds(group.runs, (run) => run.curves.accuracy);

function reputationRows(every) {
  return every.flatMap((group) => {
    const everybody = [...new Set(group.runs.flatMap((run) => run.curves.who))];
    return everybody.flatMap((who) => {
      const about = { number: group.number, group: title(group), who, role: who < group.runs[0].honest ? "honest" : "adversary" };
      const curve = overRounds(group.runs, (run) => run.curves.reputation[run.curves.who.indexOf(who)]);
      return curve.map(({ round, found }) => ({ ...about, round, value: found.mean }));
    });
  });
}

// ---- the worst case

function drawWorst(every) {
  const attacks = [...new Set(every.flatMap((group) => group.runs.map((run) => run.attack)))].filter(Boolean).sort();
  by("worst-section").hidden = !attacks.length;
  if (!attacks.length) return;
  const measure = page.measures[state.worst];
  const worse = measure.better === "lower" ? Math.max : Math.min;
  const calm = every.some((group) => group.runs[0].attack === "");
  const servers = [...new Set(every.map((group) => group.runs[0].server))];
  const cellOf = (server, attack) => {
    const here = every.filter((group) => group.runs[0].server === server && group.runs[0].attack === attack && group.estimates[state.worst]);
    if (!here.length) return null;
    const value = worse(...here.map((group) => group.estimates[state.worst].mean));
    const group = here.find((one) => one.estimates[state.worst].mean === value);
    return { value, group, found: group.estimates[state.worst], of: here.length };
  };
  const lines = servers.map((server) => {
    const cells = attacks.map((attack) => cellOf(server, attack));
    const there = known(cells);
    const value = there.length ? worse(...there.map((cell) => cell.value)) : null;
    return { server, calm: calm ? cellOf(server, "") : undefined, cells, worst: there.find((cell) => cell.value === value) ?? null, there: there.length };
  });
  const values = lines.flatMap((line) => known([line.calm, ...line.cells]).map((cell) => cell.value));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const share = (value) => 8 + 54 * (high > low ? (measure.better === "lower" ? value - low : high - value) / (high - low) : 0);
  const drawn = (cell, more = "", classes = "") => {
    if (!cell) return element("td", { class: `none ${classes}` }, "–");
    const of = cell.of > 1 ? `worst of ${cell.of}: group ${cell.group.number}` : `group ${cell.group.number}`;
    return element("td", { class: classes, style: `--share:${share(cell.value).toFixed(1)}` }, shown(cell.value, measure.unit), element("small", {}, shownHalf(cell.found, measure.unit)), element("small", {}, more || of));
  };
  const head = ["Server", ...(calm ? ["no adversary"] : []), ...attacks, "worst case"];
  const body = lines.map((line) => {
    const seen = line.there < attacks.length ? `of ${line.there} of ${attacks.length} attacks` : `of ${count(attacks.length, "attack", "attacks")}`;
    return element("tr", {}, element("th", { scope: "row" }, line.server), ...(calm ? [drawn(line.calm)] : []),
      ...line.cells.map((cell) => drawn(cell, "", cell && cell === line.worst ? "lowest" : "")), drawn(line.worst, seen, "final lowest"));
  });
  const caption = `Worst case of ${heading(measure)}: mean over seeds ± 95 % interval`;
  const made = element("table", { class: "heat" }, element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col", class: name === "Server" ? "" : "number" }, name)))), element("tbody", {}, ...body));
  by("worst").replaceChildren(boxed(caption, made), element("p", { class: "scale" }, "better", element("i", { "aria-hidden": "true" }), "worse"));
  by("worst-note").textContent =
    `${measure.says} The ${measure.better === "lower" ? "highest" : "lowest"} value is the worst; a server's own worst is bold. ` +
    "Where groups differ in something else as well, a cell shows the worst of them and names it.";
}

// ---- controls

function filterOf(setting, i) {
  const values = [...new Set(page.runs.map((run) => run.settings[i]))].sort((a, b) => compare(a, b));
  const boxes = values.map((value) => {
    const box = element("input", { type: "checkbox", checked: "" });
    box.addEventListener("change", () => {
      if (box.checked) state.off[i].delete(value); else state.off[i].add(value);
      draw();
    });
    return element("label", {}, box, value ?? "not set");
  });
  const made = element("details", { class: "filter" }, element("summary"), element("fieldset", {}, element("legend", {}, setting.option), ...boxes));
  made.addEventListener("toggle", () => { // never beyond the right edge
    const panel = made.lastChild;
    panel.style.left = "0";
    panel.style.left = `${Math.min(0, document.documentElement.clientWidth - 12 - panel.getBoundingClientRect().right)}px`;
  });
  made.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { made.open = false; made.firstChild.focus(); }
  });
  made.say = () => {
    const left = values.length - state.off[i].size;
    made.firstChild.textContent = `${setting.name}: ${left === values.length ? "all" : left === 1 ? values.find((value) => !state.off[i].has(value)) : `${left} of ${values.length}`}`;
    made.classList.toggle("narrowed", left < values.length);
  };
  return made;
}

function option(value, text) {
  return element("option", { value }, text);
}

function buildControls() {
  by("filters").append(...page.settings.map(filterOf));
  const settings = page.settings.map((setting, i) => option(`setting ${i}`, setting.name));
  by("sort").append(option("number", "group"), ...settings, ...page.measures.map((measure, m) => option(`measure ${m}`, measure.name)));
  by("measure").append(...page.measures.map((measure, m) => option(m, measure.name)));
  by("worst-measure").append(...page.measures.flatMap((measure, m) => (costs().includes(m) ? [] : [option(m, measure.name)])));
  by("sort").addEventListener("change", () => { state.sort = by("sort").value; draw(); });
  by("direction").addEventListener("click", () => { state.down = !state.down; draw(); });
  by("measure").addEventListener("change", () => { state.measure = Number(by("measure").value); draw(); });
  by("worst-measure").addEventListener("change", () => { state.worst = Number(by("worst-measure").value); draw(); });
  by("controls").addEventListener("reset", () => {
    Object.assign(state, { off: page.settings.map(() => new Set()), sort: "number", down: false });
    setTimeout(draw); // when the boxes are ticked again
  });
  by("results-table").addEventListener("click", (event) => {
    const key = event.target.dataset.sort;
    if (!key) return;
    state.down = state.sort === key ? !state.down : false;
    state.sort = key;
    draw();
    by("results-table").querySelector(`[data-sort="${key}"]`).focus();
  });
  document.addEventListener("click", (event) => {
    for (const open of document.querySelectorAll(".filter[open]")) if (!open.contains(event.target)) open.open = false;
  });
}

// ---- the whole

function draw() {
  const every = groups();
  const runs = every.reduce((sum, group) => sum + group.runs.length, 0);
  for (const filter of document.querySelectorAll(".filter")) filter.say();
  by("sort").value = state.sort;
  by("direction").textContent = state.down ? "Descending ↓" : "Ascending ↑";
  const drawn = every.length > FIRST ? ` Curves show the first ${FIRST} in this order.` : "";
  by("status").textContent = `${runs} of ${count(page.runs.length, "run", "runs")} shown, in ${count(every.length, "group", "groups")}.${drawn}`;
  by("results-table").replaceChildren(...resultsTables(every));
  by("measure-note").textContent = page.measures[state.measure].says;
  drawWorst(every);
  for (const details of document.querySelectorAll("[data-table]")) fill(details, every);
  return drawCharts(every);
}

/** A table is made when it is opened. */
function fill(details, every) {
  while (details.children.length > 1) details.lastChild.remove();
  if (details.open) details.append(...[TABLES[details.dataset.table](every)].flat());
}

function tell() {
  const seeds = page.settings.some((setting) => setting.name === "seed");
  by("lead").textContent =
    `${count(page.runs.length, "run", "runs")} in ${count(page.groups.length, "group", "groups")}` +
    (seeds ? "; runs of a group differ in nothing but the seed. " : ". ") +
    "All results are those after the last round, measured on the test set; nothing is chosen by them.";
  by("results-note").textContent =
    "± is the 95 % interval of Student's t over the seeds that are shown; one seed alone has none. The headings sort.";
  const values = (i) => [...new Set(page.runs.map((run) => run.settings[i] ?? "not set"))].sort((a, b) => compare(a, b)).join(", ");
  by("differ").append(
    page.settings.length
      ? element("dl", {}, ...page.settings.flatMap((setting, i) => [element("dt", {}, setting.option), element("dd", {}, values(i))]))
      : element("p", {}, page.runs.length > 1 ? "Nothing: all settings are the same." : "One run has nothing to differ from."),
  );
  if (page.settings.length) by("differ").append(element("p", { class: "note" }, "All other settings are the same."));
  const most = Math.max(...page.runs.map((run) => run.rounds));
  const thin = most > page.points ? `Curves are thinned: of each run at most ${page.points} rounds are kept, evenly spread, the first and the last among them. ` : "";
  const crowd = page.runs.some((run) => run.participants.examples.length > page.lines) ? `Of more than ${page.lines} participants, ${page.lines} have a curve of their reputation. ` : "";
  by("about").append(
    element("p", {}, `${thin}${crowd}Curves and what single participants have are rounded to four digits. In charts, intervals of shares are cut at 0 and 100 %. Accuracies over the rounds are measured on held-out training examples, all others on the test set.`),
    element("p", {}, "A group's number is the same in all tables and charts. Colours only repeat what numbers, shapes and dashes say."),
    ...(page.left_out.length ? [element("p", {}, "Left out:"), element("ul", {}, ...page.left_out.map((text) => element("li", {}, text)))] : []),
    element("p", { class: "note" }, `Written by rffl_pl ${page.version} on ${page.made}.`),
  );
}

function start() {
  buildControls();
  tell();
  for (const details of document.querySelectorAll("[data-table]")) details.addEventListener("toggle", () => fill(details, groups()));
  let opened = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll(".more:not([open])")) {
      opened.push(details);
      details.open = true;
      fill(details, groups());
    }
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    opened = [];
  });
  let width = 0;
  let waiting;
  new ResizeObserver(() => {
    if (by("main").clientWidth === width) return;
    const first = width === 0;
    width = by("main").clientWidth;
    clearTimeout(waiting);
    if (!first) waiting = setTimeout(() => drawCharts(groups()), 150);
  }).observe(by("main"));
  draw().then(() => {
    window.readyAt = performance.now();
    document.documentElement.setAttribute("data-ready", "");
  });
}
