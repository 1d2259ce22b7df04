// The worst case of every server over the attacks: a table whose cells are shaded.

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
    return { value, group, here, found: group.estimates[state.worst], of: here.length };
  };
  const seedOf = (run) => run.seed ?? run.name;
  const ofSeed = (cell, seed) => {
    const values = cell.here.map((group) => estimate(perSeed(group.runs.filter((run) => seedOf(run) === seed), (run) => run.measures[state.worst]))?.mean);
    return known(values).length === values.length ? worse(...values) : null;
  };
  /** The worst of each seed that has all these attacks: which of them is the worst is known afterwards alone. */
  const ofSeeds = (cells) => {
    const seeds = [...new Set(cells[0].here.flatMap((group) => group.runs.map(seedOf)))];
    const each = seeds.map((seed) => cells.map((cell) => ofSeed(cell, seed))).filter((found) => !found.includes(null));
    return estimate(each.map((found) => worse(...found)));
  };
  const lines = servers.map((server) => {
    const cells = attacks.map((attack) => cellOf(server, attack));
    const there = known(cells);
    const lowest = there.length ? there.find((cell) => cell.value === worse(...there.map((one) => one.value))) : null;
    const found = there.length ? ofSeeds(there) ?? lowest.found : null;
    return { server, calm: calm ? cellOf(server, "") : undefined, cells, lowest, worst: found && { ...lowest, value: found.mean, found }, there: there.length };
  });
  const values = lines.flatMap((line) => known([line.calm, ...line.cells, line.worst]).map((cell) => cell.value)).filter(Number.isFinite);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const bounded = (value) => Math.min(high, Math.max(low, value));
  const share = (value) => 8 + 54 * (value === Infinity ? 1 : high > low ? (measure.better === "lower" ? bounded(value) - low : high - bounded(value)) / (high - low) : 0);
  const drawn = (cell, more = "", classes = "") => {
    if (!cell) return element("td", { class: `none ${classes}` }, "–");
    const of = cell.of > 1 ? `worst of ${cell.of}: group ${cell.group.number}` : `group ${cell.group.number}`;
    return element("td", { class: classes, style: `--share:${share(cell.value).toFixed(1)}` }, shown(cell.value, measure.unit), element("small", {}, shownHalf(cell.found, measure.unit)), element("small", {}, more || of));
  };
  const head = ["Server", ...(calm ? ["no adversary"] : []), ...attacks, "worst case"];
  const body = lines.map((line) => {
    const seen = line.there < attacks.length ? `of ${line.there} of ${attacks.length} attacks` : `of ${count(attacks.length, "attack", "attacks")}`;
    return element("tr", {}, element("th", { scope: "row" }, line.server), ...(calm ? [drawn(line.calm)] : []),
      ...line.cells.map((cell) => drawn(cell, "", cell && cell === line.lowest ? "lowest" : "")), drawn(line.worst, seen, "final lowest"));
  });
  const caption = `Worst case of ${heading(measure)}: mean over seeds ± 95 % interval`;
  const made = element("table", { class: "heat" }, element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col", class: name === "Server" ? "" : "number" }, name)))), element("tbody", {}, ...body));
  by("worst").replaceChildren(boxed(caption, made), element("p", { class: "scale" }, "better", element("i", { "aria-hidden": "true" }), "worse"));
  by("worst-note").textContent =
    `${measure.says} The ${measure.better === "lower" ? "highest" : "lowest"} mean over the attacks is in bold${calm ? "; runs without an adversary do not count" : ""}. The worst case takes the ${measure.better === "lower" ? "highest" : "lowest"} of each seed, and then their mean: which attack is the worst may be another with each. ` +
    "Where groups differ in something else as well, a cell shows the worst of them and names it.";
}
