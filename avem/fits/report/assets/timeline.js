
// --- one subject over time ------------------------------------------------------------------

const MOST_OUTCOMES = 4;
const MOST_STATES = 4;  // beyond, those that can be ruled out are not listed

class Timeline {
  constructor(box, data) {
    this.data = data;
    this.place = 0;
    this.cursor = null;
    this.shown = data.outcomes.map((_, j) => j < MOST_OUTCOMES);
    this.sameScale = false;
    this.labels = data.subjects.map((i) => PAGE.subjects[i]);
    this.build(box);
    this.pick(0);
  }

  // --- controls ---------------------------------------------------------------------------

  build(box) {
    this.search = make("input", { type: "search", placeholder: "type to find", oninput: () => this.find() });
    this.select = make("select", { onchange: () => this.pick(Number(this.select.value)) });
    this.fillSelect(this.labels.map((_, i) => i));
    this.count = make("span", { class: "count" });
    const tools = make("div", { class: "tools" });
    if (this.labels.length > 1) {
      tools.append(
        label("Find a subject", this.search), label(PAGE.subject, this.select),
        make("span", { class: "buttons" },
          button("\u2039", "Previous subject", () => this.pick(this.place - 1)),
          button("\u203a", "Next subject", () => this.pick(this.place + 1))),
        this.count);
    } else {
      tools.append(make("strong", {}, `${PAGE.subject}: ${this.labels[0]}`), this.count);
    }
    tools.append(make("span", { class: "buttons push" },
      button("\u2190", "Earlier", () => this.pan(-0.25)),
      button("\u2192", "Later", () => this.pan(0.25)),
      button("+", "Zoom in", () => this.zoom(0.5)),
      button("\u2212", "Zoom out", () => this.zoom(2)),
      button("All", "Show all rows", () => this.showAll())));
    this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.readout = make("p", { class: "readout", role: "status", "aria-live": "polite" });
    this.announce = announcer(this.readout);
    const frame = make("div", { class: "chart" });
    box.append(tools, this.makeChoices(), this.makeLegend(), frame, this.readout, make("p", { class: "hint" },
      "Drag or use the buttons to move, click and turn the wheel (or hold Ctrl and turn it) to zoom. Keys: " +
      "\u2190 \u2192 row by row, Shift+\u2190 \u2192 move, + \u2212 zoom, 0 all, Page Up and Down other subjects."));
    this.chart = new Chart(frame, "Subject over time", (chart) => this.draw(chart), () => this.drawCursor());
    frame.append(this.tip);
    this.listen(this.chart.canvas);
  }

  makeChoices() {
    const outcomes = this.data.outcomes;
    const choices = make("div", { class: "choices" });
    if (outcomes.length > 1) {
      const set = make("fieldset", {}, make("legend", {}, "Outcomes"));
      outcomes.forEach((outcome, j) => {
        const tick = make("input", { type: "checkbox", checked: this.shown[j], onchange: () => {
          this.shown[j] = tick.checked;
          this.chart.changed();
        } });
        set.append(make("label", { class: "tick" }, tick, outcome.name));
      });
      choices.append(set);
    }
    if (this.labels.length > 1) {
      const tick = make("input", { type: "checkbox", onchange: () => {
        this.sameScale = tick.checked;
        this.chart.changed();
      } });
      choices.append(make("label", { class: "tick" }, tick, "same scale for all subjects"));
    }
    return choices;
  }

  makeLegend() {
    const legend = make("ul", { class: "legend" });
    const hmm = PAGE.kind === "hmm";
    PAGE.states.forEach((name, k) => {
      const sign = make("span", { class: hmm ? "sign" : "sign line", "aria-hidden": "true" });
      if (hmm) {
        sign.textContent = SHAPES[k % SHAPES.length];
        sign.style.color = `var(--s${k})`;
      } else {
        sign.append(this.dash(k));
      }
      legend.append(make("li", {}, sign, name));
    });
    const names = new Set(this.data.outcomes.filter((o) => o.fit).map((o) =>
      o.levels ? "probability (line)" : hmm ? "state\u2019s mean (line)" : "expected outcome, 95% band"));
    for (const name of names) {
      legend.append(make("li", {}, make("span", { class: hmm ? "sign mean" : "sign expected", "aria-hidden": "true" }), name));
    }
    if (!hmm) legend.append(make("li", {}, make("span", { class: "sign", "aria-hidden": "true" }, "\u25cf"), "outcome"));
    return legend;
  }

