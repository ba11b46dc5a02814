// How values improved while a run lasted: a panel a case, a line an entry. Knows curves (Curve in core/curve.py); what
// figures have in common is charts.js's, which gives its tools.
"use strict";
const curves = (() => {
  const { num, amount, percent, name } = write;
  const PANEL = 150; // px, of a case
  const PARTS = [0.1, 0.25, 0.5, 1]; // of the limit, at which the table says what was reached

  const above = (part) => (part < 0.0005 ? "at" : `${(100 * part).toFixed(1)} % above`);
  const reached = (points, at) => points.filter((point) => point.at_s <= at).at(-1)?.value ?? null;
  // To the end of the limit, at which the last answer counts: late ones arrive within the grace.
  const drawn = (points, limit) =>
    points.length ? [...points, { at_s: Math.max(limit, points.at(-1).at_s), value: points.at(-1).value }] : [];

  // Null where no case has a curve: then there is nothing to say of it.
  const overTime = (series, chosen, { figure, base, around, ticks, LIMIT, REF }) => {
    const whose = chosen.cases.some((one) => one.curve) ? chosen : series.find(({ entry }) => entry.cases.some((one) => one.curve))?.entry;
    if (!whose) return null;
    const cases = whose.cases.filter((one) => one.curve);
    const labels = cases.map((one) => one.label);
    const sides = (one) => {
      const own = series.flatMap(({ entry, colour }) => {
        const same = entry.cases.find((other) => other.label === one.label && other.curve);
        return same ? [{ who: name(entry), colour, points: same.curve.own, limit: same.curve.limit_s }] : [];
      });
      const reference = { who: "reference", colour: "var(--ref)", points: one.curve.baseline, limit: one.curve.limit_s };
      return [...own, ...(reference.points.length ? [reference] : [])];
    };
    const all = cases.map((one) => ({ one, sides: sides(one) }));
    const { unit, metric } = cases[0];
    const bounded = cases.filter((one) => one.limit !== null).length;
    const ends = cases.map((one) => {
      const last = one.curve.own.at(-1)?.value ?? null;
      const [first] = one.curve.own;
      const far = one.limit === null || last === null ? "" : `, at the end ${above(last / one.limit - 1)} the bound`;
      return first ? `${one.label}: first answer after ${first.at_s.toFixed(2)} s${far}` : `${one.label}: no answer`;
    });
    const panel = ({ one, sides: lines }, width) => {
      const values = lines.flatMap(({ points }) => points.map((point) => point.value));
      if (one.limit !== null) values.push(one.limit);
      const domain = around(values, 1.02);
      const data = lines.flatMap(({ who, colour, points, limit }) =>
        drawn(points, limit).map((point) => ({ who, colour, ...point })),
      );
      return Plot.plot({
        ...base,
        width,
        height: PANEL,
        marginLeft: 66,
        marginTop: 22,
        x: { label: "seconds", domain: [0, d3.max(data, (point) => point.at_s) ?? one.curve.limit_s], grid: true },
        y: { type: "log", domain, ticks: ticks(domain), tickFormat: "~s", label: metric === unit ? metric : `${metric}, ${unit}`, grid: true },
        marks: [
          ...(one.limit === null ? [] : [Plot.ruleY([one.limit], { stroke: "var(--limit)", strokeWidth: 2 })]),
          Plot.line(data, { x: "at_s", y: "value", z: "who", stroke: "colour", strokeWidth: 2, curve: "step-after" }),
          Plot.dot(
            data.filter((point, index) => index === 0 || data[index - 1].who !== point.who),
            { x: "at_s", y: "value", fill: "colour", r: 3 },
          ),
          Plot.tip(
            data,
            Plot.pointer({
              x: "at_s",
              y: "value",
              title: (point) => `${point.who}\n${point.at_s.toFixed(2)} s: ${amount(point.value, unit)}`,
            }),
          ),
        ],
      });
    };
    return figure(`${metric[0].toUpperCase()}${metric.slice(1)} over time`, `What the answers so far had reached in a run: lower is better. ${ends.join("; ")}.`, {
      wide: true,
      keys: [
        ...series.map(({ label, colour }) => ({ text: label, colour })),
        ...(bounded ? [{ ...LIMIT, text: "proved bound" }] : []),
        ...(cases.some((one) => one.curve.baseline.length) ? [{ ...REF, kind: null }] : []),
      ],
      columns: ["instance", "of", "first answer", ...PARTS.map((part) => `at ${percent(part)}`)],
      rows: all.flatMap(({ one, sides: lines }) =>
        lines.map(({ who, points, limit }) => [
          one.label,
          who,
          points.length ? `${num(points[0].at_s)} s` : "none",
          ...PARTS.map((part) => {
            const value = part < 1 ? reached(points, part * limit) : (points.at(-1)?.value ?? null);
            return value === null ? "–" : num(value);
          }),
        ]),
      ),
      draw: (width) => {
        // one drawing of all panels, each under its name: they have scales of their own
        const NAME = 16;
        const whole = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        const height = all.length * (PANEL + NAME);
        for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}`, "font-size": 11 })) {
          whole.setAttribute(key, value);
        }
        all.forEach((panelOf, index) => {
          const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
          text.setAttribute("y", index * (PANEL + NAME) + 12);
          text.setAttribute("font-weight", 600);
          text.setAttribute("fill", "currentColor");
          text.textContent = `${index + 1}  ${labels[index]}`;
          const svg = panel(panelOf, width);
          svg.setAttribute("y", index * (PANEL + NAME) + NAME);
          whole.append(text, svg);
        });
        return whole;
      },
    });
  };

  return { overTime };
})();
