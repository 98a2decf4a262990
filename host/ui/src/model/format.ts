// Numbers, times and sizes as text.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The bounds at which a number is rounded up to the next unit, or to one more digit. */
export function formatDuration(seconds: number): string {
  if (seconds < 0.0009995) return `${Math.max(0, Math.round(seconds * 1e6))} µs`;
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < MINUTE - 0.05) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)} min ${whole % MINUTE} s`;
  const minutes = Math.round(seconds / MINUTE);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function formatCount(value: number): string {
  return value.toLocaleString("en-US");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

/** Returns how long ago a time is. Both are seconds since 1970. */
export function formatAge(time: number, now: number): string {
  const age = Math.max(0, now - time);
  if (age < 5) return "just now";
  if (age < MINUTE) return `${Math.floor(age)} s ago`;
  if (age < HOUR) return `${Math.floor(age / MINUTE)} min ago`;
  if (age < DAY) return `${Math.floor(age / HOUR)} h ago`;
  return plural(Math.floor(age / DAY), "day") + " ago";
}

export function formatTime(time: number): string {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

export function formatDateTime(time: number): string {
  return new Date(time * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

/** Returns the first digits of a hash, for display. */
export function shortHash(sha256: string): string {
  return sha256.slice(0, 8);
}

/** Returns a JSON value on one line, cut to a length. */
export function preview(value: unknown, length = 80): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  const line = text.replace(/\s+/g, " ");
  return line.length > length ? `${line.slice(0, length)}…` : line;
}
