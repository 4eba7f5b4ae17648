// What both pages need: words for how a run stands, events that come back after a break, requests that change something.
"use strict";

const siafuDashboard = (() => {
  const { element, format } = siafuCharts;

  siafuTheme.addSwitch(document.querySelector("header"));

  /** Listen to `path`: `handlers` by event name. Says in the header when the dashboard cannot be reached. */
  function listen(path, handlers) {
    const shown = document.getElementById("connection");
    const source = new EventSource(path);
    source.addEventListener("open", () => (shown.textContent = ""));
    source.addEventListener("error", () => {
      shown.textContent = "The dashboard does not answer; what you see may be old.";
      // A browser gives up on an answer that is no stream, for example while too many pages are open.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => listen(path, handlers), 5000);
    });
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
  }

  /** Ask the dashboard to change something; the secret shows that this page asks, and no other. */
  async function post(path) {
    const session = document.querySelector('meta[name="siafu-session"]').content;
    const answer = await fetch(path, { method: "POST", headers: { "X-Siafu-Session": session } });
    const said = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(said.error ?? `the dashboard says ${answer.status}`);
    return said;
  }

  function epochs(run) {
    return run.epochs === null ? `${run.epoch}` : `${run.epoch} of ${run.epochs}`;
  }

  function ago(seconds) {
    if (seconds === null) return "–";
    const passed = Date.now() / 1000 - seconds;
    if (passed < 2) return "now";
    const [unit, name] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([length]) => passed >= length) ?? [1, "s"];
    return `${Math.floor(passed / unit)} ${name} ago`;
  }

  return { ago, element, epochs, format, listen, post };
})();
