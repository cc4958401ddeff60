
// --- numbers, ticks, dates ------------------------------------------------------------------

/** A number to four significant digits, as read off the data. */
function say(value) {
  if (!Number.isFinite(value)) return "missing";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(3).replace(/\.?0+e/, "e");
  const text = value.toPrecision(4);
  return String(Number(text)).replace("-", "\u2212");
}

/** An estimate to three significant digits with their zeros, as in the tables of the page. */
function sayAligned(value) {
  const size = Math.abs(value);
  return size >= 1e-4 && size < 999.5 ? value.toPrecision(3).replace("-", "\u2212") : say(value);
}

/** A probability to three decimals; the page knows four, so that none is quite 0 or 1. */
function sayChance(p) {
  if (!Number.isFinite(p)) return "unknown";
  if (PAGE.states.length === 1) return "1";
  if (p < 0.0005) return "< 0.001";
  return p > 0.9995 ? "> 0.999" : p.toFixed(3);
}

/** A moment (milliseconds) as text, without what is zero in all of them. */
function sayDate(ms) {
  const text = new Date(ms).toISOString();
  if (text.endsWith("T00:00:00.000Z")) return text.slice(0, 10);
  return text.slice(0, text.endsWith(":00.000Z") ? 16 : 19).replace("T", " ");
}

/** About n round numbers between two ends. */
function ticks(low, high, n) {
  const rough = (high - low) / Math.max(1, n);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    out.push(Number((k * step).toPrecision(12)));
  }
  return out;
}

const SECOND = 1e3, MINUTE = 6e4, HOUR = 36e5, DAY = 864e5;
const DATE_STEPS = [
  SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY,
];
const MONTH_STEPS = [1, 3, 6, 12, 24, 60, 120];

/** About n round moments between two ends. */
function dateTicks(low, high, n) {
  const rough = (high - low) / Math.max(1, n);
  const step = DATE_STEPS.find((s) => s >= rough);
  const out = [];
  if (step) {
    for (let t = Math.ceil(low / step) * step; t <= high; t += step) out.push(t);
    return out;
  }
  const months = MONTH_STEPS.find((m) => m * 30.4 * DAY >= rough) || 240;
  const first = new Date(low);
  let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months;
  for (let t; (t = Date.UTC(Math.floor(month / 12), month % 12, 1)) <= high; month += months) {
    if (t >= low) out.push(t);
  }
  return out;
}

/** Lowest and highest of some arrays; null where nothing is seen. */
function extent(...arrays) {
  let low = Infinity, high = -Infinity;
  for (const values of arrays) {
    for (const v of values) {
      if (v < low) low = v;
      if (v > high) high = v;
    }
  }
  return low <= high ? [low, high] : null;
}

/** A range with some room at both ends. */
function roomy(range, share = 0.06) {
  const [low, high] = range || [0, 1];
  const room = high > low ? share * (high - low) : Math.max(1, Math.abs(low)) * 0.5;
  return [low - room, high + room];
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
