/**
 * The payload of a verify token (contract section 4): a closed set of members, as canonical bytes.
 *
 * Trust no part of it before the signature has been checked.
 */

import { canonical } from "./canonical.js";
import { RUN_MEMBERS, pairOf, readClaims } from "./claims.js";
import { decodeUtf8 } from "./bytes.js";
import { FormatError } from "./errors.js";
import { readJson } from "./json.js";
import { MAX_TOKEN_BYTES } from "./jws.js";
import { anything, either, exactly, flag, integer, list, map, object, optional, text } from "./shape.js";
import { MAX_UNIX_S } from "./times.js";

/** @typedef {import("./claims.js").RunClaims} RunClaims */
/**
 * How many different sets of values were signed for this run key since `since`, including this one; 64 also stands for
 * more.
 * @typedef {{number: number, since: number}} Attempt
 */
/**
 * Times are Unix seconds (RFC 7519 4.1.4).
 * @typedef {RunClaims & {ver: 1, iss: string, sub: string, aud: string, iat: number, nbf: number, exp: number, jti:
 *   string, claims_digest: string, content_digest: string, caller: Record<string, string | number | boolean>, policy:
 *   string, log?: string, attempt?: Attempt}} TokenClaims
 */

export const MAX_ATTEMPTS = 64;
export const MAX_TTL_S = 86_400;
/** How far the clock that counts attempts may run ahead of the issuer's. */
const COUNT_LEEWAY_S = 60;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
/** 16 bytes in their canonical spelling. */
const JTI = /^[A-Za-z0-9_-]{21}[AQgw]$/;

const safeInteger = integer({ min: -Number.MAX_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER });
const callerValue = either("true or false or a whole number or text", (value) => {
  if (typeof value === "string") return text();
  if (typeof value === "boolean") return flag;
  return Number.isInteger(value) ? safeInteger : undefined;
});
const shape = object(
  {
    ver: exactly(1),
    iss: text(),
    sub: text(),
    aud: text(),
    iat: integer(),
    nbf: integer(),
    exp: integer(),
    jti: text(),
    model_repo: text(),
    model_revision: text(),
    benchmark_repo: text(),
    benchmark_revision: text(),
    task_id: text(),
    metrics: list(map(anything)),
    framework: map(anything),
    claims_digest: text(),
    content_digest: text(),
    caller: map(callerValue),
    policy: text(),
    log: optional(text()),
    attempt: optional(
      object(
        { number: integer({ min: 1, max: MAX_ATTEMPTS }), since: integer({ min: 0, max: MAX_UNIX_S }) },
        { closed: true },
      ),
    ),
  },
  { closed: true },
);

/**
 * Read a payload by the rules of contract section 4. Throws FormatError if it differs in any byte from what an issuer
 * signs.
 * @param {Uint8Array} payload
 * @returns {{claims: TokenClaims, run: RunClaims}}
 */
export function readPayload(payload) {
  const value = readJson(payload, { maxBytes: MAX_TOKEN_BYTES, maxDepth: 8 });
  shape(value);
  if (canonical(value) !== decodeUtf8(payload))
    throw broken("", "not canonical (RFC 8785): check white space, order of members and spelling of numbers");
  const said = /** @type {TokenClaims} */ (value);
  const run = readClaims(Object.fromEntries(RUN_MEMBERS.map((name) => [name, said[name]])));
  if (run.metrics.some((metric, index) => pairOf(metric).join(" ") !== pairAt(said, index)))
    throw broken("/metrics", "not in canonical order");
  const claims = { ...said, ...run };
  for (const [pointer, rule] of faults(claims)) throw broken(pointer, rule);
  return { claims, run };
}

/**
 * @param {TokenClaims} said
 * @param {number} index
 */
const pairAt = (said, index) => pairOf(/** @type {{metric_id: string}} */ (said.metrics[index])).join(" ");

/**
 * @param {TokenClaims} claims
 * @returns {Generator<[pointer: string, rule: string]>}
 */
function* faults(claims) {
  const { iat, nbf, exp, attempt } = claims;
  for (const [name, time] of Object.entries({ iat, nbf, exp }))
    if (time < 0 || time > MAX_UNIX_S) yield [`/${name}`, "not a time in Unix seconds"];
  if (!(iat <= nbf && nbf <= exp) || exp - iat > MAX_TTL_S) yield ["/exp", `the times must be in the order iat, nbf, exp and span at most ${MAX_TTL_S} s`];
  if (attempt && attempt.since > iat + COUNT_LEEWAY_S) yield ["/attempt/since", "later than the token's issue"];
  if (!JTI.test(claims.jti)) yield ["/jti", "not 16 bytes in base64url"];
  for (const name of /** @type {const} */ (["claims_digest", "content_digest", "policy"]))
    if (!DIGEST.test(claims[name])) yield [`/${name}`, "not a sha256: digest"];
}

/**
 * Return the number of an attempt, for people.
 * @param {Attempt} attempt
 */
export const showAttempt = ({ number }) => (number === MAX_ATTEMPTS ? `${number} or more` : String(number));

/**
 * @param {string} pointer
 * @param {string} rule
 */
const broken = (pointer, rule) => new FormatError("file.rule", rule, { pointer });
