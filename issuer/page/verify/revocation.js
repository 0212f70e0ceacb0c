/**
 * An issuer's revocation list (contract section 6, `revocations.json`).
 *
 * A JWS with `typ` `eval-revocations+jwt`, signed by a key that `revocation_keys` lists. It names revoked tokens by
 * their `jti`, and for a `sub` the intervals whose tokens are revoked. After `next_update` it no longer shows that
 * other tokens are good. A relying party that has seen a newer list refuses an older one.
 */

import { decodeUtf8 } from "./bytes.js";
import { FormatError } from "./errors.js";
import { exactly, integer, list, object, optional, shortText } from "./shape.js";
import { readStatement, withoutLineBreaks } from "./statement.js";
import { MAX_UNIX_S, showSpan } from "./times.js";

/**
 * The tokens with an `iat` from `from` to `until`, both included; without `until`, all from `from` on.
 * @typedef {{sub: string, from: number, until?: number}} Interval
 */
/**
 * One issuer's revocations: tokens by `jti`, and intervals by `sub`. Times are Unix seconds. `held`: an earlier list,
 * used because today's is unavailable; it revokes the tokens that it names, but does not show that other tokens are
 * good.
 * @typedef {{jtis: Set<string>, intervals: Map<string, Interval[]>, iat: number, number: number, nextUpdate: number,
 *   kid: string, held: boolean}} Revocations
 */

const REVOCATIONS_TYPE = "eval-revocations+jwt";
export const MAX_BYTES = 4 * 1024 * 1024;
/**
 * How long a list may show that other tokens are good. An attacker who can hold back newer lists gains at most this
 * time.
 */
const LONGEST_S = 7 * 86_400;
/** How far the issuer's clock may run ahead of the relying party's. */
const LEEWAY_S = 60;

const time = integer({ min: 0, max: MAX_UNIX_S });
const shape = object(
  {
    ver: exactly(1),
    iss: shortText,
    iat: time,
    number: integer({ min: 0 }),
    next_update: time,
    jti: list(shortText),
    sub: list(object({ sub: shortText, from: time, until: optional(time) }, { closed: true })),
  },
  { closed: true },
);

/**
 * Read an issuer's list of at most 4 MiB. Throws FormatError if it is another issuer's or not signed by one of the
 * keys.
 * @param {Uint8Array} raw
 * @param {string} issuer
 * @param {import("./keys.js").KeySet} keys
 * @returns {Promise<Revocations>}
 */
export async function parseRevocations(raw, issuer, keys) {
  const { payload, kid } = await readStatement(listText(raw), REVOCATIONS_TYPE, keys, MAX_BYTES);
  shape(payload);
  const said =
    /** @type {{iss: string, iat: number, number: number, next_update: number, jti: string[], sub: Interval[]}} */ (
      /** @type {unknown} */ (payload)
    );
  const { iat, number, next_update: nextUpdate } = said;
  if (said.iss !== issuer) throw broken("it is another issuer's list", "/iss");
  if (nextUpdate < iat || nextUpdate - iat > LONGEST_S)
    throw broken(`not within ${LONGEST_S} s after iat`, "/next_update");
  const wrong = said.sub.findIndex(({ from, until }) => until !== undefined && until < from);
  if (wrong >= 0) throw broken("ends before it begins", `/sub/${wrong}/until`);
  /** @type {Revocations["intervals"]} */
  const intervals = new Map();
  for (const interval of said.sub) {
    const others = intervals.get(interval.sub);
    if (others) others.push(interval);
    else intervals.set(interval.sub, [interval]);
  }
  return { jtis: new Set(said.jti), intervals, iat, number, nextUpdate, kid, held: false };
}

/**
 * Decode a list, which is ASCII; a file may end with a line break. Throws FormatError.
 * @param {Uint8Array} raw
 */
export function listText(raw) {
  const list = raw.length > MAX_BYTES ? null : decodeUtf8(raw);
  if (list === null || list.length < raw.length)
    throw new FormatError("jws.malformed", `not a JWS in ASCII of at most ${MAX_BYTES} bytes`);
  return withoutLineBreaks(list);
}

/**
 * @param {string} rule
 * @param {string} pointer
 */
const broken = (rule, pointer) => new FormatError("file.rule", rule, { pointer });

/**
 * Return why a token is revoked, or "" if it is not.
 * @param {Revocations} list
 * @param {string} jti
 * @param {string} sub
 * @param {number} iat
 */
export function revokedReason({ jtis, intervals }, jti, sub, iat) {
  if (jtis.has(jti)) return "the issuer has revoked this jti";
  const has = intervals.get(sub)?.some(({ from, until = Infinity }) => from <= iat && iat <= until);
  return has ? `the issuer has revoked what ${sub} had signed at that time` : "";
}

/**
 * Return the list that counts, given the lists of this issuer seen before, and why `found` was refused, or "".
 *
 * If `found` is null (unavailable), the last list seen counts, as `held`. A list from the future is refused as well: it
 * could outlive every good one.
 * @param {Revocations | null} found
 * @param {Revocations[]} seen
 * @param {number} now
 * @returns {{list: Revocations | null, refused: string}}
 */
export function newest(found, seen, now) {
  const last = seen.reduce((one, other) => (isNewer(other, one) ? other : one), seen[0] ?? null);
  if (!found || found.iat > now + LEEWAY_S) {
    const refused = found ? `it is dated ${showSpan(found.iat - now)} in the future` : "";
    return { list: last && { ...last, held: true }, refused };
  }
  const refused = seen.map((each) => rolledBack(found, each)).find((reason) => reason) ?? "";
  return { list: refused ? last : found, refused };
}

/**
 * @param {Revocations} one
 * @param {Revocations | null} other
 */
const isNewer = (one, other) =>
  !other || one.number > other.number || (one.number === other.number && one.iat > other.iat);

/**
 * Return why `found` must be refused by a party that has seen the list `seen` of the same issuer, or "".
 * @param {Revocations} found
 * @param {Revocations} seen
 */
function rolledBack(found, seen) {
  if (found.number < seen.number) return `its number is ${found.number}, but list ${seen.number} was seen before`;
  if (found.iat < seen.iat) return `it was issued ${showSpan(seen.iat - found.iat)} before a list that was seen earlier`;
  const [had, has] = [itemsOf(seen), itemsOf(found)];
  const lost = [...had].filter((item) => !has.has(item)).length;
  return lost ? `it lacks ${lost} of the items of a list that was seen earlier` : "";
}

/** @param {Revocations} list */
function itemsOf({ jtis, intervals }) {
  const spans = [...intervals.values()].flat().map(({ sub, from, until = "" }) => `${from} ${until} ${sub}`);
  return new Set([...jtis].map((jti) => `jti ${jti}`).concat(spans));
}
