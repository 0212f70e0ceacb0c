/** RSA and EC keys of a JWK set (RFC 7518 section 6): which are valid. This verifier never uses them to verify. */

import { utf8 } from "./bytes.js";
import { decodeSegment } from "./jws.js";

/** @typedef {import("./json.js").JsonObject} JsonObject */
/** @typedef {{publicKey: Uint8Array, algorithms: string[]} | null} OtherKey */

const RSA_NAMES = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];

/**
 * Small exponents such as 3 make forgery by padding mistakes practical; huge keys make verification expensive.
 * @param {JsonObject} jwk
 * @returns {OtherKey}
 */
export function readRsa(jwk) {
  const modulus = numberOf(octets(jwk.n));
  const exponent = numberOf(octets(jwk.e));
  const bits = modulus ? modulus.toString(2).length : 0;
  if (bits < 2048 || bits > 8192 || exponent < 65537n || exponent >= 2n ** 32n || exponent % 2n === 0n) return null;
  return isRoca(modulus) ? null : { publicKey: utf8(`RSA ${modulus} ${exponent}`), algorithms: RSA_NAMES };
}

/**
 * Curves y^2 = x^3 - 3x + b over the field of p (FIPS 186-4 D.1.2).
 * @type {Record<string, {name: string, size: number, p: bigint, b: bigint}>}
 */
const CURVES = {
  "P-256": {
    name: "ES256",
    size: 32,
    p: 2n ** 256n - 2n ** 224n + 2n ** 192n + 2n ** 96n - 1n,
    b: 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn,
  },
  "P-384": {
    name: "ES384",
    size: 48,
    p: 2n ** 384n - 2n ** 128n - 2n ** 96n + 2n ** 32n - 1n,
    b: 0xb3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aefn,
  },
  "P-521": {
    name: "ES512",
    size: 66,
    p: 2n ** 521n - 1n,
    b: 0x51953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00n,
  },
};

/**
 * @param {JsonObject} jwk
 * @returns {OtherKey}
 */
export function readEc(jwk) {
  const curve = typeof jwk.crv === "string" && Object.hasOwn(CURVES, jwk.crv) ? CURVES[jwk.crv] : undefined;
  const [xBytes, yBytes] = [octets(jwk.x), octets(jwk.y)];
  if (!curve || xBytes.length !== curve.size || yBytes.length !== curve.size) return null;
  const { p, b } = curve;
  const [x, y] = [numberOf(xBytes) % p, numberOf(yBytes) % p]; // a larger one is reduced, as OpenSSL does
  if ((y * y - (x * x * x - 3n * x + b)) % p !== 0n) return null;
  return { publicKey: utf8(`${curve.name} ${x} ${y}`), algorithms: [curve.name] };
}

/** @param {import("./json.js").Json | undefined} member */
const octets = (member) => decodeSegment(typeof member === "string" ? member : "");

/** @param {Uint8Array} raw */
const numberOf = (raw) => raw.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);

// -- ROCA (CVE-2017-15361) --------------------------------------------------------------------------------------------

/** The first 39 primes. */
const PRIMES = Array.from({ length: 166 }, (_, at) => at + 2).filter((n) => !divisors(n).length);

/** @param {number} n */
function divisors(n) {
  return Array.from({ length: n - 2 }, (_, at) => at + 2).filter((smaller) => n % smaller === 0);
}

/**
 * Map each power of 65537 modulo a prime to its exponent.
 * @param {number} prime
 */
function powers(prime) {
  const exponents = new Map();
  for (let power = 1; !exponents.has(power); power = (power * 65537) % prime) exponents.set(power, exponents.size);
  return exponents;
}

const EXPONENTS = PRIMES.map((prime) => /** @type {const} */ ([BigInt(prime), powers(prime)]));

/**
 * Say whether a modulus is a power of 65537 modulo the first 39 primes at once. Every flawed key is one; of other keys,
 * one in 2^154. One exponent fits all primes if it fits each pair of them (Chinese remainder theorem).
 * @param {bigint} modulus
 */
function isRoca(modulus) {
  const found = EXPONENTS.map(([prime, exponents]) => ({
    exponent: exponents.get(Number(modulus % prime)),
    order: exponents.size,
  }));
  if (found.some(({ exponent }) => exponent === undefined)) return false;
  return found.every((one) =>
    found.every((other) => (one.exponent - other.exponent) % gcd(one.order, other.order) === 0),
  );
}

/**
 * @param {number} one
 * @param {number} other
 * @returns {number}
 */
const gcd = (one, other) => (other ? gcd(other, one % other) : one);
