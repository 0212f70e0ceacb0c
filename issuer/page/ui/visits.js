// The last good checkpoint of each log: kept in the browser's local storage, and removed when the person asks.

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
    return null; // storage is denied, or the content is not ours
  }
}

/**
 * Return the other logs that this browser has seen at a URL: an issuer could hide history by giving its log a new name.
 * @param {string} origin @param {string} address
 */
export function otherLogs(origin, address) {
  /** @param {string} key */
  const isHere = (key) => {
    /** @type {{address?: unknown} | null} */
    const kept = JSON.parse(localStorage.getItem(key) ?? "null");
    return kept?.address === address;
  };
  try {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX) && key !== PREFIX + origin);
    return keys.filter(isHere).map((key) => key.slice(PREFIX.length));
  } catch {
    return []; // storage is denied, or another program wrote this value
  }
}

/** @param {string} origin @param {string} address of the log @param {Uint8Array} raw a signed checkpoint @param {number} at Unix seconds */
export function keepVisit(origin, address, raw, at) {
  const note = new TextDecoder().decode(raw);
  if (note.length > MOST) return;
  try {
    localStorage.setItem(PREFIX + origin, JSON.stringify({ note, address, at }));
  } catch {
    // denied, or full: the next visit counts as the first
  }
}

export function forgetVisit() {
  try {
    for (const key of Object.keys(localStorage)) if (key.startsWith(PREFIX)) localStorage.removeItem(key);
  } catch {
    // denied: the storage was empty anyway
  }
}
