// Charts of a run, the same in its report and on the dashboard: lines over epochs, drawn by uPlot, each with a
// caption in words and a table behind it for those who cannot see the lines.
//
// Needs uPlot and theme.js, loaded before. Nothing here takes text as HTML: names of runs are other people's.
"use strict";

const siafuCharts = (() => {
  const SERIES_COLOURS = 8; // --series-0 … --series-7 in style.css
  const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]]; // so that no line is known by its colour alone
  const TABLE_ROWS = 400;
  const HEIGHT = 230;
  const MOST_STACKED = 6; // areas of one chart that can be told apart
  const FILLED = "66"; // opacity of an area, as the last two digits of a colour

  // What lines of metrics.jsonl become: a path into the line, or what makes a number of it. A path that leads to an
  // object gives a series for each of its keys. A chart none of whose fields was ever set, or with `busy` ever more
  // than zero, is left out. What accuracies are is the objective's to say: `{words, unit}`.
  const epochCharts = (metric) => [
    { id: "loss", title: "Loss", unit: "number", fields: [["train_loss", "training"], ["val_loss", "validation"]] },
    {
      id: "accuracy",
      title: metric.words.charAt(0).toUpperCase() + metric.words.slice(1),
      unit: metric.unit,
      fields: [["train_accuracy", "training"], ["val_accuracy", "validation"], ["test_accuracy", "test"]],
    },
    {
      id: "seconds",
      title: "Time of an epoch",
      unit: "seconds",
      fields: [["seconds", "forward, backward, update"], ["evaluate_seconds", "evaluation"]],
    },
    { id: "busy", title: "Time in tasks, shares of all threads' time", unit: "seconds", stacked: true, fields: [["busy_seconds", ""]] },
    {
      id: "staleness",
      title: "Staleness",
      unit: "count",
      busy: true,
      fields: [[furthestAhead, "epochs ahead of the slowest, at most"]],
    },
    {
      id: "bytes",
      title: "Rows sent between servers",
      unit: "bytes",
      busy: true,
      fields: [["bytes_scattered", "bytes"]],
    },
    {
      id: "lambdas",
      title: "Lambdas",
      unit: "count",
      fields: [
        ["lambdas.count", "at a time, at most"],
        ["lambdas.invocations", "invocations"],
        ["lambdas.relaunched", "relaunched"],
      ],
    },
    {
      id: "latency",
      title: "How long Lambdas take for a task",
      unit: "seconds",
      fields: ["p50", "p90", "p99"].map((rank) => [
        (row) => inSeconds(row.lambdas?.latency_ms?.[rank]),
        `${rank.slice(1)} of 100 take at most`,
      ]),
    },
    { id: "dollars", title: "Dollars so far", unit: "usd", fields: [["usd", "in all"]] },
  ];

  function furthestAhead(row) {
    const leads = Object.entries(row.staleness ?? {}).flatMap(([lead, often]) => (often > 0 ? [Number(lead)] : []));
    return leads.length === 0 ? null : Math.max(...leads);
  }

  function inSeconds(milliseconds) {
    return milliseconds === undefined || milliseconds === null ? null : milliseconds / 1000;
  }

  const FORMATS = {
    number: (value) => Number(value.toPrecision(4)).toString(),
    count: (value) => value.toLocaleString("en", { maximumFractionDigits: 1 }),
    percent: (value) => `${(100 * value).toFixed(2)} %`,
    seconds: duration,
    bytes: (value) => scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]),
    usd: (value) => `$${value < 1 ? Number(value.toPrecision(3)) : value.toFixed(2)}`,
  };

  function duration(seconds) {
    if (seconds === 0) return "0 s";
    if (seconds < 0.001) return `${Number((1e6 * seconds).toPrecision(3))} µs`;
    if (seconds < 1) return `${Number((1000 * seconds).toPrecision(3))} ms`;
    if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
    if (seconds < 7200) return `${Number((seconds / 60).toPrecision(3))} min`;
    return `${Number((seconds / 3600).toPrecision(3))} h`;
  }

  function scaled(value, base, units) {
    let unit = 0;
    while (Math.abs(value) >= base && unit < units.length - 1) {
      value /= base;
      unit += 1;
    }
    return `${Number(value.toPrecision(3))} ${units[unit]}`;
  }

  /** A number at a chart's side: as short as can be. */
  function formatTick(value, unit) {
    return unit === "percent" ? `${Number((100 * value).toPrecision(4))} %` : format(value, unit);
  }

  function format(value, unit) {
    return value === null || value === undefined ? "–" : (FORMATS[unit] ?? FORMATS.number)(value);
  }

  function element(tag, { text, ...attributes } = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    made.append(...children);
    return made;
  }

  /** `{x, series: [{label, values}]}` of one of `epochCharts`, out of parsed lines of metrics.jsonl. */
  function seriesOf(definition, rows) {
    const series = definition.fields.flatMap(([field, label]) => {
      const found = rows.map(typeof field === "function" ? field : (row) => at(row, field));
      const keys = new Set(found.flatMap((value) => (isObject(value) ? Object.keys(value) : [])));
      if (keys.size === 0) return [{ label, values: found }];
      return [...keys].sort().map((key) => ({ label: key, values: found.map((value) => value?.[key] ?? null) }));
    });
    const shown = series.filter(({ values }) => values.some((value) => value !== null));
    const kept = definition.stacked ? fewer(shown, MOST_STACKED) : shown;
    const idle = definition.busy && !shown.some(({ values }) => values.some((value) => value > 0));
    return { x: rows.map((row) => row.epoch), series: idle ? [] : kept };
  }

  /** The largest series by their mean shares, which one slow epoch does not decide; all others are one. */
  function fewer(series, most) {
    if (series.length <= most) return series;
    const totals = series[0].values.map((_, place) => series.reduce((total, each) => total + (each.values[place] ?? 0), 0));
    const share = ({ values }) =>
      values.reduce((total, value, place) => total + (totals[place] > 0 ? (value ?? 0) / totals[place] : 0), 0);
    const largest = new Set([...series].sort((one, other) => share(other) - share(one)).slice(0, most - 1));
    const rest = series.filter((each) => !largest.has(each));
    const values = rest[0].values.map((_, place) => rest.reduce((total, each) => total + (each.values[place] ?? 0), 0));
    return [...series.filter((each) => largest.has(each)), { label: `${rest.length} other kinds`, values }];
  }

  function at(row, path) {
    return path.split(".").reduce((value, key) => value?.[key], row) ?? null;
  }

  function isObject(value) {
    return typeof value === "object" && value !== null;
  }

  /** What a chart shows, in a sentence. */
  function inWords(spec, { x, series }) {
    const told = series.flatMap(({ label, values }) => {
      const known = values.flatMap((value, place) => (value === null ? [] : [place]));
      if (known.length === 0) return [];
      const [first, last] = [known[0], known[known.length - 1]];
      const start = `${format(values[first], spec.unit)} at ${spec.xLabel} ${x[first]}`;
      return [`${label}: ${start}, ${format(values[last], spec.unit)} at ${spec.xLabel} ${x[last]}`];
    });
    return told.length === 0 ? `${spec.title}: nothing yet` : `${spec.title}. ${told.join("; ")}.`;
  }

  /**
   * A figure of lines in `host`: `spec` is `{id, title, unit, xLabel}`; `update({x, series})` draws and redraws.
   * The chart takes the focus: arrow keys walk along it, Home and End jump, and what is there is read out.
   */
  class LineChart {
    constructor(host, spec) {
      this.spec = { xLabel: "epoch", ...spec };
      this.data = { x: [], series: [] };
      this._plot = null;
      this._shape = "";
      this._cut = element("span", { class: "aside" });
      const title = element("figcaption", { id: `chart-${spec.id}` }, spec.title, this._cut);
      this._canvas = element("div", { class: "chart", tabindex: "0", role: "img" });
      this._spoken = element("p", { class: "visually-hidden", "aria-live": "polite" });
      this._table = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${spec.title}, table` });
      this._details = element("details", {}, element("summary", { text: "Table" }), this._table);
      this.figure = element("figure", { "aria-labelledby": title.id }, title, this._canvas, this._spoken, this._details);
      host.append(this.figure);
      this._details.addEventListener("toggle", () => this._fillTable());
      this._canvas.addEventListener("keydown", (event) => this._walk(event));
      this._watch = new ResizeObserver(() => this._resize());
      this._watch.observe(this._canvas);
      siafuTheme.onChange(() => this._rebuild());
    }

    update(data) {
      this.data = data;
      const shape = JSON.stringify(data.series.map(({ label }) => label));
      if (this._plot === null || shape !== this._shape) {
        this._shape = shape;
        this._rebuild();
      } else {
        this._plot.setData(this._columns());
      }
      this._showLast();
      this._canvas.setAttribute("aria-label", inWords(this.spec, data));
      if (this._details.open) this._fillTable();
    }

    destroy() {
      this._watch.disconnect();
      this._plot?.destroy();
      this._plot = null;
      this.figure.remove();
    }

    _columns() {
      const values = this.data.series.map((each) => each.values);
      return [this.data.x, ...(this.spec.stacked ? this._stacked(values) : values)];
    }

    // The upper edge of each series when their shares of the whole lie on one another, from 0 to 1.
    _stacked(values) {
      const wholes = this.data.x.map((_, place) => values.reduce((sum, each) => sum + (each[place] ?? 0), 0));
      let edge = wholes.map(() => 0);
      return values.map((each) => {
        edge = edge.map((below, place) => below + (wholes[place] > 0 ? (each[place] ?? 0) / wholes[place] : 0));
        return edge;
      });
    }

    _told(series, place) {
      const value = place === null || place === undefined ? null : this.data.series[series].values[place];
      if (!this.spec.stacked || value === null) return format(value, this.spec.unit);
      const whole = this.data.series.reduce((sum, { values }) => sum + (values[place] ?? 0), 0);
      return `${format(value, this.spec.unit)}, ${Math.round((100 * value) / (whole || 1))} %`;
    }

    _rebuild() {
      if (this.data.series.length === 0) return;
      this._plot?.destroy();
      this._plot = new uPlot(this._options(), this._columns(), this._canvas);
      this._showLast();
    }

    // Where no pointer is on the chart, the legend tells of the last epoch.
    _showLast() {
      const { cursor } = this._plot ?? {};
      if (cursor && !(cursor.left >= 0)) this._plot.setLegend({ idx: this.data.x.length - 1 }, false);
    }

    // The first epoch compiles and warms up, and may take as long as all others: it would flatten them to a line.
    _withoutWarmUp(low, high) {
      const [first, rest] = [[], []];
      for (const { values } of this.data.series) {
        if (values[0] !== null) first.push(values[0]);
        for (const value of values.slice(1)) if (value !== null) rest.push(value);
      }
      const most = rest.reduce((found, value) => Math.max(found, value), 0);
      const cut = this.spec.unit === "seconds" && this.data.x.length > 10 && this.data.x[0] === 1 && Math.max(...first) > 2 * most;
      this._cut.textContent = cut ? ` (the first, ${format(Math.max(...first), "seconds")}, is beyond the chart)` : "";
      return uPlot.rangeNum(cut ? Math.min(low, 0) : low, cut ? most : high, 0.1, true);
    }

    _options() {
      const { xLabel, stacked } = this.spec;
      const unit = stacked ? "percent" : this.spec.unit;
      const axis = { stroke: siafuTheme.colour("--muted"), grid: { stroke: siafuTheme.colour("--grid"), width: 1 }, ticks: { show: false } };
      return {
        width: Math.max(this._canvas.clientWidth, 200),
        height: HEIGHT,
        cursor: { drag: { x: true, y: false } },
        scales: { x: { time: false }, y: { range: (_, low, high) => (stacked ? [0, 1] : this._withoutWarmUp(low, high)) } },
        bands: stacked ? this.data.series.slice(1).map((_, place) => ({ series: [place + 2, place + 1], fill: this._colour(place + 1, FILLED) })) : [],
        hooks: { setCursor: [() => this._showLast()] },
        axes: [
          { ...axis, label: xLabel, size: 28, labelSize: 18, labelGap: 0, labelFont: "12px system-ui, sans-serif", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6] },
          { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => formatTick(tick, unit)) },
        ],
        series: [
          { label: xLabel },
          ...this.data.series.map(({ label }, place) => ({
            label,
            stroke: this._colour(place),
            dash: DASHES[(place + Math.floor(place / SERIES_COLOURS)) % DASHES.length],
            width: stacked ? 1 : 2,
            fill: stacked && place === 0 ? this._colour(0, FILLED) : undefined,
            spanGaps: true,
            points: { show: this.data.x.length < 3 },
            value: (_, __, ___, at) => this._told(place, at),
          })),
        ],
      };
    }

    _colour(place, opacity = "") {
      return siafuTheme.colour(`--series-${place % SERIES_COLOURS}`) + opacity;
    }

    _resize() {
      const width = this._canvas.clientWidth;
      if (this._plot !== null && width > 0 && width !== this._plot.width) this._plot.setSize({ width, height: HEIGHT });
    }

    _walk(event) {
      const last = this.data.x.length - 1;
      if (this._plot === null || last < 0) return;
      const here = this._plot.cursor.idx ?? last;
      const step = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last, PageUp: here - 10, PageDown: here + 10 };
      if (!(event.key in step)) return;
      event.preventDefault();
      const place = Math.min(Math.max(step[event.key], 0), last);
      this._plot.setCursor({ left: this._plot.valToPos(this.data.x[place], "x"), top: HEIGHT / 3 });
      const told = this.data.series.map(({ label, values }) => `${label} ${format(values[place], this.spec.unit)}`);
      this._spoken.textContent = `${this.spec.xLabel} ${this.data.x[place]}: ${told.join(", ")}`;
    }

    _fillTable() {
      if (!this._details.open) return;
      const { x, series } = this.data;
      const stride = Math.max(1, Math.ceil(x.length / TABLE_ROWS));
      const head = element("tr", {}, ...[this.spec.xLabel, ...series.map(({ label }) => label)].map((text) => element("th", { scope: "col", text })));
      const body = element("tbody");
      x.forEach((epoch, place) => {
        if (place % stride !== 0 && place !== x.length - 1) return;
        const cells = series.map(({ values }) => element("td", { text: format(values[place], this.spec.unit) }));
        body.append(element("tr", {}, element("th", { scope: "row", text: epoch }), ...cells));
      });
      const caption = stride === 1 ? this.spec.title : `${this.spec.title}, every ${stride}th`;
      this._table.replaceChildren(element("table", {}, element("caption", { text: caption }), element("thead", {}, head), body));
    }
  }

  /** Every one of `epochCharts` that has something to show, in `host`; `update(rows)` with all lines so far. */
  class EpochCharts {
    constructor(host, metric) {
      this._host = host;
      this._definitions = epochCharts(metric);
      this._charts = new Map();
    }

    update(rows) {
      for (const definition of this._definitions) {
        const data = seriesOf(definition, rows);
        let chart = this._charts.get(definition.id);
        if (chart === undefined && data.series.length > 0) {
          chart = new LineChart(this._place(definition), definition);
          this._charts.set(definition.id, chart);
        }
        chart?.update(data);
      }
    }

    // A chart that turns up late still stands where the list has it.
    _place(definition) {
      const slot = element("div", { class: "slot", "data-chart": definition.id });
      const order = this._definitions.map(({ id }) => id);
      const after = [...this._host.children].find((other) => order.indexOf(other.dataset.chart) > order.indexOf(definition.id));
      this._host.insertBefore(slot, after ?? null);
      return slot;
    }
  }

  return { EpochCharts, LineChart, duration, element, format, inWords, seriesOf };
})();
