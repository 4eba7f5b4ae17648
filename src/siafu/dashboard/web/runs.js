// The table of all runs, live.
"use strict";

(() => {
  const { ago, element, epochs, format, listen } = siafuDashboard;
  const measured = (field) => (run) => format(run[field], run.metric_unit);
  const COLUMNS = [
    { title: "Run", key: (run) => run.name },
    { title: "Status", key: (run) => run.status },
    { title: "Dataset", key: (run) => run.dataset ?? "" },
    { title: "Model", key: (run) => run.model ?? "" },
    { title: "Epoch", key: (run) => run.epoch, show: epochs, number: true },
    { title: "Loss", key: (run) => run.last?.train_loss, unit: "number", number: true },
    { title: "Best validation", key: (run) => run.best_val_accuracy, show: measured("best_val_accuracy"), number: true },
    { title: "Test at the best epoch", key: (run) => run.best_test_accuracy, show: measured("best_test_accuracy"), number: true },
    { title: "Last epoch took", key: (run) => run.last?.seconds, unit: "seconds", number: true },
    { title: "Updated", key: (run) => run.updated, show: (run) => ago(run.updated), number: true },
  ];
  const runs = new Map();
  const rows = new Map();
  const order = { column: COLUMNS.length - 1, descending: true };
  let all = true;

  const head = document.getElementById("head");
  const body = document.getElementById("runs");
  const filter = document.getElementById("filter");

  COLUMNS.forEach((column, place) => {
    const button = element("button", { type: "button", class: "sort", text: column.title });
    button.addEventListener("click", () => {
      order.descending = order.column === place ? !order.descending : Boolean(column.number);
      order.column = place;
      draw();
    });
    head.append(element("th", { scope: "col", class: column.number ? "number" : "" }, button));
  });

  function cell(column, run) {
    if (column.title === "Run") return element("th", { scope: "row" }, element("a", { href: `/runs/${run.id}`, text: run.name }));
    if (column.title === "Status") return element("td", {}, element("span", { class: "status", "data-status": run.status, text: run.status }));
    const value = column.key(run);
    const text = column.show ? column.show(run) : column.unit ? format(value, column.unit) : value;
    return element("td", { class: column.number ? "number" : "", text });
  }

  function compare(a, b) {
    const [left, right] = [COLUMNS[order.column].key(a) ?? -Infinity, COLUMNS[order.column].key(b) ?? -Infinity];
    const sign = left < right ? -1 : left > right ? 1 : a.name < b.name ? -1 : 1;
    return order.descending ? -sign : sign;
  }

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const shown = [...runs.values()].filter((run) => [run.name, run.status, run.dataset, run.model].join(" ").toLowerCase().includes(wanted));
    shown.sort(compare);
    // Rows that stay are moved, not made anew, and only where the order is another: a link keeps its focus.
    shown.forEach((run, place) => {
      const row = rows.get(run.id);
      if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
    });
    while (body.children.length > shown.length) body.lastChild.remove();
    [...head.children].forEach((th, place) => {
      if (place === order.column) th.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    const running = shown.filter((run) => run.status === "running" || run.status === "stopping").length;
    const count = document.getElementById("count");
    const told = `${shown.length} ${shown.length === 1 ? "run" : "runs"}, ${running} running${all ? "" : "; older ones are not shown"}`;
    if (count.textContent !== told) count.textContent = told;
    document.getElementById("empty").hidden = runs.size > 0;
  }

  function put(run) {
    runs.set(run.id, run);
    const cells = COLUMNS.map((column) => cell(column, run));
    const row = rows.get(run.id);
    if (row === undefined) {
      rows.set(run.id, element("tr", { "data-run": run.id }, ...cells));
      return;
    }
    cells.forEach((fresh, place) => {
      const old = row.children[place];
      if (!fresh.isEqualNode(old)) old.replaceWith(fresh);
    });
  }

  filter.addEventListener("input", draw);
  setInterval(() => {
    for (const run of runs.values()) put(run); // "… ago" grows by itself
  }, 5000);

  listen("/events", {
    runs: (news) => {
      if (news.first) {
        runs.clear();
        rows.clear();
        body.replaceChildren();
      }
      all = news.all;
      for (const run of news.changed) put(run);
      for (const id of news.gone) {
        runs.delete(id);
        rows.get(id)?.remove();
        rows.delete(id);
      }
      draw();
    },
  });
})();
