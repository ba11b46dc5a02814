// The figures of a board: each a title, what it says in a sentence, a drawing by Observable Plot, and its data as a
// table. Nothing is drawn before drawAll() knows how wide it may be.
"use strict";
const charts = (() => {
  const { el, TIMES, num, amount, times, percent, signed, scored, rate, day, count, name } = write;
  const COLOURS = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)"];
  const SPREAD = 1.25; // times, that intensities of shapes must differ by to be drawn
  const MOST = 5; // entries in a chart, beside the one that was chosen
  const ROW = 19; // px, of a bar
  const LABEL_PX = 11;

  const figures = (board, chosen) => {
    const some = board.entries.slice(0, MOST);
    if (!some.includes(chosen)) some.push(chosen);
    const series = some.map((entry, index) => ({
      entry,
      colour: COLOURS[index],
      label: `${entry.number} ${name(entry)}`,
    }));
    const measured = series.filter(({ entry }) => entry.cases.some((one) => one.series.length));
    const made = [
      shapes(
        series.filter(({ entry }) => entry.cases.length),
        chosen,
      ),
      points(series, chosen),
      curves.overTime(series, chosen, { figure, base, around, ticks, LIMIT, REF }),
      roofline(measured, chosen),
      scores(series),
      clocks(chosen),
      ranks(chosen),
      phases(chosen),
    ].filter(Boolean); // only models have points, and only solvers curves
    const lacking = made.filter((one) => one.lacking).map((one) => one.lacking);
    const note = el("p", { class: "soft wide" }, `${lacking.join("; ")}: ${NOT_KEPT}`);
    return el(
      "div",
      { class: "figures" },
      about(chosen),
      lacking.length ? note : null,
      ...made.filter((one) => !one.lacking),
    );
  };

  const about = (entry) => {
    const to = entry.run?.links; // a server's page has none: files are their owner's
    const links = to
      ? [
          el("a", { href: to.report }, "report"),
          " ",
          to.source ? el("a", { href: to.source }, "source") : "",
          " ",
          el("a", { href: to.folder }, "folder"),
        ]
      : entry.run
        ? []
        : ["Its report is not in runs/: these are the board's own figures."];
    const software = ["python", "torch", "triton"].filter((one) => entry.versions[one]);
    const versions = software.map((one) => `${one} ${entry.versions[one]}`).join(", ");
    const notes = (entry.run?.notes ?? []).map((note) => el("li", {}, note));
    return el(
      "div",
      { class: "about wide" },
      el("h3", {}, `${entry.number}. ${name(entry)}  `),
      el(
        "p",
        {},
        `${day(entry.date)} UTC, run `,
        el("span", { class: "mono" }, entry.run_id),
        `, sha256 ${entry.sha256.slice(0, 12)}, ${versions}.  `,
        ...links,
      ),
      notes.length ? el("ul", { "aria-label": "warnings" }, ...notes) : null,
    );
  };

  // A figure: a title, what it says in a sentence, a key, the drawing, and its data as a table. `draw(width)` returns
  // an SVG, or is null where there is nothing to draw, which the sentence then explains. `open`: the table is the figure.
  const figure = (
    heading,
    says,
    { keys = [], draw = null, columns = [], rows = [], extra = null, wide = false, open = false },
  ) => {
    const made = el(
      "figure",
      { class: wide ? "wide" : null },
      el("figcaption", {}, el("h3", {}, heading), el("p", {}, says)),
    );
    if (says === NOT_KEPT) made.lacking = heading;
    if (!draw && !rows.length) return made;
    const place = el("div");
    if (draw) {
      made.draw = (width) => {
        const svg = draw(width);
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", `${heading}. ${says}`);
        place.replaceChildren(svg);
      };
    }
    if (extra && draw) made.append(extra);
    if (keys.length && draw) {
      made.append(
        el(
          "ul",
          { class: "keys", "aria-label": "key" },
          ...keys.map(({ text, colour, kind }) => el("li", { class: kind ?? null, style: `--key:${colour}` }, text)),
        ),
      );
    }
    const style = (index) => (index ? (columns[index] === "entry" ? "text" : "n") : null);
    const row = (cells) => el("tr", { role: "row" }, ...cells);
    const head = (text, index) => el("th", { scope: "col", role: "columnheader", class: style(index) }, text);
    const cell = (value, index) =>
      index
        ? el("td", { role: "cell", class: style(index) }, value)
        : el("th", { scope: "row", role: "rowheader" }, value);
    const data = el(
      "table",
      { role: "table" },
      el("thead", { role: "rowgroup" }, row(columns.map(head))),
      el("tbody", { role: "rowgroup" }, ...rows.map((cells) => row(cells.map(cell)))),
    );
    const table = el("div", { class: "table" }, data);
    made.append(place, open ? table : el("details", {}, el("summary", {}, "as a table"), table));
    return made;
  };

  const LIMIT = { text: "limit", colour: "var(--limit)", kind: "rule" };
  const REF = { text: "reference", colour: "var(--ref)", kind: "dotted" };
  const NOT_KEPT = "The board does not keep this of entries of older harnesses, and no report is in runs/.";
  const recorded = (entry) => entry.cases.some((one) => one.series.length);

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

  const quantity = ({ unit, metric }) => (unit in TIMES ? "time" : metric);

  const shapes = (series, chosen) => {
    const heading = "Each shape: how far from the limit";
    const whose = chosen.cases.length ? chosen : series[0]?.entry;
    if (!whose)
      return figure(heading, NOT_KEPT, { wide: true });
    const labels = whose.cases.map((one) => one.label);
    const all = series.flatMap(({ entry, colour }) =>
      entry.cases
        .filter((one) => labels.includes(one.label))
        .map((one) => {
          const { low, high } = one.series[0]?.low ? one.series[0] : { low: one.value, high: one.value };
          const shape = labels.indexOf(one.label);
          return { ...one, shape, row: `${entry.number} ${entry.run_id}`, entry, colour, low, high };
        }),
    );
    const [{ unit }] = all;
    const data = all.filter((one) => one.unit === unit); // one axis has one unit; the table has them all
    const rows = ["", ...new Set(data.map((one) => one.row))];
    const domain = around(data.flatMap((one) => [one.limit, one.low, one.high, one.baseline]).filter(Boolean));
    const limited = data.filter((one) => one.limit !== null);
    const bars = !limited.length
      ? `A bar ends at the median${unit in TIMES ? " time: shorter is better" : ""}.`
      : limited.length < data.length
        ? "A bar runs from the limit to the median: shorter is better. A pale bar has no known limit."
        : "A bar runs from the limit to the median: shorter is better.";
    const fractions = whose.cases.filter((one) => one.fraction !== null).sort((x, y) => x.fraction - y.fraction);
    const part = ({ fraction, label }) => `${label} (${percent(fraction)})`;
    const far = fractions.length
      ? `Of ${name(whose)}, farthest from the limit: ${part(fractions[0])}; nearest: ${part(fractions.at(-1))}.`
      : "No limit is known.";
    const middle = ({ low, high }) => (low < high ? ` (middle half ${num(low)} to ${amount(high, unit)})` : "");
    const by = ({ bound }) => (bound ? ` by ${bound.by}` : "");
    const words = (one) =>
      [
        name(one.entry),
        one.label,
        `${amount(one.value, one.unit)}${middle(one)}`,
        ...(one.baseline === null ? [] : [`reference ${amount(one.baseline, one.unit)}: ${times(one.ratio)}`]),
        ...(one.limit === null ? [] : [`limit ${amount(one.limit, one.unit)}${by(one)}`]),
        ...(one.fraction === null ? [] : [`${percent(one.fraction)} of the limit`]),
      ].join("\n");
    const missing = chosen.cases.length ? "" : " The chosen entry has no figures by shape.";
    const cell = (value, write) => (value === null ? "–" : write(value));
    const place = { fy: "shape", y: "row" };
    return figure(heading, `${bars} ${far}${missing}`, {
      wide: true,
      keys: [
        ...series.map(({ label, colour }) => ({ text: label, colour })),
        ...(limited.length ? [LIMIT] : []),
        ...(data.some((one) => one.baseline !== null) ? [REF] : []),
      ],
      columns: ["shape", "entry", quantity(all[0]), "reference", "× reference", "limit", "of limit"],
      rows: all.map((one) => [
        one.label,
        name(one.entry),
        amount(one.value, one.unit),
        cell(one.baseline, (value) => amount(value, one.unit)),
        times(one.ratio),
        cell(one.limit, (value) => amount(value, one.unit)),
        cell(one.fraction, percent),
      ]),
      draw: (width) => {
        const referred = data.filter((one) => one.baseline !== null);
        return Plot.plot({
          ...base,
          width,
          height: labels.length * rows.length * ROW * 1.12 + 36,
          marginLeft: 14,
          marginRight: 108,
          marginTop: 4,
          x: logX(domain, `${quantity(all[0])}, ${unit}`),
          y: { domain: rows, axis: null, padding: 0.25 },
          fy: facets(labels, rows),
          marks: [
            facetLabels(labels),
            Plot.barX(data, {
              ...place,
              x1: (one) => one.limit ?? domain[0],
              x2: "value",
              fill: "colour",
              fillOpacity: (one) => (one.limit === null && limited.length ? 0.35 : 1),
            }),
            Plot.ruleY(data, { ...place, x1: "low", x2: "high", stroke: "currentColor", strokeWidth: 1.5 }),
            Plot.tickX(referred, { ...place, x: "baseline", stroke: "var(--ground)", strokeWidth: 5 }),
            Plot.tickX(referred, {
              ...place,
              x: "baseline",
              stroke: "var(--ref)",
              strokeWidth: 3,
              strokeDasharray: "3,2",
            }),
            Plot.tickX(limited, { ...place, x: "limit", stroke: "var(--limit)", strokeWidth: 3 }),
            Plot.text(data, {
              ...place,
              x: (one) => Math.max(one.high, one.baseline ?? 0),
              dx: 6,
              textAnchor: "start",
              fill: "currentColor",
              fontWeight: (one) => (one.entry === chosen ? 700 : 400),
              text: (one) =>
                `${one.entry.number}: ${num(one.value)}${one.ratio === null ? "" : `, ${times(one.ratio)}`}`,
            }),
            Plot.tip(data, Plot.pointerY({ ...place, x: "value", title: words })),
          ],
        });
      },
    });
  };

  // What each case's points are the product of, where the contest's score is one.
  const points = (series, chosen) => {
    const heading = "Points, and what they are the product of";
    const known = (entry) => entry.cases.filter((one) => one.product);
    const whose = [chosen, ...series.map(({ entry }) => entry)].find((entry) => known(entry).length);
    if (!whose) return null;
    const cases = known(chosen);
    if (!cases.length) return figure(heading, NOT_KEPT, { wide: true });
    const factors = Object.keys(cases[0].product.factors);
    const least = d3.least(cases, (one) => one.product.value);
    const low = cases.length > 1 ? ` The least are those of ${least.label}: ${num(least.product.value)}.` : "";
    return figure(heading, `Of ${name(chosen)}: the score is the mean over these; the reference has 1.${low}`, {
      wide: true,
      open: true,
      columns: ["prompt", chosen.score.unit, ...factors],
      rows: cases.map(({ label, product }) => [
        label,
        `${num(product.value)} =`,
        ...factors.map((factor, index) => `${index ? "× " : ""}${num(product.factors[factor])}`),
      ]),
    });
  };

  const AGAINST = {
    hbm: { text: "memory", bytes: (cost) => cost.hbm_bytes, peak: (peaks) => peaks.hbm_bytes_per_s },
    link: { text: "links", bytes: (cost) => cost.link_bytes, peak: (peaks) => peaks.link_bytes_per_s },
  };

  // Seconds of a call, of the metric that the bound is one of; null where that is no time.
  const boundedSeries = (one) => one.series.find(({ metric }) => metric === one.bounded);
  const boundedSeconds = (one) => {
    const bounded = boundedSeries(one);
    const [median, of] = bounded?.value ? [bounded.value, bounded.unit] : [one.value, one.unit];
    return of in TIMES ? median * TIMES[of] : null;
  };

  const roofline = (series, chosen) => {
    const heading = "Roofline, of one rank";
    const whose = chosen.peaks ? chosen : series.find(({ entry }) => entry.peaks)?.entry;
    const drawn = (one) => one.cost?.flops > 0 && boundedSeconds(one) !== null;
    const known = (whose?.cases ?? []).filter(drawn);
    if (!known.length)
      return figure(
        heading,
        recorded(chosen) ? "The arithmetic of its shapes, or the peaks of its machine, are not known here." : NOT_KEPT,
        {},
      );
    const peaks = whose.peaks;
    const labels = whose.cases.map((one) => one.label);
    const bound = known.filter((one) => one.bound?.by === "link").length * 2 > known.length ? "link" : "hbm";
    // Points that all lie above one another say nothing that the chart of shapes does not.
    const isSpread = ([low, high]) => high > SPREAD * low;
    const offered = Object.entries(AGAINST)
      .filter(([, { peak }]) => peak(peaks) > 0) // one rank has no links
      .filter(([, { bytes }]) => {
        const costs = known.map((one) => one.cost).filter((cost) => bytes(cost) > 0);
        return costs.length > 1 && isSpread(d3.extent(costs, (cost) => cost.flops / bytes(cost)));
      });
    const choose = el(
      "select",
      {},
      ...offered.map(([key, { text }]) => el("option", { value: key, selected: key === bound }, `bytes over ${text}`)),
    );
    const points = (kind) =>
      series.flatMap(({ entry, colour }) =>
        entry.cases
          .filter((one) => drawn(one) && kind.bytes(one.cost) > 0)
          .map((one) => {
            const { flops } = one.cost;
            const roofS = boundedSeconds(one);
            const scale = TIMES[boundedSeries(one)?.unit];
            return {
              ...one,
              entry,
              colour,
              x: flops / kind.bytes(one.cost),
              y: flops / roofS,
              ref: one.baseline !== null && one.unit in TIMES ? flops / (one.baseline * TIMES[one.unit]) : null,
              roof: one.bound && scale ? flops / (one.bound.value * scale) : null,
            };
          }),
      );
    const best = d3.max(known, (one) => one.fraction);
    const by = { flops: "arithmetic", hbm: "memory", link: "links" };
    const binds = [...new Set(known.map((one) => by[one.bound?.by]).filter(Boolean))].join(" and ");
    const [{ cost: first }] = known;
    const says = [
      ...(offered.length ? [] : [`No plot: all shapes do about ${short(first.flops / first.hbm_bytes)} flop a byte of memory.`]),
      `Arithmetic done per byte moved, against arithmetic per second; peaks: ${peaks.source}.`,
      ...(binds ? [`What binds here: ${binds}.`] : []),
      ...(best ? [`The best shape of ${name(whose)} is at ${percent(best)} of its limit.`] : []),
    ].join(" ");
    const made = figure(heading, says, {
      keys: [
        ...series.map(({ label, colour }) => ({ text: label, colour })),
        { text: "reference (ring)", colour: "var(--ref)" },
        { text: "limit of a shape (×, its number above)", colour: "var(--limit)", kind: "rule" },
      ],
      extra: el("label", { class: "choose" }, "intensity: ", choose),
      columns: ["shape", "entry", "flop / byte of memory", "of links", "rate", "limit"],
      rows: points(AGAINST.hbm).map((one) => [
        one.label,
        name(one.entry),
        short(one.x),
        one.cost.link_bytes ? short(one.cost.flops / one.cost.link_bytes) : "–",
        rate(one.y, "FLOP/s"),
        one.roof ? rate(one.roof, "FLOP/s") : "–",
      ]),
      draw: offered.length === 0 ? null : (width) => {
        const kind = AGAINST[choose.value];
        const data = points(kind);
        const [bandwidth, ridge] = [kind.peak(peaks), peaks.flops_per_s / kind.peak(peaks)];
        const x = around([...data.map((one) => one.x), ridge], 3);
        const rates = data.flatMap((one) => [one.y, one.ref, one.roof]).filter(Boolean);
        const y = around([...rates, peaks.flops_per_s], 2);
        const roof = [
          [Math.max(x[0], y[0] / bandwidth), Math.max(x[0] * bandwidth, y[0])],
          [ridge, peaks.flops_per_s],
          [x[1], peaks.flops_per_s],
        ];
        const limits = data.filter(
          (one, index) => one.roof && data.findIndex((other) => other.label === one.label) === index,
        );
        // shapes whose limits lie on one another share a label
        const places = [
          ...d3
            .group(limits, (one) => [one.x, one.roof].map((value) => Math.round(Math.log(value) * 7)).join(" "))
            .values(),
        ];
        const middle = [Math.sqrt(roof[0][0] * ridge), Math.sqrt(roof[0][1] * peaks.flops_per_s)];
        const words = (one) =>
          [
            name(one.entry),
            one.label,
            `${rate(one.y, "FLOP/s")} at ${short(one.x)} flop/byte`,
            ...(one.roof ? [`limit ${rate(one.roof, "FLOP/s")}`] : []),
            ...(one.fraction === null ? [] : [`${percent(one.fraction)} of the limit`]),
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
              y2: "roof",
              stroke: "var(--limit)",
              strokeOpacity: 0.5,
              strokeDasharray: "2,3",
            }),
            Plot.dot(limits, { x: "x", y: "roof", symbol: "times", r: 5, stroke: "var(--limit)", strokeWidth: 2 }),
            Plot.text(places, {
              x: ([one]) => one.x,
              y: ([one]) => one.roof,
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
    const { unit, better } = series[0].entry.score;
    const [shown, scale] = unit === "s" ? ["ms", 1e3] : [unit, 1]; // of the axis
    const data = series
      .flatMap(({ entry, colour, label }) =>
        entry.history
          .filter((one) => one.score !== null)
          .map((one) => ({ entry, colour, label, date: new Date(one.date), score: one.score * scale, one })),
      )
      .filter((one) => !Number.isNaN(one.date.getTime()));
    const lines = series
      .map(({ entry }) => entry.history.filter((one) => one.score !== null))
      .map((all) => all.map((one) => one.score));
    const moved = series.map(({ entry }, index) => [entry, lines[index]]).filter(([, all]) => all.length > 1);
    const way = ([entry, all]) => {
      const moved = `${scored(all[0], unit)} to ${scored(all.at(-1), unit)} (${signed(all.at(-1) / all[0] - 1)}`;
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
        scored(one.score, unit),
        ...(one.ratio ? [`${times(one.ratio)} the reference`] : []),
      ].join("\n");
    return figure(heading, `${better === "less" ? "Lower" : "Higher"} is better. ${says}`, {
      keys: series.map(({ label, colour }) => ({ text: label, colour })),
      columns: ["date", "entry", "score", "× reference", "source"],
      rows: series.flatMap(({ entry }) =>
        entry.history.map((one) => [
          day(one.date),
          name(entry),
          one.score === null ? one.status : scored(one.score, unit),
          times(one.ratio),
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
              y: { type: "log", domain, label: `score, ${shown}`, ticks: ticks(domain), tickFormat: short, grid: true },
              marks: [
                Plot.line(data, { x: "date", y: "score", z: "label", stroke: "colour", strokeWidth: 2 }),
                Plot.dot(data, { x: "date", y: "score", fill: "colour", stroke: "var(--ground)", r: 4.5 }),
                Plot.text(
                  data.filter((one) => one.one.run_id === one.entry.run_id),
                  {
                    x: "date",
                    y: "score",
                    text: (one) => `${one.entry.number}`,
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
    if (!recorded(chosen)) return figure(heading, NOT_KEPT, {});
    const labels = chosen.cases.map((one) => one.label);
    const all = chosen.cases
      .flatMap((one, shape) =>
        one.series.map(({ metric, unit, value, baseline, empty }, index) => ({
          shape,
          metric,
          unit,
          time: index === 0 ? one.value : value,
          ref: baseline,
          ratio: index === 0 ? one.ratio : null, // of the metric that ranks, the only one whose ratio is stored
          empty,
        })),
      )
      .filter((one) => one.time !== null);
    const [{ unit }] = all;
    const data = all.filter((one) => one.unit === unit); // one axis has one unit; the table has them all
    const names = [...new Set(data.map((one) => one.metric))];
    const worst = d3.greatest(
      data.filter((one) => one.empty),
      (one) => one.empty / one.time,
    );
    const resolution = names
      .map((metric) => [metric, data.find((one) => one.metric === metric)?.empty])
      .filter(([, empty]) => empty)
      .map(([metric, empty]) => `${metric} ${amount(empty, unit)}`)
      .join(", ");
    const says = [
      names.length > 1 ? "" : `Only ${unit in TIMES ? `the ${names[0]} clock` : names[0]} applies here. `,
      resolution ? `An empty call reads ${resolution}` : "Empty calls were not measured",
      worst ? `, at most ${percent(worst.empty / worst.time)} of a shape's time.` : ".",
    ].join("");
    const referred = data.filter((one) => one.ref !== null);
    const place = { fy: "shape", y: "metric" };
    return figure(heading, says, {
      keys: [
        { text: "this entry", colour: "var(--own)" },
        { text: "reference (ring)", colour: "var(--ref)" },
        { text: "empty call", colour: "var(--limit)", kind: "rule" },
      ],
      columns: ["shape", unit in TIMES ? "clock" : "metric", "this entry", "reference", "× reference", "empty call"],
      rows: all.map((one) => [
        labels[one.shape],
        one.metric,
        amount(one.time, one.unit),
        one.ref === null ? "–" : amount(one.ref, one.unit),
        times(one.ratio),
        one.empty ? amount(one.empty, one.unit) : "–",
      ]),
      draw: (width) =>
        Plot.plot({
          ...base,
          width,
          height: labels.length * (names.length + 1) * ROW * 1.12 + 40,
          marginLeft: 62,
          marginRight: 52,
          marginTop: 4,
          x: logX(
            around(data.flatMap((one) => [one.time, one.ref, one.empty]).filter(Boolean)),
            `${quantity(all[0])}, ${unit}`,
          ),
          y: { domain: ["", ...names], axis: null, padding: 0.2 },
          fy: facets(labels),
          marks: [
            facetLabels(labels),
            Plot.text(data, {
              ...place,
              text: "metric",
              frameAnchor: "left",
              dx: -58,
              textAnchor: "start",
              fill: "currentColor",
            }),
            Plot.ruleY(referred, { ...place, x1: "time", x2: "ref", stroke: "var(--ref)", strokeOpacity: 0.6 }),
            Plot.tickX(
              data.filter((one) => one.empty),
              { ...place, x: "empty", stroke: "var(--limit)", strokeWidth: 3 },
            ),
            Plot.dot(referred, { ...place, x: "ref", r: 4.5, stroke: "var(--ref)", strokeWidth: 1.75 }),
            Plot.dot(data, { ...place, x: "time", r: 5, fill: "var(--own)" }),
            Plot.text(
              data.filter((one) => one.ratio !== null),
              {
                ...place,
                text: (one) => times(one.ratio),
                frameAnchor: "right",
                dx: 48,
                textAnchor: "end",
                fill: "currentColor",
              },
            ),
          ],
        }),
    });
  };

  const ranks = (chosen) => {
    const heading = "Ranks: who ends late";
    const cases = chosen.cases
      .filter((one) => one.rank_ends_us.length > 1)
      .map(({ label, rank_ends_us }) => ({ label, rank_ends_us }));
    if (!cases.length)
      return figure(heading, recorded(chosen) ? "Its evaluation does not tell ranks apart." : NOT_KEPT, {});
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
      rows: cases.map((one) => [one.label, ...one.rank_ends_us.map(num)]),
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
              title: (one) => `${labels[one.shape]}\nrank ${one.rank}: ${num(one.end)} us after the start`,
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
    const data = Object.entries(chosen.phases_s).map(([phase, value]) => ({ phase, value }));
    if (!data.length) return figure(heading, recorded(chosen) ? "Its phases were not recorded." : NOT_KEPT, {});
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
