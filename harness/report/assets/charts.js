// The figures of a board: each a title, what it says in a sentence, a drawing by Observable Plot, and its data as a
// table. Nothing is drawn before drawAll() knows how wide it may be.
"use strict";
const charts = (() => {
  const { el, us, times, percent, signed, seconds, rate, day, count, name } = write;
  const COLOURS = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)"];
  const MOST = 5; // entries in a chart, beside the one that was chosen
  const ROW = 19; // px, of a bar
  const LABEL_PX = 11;

  const figures = (board, chosen) => {
    const some = board.entries.slice(0, MOST);
    if (!some.includes(chosen)) some.push(chosen);
    const series = some.map((entry, index) => ({
      entry,
      colour: COLOURS[index],
      label: `${entry.place} ${name(entry)}`,
    }));
    const measured = series.filter(({ entry }) => entry.run);
    return el(
      "div",
      { class: "figures" },
      about(chosen),
      shapes(measured, chosen),
      roofline(measured, chosen),
      scores(series),
      clocks(chosen),
      ranks(chosen),
      phases(chosen),
    );
  };

  const about = (entry) => {
    const links = entry.run
      ? entry.run.report_href === null
        ? [] // a server's page: files are their owner's
        : [
            el("a", { href: entry.run.report_href }, "report"),
            " ",
            entry.run.source_href ? el("a", { href: entry.run.source_href }, "source") : "",
            " ",
            el("a", { href: entry.run.folder_href }, "folder"),
          ]
      : ["Its report is not in runs/: shown is what the board keeps."];
    const notes = (entry.run?.notes ?? []).map((note) => el("li", {}, note));
    return el(
      "div",
      { class: "about wide" },
      el("h3", {}, `${entry.place}. ${name(entry)}  `),
      el(
        "p",
        {},
        `${day(entry.date)} UTC, run `,
        el("span", { class: "mono" }, entry.run_id),
        `, sha256 ${entry.sha256.slice(0, 12)}, ${entry.versions}.  `,
        ...links,
      ),
      notes.length ? el("ul", { "aria-label": "warnings" }, ...notes) : null,
    );
  };

  // A figure: a title, what it says in a sentence, a key, the drawing, and its data as a table. `draw(width)` returns
  // an SVG, or is null where there is nothing to draw, which the sentence then explains.
  const figure = (heading, says, { keys = [], draw = null, columns = [], rows = [], extra = null, wide = false }) => {
    const made = el(
      "figure",
      { class: wide ? "wide" : null },
      el("figcaption", {}, el("h3", {}, heading), el("p", {}, says)),
    );
    if (!draw) return made;
    const place = el("div");
    made.draw = (width) => {
      const svg = draw(width);
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `${heading}. ${says}`);
      place.replaceChildren(svg);
    };
    if (extra) made.append(extra);
    if (keys.length) {
      made.append(
        el(
          "ul",
          { class: "keys", "aria-label": "key" },
          ...keys.map(({ text, colour, kind }) => el("li", { class: kind ?? null, style: `--key:${colour}` }, text)),
        ),
      );
    }
    const cell = (value, index) =>
      el(index ? "td" : "th", { scope: index ? null : "row", class: index ? "n" : null }, value);
    const data = el(
      "table",
      {},
      el(
        "thead",
        {},
        el("tr", {}, ...columns.map((text, index) => el("th", { scope: "col", class: index ? "n" : null }, text))),
      ),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell)))),
    );
    made.append(place, el("details", {}, el("summary", {}, "as a table"), el("div", { class: "table" }, data)));
    return made;
  };

  const LIMIT = { text: "limit", colour: "var(--limit)", kind: "rule" };
  const REF = { text: "reference", colour: "var(--ref)", kind: "dotted" };
  const NO_REPORT = "The report of this entry is not in runs/.";

  // Of a logarithmic axis: decades, or where there are hardly any, 1 and 3 of each, or what lies between. (D3 leaves
  // out the labels of 5 and more once an axis has two decades.)
  const ticks = ([low, high]) => {
    const decades = d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1);
    const inside = (steps) =>
      decades.flatMap((power) => steps.map((step) => step * 10 ** power)).filter((tick) => tick >= low && tick <= high);
    const all = [[1], [1, 3], [1, 2, 5]].map(inside).find((found) => found.length >= 3) ?? d3.ticks(low, high, 4);
    const every = Math.ceil(all.length / 7);
    return all.filter((_, index) => index % every === 0);
  };
  const around = (values, room = 1.3) => [Math.min(...values) / room, Math.max(...values) * room];
  const short = (value) =>
    value >= 1e6
      ? `${Number((value / 1e6).toPrecision(3))}M`
      : value >= 1e3
        ? `${Number((value / 1e3).toPrecision(3))}k`
        : `${Number(value.toPrecision(3))}`;
  const logX = (domain, label) => ({ type: "log", domain, label, ticks: ticks(domain), tickFormat: short, grid: true });
  // 1 2 3 5 as "1-3 5"
  const spans = (numbers) => {
    const runs = [];
    for (const number of [...numbers].sort((a, b) => a - b)) {
      if (runs.at(-1)?.at(-1) === number - 1) runs.at(-1)[1] = number;
      else runs.push([number]);
    }
    return runs.map((run) => run.join("-")).join(" ");
  };
  const base = { style: { fontSize: `${LABEL_PX}px`, fontFamily: "inherit" } };
  // The name of a facet stands in a row of its own above its marks, where it has the whole width.
  const facetLabels = (labels) =>
    Plot.text(labels, {
      fy: (_, index) => index,
      y: () => "",
      text: (label, index) => `${index + 1}  ${label}`,
      frameAnchor: "left",
      fontWeight: 600,
      fill: "currentColor",
    });
  const facets = (labels, rows) => ({ domain: labels.map((_, index) => index), axis: null, padding: 0.12, rows });

  const shapes = (series, chosen) => {
    const heading = "Each shape: how far from the limit";
    const run = chosen.run ?? series[0]?.entry.run;
    if (!run)
      return figure(heading, "No report of this board is in runs/, so its shapes are not known here.", { wide: true });
    const labels = run.cases.map((one) => one.label);
    const data = series.flatMap(({ entry, colour }) =>
      entry.run.cases
        .filter((one) => labels.includes(one.label))
        .map((one) => {
          const [{ time, ref, speedup }] = one.clocks;
          return {
            shape: labels.indexOf(one.label),
            row: `${entry.place} ${entry.run_id}`,
            entry,
            colour,
            time,
            ref: ref.median_us,
            speedup,
            bound: one.bound_us,
            by: one.bound_by,
            reached: one.bound_us && one.bound_us / one.roof_us,
          };
        }),
    );
    const rows = ["", ...new Set(data.map((one) => one.row))];
    const values = data.flatMap((one) => [one.bound, one.time.low_us, one.time.high_us, one.ref]).filter(Boolean);
    const domain = around(values);
    const fractions = run.cases
      .filter((one) => one.bound_us)
      .map((one) => [one.bound_us / one.roof_us, one.label])
      .sort((a, b) => a[0] - b[0]);
    const part = ([fraction, label]) => `${label} (${percent(fraction)})`;
    const whose = name(chosen.run ? chosen : series[0].entry);
    const far = fractions.length
      ? `Of ${whose}, farthest from the limit: ${part(fractions[0])}; nearest: ${part(fractions.at(-1))}.`
      : "No limit is known.";
    const words = ({ entry, shape, time, ref, speedup, bound, by, reached }) =>
      [
        name(entry),
        labels[shape],
        `${us(time.median_us)} us (middle half ${us(time.low_us)} to ${us(time.high_us)})`,
        `reference ${us(ref)} us: ${times(speedup)}`,
        ...(bound ? [`limit ${us(bound)} us by ${by}: ${percent(reached)}`] : []),
      ].join("\n");
    const missing = chosen.run ? "" : " The entry that was chosen has no report in runs/.";
    return figure(heading, `A bar runs from the limit to the median time: shorter is better. ${far}${missing}`, {
      wide: true,
      keys: [...series.map(({ label, colour }) => ({ text: label, colour })), LIMIT, REF],
      columns: ["shape", "entry", "time us", "reference us", "speedup", "limit us", "of limit"],
      rows: data.map((one) => [
        labels[one.shape],
        name(one.entry),
        us(one.time.median_us),
        us(one.ref),
        times(one.speedup),
        one.bound ? us(one.bound) : "–",
        one.bound ? percent(one.reached) : "–",
      ]),
      draw: (width) =>
        Plot.plot({
          ...base,
          width,
          height: labels.length * rows.length * ROW * 1.12 + 36,
          marginLeft: 14,
          marginRight: 108,
          marginTop: 4,
          x: logX(domain, "time, us"),
          y: { domain: rows, axis: null, padding: 0.25 },
          fy: facets(labels, rows),
          marks: [
            facetLabels(labels),
            Plot.barX(data, {
              fy: "shape",
              y: "row",
              x1: (one) => one.bound ?? domain[0],
              x2: (one) => one.time.median_us,
              fill: "colour",
            }),
            Plot.ruleY(data, {
              fy: "shape",
              y: "row",
              x1: (one) => one.time.low_us,
              x2: (one) => one.time.high_us,
              stroke: "currentColor",
              strokeWidth: 1.5,
            }),
            Plot.tickX(data, { fy: "shape", y: "row", x: "ref", stroke: "var(--ground)", strokeWidth: 5 }),
            Plot.tickX(data, {
              fy: "shape",
              y: "row",
              x: "ref",
              stroke: "var(--ref)",
              strokeWidth: 3,
              strokeDasharray: "3,2",
            }),
            Plot.tickX(
              data.filter((one) => one.bound),
              { fy: "shape", y: "row", x: "bound", stroke: "var(--limit)", strokeWidth: 3 },
            ),
            Plot.text(data, {
              fy: "shape",
              y: "row",
              x: (one) => Math.max(one.time.high_us, one.ref),
              dx: 6,
              textAnchor: "start",
              fill: "currentColor",
              fontWeight: (one) => (one.entry === chosen ? 700 : 400),
              text: (one) => `${one.entry.place}: ${us(one.time.median_us)}, ${times(one.speedup)}`,
            }),
            Plot.tip(data, Plot.pointerY({ fy: "shape", y: "row", x: (one) => one.time.median_us, title: words })),
          ],
        }),
    });
  };

  const AGAINST = {
    hbm: { text: "memory", bytes: (cost) => cost.hbm_bytes, peak: (peaks) => peaks.hbm_bytes_per_s },
    link: { text: "links", bytes: (cost) => cost.link_bytes, peak: (peaks) => peaks.link_bytes_per_s },
  };

  const roofline = (series, chosen) => {
    const heading = "Roofline, of one rank";
    const run = chosen.run?.peaks ? chosen.run : series.find(({ entry }) => entry.run.peaks)?.entry.run;
    const known = (run?.cases ?? []).filter((one) => one.cost?.flops > 0);
    if (!known.length)
      return figure(
        heading,
        chosen.run ? "The arithmetic of its shapes, or the peaks of its machine, are not known here." : NO_REPORT,
        {},
      );
    const peaks = run.peaks;
    const labels = run.cases.map((one) => one.label);
    const bound = known.filter((one) => one.bound_by === "link").length * 2 > known.length ? "link" : "hbm";
    const choose = el(
      "select",
      {},
      ...Object.entries(AGAINST)
        .filter(([, { peak }]) => peak(peaks) > 0) // one rank has no links
        .map(([key, { text }]) => el("option", { value: key, selected: key === bound }, `bytes over ${text}`)),
    );
    const points = (kind) =>
      series.flatMap(({ entry, colour }) =>
        entry.run.cases
          .filter((one) => one.cost?.flops > 0 && kind.bytes(one.cost) > 0)
          .map((one) => ({
            entry,
            colour,
            label: one.label,
            x: one.cost.flops / kind.bytes(one.cost),
            y: (one.cost.flops / one.roof_us) * 1e6,
            ref: (one.cost.flops / one.clocks[0].ref.median_us) * 1e6,
            limit: one.bound_us ? (one.cost.flops / one.bound_us) * 1e6 : null,
          })),
      );
    const best = known.map((one) => (one.bound_us ? one.bound_us / one.roof_us : 0));
    const by = { flops: "arithmetic", hbm: "memory", link: "links" };
    const binds = [...new Set(known.map((one) => by[one.bound_by]).filter(Boolean))].join(" and ");
    const whose = name(chosen.run ? chosen : series[0].entry);
    const says = [
      `Arithmetic done per byte moved, against arithmetic per second; peaks: ${peaks.source}.`,
      ...(binds ? [`What binds here: ${binds}.`] : []),
      `The best shape of ${whose} is at ${percent(Math.max(...best))} of its limit.`,
    ].join(" ");
    const made = figure(heading, says, {
      keys: [
        ...series.map(({ label, colour }) => ({ text: label, colour })),
        { text: "reference (ring)", colour: "var(--ref)" },
        { text: "limit of a shape (×, its number above)", colour: "var(--limit)", kind: "rule" },
      ],
      extra: el("label", { class: "choose" }, "intensity: ", choose),
      columns: ["shape", "entry", "flop / byte of memory", "of links", "rate", "limit"],
      rows: points(AGAINST.hbm).map((one) => {
        const { cost } = run.cases[labels.indexOf(one.label)] ?? { cost: null };
        return [
          one.label,
          name(one.entry),
          short(one.x),
          cost?.link_bytes ? short(cost.flops / cost.link_bytes) : "–",
          rate(one.y, "FLOP/s"),
          one.limit ? rate(one.limit, "FLOP/s") : "–",
        ];
      }),
      draw: (width) => {
        const kind = AGAINST[choose.value];
        const data = points(kind);
        const [bandwidth, ridge] = [kind.peak(peaks), peaks.flops_per_s / kind.peak(peaks)];
        const x = around([...data.map((one) => one.x), ridge], 3);
        const y = around([...data.flatMap((one) => [one.y, one.ref, one.limit ?? one.y]), peaks.flops_per_s], 2);
        const roof = [
          [Math.max(x[0], y[0] / bandwidth), Math.max(x[0] * bandwidth, y[0])],
          [ridge, peaks.flops_per_s],
          [x[1], peaks.flops_per_s],
        ];
        const limits = data.filter(
          (one, index) => one.limit && data.findIndex((other) => other.label === one.label) === index,
        );
        // shapes whose limits lie on one another share a label
        const places = [
          ...d3
            .group(limits, (one) => [one.x, one.limit].map((value) => Math.round(Math.log(value) * 7)).join(" "))
            .values(),
        ];
        const middle = [Math.sqrt(roof[0][0] * ridge), Math.sqrt(roof[0][1] * peaks.flops_per_s)];
        const words = (one) =>
          [
            name(one.entry),
            one.label,
            `${rate(one.y, "FLOP/s")} at ${short(one.x)} flop/byte`,
            ...(one.limit ? [`limit ${rate(one.limit, "FLOP/s")}: ${percent(one.y / one.limit)}`] : []),
          ].join("\n");
        return Plot.plot({
          ...base,
          width,
          height: 330,
          marginLeft: 46,
          marginRight: 12,
          marginTop: 22,
          r: { type: "identity" },
          x: logX(x, `flop per byte over ${kind.text}`),
          y: {
            type: "log",
            domain: y,
            label: "FLOP/s",
            ticks: ticks(y),
            tickFormat: (value) => rate(value, "").trim(),
            grid: true,
          },
          marks: [
            Plot.line(roof, { stroke: "currentColor", strokeWidth: 2 }),
            Plot.text([[x[1], peaks.flops_per_s]], {
              text: () => `arithmetic ${rate(peaks.flops_per_s, "FLOP/s")}`,
              textAnchor: "end",
              dy: -25,
              fill: "currentColor",
            }),
            Plot.text([middle], {
              text: () => `${kind.text} ${rate(bandwidth, "B/s")}`,
              textAnchor: "start",
              dx: 10,
              dy: 12,
              fill: "currentColor",
            }),
            Plot.ruleX(limits, {
              x: "x",
              y1: "y",
              y2: "limit",
              stroke: "var(--limit)",
              strokeOpacity: 0.5,
              strokeDasharray: "2,3",
            }),
            Plot.dot(limits, { x: "x", y: "limit", symbol: "times", r: 5, stroke: "var(--limit)", strokeWidth: 2 }),
            Plot.text(places, {
              x: ([one]) => one.x,
              y: ([one]) => one.limit,
              text: (all) => spans(all.map((one) => labels.indexOf(one.label) + 1)),
              dy: -12,
              fill: "var(--limit)",
              fontWeight: 700,
            }),
            Plot.dot(data, { x: "x", y: "ref", r: 4, stroke: "var(--ref)", strokeWidth: 1.5 }),
            Plot.dot(data, {
              x: "x",
              y: "y",
              r: (one) => (one.entry === chosen ? 6 : 4.5),
              fill: "colour",
              stroke: "var(--ground)",
            }),
            Plot.tip(data, Plot.pointer({ x: "x", y: "y", title: words })),
          ],
        });
      },
    });
    choose.addEventListener("change", () => draw(made));
    return made;
  };

  const scores = (series) => {
    const heading = "Score history";
    const data = series
      .flatMap(({ entry, colour, label }) =>
        entry.history
          .filter((one) => one.score_s !== null)
          .map((one) => ({ entry, colour, label, date: new Date(one.date), score: one.score_s * 1e3, one })),
      )
      .filter((one) => !Number.isNaN(one.date.getTime()));
    const lines = series
      .map(({ entry }) => entry.history.filter((one) => one.score_s !== null))
      .map((all) => all.map((one) => one.score_s));
    const moved = series.map(({ entry }, index) => [entry, lines[index]]).filter(([, all]) => all.length > 1);
    const way = ([entry, all]) => {
      const moved = `${seconds(all[0])} to ${seconds(all.at(-1))} (${signed(all.at(-1) / all[0] - 1)}`;
      return `${name(entry)}: ${moved}, ${all.length} runs)`;
    };
    const says = moved.length ? `${moved.map(way).join("; ")}.` : "Every entry has been evaluated once so far.";
    const domain = around(
      data.map((one) => one.score),
      1.15,
    );
    const [from, to] = d3.extent(data, (one) => one.date);
    const days = data.length ? (to - from) / 864e5 : 0;
    const [format, axis] =
      days < 2
        ? [days < 0.02 ? "%H:%M:%S" : "%H:%M", `UTC, from ${from?.toISOString().slice(0, 10)}`]
        : [days < 300 ? "%b %d" : "%Y-%m", null];
    const words = ({ entry, one }) =>
      [
        name(entry),
        `${day(one.date)} UTC`,
        seconds(one.score_s),
        ...(one.geomean_speedup ? [times(one.geomean_speedup)] : []),
      ].join("\n");
    return figure(heading, `Lower is better. ${says}`, {
      keys: series.map(({ label, colour }) => ({ text: label, colour })),
      columns: ["date", "entry", "score", "speedup", "source"],
      rows: series.flatMap(({ entry }) =>
        entry.history.map((one) => [
          day(one.date),
          name(entry),
          one.score_s === null ? one.status : seconds(one.score_s),
          one.geomean_speedup ? times(one.geomean_speedup) : "–",
          one.sha256.slice(0, 7),
        ]),
      ),
      draw: data.length
        ? (width) =>
            Plot.plot({
              ...base,
              width,
              height: 330,
              marginLeft: 46,
              marginTop: 22,
              marginRight: 24,
              x: {
                type: "utc",
                label: axis,
                ticks: Math.max(2, Math.floor(width / 110)),
                tickFormat: d3.utcFormat(format),
                grid: true,
                insetLeft: 8,
                insetRight: 8,
              },
              y: { type: "log", domain, label: "score, ms", ticks: ticks(domain), tickFormat: short, grid: true },
              marks: [
                Plot.line(data, { x: "date", y: "score", z: "label", stroke: "colour", strokeWidth: 2 }),
                Plot.dot(data, { x: "date", y: "score", fill: "colour", stroke: "var(--ground)", r: 4.5 }),
                Plot.text(
                  data.filter((one) => one.one.run_id === one.entry.run_id),
                  {
                    x: "date",
                    y: "score",
                    text: (one) => `${one.entry.place}`,
                    dx: 11,
                    fill: "currentColor",
                    fontWeight: 600,
                  },
                ),
                Plot.tip(data, Plot.pointer({ x: "date", y: "score", title: words })),
              ],
            })
        : null,
    });
  };

  const clocks = (chosen) => {
    const heading = "Clocks, and what they can resolve";
    if (!chosen.run) return figure(heading, NO_REPORT, {});
    const labels = chosen.run.cases.map((one) => one.label);
    const data = chosen.run.cases.flatMap((one, shape) =>
      one.clocks.map(({ clock, time, ref, speedup, empty_us }) => ({
        shape,
        clock,
        time: time.median_us,
        ref: ref.median_us,
        speedup,
        empty: empty_us,
      })),
    );
    const names = [...new Set(data.map((one) => one.clock))];
    const worst = d3.greatest(
      data.filter((one) => one.empty),
      (one) => one.empty / one.time,
    );
    const resolution = names
      .map((clock) => [clock, data.find((one) => one.clock === clock)?.empty])
      .filter(([, empty]) => empty)
      .map(([clock, empty]) => `${clock} ${us(empty)} us`)
      .join(", ");
    const says = [
      names.length > 1 ? "" : "Only the wall clock applies here. ",
      resolution ? `An empty call reads ${resolution}` : "Empty calls were not measured",
      worst ? `, at most ${percent(worst.empty / worst.time)} of a shape's time.` : ".",
    ].join("");
    return figure(heading, says, {
      keys: [
        { text: "this entry", colour: "var(--own)" },
        { text: "reference (ring)", colour: "var(--ref)" },
        { text: "empty call", colour: "var(--limit)", kind: "rule" },
      ],
      columns: ["shape", "clock", "time us", "reference us", "speedup", "empty call us"],
      rows: data.map((one) => [
        labels[one.shape],
        one.clock,
        us(one.time),
        us(one.ref),
        times(one.speedup),
        one.empty ? us(one.empty) : "–",
      ]),
      draw: (width) =>
        Plot.plot({
          ...base,
          width,
          height: labels.length * (names.length + 1) * ROW * 1.12 + 40,
          marginLeft: 62,
          marginRight: 52,
          marginTop: 4,
          x: logX(around(data.flatMap((one) => [one.time, one.ref, one.empty]).filter(Boolean)), "time, us"),
          y: { domain: ["", ...names], axis: null, padding: 0.2 },
          fy: facets(labels),
          marks: [
            facetLabels(labels),
            Plot.text(data, {
              fy: "shape",
              y: "clock",
              text: "clock",
              frameAnchor: "left",
              dx: -58,
              textAnchor: "start",
              fill: "currentColor",
            }),
            Plot.ruleY(data, {
              fy: "shape",
              y: "clock",
              x1: "time",
              x2: "ref",
              stroke: "var(--ref)",
              strokeOpacity: 0.6,
            }),
            Plot.tickX(
              data.filter((one) => one.empty),
              { fy: "shape", y: "clock", x: "empty", stroke: "var(--limit)", strokeWidth: 3 },
            ),
            Plot.dot(data, { fy: "shape", y: "clock", x: "ref", r: 4.5, stroke: "var(--ref)", strokeWidth: 1.75 }),
            Plot.dot(data, { fy: "shape", y: "clock", x: "time", r: 5, fill: "var(--own)" }),
            Plot.text(data, {
              fy: "shape",
              y: "clock",
              text: (one) => times(one.speedup),
              frameAnchor: "right",
              dx: 48,
              textAnchor: "end",
              fill: "currentColor",
            }),
          ],
        }),
    });
  };

  const ranks = (chosen) => {
    const heading = "Ranks: who ends late";
    const cases = (chosen.run?.cases ?? []).filter((one) => one.rank_ends_us.length > 1);
    if (!cases.length) return figure(heading, chosen.run ? "Its report does not tell ranks apart." : NO_REPORT, {});
    const labels = cases.map((one) => one.label);
    const data = cases.flatMap((one, shape) => {
      const first = Math.min(...one.rank_ends_us);
      return one.rank_ends_us.map((end, rank) => ({
        shape,
        rank,
        end,
        late: (end - first) / Math.max(...one.rank_ends_us),
      }));
    });
    const last = cases.map((one) => one.rank_ends_us.indexOf(Math.max(...one.rank_ends_us)));
    const [often, shapesLast] = d3.greatest(
      d3.rollup(
        last,
        (all) => all.length,
        (rank) => rank,
      ),
      ([, number]) => number,
    );
    const most = d3.greatest(data, (one) => one.late);
    const number = cases[0].rank_ends_us.length;
    const says = [
      "How much later than the first rank each one ends, as a part of the call.",
      `Rank ${often} is last in ${shapesLast} of ${count(cases.length, "shape")};`,
      `at most ${percent(most.late)} of the call (rank ${most.rank}, ${labels[most.shape]}).`,
    ].join(" ");
    return figure(heading, says, {
      columns: ["shape", ...d3.range(number).map((rank) => `rank ${rank} us`)],
      rows: cases.map((one) => [one.label, ...one.rank_ends_us.map(us)]),
      draw: (width) =>
        Plot.plot({
          ...base,
          width,
          height: labels.length * 2 * (ROW + 5) + 40,
          marginLeft: 4,
          marginRight: 4,
          marginTop: 4,
          x: {
            domain: d3.range(number),
            label: "rank",
            padding: 0.06,
            ticks: number > 16 ? d3.range(0, number, 4) : undefined,
          },
          y: { domain: ["", "late"], axis: null, padding: 0.1 },
          fy: facets(labels),
          marks: [
            facetLabels(labels),
            Plot.cell(data, {
              fy: "shape",
              x: "rank",
              y: () => "late",
              fill: "var(--c2)",
              fillOpacity: (one) => 0.06 + 0.6 * Math.min(1, one.late),
              title: (one) => `${labels[one.shape]}\nrank ${one.rank}: ${us(one.end)} us after the start`,
              inset: 0.5,
            }),
            width / number > 26
              ? Plot.text(data, {
                  fy: "shape",
                  x: "rank",
                  y: () => "late",
                  text: (one) =>
                    `${(100 * one.late).toFixed(one.late < 0.0995 ? 1 : 0)}${width / number > 40 ? " %" : ""}`,
                  fill: "currentColor",
                })
              : null,
          ],
        }),
    });
  };

  const phases = (chosen) => {
    const heading = "Where the evaluation's time went";
    const data = Object.entries(chosen.run?.phases_s ?? {}).map(([phase, value]) => ({ phase, value }));
    if (!data.length) return figure(heading, chosen.run ? "Its report has no phases." : NO_REPORT, {});
    const all = data.reduce((sum, one) => sum + one.value, 0);
    const most = d3.greatest(data, (one) => one.value);
    return figure(heading, `${all.toFixed(1)} s in all, most of it in ${most.phase} (${percent(most.value / all)}).`, {
      columns: ["phase", "seconds"],
      rows: data.map((one) => [one.phase, one.value.toFixed(2)]),
      draw: (width) =>
        Plot.plot({
          ...base,
          width,
          height: data.length * 24 + 34,
          marginLeft: 92,
          marginRight: 52,
          marginTop: 4,
          x: { label: "seconds", grid: true, ticks: 5 },
          y: { domain: data.map((one) => one.phase), label: null, tickSize: 0 },
          marks: [
            Plot.barX(data, { x: "value", y: "phase", fill: "var(--c3)" }),
            Plot.text(data, {
              x: "value",
              y: "phase",
              text: (one) => `${one.value.toFixed(1)} s`,
              dx: 5,
              textAnchor: "start",
              fill: "currentColor",
            }),
          ],
        }),
    });
  };

  const draw = (one) => {
    if (one.draw && one.clientWidth) one.draw(one.clientWidth);
  };
  const drawAll = (within) => within.querySelectorAll("figure").forEach(draw);

  return { figures, drawAll };
})();