  /** A line as in the chart, for the legend. */
  dash(k) {
    const canvas = make("canvas", { width: "56", height: "20", class: "dash" });
    const paint = () => {
      const c = canvas.getContext("2d");
      c.setTransform(2, 0, 0, 2, 0, 0);
      c.clearRect(0, 0, 28, 10);
      c.strokeStyle = theme().states[k];
      c.lineWidth = 2;
      c.setLineDash(DASHES[k % DASHES.length]);
      c.beginPath();
      c.moveTo(0, 5);
      c.lineTo(28, 5);
      c.stroke();
    };
    paint();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
    return canvas;
  }

  fillSelect(places) {
    this.select.replaceChildren(...places.map((i) => make("option", { value: i }, this.labels[i])));
  }

  find() {
    const wanted = this.search.value.trim().toLowerCase();
    const found = this.labels.map((_, i) => i).filter((i) => this.labels[i].toLowerCase().includes(wanted));
    this.search.setAttribute("aria-invalid", found.length ? "false" : "true");
    if (!found.length) {
      this.announce(`No ${PAGE.subject} has \u201c${this.search.value}\u201d in its name.`);
      return;
    }
    this.fillSelect(found);
    this.pick(found.includes(this.place) && !wanted ? this.place : found[0]);
  }

  /** Show another subject, by its place among those of the page. */
  pick(place) {
    const n = this.labels.length;
    this.place = (place + n) % n;
    this.track = new Track(this.data, this.place);
    this.cursor = null;
    this.tip.hidden = true;
    this.view = [...this.track.whole];
    if (![...this.select.options].some((o) => Number(o.value) === this.place)) {
      this.search.value = "";
      this.fillSelect(this.labels.map((_, i) => i));
    }
    this.select.value = String(this.place);
    const { n: rows, of } = this.track;
    const said = rows < of ? `first ${rows.toLocaleString("en")} of ${of.toLocaleString("en")} rows` : `${rows.toLocaleString("en")} rows`;
    this.count.textContent = n > 1 ? `${(this.place + 1).toLocaleString("en")} of ${n.toLocaleString("en")}, ${said}` : said;
    const name = `${PAGE.subject} ${this.labels[this.place]}`;
    this.chart.canvas.setAttribute("aria-label", `${name} over time: ${said}. Arrow keys read row by row.`);
    this.announce(`${name}, ${said}. Point at the chart, or use the arrow keys in it, to read values.`);
    this.chart.changed();
    document.dispatchEvent(new CustomEvent("subject", { detail: this.data.subjects[this.place] }));
  }

  // --- moving -----------------------------------------------------------------------------

  setView(low, high) {
    const [first, last] = this.track.whole;
    const width = clamp(high - low, Math.min(4 * this.track.usual, last - first), last - first);
    const centre = clamp((low + high) / 2, first + width / 2, last - width / 2);
    this.view = [centre - width / 2, centre + width / 2];
    this.chart.changed();
  }

  showAll() { this.setView(...this.track.whole); }

  pan(share) {
    const [low, high] = this.view;
    const by = share * (high - low);
    this.setView(low + by, high + by);
  }

  zoom(factor, at = null) {
    const [low, high] = this.view;
    const centre = at ?? (this.cursor === null ? (low + high) / 2 : this.track.x[this.cursor]);
    this.setView(centre - (centre - low) * factor, centre + (high - centre) * factor);
  }

