// Draws the page from the JSON in #data (harness/page.py: Page says what is in it).
//
// What is shown is a function of that and of the address behind #, so that every view has a link: render() draws all of
// it anew. charts.js draws what a board has beside its table, text.js writes.
"use strict";
(() => {
  const { el, us, times, percent, seconds, day, count, name } = write;
  const { figures, drawAll } = charts;
  let page = JSON.parse(document.getElementById("data").textContent);
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

  // ---- figures that an entry has with its report, and nearly without

  const timeUs = (entry) => entry.run?.time_us ?? entry.score_s * 1e6;
  const refUs = (entry) =>
    entry.run?.ref_us ?? (entry.geomean_speedup === null ? null : timeUs(entry) * entry.geomean_speedup);
  const limitUs = (entry) =>
    entry.run?.bound_us ?? (entry.roofline_fraction === null ? null : timeUs(entry) * entry.roofline_fraction);

  const COLUMNS = [
    { key: "place", text: "#", of: (entry) => entry.place, class: "n place" },
    { key: "author", text: "author, file", of: (entry) => name(entry).toLowerCase(), class: "who" },
    { key: "score", text: "score", of: (entry) => entry.score_s, class: "n score" },
    { key: "behind", text: "behind", of: (entry) => entry.score_s, class: "n behind" },
    { key: "speedup", text: "× reference", of: (entry) => entry.geomean_speedup ?? -1, class: "n speedup" },
    { key: "roof", text: "of limit", of: (entry) => entry.roofline_fraction ?? -1, class: "n roof" },
    { key: "strip", text: "", of: null, class: "strip" },
    { key: "date", text: "date", of: (entry) => entry.date, class: "date" },
  ];

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
    const sharing = board.entries.filter((entry) => entry.place === 1);
    const next = board.entries.find((entry) => entry.place > 1);
    const limit = first.roofline_fraction;
    const ci = first.geomean_speedup_ci;
    const tile = (title, value, more, style = "") =>
      el("div", {}, el("dt", {}, title), el("dd", { class: style }, el("span", {}, value), el("small", {}, more)));
    const others = sharing.length > 1 ? `, level with ${count(sharing.length - 1, "other")}` : "";
    return el(
      "dl",
      { class: "tiles" },
      tile(`leads${others}`, first.author, `${seconds(first.score_s)}, ${first.file}`, "name"),
      next
        ? tile("ahead of the next by", times(next.score_s / first.score_s), `${seconds(next.score_s)}, ${name(next)}`)
        : tile(
            "ahead of the next by",
            "–",
            sharing.length > 1 ? "all share the first place" : "nobody else is here yet",
          ),
      tile(
        "as fast as the reference",
        times(first.geomean_speedup),
        ci
          ? `95 % interval ${us(ci[0])} to ${us(ci[1])}`
          : first.geomean_speedup === null
            ? "eval.py times no reference"
            : "too few samples for an interval",
      ),
      limit === null
        ? tile("of the limit", "–", "no peaks are known for this machine")
        : tile(
            "of the limit",
            percent(limit),
            limit >= 1 ? "at the limit" : `its time is ${times(1 / limit)} the limit's`,
          ),
    );
  };

  const strip = (entry, scale) => {
    const at = (value) => `left:${scale(value).toFixed(2)}%`;
    const [limit, own, ref] = [limitUs(entry), timeUs(entry), refUs(entry)];
    const known = limit === null ? "unknown" : `${us(limit)} us`;
    const words = `limit ${known}, this ${us(own)} us, reference ${ref === null ? "unknown" : `${us(ref)} us`}`;
    const bar = el("div", { role: "img", "aria-label": words, title: words }, el("i"));
    if (limit !== null) {
      const [from, to] = [scale(limit), scale(own)].sort((a, b) => a - b);
      bar.append(el("i", { class: "gap", style: `left:${from}%;right:${100 - to}%` }));
      bar.append(el("b", { class: "limit", style: at(limit) }));
    }
    if (ref !== null) bar.append(el("b", { class: "ref", style: at(ref) }));
    bar.append(el("b", { class: "own", style: at(own) }));
    return bar;
  };

  const table = (board, entries, chosen, state) => {
    const all = board.entries.flatMap((entry) => [limitUs(entry), timeUs(entry), refUs(entry)]).filter(Boolean);
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
            part("limit", "❙ limit"),
            "  ",
            part("own", "● this"),
            "  ",
            part("ref", "┇ reference"),
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
          column.text === "#" ? el("span", {}, "#", el("span", { class: "hidden" }, " place")) : column.text,
        ),
      );
    });
    const body = rows.map((entry) => {
      const cells = {
        place: [`${entry.place}`],
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
          el("small", {}, entry.status === "verified" ? `${entry.file}, verified` : entry.file),
        ],
        score: [seconds(entry.score_s)],
        behind: [entry.place === 1 ? "leads" : times(entry.score_s / board.entries[0].score_s)],
        speedup: [times(entry.geomean_speedup)],
        roof: [entry.roofline_fraction === null ? "–" : percent(entry.roofline_fraction)],
        strip: [strip(entry, scale)],
        date: [entry.date.slice(0, 10)],
      };
      const names = { behind: entry.place === 1 ? null : "leader", speedup: "ref", roof: "of limit" };
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
        ),
      ),
      tiles(board),
      table(board, entries, asked ?? (shown ? chosen : null), state),
      more,
    );
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
    main.replaceChildren(...(found.length ? found.map((one) => section(one, state, found.length === 1)) : [none]));
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
    page = event.detail;
    fills.forEach((fill) => fill());
    about();
    render();
  });
})();
