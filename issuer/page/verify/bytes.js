/**
 * Bytes and their texts: UTF-8, the two alphabets of base64 in their canonical spelling, SHA-256.
 *
 * A decoder that accepts several spellings of the same bytes lets one statement have two texts (RFC 4648 3.5). These
 * decoders accept one spelling, and return null for any other.
 */

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @param {string} text */
export const utf8 = (text) => encoder.encode(text);

/**
 * @param {Uint8Array} raw
 * @returns {string | null} null if it is not UTF-8; a byte order mark is kept
 */
export function decodeUtf8(raw) {
  try {
    return decoder.decode(raw);
  } catch {
    return null;
  }
}

const STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE = `${STANDARD.slice(0, 62)}-_`;

/** @param {string} alphabet */
function valuesOf(alphabet) {
  const values = new Int8Array(128).fill(-1);
  for (let value = 0; value < 64; value++) values[alphabet.charCodeAt(value)] = value;
  return values;
}

const STANDARD_VALUES = valuesOf(STANDARD);
const URL_SAFE_VALUES = valuesOf(URL_SAFE);

/**
 * @param {Uint8Array} raw
 * @param {string} alphabet
 */
function encode(raw, alphabet) {
  let text = "";
  for (let at = 0; at < raw.length; at += 3) {
    const [first, second = 0, third = 0] = raw.subarray(at, at + 3);
    const bits = (first << 16) | (second << 8) | third;
    for (let shift = 18, left = raw.length - at; shift >= 0 && left >= 0; shift -= 6, left--)
      text += alphabet[(bits >> shift) & 63];
  }
  return text;
}

/**
 * Decode unpadded base64; null for a character of another alphabet, an impossible length, or leftover bits.
 * @param {string} text
 * @param {Int8Array} values
 */
function decode(text, values) {
  const raw = new Uint8Array((text.length * 3) >> 2);
  let bits = 0;
  let held = 0;
  for (let at = 0, next = 0; at < text.length; at++) {
    const value = values[text.charCodeAt(at)] ?? -1;
    if (value < 0) return null;
    bits = ((bits << 6) | value) & 0xffff;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    raw[next++] = bits >> held;
  }
  return held === 6 || bits & ((1 << held) - 1) ? null : raw;
}

/** @param {Uint8Array} raw */
export function encodeBase64(raw) {
  return encode(raw, STANDARD) + "=".repeat((3 - (raw.length % 3)) % 3);
}

/**
 * Read canonical base64 (RFC 4648 section 4), padded.
 * @param {string} text
 * @returns {Uint8Array | null} null for anything else
 */
export function decodeBase64(text) {
  const bare = text.replace(/={1,2}$/, "");
  return text.length % 4 === 0 && text.length - bare.length === (4 - (bare.length % 4)) % 4
    ? decode(bare, STANDARD_VALUES)
    : null;
}

/** @param {Uint8Array} raw */
export const encodeBase64url = (raw) => encode(raw, URL_SAFE);

/**
 * Read canonical base64url (RFC 7515 section 2), without padding.
 * @param {string} text
 * @returns {Uint8Array | null} null for anything else
 */
export const decodeBase64url = (text) => decode(text, URL_SAFE_VALUES);

/** @param {Uint8Array} raw */
export const hex = (raw) => Array.from(raw, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {...Uint8Array} parts */
export function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/**
 * Compare public bytes; the time depends on them, so do not use it for secrets.
 * @param {Uint8Array} one
 * @param {Uint8Array} other
 */
export const equal = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

/** @param {Uint8Array} raw */
export const sha256 = async (raw) =>
  new Uint8Array(await crypto.subtle.digest("SHA-256", /** @type {Uint8Array<ArrayBuffer>} */ (raw)));
