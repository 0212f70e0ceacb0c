/** Times in Unix seconds, and their text for people. */

/** The year 2242. A time in milliseconds is larger, so it is refused instead of read as seconds. */
export const MAX_UNIX_S = 2 ** 33;

/** @type {[string, number][]} */
const UNITS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];

/**
 * Return Unix seconds as text: `2026-11-21T09:00:00Z`.
 * @param {number} moment
 */
export function showTime(moment) {
  const time = new Date(moment * 1000);
  const year = Number.isNaN(time.getTime()) ? 0 : time.getUTCFullYear();
  return year >= 1 && year <= 9999 ? `${time.toISOString().slice(0, 19)}Z` : `Unix second ${moment}`;
}

/**
 * Return a length of time in its largest unit and the next smaller one: `1 d 19 h`, `1 h`, `45 s`.
 * @param {number} seconds
 */
export function showSpan(seconds) {
  let left = Math.abs(seconds);
  const largest = UNITS.findIndex(([, size]) => left >= size);
  const first = largest < 0 ? UNITS.length - 1 : largest;
  const parts = [];
  for (const [name, size] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count || !parts.length) parts.push(`${count} ${name}`);
  }
  return parts.join(" ");
}
