// Writes figures as the command line does: three to four digits with a unit, and "-" for what is not known.

export const NONE = "-";

const TIMES = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];
const RATES = [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];
const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];

function scaled(value, units) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return `0 ${units[units.length > 4 ? units.length - 1 : 0][1]}`;
  const [size, name] = units.find(([least]) => Math.abs(value) >= least * 0.9995) ?? units.at(-1);
  return `${digits(value / size)} ${name}`;
}

function digits(value) {
  const whole = Math.floor(Math.abs(value)).toString().length;
  return value.toFixed(Math.max(0, 4 - Math.max(1, whole))).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

export const duration = (seconds) => scaled(seconds, TIMES);
export const rate = (bitsPerSecond) => scaled(bitsPerSecond, RATES);
export const size = (bytes) => scaled(bytes, SIZES);

// A time with a fixed number of digits, for columns.
export function time(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  return Math.abs(seconds) >= 1 ? `${seconds.toFixed(3)} s` : `${(seconds * 1e3).toFixed(1)} ms`;
}

export function percent(part) {
  return part ? `${(part * 100).toFixed(part < 0.1 ? 1 : 0)} %` : NONE;
}

export function times(factor) {
  return factor === null || factor === undefined ? NONE : factor.toFixed(3);
}

export function age(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function clock(seconds) {
  return new Date(seconds * 1e3).toLocaleTimeString(undefined, { hour12: false });
}

export function moment(seconds) {
  return new Date(seconds * 1e3).toLocaleString(undefined, { hour12: false });
}

export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : noun.endsWith("ch") ? `${noun}es` : `${noun}s`}`;
}

export function compare(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}