  listen(canvas) {
    const pointers = new Map();
    let dragged = null;
    canvas.addEventListener("wheel", (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      const wanted = event.ctrlKey || event.metaKey || document.activeElement === canvas;
      if (!sideways && !wanted) return;
      event.preventDefault();
      if (sideways) this.pan((event.deltaX || event.deltaY) / 800);
      else this.zoom(Math.exp(clamp(event.deltaY, -120, 120) / 400), this.atPixel(this.chart.place(event)[0]));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      dragged = { at: this.chart.place(event), view: [...this.view] };
      if (dragged.at[1] >= this.layout.overview) this.follow(dragged.at[0]);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = this.chart.place(event);
      if (pointers.size === 2 && pointers.has(event.pointerId)) {
        const gap = () => Math.abs([...pointers.values()].reduce((a, p) => p.clientX - a, 0)) || 1;
        const before = gap();
        pointers.set(event.pointerId, event);
        this.zoom(clamp(before / gap(), 0.5, 2));
        return;
      }
      if (pointers.size === 1 && dragged) {
        if (dragged.at[1] >= this.layout.overview) this.follow(x);
        else {
          const by = ((dragged.at[0] - x) * (dragged.view[1] - dragged.view[0])) / this.layout.width;
          if (Math.abs(dragged.at[0] - x) > 3) this.setView(dragged.view[0] + by, dragged.view[1] + by);
        }
      }
      if (y < this.layout.overview) this.point(this.track.near(this.atPixel(x)));
    });
    const up = (event) => {
      pointers.delete(event.pointerId);
      dragged = null;
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { if (document.activeElement !== canvas) this.point(null); });
    canvas.addEventListener("dblclick", () => this.showAll());
    canvas.addEventListener("blur", () => this.point(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const { n } = this.track;
    const step = (by) => this.point(this.cursor === null ? (by > 0 ? this.track.near(this.view[0]) : this.track.near(this.view[1]))
      : clamp(this.cursor + by, 0, n - 1), true);
    const keys = {
      ArrowRight: () => (event.shiftKey ? this.pan(0.25) : step(1)),
      ArrowLeft: () => (event.shiftKey ? this.pan(-0.25) : step(-1)),
      Home: () => this.point(0, true), End: () => this.point(n - 1, true),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.showAll(),
      PageDown: () => this.pick(this.place + 1), PageUp: () => this.pick(this.place - 1),
      Escape: () => this.point(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** The window of the overview to where the pointer is. */
  follow(pixel) {
    const [first, last] = this.track.whole;
    const { left, width } = this.layout;
    const centre = first + ((pixel - left) / width) * (last - first);
    const half = (this.view[1] - this.view[0]) / 2;
    this.setView(centre - half, centre + half);
  }

  atPixel(pixel) {
    const [low, high] = this.view;
    return low + ((pixel - this.layout.left) / this.layout.width) * (high - low);
  }

  // --- reading ----------------------------------------------------------------------------

  /** Put the cursor on a row; `bring` it into view. */
  point(row, bring = false) {
    if (row === this.cursor) return;
    this.cursor = row;
    if (row === null) {
      this.tip.hidden = true;
    } else {
      const [low, high] = this.view;
      const x = this.track.x[row];
      if (bring && (x < low || x > high)) this.setView(x - (high - low) / 2, x + (high - low) / 2);
      const facts = this.facts(row);
      this.announce(`${facts.when}: ${facts.lines.map(([name, value]) => `${name} ${value}`).join("; ")}.`);
      this.tip.replaceChildren(make("strong", {}, facts.when), make("table", {}, make("tbody", {},
        ...facts.lines.map(([name, value, k]) => {
          const head = make("th", { scope: "row" });
          if (k !== undefined && PAGE.kind === "hmm") {
            const sign = make("span", { class: "sign" }, SHAPES[k % SHAPES.length]);
            sign.style.color = `var(--s${k})`;
            head.append(sign);
          }
          head.append(name);
          return make("tr", {}, head, make("td", {}, value));
        }))));
    }
    this.chart.changed(false);
  }

  /** What is known of a row: when it was, and lines of (name, value, state). */
  facts(row) {
    const { data, track } = this;
    const when = [];
    if (data.sequence) when.push(`${data.sequence.name} ${textAt(data.sequence, track.sequence[row])}`);
    if (data.time) {
      const { name, dates } = data.time;
      const value = track.time ? (dates ? sayDate(track.time[row]) : say(track.time[row])) : textAt(data.time, track.from + row);
      when.push(`${name} ${value}`);
    } else {
      when.push(`row ${row + 1}`);
    }
    const lines = track.outcomes.filter((_, j) => this.shown[j]).map((o) => {
      const y = o.y[row];
      const seen = Number.isNaN(y) ? "missing" : o.levels ? o.levels[y] : say(y);
      if (!o.fit || !Number.isFinite(o.fit[row])) return [o.name, seen];
      const band = o.sd ? ` \u00b1 ${say(Z * o.sd[row])}` : "";
      return [o.name, `${seen} (${o.fitName} ${say(o.fit[row])}${band})`];
    });
    if (track.state) {
      lines.push(["decoded", PAGE.states[track.state[row]], track.state[row]]);
      const many = track.chance.length > MOST_STATES;
      track.chance.forEach((p, k) => {
        if (!many || p[row] >= 0.0005) lines.push([`p(${PAGE.states[k]})`, sayChance(p[row]), k]);
      });
    }
    track.latent.forEach((l, k) => lines.push([PAGE.states[k], `${say(l.mean[row])} \u00b1 ${say(Z * l.sd[row])}`, k]));
    return { when: when.join(", "), lines };
  }
}
