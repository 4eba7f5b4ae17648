// One run, live: how it stands, its charts, and the button that stops it.
"use strict";

(() => {
  const { ago, element, epochs, format, listen, post } = siafuDashboard;
  const MOST_ROWS = 8000; // beyond, every other goes: a chart has fewer pixels than that
  const id = document.querySelector('meta[name="siafu-run"]').content;
  const [status, stop, notice, dialog] = ["status", "stop", "notice", "confirm"].map((name) => document.getElementById(name));
  let charts = null; // until the run has told what it measures
  let rows = [];
  let drawing = false;
  let lastTold = null;

  function facts(run) {
    const last = run.last ?? {};
    const shown = [
      ["Epoch", epochs(run)],
      ["Training loss", format(last.train_loss, "number")],
      [`Best validation ${run.metric_words}`, format(run.best_val_accuracy, run.metric_unit)],
      [`Test ${run.metric_words} at the best epoch`, format(run.best_test_accuracy, run.metric_unit)],
      ["Best epoch", run.best_epoch ?? "–"],
      ["Last epoch took", format(last.seconds, "seconds")],
      ["Dataset", run.dataset ?? "–"],
      ["Model", run.model ?? "–"],
      ["Mode", run.mode ?? "–"],
      ["Updated", ago(run.updated)],
    ];
    if (typeof last.usd === "number") shown.push(["Dollars so far", format(last.usd, "usd")]);
    if (last.lambdas) shown.push(["Lambdas", format(last.lambdas.count, "count")]);
    return shown.map(([term, told]) => element("div", {}, element("dt", { text: term }), element("dd", { text: told })));
  }

  function show(run) {
    lastTold = run;
    if (charts === null) {
      charts = new siafuCharts.EpochCharts(document.getElementById("charts"), { words: run.metric_words, unit: run.metric_unit });
      draw();
    }
    if (status.dataset.status !== run.status) {
      status.dataset.status = run.status;
      status.textContent = run.status;
      describe();
    }
    stop.disabled = run.status !== "running";
    const progress = document.getElementById("progress");
    progress.hidden = run.epochs === null;
    progress.max = run.epochs ?? 1;
    progress.value = run.epoch;
    document.getElementById("facts").replaceChildren(...facts(run));
    notice.hidden = true;
  }

  function tell(text) {
    notice.textContent = text;
    notice.hidden = false;
  }

  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      document.getElementById("waiting").hidden = rows.length > 0 || lastTold === null || lastTold.epoch > 0;
      charts?.update(rows);
    });
  }

  function flat(value, prefix = "") {
    return Object.entries(value).flatMap(([key, inner]) => {
      const nested = typeof inner === "object" && inner !== null && !Array.isArray(inner);
      return nested ? flat(inner, `${prefix}${key}.`) : [[prefix + key, typeof inner === "string" ? inner : JSON.stringify(inner)]];
    });
  }

  async function describe() {
    const answer = await fetch(`/api/runs/${id}`).catch(() => null);
    if (!answer?.ok) return;
    const { config } = await answer.json();
    const lines = flat(config ?? {}).map(([key, value]) => element("tr", {}, element("th", { scope: "row", text: key }), element("td", { text: value })));
    document.getElementById("config").replaceChildren(...lines);
  }

  setInterval(() => {
    if (lastTold !== null) document.getElementById("facts").replaceChildren(...facts(lastTold)); // "… ago" grows by itself
  }, 5000);

  stop.addEventListener("click", () => {
    dialog.returnValue = "";
    dialog.showModal();
  });
  dialog.addEventListener("close", async () => {
    if (dialog.returnValue !== "stop") return;
    stop.disabled = true;
    try {
      await post(`/api/runs/${id}/stop`);
      status.dataset.status = status.textContent = "stopping";
    } catch (error) {
      tell(`It was not stopped: ${error.message}`);
      stop.disabled = false;
    }
  });

  const trace = document.getElementById("show-trace");
  trace.addEventListener("click", async ({ currentTarget: button }) => {
    const told = document.getElementById("trace-told");
    button.disabled = true;
    told.textContent = "Reading the trace …";
    const answer = await fetch(`/api/runs/${id}/trace`).catch(() => null);
    button.disabled = false;
    const said = (await answer?.json().catch(() => null)) ?? { error: "the dashboard does not answer" };
    told.textContent = answer?.ok ? "" : said.error;
    if (!answer?.ok) return;
    button.textContent = "Show it anew";
    const host = document.getElementById("gantt");
    host.replaceChildren();
    new siafuGantt.Gantt(host, said);
  });
  trace.disabled = false; // from here on a click is heard

  listen(`/events/${id}`, {
    run: show,
    epochs: (news) => {
      if (news.restarted) rows = [];
      rows.push(...news.rows);
      if (rows.length > MOST_ROWS) rows = rows.filter((_, place) => place % 2 === 0 || place === rows.length - 1);
      draw();
    },
    gone: () => {
      stop.disabled = true;
      tell("The run is not there any more: it was moved or deleted.");
    },
  });
})();
