/**
 * JWK sets (RFC 7517), and which of their keys may verify. Only Ed25519 keys sign tokens, receipts and lists. Keys
 * of other kinds in a set are parsed as well, because two keys with one kid are both skipped.
 */

import { FormatError } from "./errors.js";
import { isGoodPoint, verifies } from "./ed25519.js";
import { isObject, readJson } from "./json.js";
import { EDDSA_NAMES, decodeSegment } from "./jws.js";
import { readEc, readRsa } from "./other-keys.js";

/** @typedef {import("./json.js").Json} Json */
/** @typedef {import("./json.js").JsonObject} JsonObject */

/**
 * A public key that may verify: `algorithms` are the JWS names that the key allows. `publicKey` has the 32 bytes of an
 * Ed25519 key. For another kind, which is never used here, it has bytes that distinguish two keys.
 * @typedef {{kid: string, algorithms: Set<string>, publicKey: Uint8Array}} Key
 */

/**
 * The usable keys of a set by kid, and the number of skipped members.
 * @typedef {{keys: Map<string, Key>, skipped: number}} KeySet
 */

const MAX_KEY_SET_BYTES = 256 * 1024;
const MAX_KEYS = 64;
const KID = /^[\x21-\x7e]{1,256}$/;
const PRIVATE_MEMBERS = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/**
 * Read a JWK set of at most 256 KiB and 64 keys.
 *
 * Skips unusable keys: private or symmetric ones, encryption keys, weak ones, points of low order, keys without a kid,
 * and both of two keys with one kid. Throws FormatError if the set itself is malformed.
 * @param {Uint8Array} raw
 * @returns {KeySet}
 */
export function parseKeySet(raw) {
  const value = readJson(raw, { maxBytes: MAX_KEY_SET_BYTES, maxDepth: 8, number: anyNumber });
  const members = isObject(value) ? value.keys : undefined;
  if (!Array.isArray(members)) throw new FormatError("file.schema", "not a JWK set: no `keys` array");
  if (members.length > MAX_KEYS)
    throw new FormatError("file.too_large", `more than ${MAX_KEYS} keys`, { pointer: "/keys" });
  const found = members.map(parseKey).filter((key) => key !== null);
  const kids = found.map((key) => key.kid);
  const keys = new Map(
    found.filter(({ kid }) => kids.indexOf(kid) === kids.lastIndexOf(kid)).map((key) => [key.kid, key]),
  );
  return { keys, skipped: members.length - keys.size };
}

/**
 * Read a number of any size, because no key uses it. NaN and Infinity are refused: they are not JSON.
 * @param {string} text
 */
function anyNumber(text) {
  if (!/[0-9]$/.test(text)) throw new RangeError("not a JSON number");
  return Number(text);
}

/**
 * Read one JWK (RFC 7517, 7518 section 6, 8037); null for a key that must not verify.
 * @param {Json} jwk
 * @returns {Key | null}
 */
export function parseKey(jwk) {
  if (!isObject(jwk) || !mayVerify(jwk)) return null;
  const read = readPublic(jwk);
  const algorithms = read ? meantFor(jwk.alg ?? null, read.algorithms) : [];
  return read && algorithms.length
    ? { kid: String(jwk.kid), algorithms: new Set(algorithms), publicKey: read.publicKey }
    : null;
}

/** @param {JsonObject} jwk */
function mayVerify(jwk) {
  const { kid, use = "sig", key_ops: operations = null } = jwk;
  return (
    typeof kid === "string" &&
    KID.test(kid) &&
    !PRIVATE_MEMBERS.some((name) => name in jwk) &&
    use === "sig" &&
    (operations === null || (Array.isArray(operations) && operations.includes("verify")))
  );
}

/**
 * @param {JsonObject} jwk
 * @returns {{publicKey: Uint8Array, algorithms: string[]} | null}
 */
function readPublic(jwk) {
  try {
    if (jwk.kty === "OKP") return readOkp(jwk);
    if (jwk.kty === "EC") return readEc(jwk);
    return jwk.kty === "RSA" ? readRsa(jwk) : null;
  } catch (error) {
    if (error instanceof FormatError) return null;
    throw error;
  }
}

/** @param {JsonObject} jwk */
function readOkp(jwk) {
  const publicKey = jwk.crv === "Ed25519" && typeof jwk.x === "string" ? decodeSegment(jwk.x) : null;
  return publicKey && isGoodPoint(publicKey) ? { publicKey, algorithms: [...EDDSA_NAMES] } : null;
}

/**
 * @param {Json} named  `alg`, null where it is absent
 * @param {string[]} algorithms
 */
function meantFor(named, algorithms) {
  if (named === null) return algorithms;
  const isEddsa = typeof named === "string" && EDDSA_NAMES.has(named);
  return algorithms.filter((name) => name === named || (isEddsa && EDDSA_NAMES.has(name)));
}

/**
 * Check an EdDSA signature. Returns false for a wrong one, and for an algorithm that the key does not allow.
 * @param {Key} key
 * @param {string} algorithm
 * @param {Uint8Array} signingInput
 * @param {Uint8Array} signature
 */
export async function keyVerifies(key, algorithm, signingInput, signature) {
  if (!EDDSA_NAMES.has(algorithm) || !key.algorithms.has(algorithm)) return false;
  return signature.length === 64 && verifies(key.publicKey, signature, signingInput);
}
