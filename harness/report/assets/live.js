// Keeps the page of a server up to date: what runs and waits every two seconds, the boards when they have changed.
//
// Asks /live/queue, and /live/boards when that tells of another version (harness/serve/live.py says what is in both).
// A screen reader is told of submissions that begin and end, not of every case.
"use strict";
(() => {
  const { el, scored, count } = write;
  const part = document.getElementById("live");
  const state = document.getElementById("live-state");
  const news = document.getElementById("live-news");
  const table = document.getElementById("live-queue");
  const EVERY_MS = 2000;
  const LATEST_MS = 30000; // between questions to a server that does not answer
  let version = part.dataset.version;
  let wait = EVERY_MS;
  let known = null; // the submissions of the last answer, by number: their states

  const ask = async (path) => {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.json();
  };

  const ago = (since, now) => {
    const passed = Math.max(0, Math.round((Date.parse(now) - Date.parse(since)) / 1000));
    if (passed < 100) return `${passed} s`;
    return passed < 6000 ? `${Math.round(passed / 60)} min` : `${Math.round(passed / 3600)} h`;
  };
  const outcome = (one) => {
    if (one.passed) return "passed";
    return one.state === "timed_out" ? "timed out" : "failed";
  };
  const row = (one, word, style, more, now) =>
    el(
      "tr",
      { role: "row" },
      el("td", { role: "cell", class: "id n" }, `${one.id}`),
      el("td", { role: "cell", class: "what" }, el("b", {}, `${one.problem}, ${one.mode}`), el("small", {}, `${one.user}, ${one.file}`)),
      el("td", { role: "cell", class: `state ${style}` }, word),
      el("td", { role: "cell", class: "how" }, more),
      el("td", { role: "cell", class: "since" }, ago(one.since, now)),
    );

  const show = (queue) => {
    const { running, waiting, latest, now } = queue;
    const rows = [
      ...running.map((one) => row(one, "runs", "running", one.progress, now)),
      ...waiting.map((one, index) => row(one, `waits, ${index + 1 + running.length}`, "waits", "", now)),
      ...latest.map((one) => {
        const word = outcome(one);
        return row(one, word, word === "passed" ? "pass" : "fail", one.score_s ? scored(one.score_s, one.score_unit) : "", now);
      }),
    ];
    const left = queue.waiting_count - waiting.length;
    const head = [
      ["id n", "number"],
      ["what", "submission"],
      ["state", "state"],
      ["how", "phase and case, or score"],
      ["since", "since"],
    ];
    const names = head.map(([style, text]) => el("th", { role: "columnheader", scope: "col", class: style }, text));
    const made = el(
      "table",
      { role: "table", "aria-labelledby": "live-title" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...names)),
      el("tbody", { role: "rowgroup" }, ...rows),
    );
    table.replaceChildren(
      rows.length ? el("div", { class: "table" }, made) : el("p", { class: "none" }, "Nothing was submitted yet."),
      ...(left > 0 ? [el("p", { class: "none" }, `${left} more wait.`)] : []),
    );
    state.textContent = `${count(running.length, "evaluation")} running, ${queue.waiting_count} waiting`;
    tell([...running, ...latest]);
  };

  const tell = (shown) => {
    const states = new Map(shown.map((one) => [one.id, one.state === "running" ? "runs" : outcome(one)]));
    if (known !== null) {
      const changed = shown.filter((one) => known.get(one.id) !== states.get(one.id));
      const words = changed.map((one) => `${one.user}, ${one.problem}, ${one.mode}: ${states.get(one.id)}`);
      if (words.length) news.textContent = `${words.join(". ")}.`;
    }
    known = states;
  };

  const look = async () => {
    if (!document.hidden) {
      try {
        const queue = await ask("live/queue");
        show(queue);
        if (queue.version !== version) {
          const boards = await ask("live/boards");
          version = boards.version;
          document.dispatchEvent(new CustomEvent("boards", { detail: boards.page }));
        }
        part.classList.remove("lost");
        wait = EVERY_MS;
      } catch {
        state.textContent = "The server does not answer; what is shown may be old.";
        part.classList.add("lost");
        wait = Math.min(2 * wait, LATEST_MS);
      }
    }
    setTimeout(look, wait);
  };
  look();
})();
