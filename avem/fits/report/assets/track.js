
// --- one subject's rows -----------------------------------------------------------------------

const Z = 1.959964;

/** One subject's rows, as they are drawn. */
class Track {
  constructor(data, place) {
    const from = data.counts.slice(0, place).reduce((a, b) => a + b, 0);
    const to = from + data.counts[place];
    this.n = to - from;
    this.from = from;
    this.of = data.rows[place];
    const cut = (packed) => part(packed, from, to);
    this.time = data.time && data.time.values ? cut(data.time.values) : null;
    this.x = data.axis === "row" ? Float64Array.from({ length: this.n }, (_, i) => i) : this.time;
    this.findSequences(data, from, to);
    this.findEdges();
    this.outcomes = data.outcomes.map((o) => ({
      ...o, y: cut(o.y), fit: o.fit ? cut(o.fit) : null, sd: o.sd ? cut(o.sd) : null,
    }));
    this.state = data.state ? cut(data.state) : null;
    this.chance = data.chance ? data.chance.map(cut) : [];
    this.latent = (data.latent || []).map((l) => ({ mean: cut(l.mean), sd: cut(l.sd) }));
  }

  findSequences(data, from, to) {
    this.starts = new Uint8Array(this.n);
    this.sequence = [];
    const lengths = column(data.sequenceLengths);
    for (let at = 0, k = 0; k < lengths.length && at < to; at += lengths[k], k++) {
      if (at < from) continue;
      this.starts[at - from] = 1;
      for (let i = 0; i < lengths[k]; i++) this.sequence.push(k);
    }
  }

  /** Half way to the neighbours, but not far into a pause. */
  findEdges() {
    const { x, n, starts } = this;
    const steps = [];
    for (let i = 1; i < n; i++) if (!starts[i]) steps.push(x[i] - x[i - 1]);
    steps.sort((a, b) => a - b);
    const m = steps.length >> 1;
    const usual = !steps.length ? 1 : steps.length % 2 ? steps[m] : (steps[m - 1] + steps[m]) / 2;
    this.usual = usual || 1;
    this.left = new Float64Array(n);
    this.right = new Float64Array(n);
    this.broken = new Uint8Array(n);
    for (let i = 0; i < n; i++) {
      const half = i ? Math.min((x[i] - x[i - 1]) / 2, starts[i] ? usual / 2 : usual) : usual / 2;
      this.left[i] = x[i] - half;
      if (i) {
        this.right[i - 1] = x[i - 1] + half;
        this.broken[i] = starts[i] || this.left[i] - this.right[i - 1] > 1e-9 * (x[n - 1] - x[0]);
      }
    }
    this.right[n - 1] = x[n - 1] + usual / 2;
    this.whole = [this.left[0], this.right[n - 1]];
  }

  /** The row nearest to a place on the axis. */
  near(x) {
    let low = 0, high = this.n - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.right[middle] < x) low = middle + 1;
      else high = middle;
    }
    return low > 0 && x - this.x[low - 1] < this.x[low] - x ? low - 1 : low;
  }
}
