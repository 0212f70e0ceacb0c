/**
 * Signed notes (c2sp.org/signed-note): a text, and lines with signatures of it.
 *
 * This file reads the bytes and verifies the lines of known keys. `quorum.js` decides which keys are known and how many
 * of them must have signed. The text is opaque, except that a cosignature is always of a checkpoint.
 */

import { decodeBase64, decodeUtf8, hex } from "../bytes.js";
import { FormatError } from "../errors.js";
import { malformed } from "./checkpoint.js";
import { KEY_ID_BYTES, KEY_NAME, verifySignature } from "./vkey.js";

export const MAX_NOTE_BYTES = 256 * 1024; // 64 lines of ML-DSA-44 are 208 KiB
const MAX_SIGNATURES = 64; // every line may cost a verification
const TEXT = /^[^\x00-\x09\x0b-\x1f\ud800-\udfff]*\n$/u;
const LINE = new RegExp(`^— (${KEY_NAME}) ([A-Za-z0-9+/]+={0,2})$`, "u");

/**
 * One signature line: the key's name, its id (4 bytes), and at least one byte of signature.
 * @typedef {{name: string, keyId: Uint8Array, signature: Uint8Array}} SignatureLine
 * @typedef {{text: string, signatures: SignatureLine[]}} Note
 * @typedef {import("./vkey.js").Verifier} Verifier
 * @typedef {import("./vkey.js").Verified} Verified
 */

/**
 * Read a signed note without verifying it. Throws FormatError(`log.malformed`).
 *
 * The text may have empty lines: the last one separates it from the signatures.
 * @param {Uint8Array} raw
 * @returns {Note}
 */
export function parseNote(raw) {
  const whole = decode(raw);
  const blank = whole.lastIndexOf("\n\n");
  if (blank < 0) throw malformed("a signed note must have a text, an empty line, and signature lines");
  const lines = whole.slice(blank + 2).replace(/\n$/, "").split("\n");
  const signatures = lines.map(parseLine);
  if (signatures.length > MAX_SIGNATURES) throw malformed(`a note must have 1 to ${MAX_SIGNATURES} signature lines`);
  return { text: whole.slice(0, blank + 1), signatures };
}

/** @param {Uint8Array} raw */
function decode(raw) {
  if (raw.length > MAX_NOTE_BYTES) throw malformed(`the note has over ${MAX_NOTE_BYTES} bytes`);
  const text = decodeUtf8(raw);
  if (text === null) throw malformed("a note must be UTF-8");
  if (!TEXT.test(text)) throw malformed("a note must end in LF and have no other control character");
  return text;
}

/**
 * @param {string} line
 * @returns {SignatureLine}
 */
function parseLine(line) {
  const [, name, encoded] = LINE.exec(line) ?? [];
  const signed = encoded ? decodeBase64(encoded) : null;
  if (!signed?.length)
    throw malformed("a signature line must be `— name base64(key id and signature)`, the base64 canonical");
  if (signed.length <= KEY_ID_BYTES)
    throw malformed("a signature line must have a name without space or plus, a 4-byte key id, and a signature");
  return { name, keyId: signed.subarray(0, KEY_ID_BYTES), signature: signed.subarray(KEY_ID_BYTES) };
}

/**
 * Verify the lines of known keys; ignore lines of other keys and repeated lines.
 *
 * Returns the verified signatures in the note's order; a key that cosigned at two times occurs twice. Throws
 * FormatError (`log.signature`) if a line of a known key does not verify, or if no line is of a known key.
 * @param {Note} note
 * @param {Verifier[]} verifiers
 * @returns {Promise<Verified[]>}
 */
export async function verifyNote(note, verifiers) {
  const known = new Map(verifiers.map((verifier) => [`${hex(verifier.keyId)} ${verifier.name}`, verifier]));
  const seen = new Set();
  const verified = [];
  for (const line of note.signatures) {
    const key = `${hex(line.keyId)} ${line.name}`;
    const verifier = known.get(key);
    const whole = `${key} ${hex(line.signature)}`;
    if (!verifier || seen.has(whole)) continue;
    seen.add(whole);
    const found = await verifySignature(verifier, note.text, line.signature);
    if (!found) throw new FormatError("log.signature", `the signature of ${line.name} does not fit the note's text`);
    verified.push(found);
  }
  if (!verified.length) throw new FormatError("log.signature", "the note has no signature of a known key");
  return verified;
}
