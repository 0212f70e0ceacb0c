/**
 * Proofs that a leaf is in a log, as separate files (c2sp.org/tlog-proof).
 *
 * This file reads the text. `merkle.js` checks whether the hashes lead to the checkpoint's root, and `quorum.js`
 * verifies the checkpoint's signatures.
 */

import { decodeBase64, decodeUtf8 } from "../bytes.js";
import { malformed, ROOT_BYTES } from "./checkpoint.js";
import { MAX_NOTE_BYTES } from "./note.js";

const MAX_HASHES = 63; // the height of a tree of 2^63 leaves
const MAX_EXTRA_BYTES = 16 * 1024;
const MAX_PROOF_BYTES = MAX_NOTE_BYTES + 32 * 1024;
const MAX_INDEX = 2n ** 63n - 2n;
const HEADER = "c2sp.org/tlog-proof@v1";
const INDEX = /^index (0|[1-9][0-9]{0,18})$/;
const LF = 10;

/**
 * The leaf's `index` (from 0), `hashes` (32 bytes each) from its sibling up to the root's child, and the bytes of the
 * signed checkpoint, for `parseNote`. `extra` is unsigned: a stranger may have written it.
 * @typedef {{index: bigint, hashes: Uint8Array[], checkpoint: Uint8Array, extra: Uint8Array}} Proof
 */

/**
 * Read a proof without parsing its checkpoint: the proofs of many leaves share one, which the caller may have checked.
 *
 * Throws FormatError(`log.malformed`), with the line if known.
 * @param {Uint8Array} raw
 * @returns {Proof}
 */
export function splitProof(raw) {
  if (raw.length > MAX_PROOF_BYTES) throw malformed(`the proof has over ${MAX_PROOF_BYTES} bytes`);
  const blank = raw.findIndex((byte, at) => byte === LF && raw[at + 1] === LF);
  const head = blank < 0 ? null : decodeUtf8(raw.subarray(0, blank));
  if (head === null || /[^\x00-\x7f]/.test(head))
    throw malformed("a proof must have ASCII lines, an empty line, and a signed checkpoint");
  const [header, ...lines] = head.split("\n");
  if (header !== HEADER) throw malformed(`the first line of a proof must be \`${HEADER}\``, { line: 1 });
  const extra = lines[0]?.startsWith("extra ") ? parseExtra(/** @type {string} */ (lines.shift())) : new Uint8Array();
  const first = extra.length ? 3 : 2;
  const [, index] = INDEX.exec(lines[0] ?? "") ?? [];
  if (index === undefined)
    throw malformed("the line after the header, or after `extra`, must be `index` and a decimal number", { line: first });
  const hashes = lines.slice(1).map((line, number) => parseHash(line, first + 1 + number));
  return checked({ index: BigInt(index), hashes, checkpoint: raw.subarray(blank + 2), extra });
}

/** @param {Proof} proof */
function checked(proof) {
  if (proof.index > MAX_INDEX) throw malformed("the index of a proof must be a number from 0 to 2^63 - 2");
  if (proof.hashes.length > MAX_HASHES)
    throw malformed(`a proof may have at most ${MAX_HASHES} hashes, of 32 bytes each`);
  if (proof.extra.length > MAX_EXTRA_BYTES)
    throw malformed(`the extra data of a proof has over ${MAX_EXTRA_BYTES} bytes`);
  const note = proof.checkpoint;
  const blank = note.findIndex((byte, at) => byte === LF && note[at + 1] === LF);
  if (blank < 0 || blank + 2 >= note.length || note.at(-1) !== LF || note.at(-2) === LF)
    throw malformed("the checkpoint of a proof must have a text, an empty line, and lines that end in LF");
  return proof;
}

/** @param {string} line */
function parseExtra(line) {
  const extra = decodeBase64(line.slice("extra ".length));
  if (!extra?.length)
    throw malformed("the extra data of a proof must be canonical base64 of at least one byte", { line: 2 });
  return extra;
}

/**
 * @param {string} line
 * @param {number} number
 */
function parseHash(line, number) {
  const hash = decodeBase64(line);
  if (hash?.length !== ROOT_BYTES)
    throw malformed("a hash of a proof must be the canonical base64 of 32 bytes", { line: number });
  return hash;
}
