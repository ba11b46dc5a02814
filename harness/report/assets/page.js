// Draws the page from the JSON in #data (Page in harness/report/page_data.py says what is in it).
//
// What is shown is a function of that and of the address behind #, so that every view has a link: render() draws all of
// it anew. charts.js draws what a board has beside its table, text.js writes.
"use strict";
(() => {
  const { el, num, times, percent, scored, day, count, name } = write;
  const { figures, drawAll } = charts;

  // The board's own record of an entry and of a case lies one level down in the data; here it is one with the rest.
  const flat = (data) => ({
    ...data,
    boards: data.boards.map((board) => {
      const cases = (one) => one.cases.map((each) => ({ ...each.figures, ...each }));
      const more = (one, index) => ({ by: board.by, number: index + 1, cases: cases(one) }); // places may be ranges
      const entries = board.entries.map((one, index) => ({ ...one.entry, ...one, ...more(one, index) }));
      const { problem, suite, machine_class, world_size } = entries[0];
      return { ...board, problem, suite, machine_class, world_size, entries };
    }),
  });
  let page = flat(JSON.parse(document.getElementById("data").textContent));
  const main = document.getElementById("main");
  const filters = document.getElementById("filters");
  const KEYS = ["problem", "suite", "machine", "q", "sort", "down", "board", "run"]; // of the address
  const open = new Set(); // ids of boards whose charts are shown

  // ---- the address

  const read = () => {
    const found = new URLSearchParams(location.hash.slice(1));
    return Object.fromEntries(KEYS.map((key) => [key, found.get(key) ?? ""]));
  };
  const address = (state) =>
    "#" + new URLSearchParams(KEYS.filter((key) => state[key]).map((key) => [key, state[key]]));
  const go = (changes) => {
    const next = address({ ...read(), ...changes });
    if (next === (location.hash || "#")) return;
    history.replaceState(null, "", next);
    render();
  };

  const score = ({ score: { value, unit } }) => scored(value, unit);
  const less = ({ score }) => score.better === "less";
  const worse = (entry) => (less(entry) ? entry.score.value : -entry.score.value); // grows as a score gets worse
  // How far an entry is behind another, by what their board ranks by.
  const behind = (entry, first) =>
    entry.by === "speedup"
      ? first.ratio / entry.ratio
      : less(entry)
        ? entry.score.value / first.score.value
        : first.score.value / entry.score.value;
  const figure = (entry) => (entry.by === "speedup" ? `${times(entry.ratio)} the reference` : score(entry));
  const placed = ({ place, last_place: last }) => (place === last ? `${place}` : `${place}-${last}`);

  const COLUMNS = [
    { key: "place", text: "#", of: (entry) => entry.place, class: "n place" },
    { key: "author", text: "author, file", of: (entry) => name(entry).toLowerCase(), class: "who" },
    { key: "score", text: "score", of: worse, class: "n score" },
    { key: "behind", text: "behind", of: (entry) => (entry.by === "speedup" ? -entry.ratio : worse(entry)), class: "n behind" },
    { key: "speedup", text: "× reference", of: (entry) => entry.ratio ?? -1, class: "n speedup" },
    { key: "roof", text: "of limit", of: (entry) => entry.fraction ?? -1, class: "n roof" },
    { key: "strip", text: "", of: null, class: "strip" },
    { key: "date", text: "date", of: (entry) => entry.date, class: "date" },
  ];

  // The fraction of the limit is of a clock of its own: on GPUs the device clock, whichever ranks.
  const columnText = ({ key, text }, { entries: [first] }) =>
    key === "roof" && first.score.unit === "s" ? `${text}, ${first.bounded} clock` : text;

  // ---- a board

  const matches = (state) => {
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = (entry) => words.every((word) => name(entry).toLowerCase().includes(word));
    return page.boards
      .filter((board) => !state.problem || board.problem === state.problem)
      .filter((board) => !state.suite || board.suite === state.suite)
      .filter((board) => !state.machine || board.machine_class === state.machine)
      .map((board) => ({ board, entries: board.entries.filter(wanted) }))
      .filter(({ entries }) => entries.length);
  };

  const tiles = (board) => {
    const [first] = board.entries;
    const sharing = board.entries.filter((entry) => entry.place === first.place);
    const next = board.entries.find((entry) => entry.place > first.place);
    const { fraction, ratio, ratio_ci: ci, bounded } = first;
    const timed = first.score.unit === "s";
    const tile = (title, value, more, style = "") =>
      el("div", {}, el("dt", {}, title), el("dd", { class: style }, el("span", {}, value), el("small", {}, more)));
    const others = sharing.length > 1 ? `, level with ${count(sharing.length - 1, "other")}` : "";
    return el(
      "dl",
      { class: "tiles" },
      tile(`leads${others}`, first.author, `${score(first)}, ${first.file}`, "name"),
      next
        ? tile("ahead of the next by", times(behind(next, first)), `${figure(next)}, ${name(next)}`)
        : tile(
            "ahead of the next by",
            "–",
            sharing.length > 1 ? "all share the first place" : "nobody else is here yet",
          ),
      tile(
        timed ? "as fast as the reference" : "as good as the reference",
        times(ratio),
        ci
          ? `95 % interval ${num(ci[0])} to ${num(ci[1])}`
          : ratio === null
            ? "no reference was measured"
            : "too few samples for an interval",
      ),
      fraction === null
        ? tile("of the limit", "–", "no limit is known here")
        : tile(
            "of the limit",
            percent(fraction),
            timed
              ? [`by the ${bounded} clock`, ...(board.limit === null ? [] : [`the score is ${far(first, board)}`])].join("; ")
              : fraction >= 1
                ? "at the limit"
                : `the limit is ${times(1 / fraction)} as good`,
          ),
    );
  };

  const far = (entry, board) => `${times(entry.score.value / board.limit)} the limit of ${score({ score: { ...entry.score, value: board.limit } })}`;

  // ---- all boards at a glance

  // A bar a shape, as high as the part of its limit that the leader reaches.
  const spark = ({ cases }) => {
    const known = cases.filter((one) => one.fraction !== null);
    if (!known.length) return el("span", {}, "–");
    const words = known.map((one) => `${one.label}: ${percent(one.fraction)} of the limit`).join("; ");
    const bar = (one) => el("i", { style: `height:${Math.max(6, Math.min(100, 100 * one.fraction)).toFixed(0)}%` });
    return el("span", { class: "spark", role: "img", "aria-label": words, title: words }, ...known.map(bar));
  };

  const lead = ({ entries: [first, ...others] }) => {
    const level = others.filter((entry) => entry.place === first.place).length;
    if (level) return `tie of ${level + 1}`;
    return others.length ? times(behind(others[0], first)) : "alone";
  };

  const overview = (found, state) => {
    const heads = ["problem", "machine", "leader", "ahead of the next", "× reference", "of the limit", "shapes"];
    const row = ({ board }) => {
      const [first] = board.entries;
      const { fraction, ratio, ratio_ci: ci, bounded } = first;
      const clock = first.score.unit === "s" ? ` ${bounded} clock` : "";
      const leads = board.entries.length > 1 && !lead(board).startsWith("tie");
      const phone = [null, null, null, leads ? "ahead" : null, "ref", clock ? `of limit,${clock}` : "of limit", null];
      const cells = [
        [el("a", { href: address({ ...state, board: board.id, run: "" }), "data-focus": `${board.id} row` }, board.problem)],
        [`${board.machine_class}, suite ${board.suite}`],
        [el("b", {}, first.author), el("small", {}, ` ${first.file}, ${score(first)}`)],
        [lead(board)],
        [times(ratio), el("small", {}, ci ? ` ${num(ci[0])} to ${num(ci[1])}` : "")],
        [fraction === null ? "–" : percent(fraction), el("small", {}, fraction === null ? "" : clock)],
        [spark(first)],
      ];
      const choose = (event) => event.target.closest("a") || go({ board: board.id, run: "" }) || arrive();
      return el(
        "tr",
        { role: "row", onclick: choose },
        ...cells.map((cell, index) =>
          el("td", { role: "cell", "data-name": phone[index] }, ...cell),
        ),
      );
    };
    return el(
      "section",
      { class: "overview", "aria-label": "All boards" },
      el(
        "table",
        { role: "table", "aria-label": "Who leads each board" },
        el(
          "thead",
          { role: "rowgroup" },
          el("tr", { role: "row" }, ...heads.map((text) => el("th", { scope: "col", role: "columnheader" }, text))),
        ),
        el("tbody", { role: "rowgroup" }, ...found.map(row)),
      ),
    );
  };

  const strip = (entry, scale, limit) => {
    const at = (value) => `left:${scale(value).toFixed(2)}%`;
    const { reference } = entry;
    const { value: own, unit } = entry.score;
    const known = (value) => (value === null ? "unknown" : scored(value, unit));
    const words = `limit ${known(limit)}, this ${known(own)}, reference ${known(reference)}`;
    const bar = el("div", { role: "img", "aria-label": words, title: words }, el("i"));
    if (limit !== null) {
      const [from, to] = [scale(limit), scale(own)].sort((a, b) => a - b);
      bar.append(el("i", { class: "gap", style: `left:${from}%;right:${100 - to}%` }));
      bar.append(el("b", { class: "limit", style: at(limit) }));
    }
    if (reference !== null) bar.append(el("b", { class: "ref", style: at(reference) }));
    bar.append(el("b", { class: "own", style: at(own) }));
    return bar;
  };

  const table = (board, entries, chosen, state) => {
    const all = board.entries.flatMap((entry) => [board.limit, entry.score.value, entry.reference]).filter(Boolean);
    const scale = d3.scaleLog([Math.min(...all), Math.max(...all) * 1.0001], [0, 100]);
    const sorted = COLUMNS.find((column) => column.key === state.sort && column.of) ?? COLUMNS[0];
    const sign = state.down ? -1 : 1;
    const rows = [...entries].sort((a, b) => {
      const [x, y] = [sorted.of(a), sorted.of(b)];
      return sign * (x < y ? -1 : x > y ? 1 : a.place - b.place);
    });
    const head = COLUMNS.map((column) => {
      if (!column.of) {
        const part = (style, text) => el("em", { class: style }, text);
        return el(
          "th",
          { scope: "col", role: "columnheader", class: column.class },
          el(
            "span",
            { class: "key" },
            ...(board.limit !== null ? [part("limit", "❙ limit"), "  "] : []),
            part("own", "● this"),
            ...(board.entries.some((one) => one.reference !== null) ? ["  ", part("ref", "┇ reference")] : []),
            " (log)",
          ),
        );
      }
      const now = column === sorted;
      const click = () => go({ sort: column.key, down: now && !state.down ? "1" : "" });
      const attributes = { scope: "col", role: "columnheader", class: column.class };
      attributes["aria-sort"] = now ? (state.down ? "descending" : "ascending") : null;
      return el(
        "th",
        attributes,
        el(
          "button",
          { type: "button", onclick: click, "data-focus": `${board.id} ${column.key}` },
          column.text === "#" ? el("span", {}, "#", el("span", { class: "hidden" }, " place")) : columnText(column, board),
        ),
      );
    });
    const body = rows.map((entry) => {
      const cells = {
        place: [placed(entry)],
        author: [
          el(
            "a",
            {
              title: name(entry),
              href: address({ ...state, board: "", run: entry.run_id }),
              "data-focus": entry.run_id,
            },
            entry.author,
          ),
          el("small", {}, [entry.file, ...(entry.verified ? ["verified"] : [])].join(", ")),
          ...marked(entry).map((text) => el("small", { class: "mark" }, text)),
        ],
        score: [score(entry)],
        behind: [leads(entry, board) ? "leads" : times(behind(entry, board.entries[0]))],
        speedup: [times(entry.ratio)],
        roof: [entry.fraction === null ? "–" : percent(entry.fraction)],
        strip: [strip(entry, scale, board.limit)],
        date: [entry.date.slice(0, 10)],
      };
      const names = { behind: leads(entry, board) ? null : "leader", speedup: "ref", roof: "of limit" };
      const choose = (event) => event.target.closest("a") || go({ board: "", run: entry.run_id });
      return el(
        "tr",
        { role: "row", "aria-current": entry === chosen ? "true" : null, onclick: choose },
        ...COLUMNS.map(({ key, class: style }) =>
          el(
            "td",
            {
              role: "cell",
              "data-name": names[key] ?? null,
              class: key === "place" && entry.place === 1 ? `${style} first` : style,
            },
            ...cells[key],
          ),
        ),
      );
    });
    return el(
      "div",
      { class: "table" },
      el(
        "table",
        { class: "entries", role: "table", "aria-label": title(board) },
        el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...head)),
        el("tbody", { role: "rowgroup" }, ...body),
      ),
    );
  };

  // Text in which commands stand between ticks.
  const coded = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

  // The first row leads, and whoever has its place and its figures.
  const leads = (entry, { entries: [first] }) => entry.place === first.place && behind(entry, first) <= 1;
  const marked = ({ copy_of: first }) => (first === null ? [] : [`a copy of ${first}`]);

  const title = (board) =>
    `${board.problem}, suite ${board.suite}, ${count(board.world_size, "rank")}, ${board.machine_class}`;

  const section = ({ board, entries }, state, alone) => {
    const asked = board.entries.find((entry) => entry.run_id === state.run);
    const chosen = asked ?? entries[0];
    const shown = alone || open.has(board.id);
    const more = el(
      "details",
      { class: "more", open: shown },
      el("summary", { "data-focus": `${board.id} more` }, "Charts: shapes, roofline, history, clocks, ranks, phases"),
    );
    const fill = () => {
      if (more.open && more.children.length === 1) more.append(figures(board, chosen));
    };
    more.addEventListener("toggle", () => {
      open[more.open ? "add" : "delete"](board.id);
      fill();
      drawAll(more);
    });
    fill();
    const notes = board.notes.map((text) => el("p", { class: "note" }, ...coded(text)));
    const parts = [tiles(board), table(board, entries, asked ?? (shown ? chosen : null), state), ...notes, more];
    // one entry leads nobody: its row above says it all
    const collapsed =
      board.entries.length > 1 || shown
        ? null
        : el(
            "details",
            { class: "alone" },
            el("summary", { "data-focus": `${board.id} alone` }, `One entry: ${name(entries[0])}`),
            ...parts,
          );
    return el(
      "section",
      { class: "board", id: board.id, "aria-labelledby": `${board.id}-title` },
      el(
        "header",
        {},
        el(
          "h2",
          { id: `${board.id}-title` },
          el("a", { href: address({ board: board.id }) }, board.problem),
          el("span", {}, `  suite ${board.suite}, ${count(board.world_size, "rank")} on ${board.machine_class}`),
          board.machines > 1 ? el("span", {}, `, ${board.machines} machines`) : "",
          board.communication ? el("span", {}, `; communication shown by: ${board.communication}`) : "",
        ),
      ),
      ...(board.entries.length > 1 || shown ? parts : [collapsed]),
    );
  };

  // ---- runs that failed

  const failedRun = (run) => {
    const to = run.links;
    const links = to
      ? [el("a", { href: to.report }, "report"), " ", to.source ? el("a", { href: to.source }, "source") : "", " ", el("a", { href: to.folder }, "logs")]
      : [];
    const past = run.history.map((one) => `${one.date.slice(5, 16).replace("T", " ")} ${one.score === null ? one.status : times(one.ratio)}`);
    return el(
      "details",
      {},
      el("summary", { "data-focus": `${run.run_id} failed` }, el("b", {}, `${run.problem}, ${name(run)}`), ` ${day(run.date)}: ${run.verdict}`),
      el("pre", { tabindex: "0" }, run.lines.join("\n")),
      el("p", { class: "note" }, `run ${run.run_id}, suite ${run.suite}, ${run.machine_class}  `, ...links),
      past.length > 1 ? el("p", { class: "note" }, `history of this file: ${past.join(", ")}`) : null,
    );
  };

  const showFailed = (state) => {
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const found = (page.failed ?? [])
      .filter((run) => !state.board && !state.run)
      .filter((run) => !state.problem || run.problem === state.problem)
      .filter((run) => !state.suite || run.suite === state.suite)
      .filter((run) => !state.machine || run.machine_class === state.machine)
      .filter((run) => words.every((word) => name(run).toLowerCase().includes(word)));
    const heading = el("h2", {}, "Runs that failed", el("span", {}, "  why, and the end of their logs"));
    document
      .getElementById("failed")
      .replaceChildren(...(found.length ? [el("div", { class: "board failed" }, el("header", {}, heading), ...found.map(failedRun))] : []));
  };

  // ---- all of it

  const render = () => {
    const state = read();
    for (const key of ["problem", "suite", "machine", "q"]) {
      if (filters.elements[key].value !== state[key]) filters.elements[key].value = state[key];
    }
    const focused = document.activeElement?.dataset?.focus;
    const found = matches(state);
    for (const board of page.boards) {
      if (state.board === board.id || board.entries.some((entry) => entry.run_id === state.run)) open.add(board.id);
    }
    const none = page.boards.length
      ? el("p", { class: "none" }, "No entry matches.")
      : el(
          "p",
          { class: "none" },
          "Nothing is on the leaderboard yet: ",
          el("code", {}, "make eval PROBLEM=a2a"),
          " makes the first entry.",
        );
    main.replaceChildren(
      ...(found.length > 1 ? [overview(found, state)] : []),
      ...(found.length ? found.map((one) => section(one, state, found.length === 1)) : [none]),
    );
    showFailed(state);
    drawAll(main);
    const entries = found.reduce((sum, one) => sum + one.entries.length, 0);
    document.getElementById("count").textContent =
      `${count(found.length, "board")}, ${count(entries, "entry", "entries")}`;
    if (focused)
      [...document.querySelectorAll("[data-focus]")]
        .find((one) => one.dataset.focus === focused)
        ?.focus({ preventScroll: true });
  };

  const arrive = () => {
    // at an address that somebody followed: to what it names
    render();
    const { board, run } = read();
    const named = page.boards.find(
      (one) => one.id === board || one.entries.some((entry) => run && entry.run_id === run),
    );
    if (named) document.getElementById(named.id)?.scrollIntoView({ block: "start" });
  };

  const fills = []; // what to call when there are other boards
  for (const [key, of] of [
    ["problem", (board) => board.problem],
    ["suite", (board) => board.suite],
    ["machine", (board) => board.machine_class],
  ]) {
    const fill = () => {
      const values = [...new Set(page.boards.map(of))].sort();
      filters.elements[key].replaceChildren(
        el("option", { value: "" }, "all"),
        ...values.map((value) => el("option", { value }, value)),
      );
    };
    fill();
    fills.push(fill);
    filters.elements[key].addEventListener("change", (event) => go({ [key]: event.target.value, board: "", run: "" }));
  }
  filters.elements.q.addEventListener("input", (event) => go({ q: event.target.value }));
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => {
    open.clear();
    go(Object.fromEntries(KEYS.map((key) => [key, ""])));
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  addEventListener("hashchange", arrive);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) {
      width = innerWidth;
      drawAll(main);
    } // a phone's address bar changes the height only
  });

  // Three themes in turn: the system's, light, dark. A browser may refuse storage to a file; then it is not kept.
  const THEMES = ["system", "light", "dark"];
  const button = document.getElementById("theme");
  const theme = (chosen) => {
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.textContent = `theme: ${chosen}`;
    try {
      localStorage.setItem("kernel-eval theme", chosen);
    } catch {
      /* not kept */
    }
  };
  button.addEventListener("click", () =>
    theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % 3]),
  );
  let kept = null;
  try {
    kept = localStorage.getItem("kernel-eval theme");
  } catch {
    /* not kept */
  }
  theme(THEMES.includes(kept) ? kept : "system");

  const about = () => {
    document.getElementById("made").textContent = `The local leaderboard, ${day(page.made_at)} UTC`;
    document.getElementById("legend").textContent = page.legend ? `${page.legend}.` : "";
    document.getElementById("held").replaceChildren(...page.held.map((text) => el("li", {}, `held: ${text}`)));
    const left = page.unreadable.map((text) => el("li", {}, `left out: ${text}`));
    document.getElementById("unreadable").replaceChildren(...left);
  };
  about();
  arrive();
  document.addEventListener("boards", (event) => {
    // from live.js: newer data, the same view
    page = flat(event.detail);
    fills.forEach((fill) => fill());
    about();
    render();
  });
})();
