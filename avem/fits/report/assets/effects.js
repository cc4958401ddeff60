
// --- every subject's effects ----------------------------------------------------------------

const PAGE_ROWS = 20;

class Effects {
  constructor(box, data, timeline) {
    this.data = data;
    this.timeline = timeline;
    this.subjects = column(data.subjects);
    this.effect = 0;
    this.sort = { by: "mean", down: false };
    this.first = 0;
    this.cursor = null;
    this.marked = null;
    this.build(box);
    this.arrange();
    document.addEventListener("subject", (event) => {
      this.marked = event.detail;
      this.chart.changed(false);
    });
  }

  build(box) {
    const choose = make("select", { onchange: () => { this.effect = Number(choose.value); this.arrange(); } },
      ...this.data.names.map((name, j) => make("option", { value: j }, name)));
    this.filter = make("input", { type: "search", placeholder: "type to filter", oninput: () => { this.first = 0; this.arrange(); } });
    this.count = make("span", { class: "count" });
    box.append(make("div", { class: "tools" }, label("Effect", choose), label(`Filter by ${PAGE.subject}`, this.filter), this.count));
    const frame = make("div", { class: "chart" });
    this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.readout = make("p", { class: "readout line", role: "status", "aria-live": "polite" });
    this.announce = announcer(this.readout);
    box.append(frame, this.readout, make("p", { class: "hint" }, "Click on a subject, here or in the table, to see it over time."));
    this.chart = new Chart(frame, "Effects of all subjects, sorted. Arrow keys read subject by subject.", (chart) => this.draw(chart), () => this.drawMarked());
    frame.append(this.tip);
    this.listen(this.chart.canvas);
    this.buildTable(box);
  }

  buildTable(box) {
    const columns = [["subject", PAGE.subject], ["mean", "mean"], ["sd", "sd"], ["lower", "lower"], ["upper", "upper"]];
    this.heads = new Map(columns.map(([by, name]) => [by, make("th", { scope: "col" },
      make("button", { type: "button", class: "sort", onclick: () => this.sortBy(by) }, name))]));
    this.body = make("tbody");
    this.caption = make("caption");
    this.pager = make("div", { class: "tools" },
      button("\u2039", "Previous page", () => this.turn(-1)), button("\u203a", "Next page", () => this.turn(1)),
      this.pages = make("span", { class: "count", role: "status", "aria-live": "polite" }));
    box.append(
      make("div", { class: "box", role: "region", tabindex: "0", "aria-label": "Effects of subjects" },
        make("table", {}, this.caption, make("thead", {}, make("tr", {}, ...this.heads.values())), this.body)),
      this.pager);
  }

  sortBy(by) {
    this.sort = { by, down: this.sort.by === by ? !this.sort.down : false };
    this.first = 0;
    this.arrange();
  }

  turn(pages) {
    const last = Math.max(0, Math.ceil(this.order.length / PAGE_ROWS) - 1) * PAGE_ROWS;
    this.first = clamp(this.first + pages * PAGE_ROWS, 0, last);
    this.fill();
    this.chart.changed();
  }

  values(i) {
    const mean = this.mean[i], sd = this.sd[i];
    return { subject: PAGE.subjects[this.subjects[i]], mean, sd, lower: mean - Z * sd, upper: mean + Z * sd };
  }

  /** The subjects that are wanted, in the order that is wanted. */
  arrange() {
    this.mean = column(this.data.mean[this.effect]);
    this.sd = column(this.data.sd[this.effect]);
    const wanted = this.filter.value.trim().toLowerCase();
    const { by, down } = this.sort;
    const rows = [];
    for (let i = 0; i < this.subjects.length; i++) {
      if (PAGE.subjects[this.subjects[i]].toLowerCase().includes(wanted)) rows.push(i);
    }
    if (by !== "subject") rows.sort((a, b) => this.values(a)[by] - this.values(b)[by]);
    this.order = down ? rows.reverse() : rows;
    this.cursor = null;
    this.tip.hidden = true;
    const all = PAGE.subjects.length.toLocaleString("en");
    this.count.textContent = `${this.order.length.toLocaleString("en")} of ${all} subjects`;
    for (const [name, head] of this.heads) {
      const sorted = name === by ? (down ? "descending" : "ascending") : null;
      if (sorted) head.setAttribute("aria-sort", sorted);
      else head.removeAttribute("aria-sort");
    }
    this.fill();
    this.chart.changed();
  }

  fill() {
    const page = this.order.slice(this.first, this.first + PAGE_ROWS);
    this.caption.textContent = `${this.data.names[this.effect]}: mean, standard deviation and 95% interval`;
    this.body.replaceChildren(...page.map((i) => {
      const v = this.values(i);
      const head = make("th", { scope: "row" });
      const place = this.timeline ? this.timeline.data.subjects.indexOf(this.subjects[i]) : -1;
      if (place >= 0) {
        head.append(make("button", { type: "button", class: "link", title: "Show over time", onclick: () => this.show(place) }, v.subject));
      } else {
        head.append(v.subject);
      }
      return make("tr", {}, head, ...["mean", "sd", "lower", "upper"].map((name) => make("td", {}, sayAligned(v[name]))));
    }));
    const [a, b] = [Math.min(this.first + 1, this.order.length), Math.min(this.first + PAGE_ROWS, this.order.length)];
    this.pages.textContent = `${a.toLocaleString("en")} to ${b.toLocaleString("en")} of ${this.order.length.toLocaleString("en")}`;
    this.pager.hidden = this.order.length <= PAGE_ROWS;
  }

