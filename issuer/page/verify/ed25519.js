/**
 * Ed25519 (RFC 8032): which points may be a public key, and whether a signature verifies.
 *
 * The points are public, so constant time is not needed here. The platform (WebCrypto) verifies signatures.
 */

const P = 2n ** 255n - 19n;
// The order of the group of signatures.
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;

/** @param {Uint8Array} bytes */
const number = (bytes) => bytes.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n);

/** @param {bigint} value */
const mod = (value) => ((value % P) + P) % P;

/**
 * @param {bigint} base
 * @param {bigint} exponent
 */
function power(base, exponent) {
  let result = 1n;
  for (let square = mod(base); exponent; exponent >>= 1n) {
    if (exponent & 1n) result = (result * square) % P;
    square = (square * square) % P;
  }
  return result;
}

/** @param {bigint} value */
const inverse = (value) => power(value, P - 2n);

const D = mod(-121665n * inverse(121666n));

/**
 * Return the square of x on the curve -x^2 + y^2 = 1 + d x^2 y^2.
 * @param {bigint} y
 */
const xSquared = (y) => mod((y * y - 1n) * inverse(D * y * y + 1n));

/**
 * Say whether 32 bytes are the canonical encoding of a point of edwards25519 whose order is not small (RFC 8032 5.1.3).
 *
 * Under a key of low order, one fixed signature verifies for every message, and some libraries accept such keys.
 * @param {Uint8Array} point
 */
export function isGoodPoint(point) {
  if (point.length !== 32) return false;
  let y = number(point) & (2n ** 255n - 1n);
  if (y >= P) return false;
  let x2 = xSquared(y);
  if (x2 === 0n) return false; // y = 1 or -1: order 1 or 2
  if (power(x2, (P - 1n) / 2n) !== 1n) return false; // not on the curve
  // Doubling: y' = (y^2 + x^2) / (2 - y^2 + x^2). Eight times a point of low order is the identity.
  for (let doubled = 0; doubled < 3; doubled++) {
    y = mod((y * y + x2) * inverse(2n - y * y + x2));
    x2 = xSquared(y);
  }
  return !(y === 1n && x2 === 0n);
}

/**
 * WebCrypto keys, kept as long as the bytes of the key exist. A file may have a thousand tokens under one key, and
 * importing it for each would be a tenth of their cost. The caller must not change the bytes.
 * @type {WeakMap<Uint8Array, Promise<CryptoKey>>}
 */
const imported = new WeakMap();

/** @param {Uint8Array} publicKey */
function keyOf(publicKey) {
  const known = imported.get(publicKey);
  if (known) return known;
  const key = crypto.subtle.importKey("raw", buffer(publicKey), "Ed25519", false, ["verify"]);
  imported.set(publicKey, key);
  return key;
}

/**
 * Say whether a signature of a public key that passed `isGoodPoint` verifies for the message.
 *
 * The signature's second half must be below the group's order (RFC 8032 5.1.7). Otherwise anyone with a signature could
 * make another one of the same message, which some engines accept (WebKit with libgcrypt).
 * @param {Uint8Array} publicKey
 * @param {Uint8Array} signature
 * @param {Uint8Array} message
 */
export async function verifies(publicKey, signature, message) {
  if (signature.length !== 64 || number(signature.subarray(32)) >= ORDER) return false;
  return crypto.subtle.verify("Ed25519", await keyOf(publicKey), buffer(signature), buffer(message));
}

/** @param {Uint8Array} raw */
const buffer = (raw) => /** @type {Uint8Array<ArrayBuffer>} */ (raw);
