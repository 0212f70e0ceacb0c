// The last checkpoint that this browser found good, for each log: kept in its local storage, and forgotten when asked to.

const PREFIX = "issuer.log ";
const MOST = 300_000; // characters

/** @param {string} origin @returns {{raw: Uint8Array, at: number} | null} */
export function lastVisit(origin) {
  try {
    /** @type {{note?: unknown, at?: unknown} | null} */
    const kept = JSON.parse(localStorage.getItem(PREFIX + origin) ?? "null");
    if (typeof kept?.note !== "string" || typeof kept.at !== "number" || !Number.isSafeInteger(kept.at)) return null;
    return { raw: new TextEncoder().encode(kept.note), at: kept.at };
  } catch {
    return null; // storage is denied, or what is there is none of ours
  }
}

/** @param {string} origin @param {Uint8Array} raw a signed checkpoint @param {number} at Unix seconds */
export function keepVisit(origin, raw, at) {
  const note = new TextDecoder().decode(raw);
  if (note.length > MOST) return;
  try {
    localStorage.setItem(PREFIX + origin, JSON.stringify({ note, at }));
  } catch {
    // denied, or full: the next visit is a first one
  }
}

export function forgetVisit() {
  try {
    for (const key of Object.keys(localStorage)) if (key.startsWith(PREFIX)) localStorage.removeItem(key);
  } catch {
    // denied: nothing was kept
  }
}
