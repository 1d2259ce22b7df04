// Filter, order, and the whole page, which is drawn anew when they change.

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
    made.firstChild.textContent = `${setting.name}: ${left === values.length ? "all" : left === 1 ? values.find((value) => !state.off[i].has(value)) ?? "not set" : `${left} of ${values.length}`}`;
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
  by("worst-measure").append(...page.measures.flatMap((measure, m) => (costs().includes(m) || !measure.better ? [] : [option(m, measure.name)])));
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

function draw() {
  const every = groups();
  const runs = every.reduce((sum, group) => sum + group.runs.length, 0);
  for (const filter of document.querySelectorAll(".filter")) filter.say();
  by("sort").value = state.sort;
  by("direction").textContent = state.down ? "Descending ↓" : "Ascending ↑";
  const dotted = every.length > MANY ? `, rows of dots the first ${MANY}` : "";
  const drawn = every.length > FIRST ? ` Curves show the first ${FIRST} in this order${dotted}.` : "";
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
    (seeds ? "; runs of a group have the same options but the seed. " : ". ") +
    "All results are those after the last round, measured on the test set; nothing is chosen by them.";
  by("results-note").textContent =
    "± is the 95 % interval of Student's t over the seeds that are shown; one seed alone has none. The headings sort.";
  const own = page.untold ? "; whether what they name of your own code and files is, not every run says." : ", and what they name of your own code and files.";
  const values = (i) => [...new Set(page.runs.map((run) => run.settings[i] ?? "not set"))].sort((a, b) => compare(a, b)).join(", ");
  by("differ").append(
    page.settings.length
      ? element("dl", {}, ...page.settings.flatMap((setting, i) => [element("dt", {}, setting.option), element("dd", {}, values(i))]))
      : element("p", {}, page.runs.length < 2 ? "One run has nothing to differ from." : page.unknown.length ? "Nothing that is known." : `Nothing: all options are the same${own}`),
  );
  const rest = page.unknown.length ? `The settings of ${page.unknown.join(", ")} are not known: there is no config.yaml.` : page.settings.length ? page.study ? "Labels stand for what the study's file said when each run began." : `All other options are the same${own}` : "";
  if (rest) by("differ").append(element("p", { class: "note" }, rest));
  const most = Math.max(...page.runs.map((run) => run.rounds));
  const thin = most > page.points ? `Curves are thinned: of all runs the same rounds are kept, at most ${page.points}, evenly spread, and of each its last; where a run has no accuracy of such a round, its next one is shown. ` : "";
  const crowd = page.runs.some((run) => run.participants.examples.length > page.lines) ? `Of more than ${page.lines} participants, ${page.lines} have a curve of their reputation. ` : "";
  by("about").append(
    element("p", {}, `${thin}${crowd}Curves and what single participants have are rounded to four digits. In charts, intervals of what cannot be below 0 or above 100 % are cut there. Accuracies over the rounds are measured on ${watched()}, all others on the test set.`),
    element("p", {}, "A group's number is the same in all tables and charts. Colours only repeat what numbers, shapes and dashes say."),
    ...Object.entries(page.made_with).map(([name, values]) => element("p", {}, `Not all were computed with the same ${name}: ${values.join("; ")}.`)),
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
