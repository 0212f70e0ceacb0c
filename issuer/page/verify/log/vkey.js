/**
 * The public keys of signed notes: their text, their ids, and the signatures of each key type.
 *
 * c2sp.org/signed-note defines verifier keys and plain Ed25519 signatures, c2sp.org/tlog-cosignature timestamped ones.
 * WebCrypto has no ML-DSA-44, so a policy with such a key is beyond this reader: skipping the key would lower the
 * quorum that the author of the policy asked for.
 */

import { concat, decodeBase64, equal, hex, sha256, utf8 } from "../bytes.js";
import { isGoodPoint, verifies } from "../ed25519.js";
import { Beyond } from "../errors.js";
import { malformed, parseCheckpoint } from "./checkpoint.js";

export const KEY_ID_BYTES = 4;
// No Unicode space, plus, control character or half surrogate pair.
export const KEY_NAME =
  "[^+\\x00-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ud800-\\udfff]+";
const VKEY = new RegExp(`^(${KEY_NAME})\\+([0-9a-f]{8})\\+([A-Za-z0-9+/]+={0,2})$`, "u");
const TIME_BYTES = 8;
const MAX_TIMESTAMP = 2n ** 63n - 1n;

/** The signature types by their identifier byte. */
export const KIND = Object.freeze({ ED25519: 0x01, COSIGNATURE: 0x04, COSIGNATURE_ML_DSA_44: 0x06 });
/** @type {Map<number, number>} */
const KEY_BYTES = new Map([[KIND.ED25519, 32], [KIND.COSIGNATURE, 32], [KIND.COSIGNATURE_ML_DSA_44, 1312]]);

/** @param {number} kind */
export const shownKind = (kind) => `0x${kind.toString(16).padStart(2, "0")}`;

/**
 * A key that signs notes as `name`. In a note, `keyId` (4 bytes) and the name say which key signed.
 * @typedef {{name: string, kind: number, publicKey: Uint8Array, keyId: Uint8Array}} Verifier
 */

/**
 * One verified signature. `timestamp` is a cosignature's, in Unix seconds (0: none stated), else null.
 * @typedef {{verifier: Verifier, timestamp: bigint | null}} Verified
 */

/**
 * Read a verifier key, `name+key id in hex+base64(type || key)`. Throws FormatError(`log.malformed`), and Beyond for a
 * valid key of a type that this code cannot verify.
 * @param {string} text
 * @returns {Promise<Verifier>}
 */
export async function parseVkey(text) {
  const [, name, id, encoded] = VKEY.exec(text) ?? [];
  if (!encoded) throw malformed("a verifier key must be `name+8 lowercase hex digits+base64`");
  const key = decodeBase64(encoded);
  if (!key?.length) throw malformed("the last part of a verifier key must be canonical base64 of its type and the key");
  const [kind, publicKey] = [key[0], key.subarray(1)];
  checkKey(kind, publicKey);
  const keyId = await keyIdOf(name, kind, publicKey);
  if (hex(keyId) !== id)
    throw malformed("the key id in the verifier key does not match its name and key; one of them was changed");
  if (kind === KIND.COSIGNATURE_ML_DSA_44) throw new Beyond("no browser verifies ML-DSA-44");
  return { name, kind, publicKey, keyId };
}

/**
 * @param {number} kind
 * @param {Uint8Array} publicKey
 */
function checkKey(kind, publicKey) {
  const length = KEY_BYTES.get(kind);
  if (!length) {
    const known = [...KEY_BYTES.keys()].map(shownKind).join(", ");
    throw malformed(`the type of the verifier key is ${shownKind(kind)}; known here: ${known}`);
  }
  if (publicKey.length !== length) throw malformed(`a key of type ${shownKind(kind)} must have ${length} bytes`);
  if (kind !== KIND.COSIGNATURE_ML_DSA_44 && !isGoodPoint(publicKey))
    throw malformed("the key must be a point of Ed25519 that is not of low order");
}

/**
 * Return the id of a key. It is only a name: two keys with one name and id can be made in a second.
 * @param {string} name
 * @param {number} kind
 * @param {Uint8Array} publicKey
 */
async function keyIdOf(name, kind, publicKey) {
  return (await sha256(concat(utf8(`${name}\n`), Uint8Array.of(kind), publicKey))).subarray(0, KEY_ID_BYTES);
}

/**
 * Verify a signature line's bytes (after the key id) over a note's text; null if it does not verify.
 *
 * Throws FormatError(`log.malformed`) if a cosignature's text is not a checkpoint.
 * @param {Verifier} verifier
 * @param {string} text
 * @param {Uint8Array} signature
 * @returns {Promise<Verified | null>}
 */
export async function verifySignature(verifier, text, signature) {
  if (verifier.kind === KIND.ED25519)
    return (await verifies(verifier.publicKey, signature, utf8(text))) ? { verifier, timestamp: null } : null;
  parseCheckpoint(text);
  const timestamp = numberOf(signature.subarray(0, TIME_BYTES));
  if (timestamp > MAX_TIMESTAMP) return null;
  const message = utf8(`cosignature/v1\ntime ${timestamp}\n${text}`);
  return (await verifies(verifier.publicKey, signature.subarray(TIME_BYTES), message)) ? { verifier, timestamp } : null;
}

/** @param {Uint8Array} raw  big-endian */
const numberOf = (raw) => raw.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);

/**
 * Say whether two verifiers are the same key with the same name.
 * @param {Verifier} one
 * @param {Verifier} other
 */
export const isSame = (one, other) =>
  one.name === other.name && one.kind === other.kind && equal(one.publicKey, other.publicKey);
