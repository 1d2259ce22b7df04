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

const UNITS = {
  percent: [100, 1, " %"], points: [100, 1, " points"], number: [1, 3, ""], bytes: [1e-6, 2, " MB"], seconds: [1, 1, " s"],
};

function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  const [factor, digits, sign] = UNITS[unit];
  const plus = unit === "points" && value > 0 ? "+" : "";
  return plus + (factor * value).toFixed(digits).replace("-", "−") + sign;
}

function shownEstimate(found, unit) {
  if (!found) return "–";
  const [factor, digits, sign] = UNITS[unit];
  if (found.half === null) return shown(found.mean, unit);
  return shown(found.mean, unit).replace(sign, "") + " ± " + (factor * found.half).toFixed(digits) + sign;
}

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;
const percent = (value) => shown(value, "percent");
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
    group.estimates = page.measures.map((_, m) => estimate(group.runs.map((run) => run.measures[m])));
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

/** A table in a region that scrolls. Columns: name, of(row), and whether it is a number, heads its row, sorts. */
function table(caption, columns, rows) {
  const head = columns.map((column) => {
    const sorted = column.sort && state.sort === column.sort ? (state.down ? "descending" : "ascending") : undefined;
    const name = column.sort ? element("button", { type: "button", "data-sort": column.sort }, column.name) : column.name;
    return element("th", { scope: "col", class: column.number && "number", "aria-sort": sorted, title: column.says }, name);
  });
  const body = rows.map((row) =>
    element("tr", {}, ...columns.map((column) => {
      const value = column.of(row);
      const tag = column.heads ? "th" : "td";
      return element(tag, { scope: column.heads && "row", class: column.number && "number" }, value instanceof Node ? value : String(value ?? "–"));
    })),
  );
  const made = element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, made);
}

// ---- tables

const settingColumns = (sortable) =>
  page.settings.map((setting, i) => ({ name: setting.name, of: (row) => row.settings[i], sort: sortable && `setting ${i}`, says: setting.option }));
const numberColumn = (sortable) => ({ name: "Group", of: (row) => row.number ?? row.called, heads: true, sort: sortable && "number" });

function estimateCell(found, unit) {
  const [value, half] = shownEstimate(found, unit).split(" ± ");
  if (half === undefined) return value;
  return element("span", {}, value + " ", element("span", { class: "half" }, "± " + half));
}

function resultsTable(every) {
  const seeds = page.settings.findIndex((setting) => setting.name === "seed");
  const columns = [
    numberColumn(true),
    ...settingColumns(true).filter((_, i) => i !== seeds),
    { name: "Runs", of: (group) => group.runs.length, number: true },
    { name: "Rounds", of: (group) => [...new Set(group.runs.map((run) => run.rounds))].join(", "), number: true },
    ...page.measures.map((measure, m) => ({
      name: measure.name, of: (group) => estimateCell(group.estimates[m], measure.unit), number: true, sort: `measure ${m}`, says: measure.says,
    })),
  ];
  return table("Mean over seeds ± 95 % interval, after the last round", columns, every);
}

const TABLES = {
  "every-run": (every) => {
    const columns = [
      { name: "Run", of: (run) => run.name, heads: true },
      { name: "Group", of: (run) => run.called, number: true },
      { name: "Date", of: (run) => run.date },
      ...settingColumns(false),
      { name: "Rounds", of: (run) => run.rounds, number: true },
      ...page.measures.map((measure, m) => ({ name: measure.name, of: (run) => shown(run.measures[m], measure.unit), number: true })),
    ];
    return table("Every run", columns, every.flatMap((group) => group.runs));
  },
  dots: (every) => estimatesTable(every, [state.measure]),
  cost: (every) => estimatesTable(every, costs()),
  accuracy: (every) => {
    const rows = every.slice(0, FIRST).flatMap((group) => accuracyOf(group).map((entry) => ({ ...entry, group })));
    const columns = [
      { name: "Group", of: (row) => title(row.group), heads: true },
      { name: "Round", of: (row) => row.round, number: true },
      { name: "Accuracy", of: (row) => estimateCell(row.found, "percent"), number: true },
    ];
    return table("Accuracy of the honest on held-out training examples, mean over seeds", columns, rows);
  },
  reputation: (every) => {
    const columns = [
      { name: "Group", of: (row) => row.group, heads: true },
      { name: "Participant", of: (row) => row.who, number: true },
      { name: "Role", of: (row) => row.role },
      { name: "Round", of: (row) => row.round, number: true },
      { name: "Reputation", of: (row) => row.value.toFixed(4), number: true },
    ];
    return table("Reputation, mean over seeds", columns, reputationRows(every.slice(0, FIRST)));
  },
  alone: (every) => {
    const columns = [
      { name: "Run", of: (row) => row.run, heads: true },
      { name: "Group", of: (row) => row.number, number: true },
      { name: "Participant", of: (row) => row.who, number: true },
      { name: "Role", of: (row) => row.role },
      { name: "Examples", of: (row) => row.examples, number: true },
      { name: "Alone", of: (row) => percent(row.alone), number: true },
      { name: "Final", of: (row) => percent(row.final), number: true },
      { name: "Gain", of: (row) => shown(row.final - row.alone, "points"), number: true },
    ];
    return table("Test accuracy alone and after the federation", columns, participantRows(every.slice(0, FIRST)).filter((row) => known([row.alone, row.final]).length === 2));
  },
  removed: (every) => {
    const columns = [
      { name: "Run", of: (row) => row.run, heads: true },
      { name: "Group", of: (row) => row.number, number: true },
      { name: "Participant", of: (row) => row.who, number: true },
      { name: "Role", of: (row) => row.does },
      { name: "Removed in round", of: (row) => row.removed, number: true },
    ];
    return table("Removals", columns, participantRows(every).filter((row) => row.removed !== null));
  },
};

