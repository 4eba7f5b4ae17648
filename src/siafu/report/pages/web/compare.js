// Draws a comparison: each chart has a line for each run.
"use strict";

(() => {
  const { charts } = JSON.parse(document.getElementById("data").textContent);
  siafuTheme.addSwitch(document.getElementById("theme"));
  for (const { id, title, unit, x, series } of charts) {
    new siafuCharts.LineChart(document.getElementById("curves"), { id, title, unit }).update({ x, series });
  }
  document.body.dataset.drawn = "true";
})();
