// The pipeline's Gantt chart: what each thread and Lambda did in an epoch, with a table behind it.
//
// Needs theme.js and charts.js, loaded before.
"use strict";

const siafuGantt = (() => {
  const { element, duration, format } = siafuCharts;
  const COLOURS = 8; // --series-0 … --series-7 in style.css
  const ROW = 22;
  const GAP = 4;
  const AXIS = 26;
  const TABLE_ROWS = 400;
  const MOST_ZOOM = 4096;
  const TICK = 110; // pixels between times of the axis, at least

  /** The least of 1, 2, 5, 10, 20, … that is not below a number. */
  function roundStep(least) {
    const power = 10 ** Math.floor(Math.log10(least));
    return power * [1, 2, 5, 10].find((step) => step * power >= least * (1 - 1e-9));
  }

  /**
   * A figure in `host` of what `report/trace_view.py` gives: `{kinds, tracks, epochs: [{epoch, left_out, spans}]}`, where
   * a span is `[kind, track, start, length, interval, bytes]`, in microseconds. One epoch at a time, which is chosen.
   *
   * The chart takes the focus: left and right walk from task to task of a track, up and down change the track, plus and
   * minus zoom, and what is there is read out. A wheel with Ctrl zooms; dragging moves.
   */
  class Gantt {
    constructor(host, trace) {
      this.trace = trace;
      this._view = { from: 0, zoom: 1 };
      this._here = null;
      this._margin = 0;
      this._build(host);
      this._show(trace.epochs.length - 1);
      siafuTheme.onChange(() => this._draw());
      new ResizeObserver(() => this._draw()).observe(this._canvas);
    }

    _build(host) {
      const title = element("figcaption", { text: "What ran where, and when", id: "gantt-title" });
      this._select = element("select", { id: "gantt-epoch" });
      for (const [place, { epoch }] of this.trace.epochs.entries()) this._select.append(new Option(epoch, place));
      this._select.addEventListener("change", () => this._show(Number(this._select.value)));
      const controls = element("p", { class: "actions" }, element("label", { text: "Epoch", for: "gantt-epoch" }), this._select);
      for (const [text, label, factor] of [["+", "Zoom in", 2], ["−", "Zoom out", 0.5]]) {
        const button = element("button", { type: "button", text, "aria-label": label });
        button.addEventListener("click", () => this._zoom(factor, 0.5));
        controls.append(button);
      }
      this._legend = element("ul", { class: "legend" });
      this._canvas = element("canvas", { class: "gantt", tabindex: "0", role: "img" });
      this._told = element("p", { class: "told", "aria-live": "polite", text: "\u00a0" });
      this._words = element("p", { class: "note" });
      this._table = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tasks of the epoch, table" });
      this._details = element("details", {}, element("summary", { text: "Table" }), this._table);
      this._details.addEventListener("toggle", () => this._fillTable());
      host.append(element("figure", { "aria-labelledby": title.id }, title, controls, this._legend, this._canvas, this._told, this._words, this._details));
      this._listen();
    }

    _listen() {
      const canvas = this._canvas;
      canvas.addEventListener("keydown", (event) => this._key(event));
      canvas.addEventListener("pointermove", (event) => this._point(event));
      canvas.addEventListener("pointerleave", () => this._tell(null));
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        const share = (event.offsetX - this._margin) / (canvas.clientWidth - this._margin);
        this._zoom(event.deltaY < 0 ? 1.25 : 0.8, Math.min(Math.max(share, 0), 1));
      }, { passive: false });
      canvas.addEventListener("pointerdown", (event) => {
        canvas.setPointerCapture(event.pointerId);
        this._drag = { x: event.offsetX, from: this._view.from };
      });
      for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { this._drag = null; });
    }

    _show(place) {
      const { epoch, spans, left_out: leftOut } = this.trace.epochs[place];
      this._select.value = place;
      this._spans = spans;
      this._tracks = [...new Set(spans.map((span) => span[1]))].sort((a, b) => a - b);
      this._rows = new Map(this._tracks.map((track, row) => [track, row]));
      this._whole = Math.max(...spans.map(([, , start, length]) => start + length), 1);
      this._view = { from: 0, zoom: 1 };
      this._here = null;
      const words = this._inWords(epoch, leftOut);
      this._canvas.setAttribute("aria-label", words);
      this._words.textContent = words;
      this._fillLegend();
      this._fillTable();
      this._draw();
    }

    _inWords(epoch, leftOut) {
      const busy = this._spans.reduce((sum, span) => sum + span[3], 0);
      const share = busy / (this._whole * this._tracks.length);
      const rest = leftOut > 0 ? ` ${leftOut.toLocaleString("en")} later tasks are left out.` : "";
      return (
        `Epoch ${epoch}: ${this._spans.length.toLocaleString("en")} tasks in ${duration(1e-6 * this._whole)} on ` +
        `${this._tracks.length} tracks, which were busy with them ${(100 * share).toFixed(0)} % of that time; ` +
        `tasks of other epochs may have run in between.${rest}`
      );
    }

    _fillLegend() {
      const sums = new Map();
      for (const [kind, , , length] of this._spans) sums.set(kind, (sums.get(kind) ?? 0) + length);
      const items = [...sums].sort(([a], [b]) => a - b).map(([kind, sum]) => {
        const swatch = element("i", { "aria-hidden": "true" });
        swatch.style.background = `var(--series-${kind % COLOURS})`;
        return element("li", {}, swatch, ` ${this.trace.kinds[kind]} ${duration(1e-6 * sum)}`);
      });
      this._legend.replaceChildren(...items);
    }

    _fillTable() {
      if (!this._details.open) return;
      const head = ["begins", "takes", "task", "interval", "bytes", "where"].map((text) => element("th", { scope: "col", text }));
      const body = element("tbody");
      for (const span of this._spans.slice(0, TABLE_ROWS)) {
        const [kind, track, start, length, interval, bytes] = span;
        const cells = [duration(1e-6 * length), this.trace.kinds[kind], interval < 0 ? "–" : interval, format(bytes, "bytes"), this.trace.tracks[track]];
        body.append(element("tr", {}, element("th", { scope: "row", text: duration(1e-6 * start) }), ...cells.map((text) => element("td", { text }))));
      }
      const more = this._spans.length > TABLE_ROWS ? `, the first ${TABLE_ROWS}` : "";
      this._table.replaceChildren(element("table", {}, element("caption", { text: `Tasks by their beginning${more}` }), element("thead", {}, element("tr", {}, ...head)), body));
    }

    _draw() {
      const canvas = this._canvas;
      const [width, height] = [canvas.clientWidth, AXIS + this._tracks.length * (ROW + GAP)];
      if (width === 0) return;
      const scale = window.devicePixelRatio || 1;
      canvas.style.height = `${height}px`;
      [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      pen.clearRect(0, 0, width, height);
      this._drawNames(pen, width);
      this._drawAxis(pen, width, height);
      pen.save();
      pen.beginPath();
      pen.rect(this._margin, 0, width - this._margin, height);
      pen.clip();
      this._drawSpans(pen, width);
      pen.restore();
    }

    _drawAxis(pen, width, height) {
      pen.font = "12px system-ui, sans-serif";
      pen.fillStyle = siafuTheme.colour("--muted");
      pen.strokeStyle = siafuTheme.colour("--grid");
      const [first, last] = [this._timeAt(this._margin, width), this._timeAt(width, width)];
      const step = roundStep(((last - first) * TICK) / (width - this._margin));
      for (let count = Math.ceil(first / step); count * step <= last; count += 1) {
        const x = this._xAt(count * step, width);
        pen.beginPath();
        pen.moveTo(x, AXIS - 6);
        pen.lineTo(x, height);
        pen.stroke();
        pen.textAlign = x < this._margin + TICK / 4 ? "left" : x > width - TICK / 4 ? "right" : "center";
        pen.fillText(duration(1e-6 * count * step), x, 13);
      }
    }

    _drawSpans(pen, width) {
      const colours = this.trace.kinds.map((_, kind) => siafuTheme.colour(`--series-${kind % COLOURS}`));
      pen.font = "11px system-ui, sans-serif";
      pen.textAlign = "left";
      for (const span of this._spans) {
        const [kind, track, start, length] = span;
        const [left, right] = [this._xAt(start, width), this._xAt(start + length, width)];
        if (right < this._margin || left > width) continue;
        const top = AXIS + this._rows.get(track) * (ROW + GAP);
        pen.fillStyle = colours[kind];
        pen.fillRect(left, top, Math.max(right - left, 0.7), ROW);
        if (right - left > 46) {
          pen.fillStyle = siafuTheme.colour("--page");
          pen.fillText(this.trace.kinds[kind].replace(/^(train|evaluate) /, ""), Math.max(left, this._margin) + 4, top + 15, right - left - 8);
        }
        if (span === this._here) {
          pen.strokeStyle = siafuTheme.colour("--text");
          pen.lineWidth = 2;
          pen.strokeRect(left - 1, top - 1, Math.max(right - left, 1) + 2, ROW + 2);
          pen.lineWidth = 1;
        }
      }
    }

    _drawNames(pen, width) {
      pen.font = "12px system-ui, sans-serif";
      const names = this._tracks.map((track) => this.trace.tracks[track]);
      this._margin = Math.min(Math.max(...names.map((name) => pen.measureText(name).width)) + 10, 0.3 * width);
      pen.fillStyle = siafuTheme.colour("--text");
      pen.textAlign = "left";
      for (const [row, name] of names.entries()) pen.fillText(name, 0, AXIS + row * (ROW + GAP) + 15, this._margin - 10);
    }

    /** Pixels for an epoch as it is shown. */
    _across(width) {
      return Math.max(width - this._margin, 1) * this._view.zoom;
    }

    _xAt(time, width) {
      return this._margin + ((time - this._view.from) * this._across(width)) / this._whole;
    }

    _timeAt(x, width) {
      return this._view.from + ((x - this._margin) * this._whole) / this._across(width);
    }

    _zoom(factor, share) {
      const { from, zoom } = this._view;
      const fixed = from + (share * this._whole) / zoom;
      const closer = Math.min(Math.max(zoom * factor, 1), MOST_ZOOM);
      this._move(fixed - (share * this._whole) / closer, closer);
    }

    _move(from, zoom) {
      this._view = { zoom, from: Math.min(Math.max(from, 0), this._whole * (1 - 1 / zoom)) };
      this._draw();
    }

    _point(event) {
      const width = this._canvas.clientWidth;
      if (this._drag) {
        const moved = ((event.offsetX - this._drag.x) * this._whole) / this._across(width);
        this._move(this._drag.from - moved, this._view.zoom);
        return;
      }
      const track = this._tracks[Math.floor((event.offsetY - AXIS) / (ROW + GAP))];
      const [time, slack] = [this._timeAt(event.offsetX, width), this._whole / this._across(width)];
      this._tell(this._spans.find(([, on, start, length]) => on === track && start - slack <= time && time <= start + length + slack) ?? null);
    }

    _key(event) {
      if (event.key === "+" || event.key === "=") this._zoom(2, 0.5);
      else if (event.key === "-") this._zoom(0.5, 0.5);
      else if (!this._step(event.key)) return;
      event.preventDefault();
    }

    _step(key) {
      const here = this._here ?? this._spans[0];
      const row = this._rows.get(here[1]);
      const mine = this._spans.filter(([, track]) => track === here[1]);
      const at = mine.indexOf(here);
      const along = { ArrowLeft: at - 1, ArrowRight: this._here === null ? 0 : at + 1, Home: 0, End: mine.length - 1 };
      const across = { ArrowUp: row - 1, ArrowDown: row + 1 };
      if (key in along) this._focus(mine[Math.min(Math.max(along[key], 0), mine.length - 1)]);
      else if (key in across) this._focus(this._nearest(this._tracks[Math.min(Math.max(across[key], 0), this._tracks.length - 1)], here[2]));
      else return false;
      return true;
    }

    _nearest(track, time) {
      const far = (span) => Math.abs(span[2] - time);
      return this._spans.filter((span) => span[1] === track).reduce((best, span) => (far(span) < far(best) ? span : best));
    }

    /** The task that the keys are at: in view, and told of. */
    _focus(span) {
      this._here = span;
      const shown = this._whole / this._view.zoom;
      if (span[2] < this._view.from || span[2] > this._view.from + shown) this._view.from = Math.max(0, span[2] - shown / 2);
      this._tell(span);
      this._draw();
    }

    _tell(span) {
      if (span === null) {
        this._told.textContent = "\u00a0";
        return;
      }
      const [kind, track, start, length, interval, bytes] = span;
      const of = interval < 0 ? "" : `, interval ${interval}`;
      const moved = bytes > 0 ? `, ${format(bytes, "bytes")}` : "";
      this._told.textContent = `${this.trace.kinds[kind]}${of}: ${duration(1e-6 * length)} from ${duration(1e-6 * start)} on, ${this.trace.tracks[track]}${moved}`;
    }
  }

  return { Gantt };
})();