function estimatesTable(every, measures) {
  const columns = [
    { name: "Group", of: title, heads: true },
    { name: "Runs", of: (group) => group.runs.length, number: true },
    ...measures.map((m) => ({ name: page.measures[m].name, of: (group) => estimateCell(group.estimates[m], page.measures[m].unit), number: true })),
  ];
  return table("Mean over seeds ± 95 % interval", columns, every);
}

const costs = () => page.measures.flatMap((measure, m) => (["bytes", "seconds"].includes(measure.unit) ? [m] : []));

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

/** By key the values of all runs. */
function gathered(runs, entries) {
  const found = new Map();
  for (const run of runs) for (const [key, value] of entries(run)) if (value !== null) found.set(key, [...(found.get(key) ?? []), value]);
  return found;
}

function accuracyOf(group) {
  const found = gathered(group.runs, (run) => run.curves.rounds.map((round, i) => [round, run.curves.accuracy[i]]));
  return [...found].sort((a, b) => a[0] - b[0]).map(([round, values]) => ({ round, found: estimate(values) }));
}

function reputationRows(every) {
  return every.flatMap((group) => {
    const who = [...new Set(group.runs.flatMap((run) => run.curves.who))];
    return who.flatMap((i) => {
      const of = (run) => run.curves.rounds.map((round, at) => [round, run.curves.reputation[run.curves.who.indexOf(i)]?.[at] ?? null]);
      const role = i < group.runs[0].honest ? "honest" : "adversary";
      return [...gathered(group.runs, of)].sort((a, b) => a[0] - b[0])
        .map(([round, values]) => ({ number: group.number, group: title(group), who: i, role, round, value: mean(values) }));
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
    const half = cell.found.half === null ? "" : "± " + shown(cell.found.half, measure.unit).replace(/^\+/, "").replace(UNITS[measure.unit][2], "");
    const of = cell.of > 1 ? `worst of ${cell.of}: group ${cell.group.number}` : `group ${cell.group.number}`;
    return element("td", { class: classes, style: `--share:${share(cell.value).toFixed(1)}` }, shown(cell.value, measure.unit).replace(UNITS[measure.unit][2], ""), element("small", {}, half || " "), element("small", {}, more || of));
  };
  const head = ["Server", ...(calm ? ["no adversary"] : []), ...attacks, "worst case"];
  const body = lines.map((line) => {
    const seen = line.there < attacks.length ? `of ${line.there} of ${attacks.length} attacks` : `of ${count(attacks.length, "attack", "attacks")}`;
    return element("tr", {}, element("th", { scope: "row" }, line.server), ...(calm ? [drawn(line.calm)] : []),
      ...line.cells.map((cell) => drawn(cell, "", cell && cell === line.worst ? "lowest" : "")), drawn(line.worst, seen, "final lowest"));
  });
  const unit = UNITS[measure.unit][2].trim();
  const caption = `${measure.name}${unit ? ` in ${unit}` : ""}, mean over seeds ± 95 % interval`;
  const made = element("table", { class: "heat" }, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col", class: name === "Server" ? "" : "number" }, name)))), element("tbody", {}, ...body));
  by("worst").replaceChildren(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, made),
    element("p", { class: "scale" }, "better", element("i", { "aria-hidden": "true" }), "worse"));
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
  by("direction").textContent = state.down ? "Highest first ↓" : "Lowest first ↑";
  const drawn = every.length > FIRST ? ` Curves show the first ${FIRST} in this order.` : "";
  by("status").textContent = `${runs} of ${count(page.runs.length, "run", "runs")} shown, in ${count(every.length, "group", "groups")}.${drawn}`;
  by("results-table").replaceChildren(resultsTable(every));
  by("measure-note").textContent = page.measures[state.measure].says;
  drawWorst(every);
  for (const details of document.querySelectorAll("[data-table]")) fill(details, every);
  return drawCharts(every);
}

/** A table is made when it is opened. */
function fill(details, every) {
  while (details.children.length > 1) details.lastChild.remove();
  if (details.open) details.append(TABLES[details.dataset.table](every));
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
    element("p", {}, `${thin}${crowd}Numbers are rounded to four digits. Accuracies over the rounds are measured on held-out training examples, all others on the test set.`),
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
    opened = [...document.querySelectorAll(".more:not([open])")];
    for (const details of opened) { details.open = true; fill(details, groups()); }
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
  let width = 0;
  let waiting;
  new ResizeObserver(() => {
    if (by("main").clientWidth === width) return;
    const first = width === 0;
    width = by("main").clientWidth;
    clearTimeout(waiting);
    if (!first) waiting = setTimeout(() => drawCharts(groups()), 150);
  }).observe(by("main"));
  draw().then(() => document.documentElement.setAttribute("data-ready", ""));
}