  show(place) {
    this.timeline.pick(place);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    document.getElementById("timelines").scrollIntoView({ behavior: still ? "auto" : "smooth" });
    this.timeline.chart.canvas.focus({ preventScroll: true });
  }

  listen(canvas) {
    canvas.addEventListener("pointermove", (event) => {
      const { left, width } = this.layout;
      const share = (this.chart.place(event)[0] - left) / width;
      this.point(this.order.length ? clamp(Math.floor(share * this.order.length), 0, this.order.length - 1) : null);
    });
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("blur", () => this.point(null));
    canvas.addEventListener("click", () => this.open());
    canvas.addEventListener("keydown", (event) => {
      const step = (by) => this.order.length && this.point(clamp(this.cursor === null ? 0 : this.cursor + by, 0, this.order.length - 1));
      const keys = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), Home: () => this.point(0),
        End: () => this.point(this.order.length - 1), Enter: () => this.open(), Escape: () => this.point(null) };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  open() {
    if (this.cursor === null || !this.timeline) return;
    const place = this.timeline.data.subjects.indexOf(this.subjects[this.order[this.cursor]]);
    if (place >= 0) this.timeline.pick(place);
  }

  point(rank) {
    if (rank === this.cursor) return;
    this.cursor = rank;
    if (rank === null) {
      this.tip.hidden = true;
    } else {
      const v = this.values(this.order[rank]);
      const text = `${sayAligned(v.mean)} (${sayAligned(v.lower)} to ${sayAligned(v.upper)})`;
      this.announce(`${PAGE.subject} ${v.subject}: ${text}, number ${rank + 1} of ${this.order.length}.`);
      this.tip.replaceChildren(make("strong", {}, v.subject), make("div", {}, text));
      this.tip.hidden = false;
    }
    this.chart.changed(false);
  }

  draw(chart) {
    const look = theme();
    const left = chart.width < 560 ? 54 : 84, width = chart.width - left - 14, top = 8, height = 200;
    const c = chart.begin(height + 40);
    const n = this.order.length;
    const bounds = this.order.map((i) => this.values(i));
    const [low, high] = roomy(extent(bounds.map((v) => v.lower), bounds.map((v) => v.upper), [0]));
    const X = (rank) => left + ((rank + 0.5) / Math.max(1, n)) * width;
    const Y = (y) => top + height * (1 - (y - low) / (high - low));
    c.font = look.small;
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const y of ticks(low, high, 5)) {
      const pixel = Math.round(Y(y)) + 0.5;
      c.strokeStyle = y === 0 ? look.soft : look.rule;
      c.beginPath();
      c.moveTo(left, pixel);
      c.lineTo(left + width, pixel);
      c.stroke();
      c.fillStyle = look.soft;
      c.fillText(say(y), left - 6, pixel);
    }
    if (n > PAGE_ROWS) {  // what the table shows
      c.fillStyle = look.rule;
      const a = X(this.first - 0.5), b = X(Math.min(n, this.first + PAGE_ROWS) - 0.5);
      c.fillRect(a, top + height + 4, Math.max(3, b - a), 4);
    }
    const room = width / Math.max(1, n);
    c.strokeStyle = look.accent;
    c.globalAlpha = n > 400 ? 0.35 : 0.7;
    c.lineWidth = clamp(room / 2, 0.5, 2);
    c.beginPath();
    bounds.forEach((v, rank) => {
      c.moveTo(X(rank), Y(v.lower));
      c.lineTo(X(rank), Y(v.upper));
    });
    c.stroke();
    c.globalAlpha = 1;
    c.fillStyle = look.ink;
    bounds.forEach((v, rank) => mark(c, 0, X(rank), Y(v.mean), clamp(room / 2.2, 0.8, 3.4)));
    this.layout = { left, width, top, height, X, Y, bounds };
    c.fillStyle = look.soft;
    c.font = look.small;
    c.textAlign = "center";
    c.textBaseline = "top";
    const word = { subject: "in the order of the data", mean: "by mean", sd: "by sd", lower: "by lower end", upper: "by upper end" };
    c.fillText(`${n.toLocaleString("en")} subjects, sorted ${word[this.sort.by]}`.replace("sorted in", "in"), left + width / 2, top + height + 14);
  }

  drawMarked() {
    const { X, Y, bounds, top, height } = this.layout, look = theme(), c = this.chart.context;
    const ring = (rank, size) => {
      c.strokeStyle = look.ink;
      c.lineWidth = 1.5;
      c.beginPath();
      c.arc(X(rank), Y(bounds[rank].mean), size, 0, 7);
      c.stroke();
    };
    const marked = this.order.findIndex((i) => this.subjects[i] === this.marked);
    if (marked >= 0 && this.timeline) ring(marked, 7);
    if (this.cursor === null) return;
    c.strokeStyle = look.soft;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(X(this.cursor), top);
    c.lineTo(X(this.cursor), top + height);
    c.stroke();
    ring(this.cursor, 5);
    const before = this.cursor > bounds.length / 2;
    this.tip.style.left = `${before ? X(this.cursor) - this.tip.offsetWidth - 10 : X(this.cursor) + 10}px`;
    this.tip.style.top = "10px";
  }
}
