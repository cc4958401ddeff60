
// --- elements and canvases ------------------------------------------------------------------

/** An element with attributes and children; text is always text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const label = (text, control, extra = "") =>
  make("label", { class: `control ${extra}` }, make("span", {}, text), control);

const button = (text, title, onclick) =>
  make("button", { type: "button", "aria-label": title, title, onclick }, text);

/** Colours and fonts of the page as it looks now. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    ink: read("--ink"), soft: read("--soft"), rule: read("--rule"), paper: read("--paper"),
    accent: read("--accent"), expected: read("--expected"),
    states: PAGE.states.map((_, k) => read(`--s${k}`)),
    small: "12px system-ui, sans-serif", bold: "600 12.5px system-ui, sans-serif",
  };
}

/** A canvas that keeps the width of its box, draws when it must, and never more than once a frame. */
class Chart {
  constructor(box, title, draw, over) {
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": title });
    box.append(this.canvas);
    this.context = this.canvas.getContext("2d");
    this.draw = draw;
    this.over = over;  // what lies over it: the cursor
    this.fresh = true;
    this.width = this.height = 0;
    new ResizeObserver(() => this.changed()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.changed());
    this.box = box;
  }

  /** Draw with the next frame; `fresh` unless only the cursor has moved. */
  changed(fresh = true) {
    this.fresh = this.fresh || fresh;
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.now();
    });
  }

  now() {
    const width = this.box.clientWidth;
    if (!width) return;
    this.width = width;
    if (this.fresh || !this.kept) {
      this.fresh = false;
      this.draw(this);
      this.keep();
    } else {
      this.restore();
    }
    this.over(this);
  }

  /** The drawing without its cursor, so that a cursor that moves costs little. */
  keep() {
    this.kept = this.kept || document.createElement("canvas");
    this.kept.width = this.canvas.width;
    this.kept.height = this.canvas.height;
    if (this.kept.height) this.kept.getContext("2d").drawImage(this.canvas, 0, 0);
  }

  restore() {
    const c = this.context;
    c.save();
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.kept, 0, 0);
    c.restore();
  }

  /** Make room of this height, and clear it. */
  begin(height) {
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(this.width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.height = `${height}px`;
    }
    this.height = height;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, height);
    return this.context;
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

/** Text no wider than some pixels. */
function fitted(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (c.measureText(`${text.slice(0, middle)}\u2026`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}\u2026`;
}

// Each state has a shape as well as a colour.
const SHAPES = ["\u25cf", "\u25a0", "\u25b2", "\u25c6", "\u25bc", "\u271a", "\u2716"];
const DASHES = [[], [7, 3], [2, 2.5], [9, 3, 2, 3], [4, 4], [1, 4], [12, 3]];

function mark(c, shape, x, y, r) {
  c.beginPath();
  switch (shape % SHAPES.length) {
    case 0: c.arc(x, y, r, 0, 7); break;
    case 1: c.rect(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r); break;
    case 2: polygon(c, x, y + 0.15 * r, 1.25 * r, 3, -Math.PI / 2); break;
    case 3: polygon(c, x, y, 1.25 * r, 4, 0); break;
    case 4: polygon(c, x, y - 0.15 * r, 1.25 * r, 3, Math.PI / 2); break;
    case 5: c.rect(x - 1.2 * r, y - 0.4 * r, 2.4 * r, 0.8 * r); c.rect(x - 0.4 * r, y - 1.2 * r, 0.8 * r, 2.4 * r); break;
    default: polygon(c, x, y, 1.2 * r, 5, -Math.PI / 2);
  }
  c.fill();
}

function polygon(c, x, y, r, n, turn) {
  for (let i = 0; i < n; i++) {
    const angle = turn + (2 * Math.PI * i) / n;
    c[i ? "lineTo" : "moveTo"](x + r * Math.cos(angle), y + r * Math.sin(angle));
  }
  c.closePath();
}

/** What a status line says, once the pointer has come to rest. */
function announcer(element) {
  let timer = 0;
  return (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => { element.textContent = text; }, 120);
  };
}

/** Say so below a table that is wider than the page, and shade its first column once it is moved. */
function watchWidth(box) {
  const words = make("p", { class: "sideways", "aria-hidden": "true", hidden: true }, "Slide the table sideways to see all of it \u2192");
  box.after(words);
  const look = () => {
    words.hidden = box.scrollWidth <= box.clientWidth + 1;
    box.classList.toggle("moved", box.scrollLeft > 1);
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  if (box.firstElementChild) new ResizeObserver(look).observe(box.firstElementChild);
}
