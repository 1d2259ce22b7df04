// Tables, and the rows that they share with the charts.

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

const settingColumns = (sortable) =>
  page.settings.map((setting, i) => ({ name: setting.name, of: (row) => row.settings[i], sort: sortable && `setting ${i}`, says: setting.option }));
const numberColumn = (sortable) => ({ name: "Group", of: (row) => row.number ?? row.called, heads: true, sort: sortable && "number" });

function estimateCell(found, unit, seeds) {
  const few = found && found.n < seeds ? ` (n=${found.n})` : "";
  const half = shownHalf(found, unit);
  return element("span", {}, shown(found?.mean, unit), half && element("span", { class: "half" }, ` ${half}`), few);
}

const isOfAdversaries = (measure) => /removed|removal|attack|backdoor|target|adversar/i.test(measure.name);
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
  const attacked = every.some((group) => detection.some((m) => group.estimates[m] && page.measures[m].key !== "honest_removed_share"));
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
    const caption = `Accuracy of the honest on ${watched()} in %, mean over seeds ± 95 % interval`;
    const columns = [{ name: "Group", of: (line) => title(line.group), heads: true, long: true }];
    return roundsTable(caption, columns, rows, (row) => row.group.number, (row) => estimateCell(row.found, "percent", row.group.seeds));
  },
  reputation: (every) => {
    const columns = [
      { name: "Group", of: (line) => line.group, heads: true, long: true },
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
  const columns = [{ name: "Group", of: title, heads: true, long: true }, { name: "Seeds", of: (group) => group.seeds, number: true }, ...measureColumns(measures, false)];
  return table(`${measures.map((m) => page.measures[m].name).join(", ")}: mean over seeds ± 95 % interval`, columns, every);
}

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

/** By round the estimate over seeds of a curve; at which of them it has values is the curves' own list. */
function overRounds(runs, list, curveOf) {
  const rounds = [...new Set(runs.flatMap((run) => run.curves[list]))].sort((a, b) => a - b);
  return rounds.flatMap((round) => {
    const found = estimate(perSeed(runs, (run) => curveOf(run)?.[run.curves[list].indexOf(round)]));
    return found ? [{ round, found }] : [];
  });
}

const accuracyOf = (group) => overRounds(group.runs, "measured", (run) => run.curves.accuracy);

function reputationRows(every) {
  return every.flatMap((group) => {
    const everybody = [...new Set(group.runs.flatMap((run) => run.curves.who))];
    return everybody.flatMap((who) => {
      const about = { number: group.number, group: title(group), who, role: who < group.runs[0].honest ? "honest" : "adversary" };
      const curve = overRounds(group.runs, "rounds", (run) => run.curves.reputation[run.curves.who.indexOf(who)]);
      return curve.map(({ round, found }) => ({ ...about, round, value: found.mean }));
    });
  });
}
