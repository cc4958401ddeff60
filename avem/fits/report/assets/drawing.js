
// --- drawing one subject over time --------------------------------------------------------------

Object.assign(Timeline.prototype, {
  draw(chart) {
    const look = theme();
    const narrow = chart.width < 560;
    const layout = this.layout = this.arrange(chart.width, narrow);
    const c = chart.begin(layout.height);
    const { track, view } = this;
    const first = track.near(view[0]), last = track.near(view[1]);
    const X = (x) => layout.left + ((x - view[0]) / (view[1] - view[0])) * layout.width;
    const at = { c, look, X, from: Math.max(0, first - 1), to: Math.min(track.n, last + 2), layout };
    at.dense = at.to - at.from > 2 * layout.width;  // several rows share a pixel
    for (const panel of layout.panels) {
      c.save();
      c.beginPath();
      c.rect(layout.left, panel.top - 1, layout.width, panel.height + 2);
      c.clip();
      this.drawTints(at, panel);
      this.drawBorders(at, panel);
      c.restore();
      if (panel.kind === "lane") this.drawLane(at, panel);
      else this.drawPanel(at, panel);
    }
    if (this.data.sequence) this.drawSequences(at);
    this.drawAxis(at);
    this.drawOverview(at);
  },

  arrange(width, narrow) {
    const left = narrow ? 64 : 84, right = 14;
    const panels = [];
    let top = this.data.sequence ? 18 : 4;
    const add = (kind, index, height, gap) => {
      panels.push({ kind, index, top: top + gap, height });
      top += gap + height;
    };
    const tall = narrow ? 104 : 124;
    if (this.track.latent.length) add("latent", 0, tall + 36, 20);
    this.track.outcomes.forEach((_, j) => { if (this.shown[j]) add("outcome", j, tall, 20); });
    const lane = clamp(132 / Math.max(1, this.track.chance.length), 16, 34);
    this.track.chance.forEach((_, k) => add("lane", k, lane, k ? 5 : 26));
    const axis = top + 6;
    return { left, width: width - left - right, panels, axis, overview: axis + 40, height: axis + 70, narrow };
  },

  /** Behind everything: which state was decoded, in runs. */
  drawTints({ c, look, X, from, to, dense }, panel) {
    const { state, left, right } = this.track;
    if (!state || dense || panel.kind === "lane") return;
    c.globalAlpha = 0.14;
    for (let i = from; i < to; ) {
      let j = i;
      while (j + 1 < to && state[j + 1] === state[i] && left[j + 1] - right[j] < 1e-9 * this.track.usual) j++;
      c.fillStyle = look.states[state[i]];
      const x = X(left[i]);
      c.fillRect(x, panel.top, Math.max(0.5, X(right[j]) - x), panel.height);
      i = j + 1;
    }
    c.globalAlpha = 1;
  },

  drawBorders({ c, look, X, from, to }, panel) {
    const { starts, left, right } = this.track;
    c.strokeStyle = look.soft;
    c.lineWidth = 1;
    c.setLineDash([4, 3]);
    c.beginPath();
    for (let i = Math.max(1, from); i < to; i++) {
      if (!starts[i]) continue;
      const x = X((right[i - 1] + left[i]) / 2);
      c.moveTo(x, panel.top);
      c.lineTo(x, panel.top + panel.height);
    }
    c.stroke();
    c.setLineDash([]);
  },

  /** Names of sequences above them, where there is room. */
  drawSequences({ c, look, X, layout }) {
    const { sequence, left, right, n } = this.track;
    const { name, texts } = this.data.sequence;
    const end = layout.left + layout.width;
    c.font = look.small;
    c.fillStyle = look.soft;
    c.textAlign = "center";
    c.textBaseline = "top";
    for (let i = 0; i < n; ) {
      let j = i;
      while (j + 1 < n && sequence[j + 1] === sequence[i]) j++;
      const a = Math.max(X(left[i]), layout.left), b = Math.min(X(right[j]), end);
      const short = texts[column(this.data.sequence.codes)[sequence[i]]], long = `${name} ${short}`;
      const text = c.measureText(long).width < b - a - 6 ? long : short;
      if (c.measureText(text).width < b - a - 2) c.fillText(text, (a + b) / 2, 4);
      i = j + 1;
    }
  },

  range(panel) {
    const band = (mean, sd) => [mean.map((m, i) => m - Z * (sd ? sd[i] : 0)), mean.map((m, i) => m + Z * (sd ? sd[i] : 0))];
    const source = this.sameScale ? this.everyone() : this.track;
    if (panel.kind === "latent") return roomy(extent(...source.latent.flatMap((l) => band(l.mean, l.sd))));
    const o = source.outcomes[panel.index];
    if (o.levels) return [-0.35, o.levels.length - 0.65];
    return roomy(extent(o.y, ...(o.fit ? band(o.fit, o.sd) : [])));
  },

  /** All rows of the page, for a common scale. */
  everyone() {
    if (!this.all) {
      const { data } = this;
      this.all = {
        latent: (data.latent || []).map((l) => ({ mean: column(l.mean), sd: column(l.sd) })),
        outcomes: data.outcomes.map((o) => ({ ...o, y: column(o.y), fit: o.fit && column(o.fit), sd: o.sd && column(o.sd) })),
      };
    }
    return this.all;
  },

  drawPanel(at, panel) {
    const { c, look, layout } = at;
    const key = `${this.sameScale ? "all" : this.place} ${panel.kind} ${panel.index}`;
    this.ranges = this.ranges || new Map();
    if (!this.ranges.has(key)) this.ranges.set(key, this.range(panel));
    const [low, high] = this.ranges.get(key);
    const Y = (y) => panel.top + panel.height * (1 - (y - low) / (high - low));
    const outcome = panel.kind === "outcome" ? this.track.outcomes[panel.index] : null;
    c.font = look.bold;
    c.fillStyle = look.ink;
    c.textAlign = "left";
    c.textBaseline = "bottom";
    c.fillText(fitted(c, outcome ? outcome.name : "latent states", layout.width), layout.left, panel.top - 4);
    this.drawScale(at, panel, Y, low, high, outcome && outcome.levels);
    c.save();
    c.beginPath();
    c.rect(layout.left, panel.top - 3, layout.width, panel.height + 6);
    c.clip();
    if (outcome) this.drawOutcome(at, Y, outcome);
    else this.track.latent.forEach((l, k) => {
      this.drawBand(at, Y, l.mean, l.sd, look.states[k], DASHES[k % DASHES.length]);
    });
    c.restore();
  },

  drawScale({ c, look, layout }, panel, Y, low, high, levels) {
    c.strokeStyle = look.rule;
    c.lineWidth = 1;
    c.font = look.small;
    c.fillStyle = look.soft;
    c.textAlign = "right";
    c.textBaseline = "middle";
    const every = levels ? Math.ceil(levels.length / Math.max(2, Math.floor(panel.height / 15))) : 1;
    const places = levels ? levels.map((_, i) => i).filter((i) => i % every === 0) : ticks(low, high, panel.height / 34);
    for (const y of places) {
      const pixel = Math.round(Y(y)) + 0.5;
      c.beginPath();
      c.moveTo(layout.left, pixel);
      c.lineTo(layout.left + layout.width, pixel);
      c.stroke();
      c.fillText(fitted(c, levels ? levels[y] : say(y), layout.left - 10), layout.left - 6, pixel);
    }
  },

  drawOutcome(at, Y, outcome) {
    const { c, look, X, from, to } = at;
    const { x, left, right, broken, state } = this.track;
    const many = to - from > 3000;
    if (outcome.sd) this.drawBand(at, Y, outcome.fit, outcome.sd, look.expected, []);
    c.strokeStyle = look.soft;
    c.lineWidth = 0.8;
    c.globalAlpha = 0.55;
    if (state && !outcome.levels && !at.dense) {
      c.beginPath();
      let pen = false;
      for (let i = from; i < to; i++) {
        const y = outcome.y[i];
        if (Number.isNaN(y)) { pen = false; continue; }
        c[pen && !broken[i] ? "lineTo" : "moveTo"](X(x[i]), Y(y));
        pen = true;
      }
      c.stroke();
    }
    c.globalAlpha = 1;
    if (outcome.fit && !outcome.sd && !at.dense) {  // a step for every row
      c.strokeStyle = look.ink;
      c.lineWidth = 1.5;
      c.beginPath();
      let pen = false;
      for (let i = from; i < to; i++) {
        const y = outcome.fit[i];
        if (Number.isNaN(y)) { pen = false; continue; }
        c[pen && !broken[i] ? "lineTo" : "moveTo"](X(left[i]), Y(y));
        c.lineTo(X(right[i]), Y(y));
        pen = true;
      }
      c.stroke();
    }
    const r = clamp(9 / Math.sqrt(Math.max(1, (to - from) / Math.max(1, at.layout.width / 60))), 1.4, 3.6);
    for (let i = from; i < to; i++) {
      const y = outcome.y[i];
      if (Number.isNaN(y)) continue;
      c.fillStyle = state ? look.states[state[i]] : look.ink;
      if (many) c.fillRect(X(x[i]) - 0.8, Y(y) - 0.8, 1.6, 1.6);
      else mark(c, state ? state[i] : 0, X(x[i]), Y(y), r);
    }
  },

  drawBand(at, Y, mean, sd, color, dash) {
    const { c, X, from, to } = at;
    const { x, left, right, broken } = this.track;
    for (let i = from; i < to; ) {
      if (Number.isNaN(mean[i])) { i++; continue; }
      let j = i;
      while (j + 1 < to && !broken[j + 1] && !Number.isNaN(mean[j + 1])) j++;
      c.fillStyle = c.strokeStyle = color;
      c.globalAlpha = 0.2;
      c.beginPath();
      if (i === j) c.rect(X(left[i]), Y(mean[i] + Z * sd[i]), X(right[i]) - X(left[i]), Y(mean[i] - Z * sd[i]) - Y(mean[i] + Z * sd[i]));
      for (let k = i; k <= j; k++) c[k === i ? "moveTo" : "lineTo"](X(x[k]), Y(mean[k] + Z * sd[k]));
      for (let k = j; k >= i; k--) c.lineTo(X(x[k]), Y(mean[k] - Z * sd[k]));
      c.fill();
      c.globalAlpha = 1;
      c.lineWidth = 1.7;
      c.setLineDash(dash);
      c.beginPath();
      c.moveTo(X(i === j ? left[i] : x[i]), Y(mean[i]));
      for (let k = i + 1; k <= j; k++) c.lineTo(X(x[k]), Y(mean[k]));
      if (i === j) c.lineTo(X(right[i]), Y(mean[i]));
      c.stroke();
      c.setLineDash([]);
      i = j + 1;
    }
  },

  /** One state: how probable it is at each row, and a bar where it was decoded. */
  drawLane({ c, look, X, from, to, layout, dense }, panel) {
    const { left, right, state, chance } = this.track;
    const k = panel.index, p = chance[k], bar = 3, base = panel.top + panel.height - bar;
    c.font = look.small;
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillStyle = look.ink;
    c.fillText(fitted(c, layout.narrow ? `${SHAPES[k % SHAPES.length]} ${PAGE.states[k].replace(/^state /, "")}` : PAGE.states[k], layout.left - 10), layout.left - 6, panel.top + panel.height / 2);
    if (k === 0) {
      c.font = look.bold;
      c.textAlign = "left";
      c.textBaseline = "bottom";
      c.fillText(fitted(c, layout.narrow ? "probability of each state" : "probability of each state; bars below: decoded", layout.width), layout.left, panel.top - 4);
    }
    c.strokeStyle = look.rule;
    c.strokeRect(layout.left + 0.5, Math.round(panel.top) + 0.5, layout.width - 1, Math.round(panel.height) - 1);
    c.save();
    c.beginPath();
    c.rect(layout.left, panel.top, layout.width, panel.height);
    c.clip();
    c.fillStyle = look.states[k];
    if (dense) this.drawShares(c, X, p, from, to, layout, base, panel.height - bar - 1);
    for (let i = from; i < to && !dense; i++) {
      // Whole pixels, so that neighbours leave no seam.
      const a = Math.round(X(left[i])), width = Math.max(1, Math.round(X(right[i])) - a);
      const h = p[i] * (panel.height - bar - 1);
      c.globalAlpha = 0.5;
      c.fillRect(a, base - h, width, h);
      c.globalAlpha = 1;
      if (h > 0.5) c.fillRect(a, base - h, width, 1);
      if (state[i] === k) c.fillRect(a, base, width, bar);
    }
    c.restore();
  },

  /** The mean probability in each pixel. */
  drawShares(c, X, p, from, to, layout, base, height) {
    const sum = new Float64Array(Math.ceil(layout.width) + 1), n = new Uint32Array(sum.length);
    for (let i = from; i < to; i++) {
      const at = Math.round(X(this.track.x[i]) - layout.left);
      if (at < 0 || at >= sum.length) continue;
      sum[at] += p[i];
      n[at]++;
    }
    c.globalAlpha = 0.7;
    sum.forEach((total, at) => {
      const h = n[at] ? (total / n[at]) * height : 0;
      c.fillRect(layout.left + at, base - h, 1, h);
    });
    c.globalAlpha = 1;
  },

  drawAxis({ c, look, X, layout }) {
    const { view, data } = this;
    const n = layout.width / (data.axis === "date" ? 120 : 80);
    const dates = data.axis === "date";
    const rows = data.axis === "row";  // counted from 1
    const places = dates ? dateTicks(...view, n)
      : rows ? ticks(view[0] + 1, view[1] + 1, n).filter(Number.isInteger).map((t) => t - 1)
        : ticks(...view, n);
    c.strokeStyle = look.soft;
    c.fillStyle = look.soft;
    c.font = look.small;
    c.textBaseline = "top";
    c.beginPath();
    c.moveTo(layout.left, layout.axis + 0.5);
    c.lineTo(layout.left + layout.width, layout.axis + 0.5);
    for (const t of places) {
      c.moveTo(X(t), layout.axis);
      c.lineTo(X(t), layout.axis + 4);
    }
    c.stroke();
    for (const t of places) {
      const text = dates ? sayDate(t) : say(rows ? t + 1 : t);
      const half = c.measureText(text).width / 2;
      c.textAlign = "center";
      c.fillText(text, clamp(X(t), layout.left + half - 20, layout.left + layout.width - half + 10), layout.axis + 7);
    }
    c.textAlign = "center";
    c.fillText(fitted(c, data.axisLabel, layout.width), layout.left + layout.width / 2, layout.axis + 22);
  },

  /** The whole subject in a strip, and what of it is shown. */
  drawOverview({ c, look, layout }) {
    const { whole, state, left, right, n, x } = this.track;
    const { overview: top } = layout, height = 24;
    const X = (v) => layout.left + ((v - whole[0]) / (whole[1] - whole[0])) * layout.width;
    if (state) {
      c.globalAlpha = 0.75;
      for (let i = 0; i < n; ) {
        let j = i;
        while (j + 1 < n && state[j + 1] === state[i]) j++;
        c.fillStyle = look.states[state[i]];
        c.fillRect(X(left[i]), top + 4, Math.max(0.5, X(right[j]) - X(left[i])), height - 8);
        i = j + 1;
      }
      c.globalAlpha = 1;
    } else {
      this.track.latent.forEach((l, k) => {
        const [low, high] = roomy(extent(l.mean));
        c.strokeStyle = look.states[k];
        c.lineWidth = 1;
        c.beginPath();
        for (let i = 0; i < n; i++) {
          c[i && !this.track.broken[i] ? "lineTo" : "moveTo"](X(x[i]), top + height - 3 - ((l.mean[i] - low) / (high - low)) * (height - 6));
        }
        c.stroke();
      });
    }
    const [a, b] = this.view.map(X);
    c.fillStyle = look.paper;
    c.globalAlpha = 0.65;
    c.fillRect(layout.left, top, a - layout.left, height);
    c.fillRect(b, top, layout.left + layout.width - b, height);
    c.globalAlpha = 1;
    c.strokeStyle = look.ink;
    c.lineWidth = 1.5;
    c.strokeRect(a + 0.75, top + 0.75, b - a - 1.5, height - 1.5);
    c.font = look.small;
    c.fillStyle = look.soft;
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillText(layout.narrow ? "all" : "overview", layout.left - 6, top + height / 2);
  },

  drawCursor() {
    if (this.cursor === null) return;
    const { layout, view } = this, look = theme(), c = this.chart.context;
    const pixel = layout.left + ((this.track.x[this.cursor] - view[0]) / (view[1] - view[0])) * layout.width;
    if (pixel < layout.left - 1 || pixel > layout.left + layout.width + 1) {
      this.tip.hidden = true;
      return;
    }
    c.strokeStyle = look.ink;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(pixel, layout.panels.length ? layout.panels[0].top : 0);
    c.lineTo(pixel, layout.axis);
    c.stroke();
    this.tip.hidden = false;
    const before = pixel > layout.left + layout.width / 2;
    const room = this.tip.offsetWidth + 14;
    this.tip.style.left = `${clamp(before ? pixel - room : pixel + 14, 0, Math.max(0, this.chart.width - this.tip.offsetWidth))}px`;
    this.tip.style.top = "22px";
  },
});
