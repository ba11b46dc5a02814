// A contest's page: standings as tables, statistics as charts by Observable Plot.
//
// Whatever somebody wrote goes into the document as text nodes only; nothing here parses HTML.
"use strict";
(() => {
  const { el, num, times, percent, count } = write;
  const COLOURS = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)"];
  const data = JSON.parse(document.getElementById("data").textContent);
  const { standings, statistics } = data;
  const main = document.getElementById("main");

  // ---- head and standings
  document.title = `${standings.name}: standings`;
  document.getElementById("name").textContent = standings.name;
  const counts = `${count(statistics.teams, "team")}, ${count(statistics.submissions, "submission")}`;
  const ends = data.ends_text ? `, ends ${data.ends_text}` : "";
  document.getElementById("when").textContent = `${data.at_text}: ${data.phase}${ends}. ${counts}.`;

  const notice = (...words) => main.append(el("p", { class: "notice", role: "status" }, ...words));
  if (data.description) main.append(el("p", { class: "soft" }, data.description));
  if (data.is_full) notice("For organisers: everything as it is now.");
  if (standings.is_hidden) notice(`Submissions and standings are private until ${data.ends_text ?? "the contest ends"}.`);
  else if (data.frozen_text) notice(`Frozen: this is how it was at ${data.frozen_text}.`);

  const COLUMNS = [
    ["place", "number", (row) => row.place],
    ["team", "", (row) => row.team],
    ["speedup", "number", (row) => times(row.speedup)],
    ["of the limit", "number", (row) => (row.limit === null ? "–" : percent(row.limit))],
    ["entry", "number", (row) => String(row.entry)],
    ["state", "", (row) => (row.awards.length ? `${row.state}: ${row.awards.join(", ")}` : row.state)],
    ["targets", "", (row) => row.targets],
  ];
  const table = (rows) =>
    el(
      "div",
      { class: "standings", tabindex: "0" },
      el(
        "table",
        {},
        el("thead", {}, el("tr", {}, ...COLUMNS.map(([name, kind]) => el("th", { class: kind, scope: "col" }, name)))),
        el(
          "tbody",
          {},
          ...rows.map((row) => el("tr", {}, ...COLUMNS.map(([, kind, text]) => el("td", { class: kind }, text(row))))),
        ),
      ),
    );
  for (const one of standings.is_hidden ? [] : standings.problems) {
    main.append(
      el(
        "section",
        { class: "board" },
        el("header", {}, el("h2", {}, one.problem, " ", el("span", {}, one.board ?? ""))),
        one.teams.length ? table(one.teams) : el("p", { class: "empty" }, "No entry has passed yet."),
      ),
    );
  }

  // ---- charts
  const figures = el("div", { class: "charts" });
  main.append(figures);
  const drawn = [];
  const figure = (title, text, plot) => {
    const holder = el("div");
    figures.append(el("figure", {}, el("figcaption", {}, title, el("small", {}, text)), holder));
    drawn.push(() => {
      const width = Math.max(240, holder.clientWidth || 480);
      holder.replaceChildren(Plot.plot({ width, marginLeft: 90, color: { range: COLOURS }, ...plot }));
    });
  };
  const at = (text) => new Date(text);
  const whole = (value) => (Number.isInteger(value) ? String(value) : "");
  const where = (one) => `${one.problem}, ${one.board}`;

  if (statistics.days.length) {
    const rows = statistics.days.flatMap((one) => {
      const waiting = one.submitted - one.passed - one.failed - one.held;
      const parts = { passed: one.passed, failed: one.failed, held: one.held, other: Math.max(0, waiting) };
      return Object.entries(parts).map(([what, entries]) => ({ day: one.day, what, entries }));
    });
    figure("Submissions a day", "by what became of them", {
      x: { type: "band", label: null, tickRotate: -30 },
      y: { grid: true, label: "submissions", tickFormat: whole },
      marginBottom: 50,
      color: { legend: true, domain: ["passed", "failed", "held", "other"], range: COLOURS },
      marks: [Plot.barY(rows, { x: "day", y: "entries", fill: "what" }), Plot.ruleY([0])],
    });
  }
  if (statistics.best.length) {
    const rows = statistics.best.map((one) => ({ ...one, when: at(one.at), where: where(one) }));
    const steps = (y, tip) => [
      Plot.line(rows, { x: "when", y, stroke: "where", curve: "step-after" }),
      Plot.dot(rows, { x: "when", y, fill: "where", tip: true, title: tip }),
    ];
    figure("Best speedup over time", "each point bettered all before it", {
      x: { type: "utc", label: null },
      y: { type: "log", grid: true, ticks: 5, label: "speedup", tickFormat: (value) => times(value) },
      color: { legend: true, range: COLOURS },
      marks: steps("speedup", (one) => `${one.team}, entry ${one.entry}: ${times(one.speedup)}`),
    });
    const bounded = rows.filter((one) => one.of_limit);
    if (bounded.length) {
      figure("Distance from the limit over time", "how many times the limit the best so far takes; 1 cannot be beaten", {
        x: { type: "utc", label: null },
        y: { type: "log", grid: true, ticks: 5, label: "times the limit", tickFormat: (value) => times(value) },
        color: { legend: true, range: COLOURS },
        marks: [
          Plot.ruleY([1], { stroke: "var(--limit)" }),
          ...[Plot.line, Plot.dot].map((mark, index) =>
            mark(bounded, {
              x: "when",
              y: (one) => 1 / one.of_limit,
              ...(index ? { fill: "where", tip: true } : { stroke: "where", curve: "step-after" }),
            }),
          ),
        ],
      });
    }
  }
  const firsts = statistics.first_valid.filter((one) => one.seconds !== null);
  if (firsts.length) {
    figure("Time to the first valid entry", "in days since the problem opened, or the team registered", {
      x: { grid: true, label: "days" },
      y: { label: null },
      marks: [
        Plot.barX(firsts, {
          x: (one) => one.seconds / 86400,
          y: (one) => `${one.team}, ${one.problem}`,
          fill: "problem",
          sort: { y: "x" },
          tip: true,
        }),
        Plot.ruleX([0]),
      ],
      marginLeft: 130,
    });
  }
  if (statistics.failures.length) {
    figure("Failures by kind", "held by a check, or failed", {
      x: { grid: true, label: "submissions", tickFormat: whole },
      y: { label: null },
      color: { legend: true, range: COLOURS },
      marks: [
        Plot.barX(statistics.failures, {
          x: "count",
          y: (one) => one.kind.replace("_", " "),
          fill: "problem",
          sort: { y: "-x" },
        }),
        Plot.ruleX([0]),
      ],
      marginLeft: 130,
    });
  }
  const boards = [...new Set(statistics.shapes.map((one) => `${where(one)} in ${one.unit}`))];
  for (const board of boards) {
    const rows = statistics.shapes.filter((one) => `${where(one)} in ${one.unit}` === board);
    figure(`Times a shape: ${rows[0].problem}`, `all entries that passed, ${board}: least, quartiles, most`, {
      x: { type: "log", grid: true, ticks: 3, label: rows[0].unit, tickFormat: (value) => num(value) },
      y: { label: null, domain: rows.map((one) => one.shape) },
      marks: [
        Plot.ruleY(rows, { y: "shape", x1: "low", x2: "high", stroke: "var(--ref)" }),
        Plot.barX(rows, { y: "shape", x1: "first_quartile", x2: "third_quartile", fill: "var(--c1)", inset: 6 }),
        Plot.tickX(rows, { y: "shape", x: "median", stroke: "var(--text)", strokeWidth: 2 }),
        Plot.dot(rows, { y: "shape", x: "low", fill: "var(--c1)", tip: true }),
      ],
      marginLeft: 200,
    });
  }

  const drawAll = () => drawn.forEach((draw) => draw());
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });
  drawAll();
})();
