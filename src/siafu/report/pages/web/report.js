// Draws a run's report: what a browser must draw. All else stands in the page already.
"use strict";

(() => {
  const { epochs, metric, trace } = JSON.parse(document.getElementById("data").textContent);
  siafuTheme.addSwitch(document.getElementById("theme"));
  new siafuCharts.EpochCharts(document.getElementById("curves"), metric).update(epochs);
  const host = document.getElementById("gantt");
  if (trace !== null && host !== null) new siafuGantt.Gantt(host, trace);
  document.body.dataset.drawn = "true";
})();
