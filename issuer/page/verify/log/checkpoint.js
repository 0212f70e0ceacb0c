/**
 * Checkpoints (c2sp.org/tlog-checkpoint): the text that a log signs about its tree.
 *
 * This file knows only the text. `note.js` verifies signatures; `merkle.js` decides whether two checkpoints are
 * consistent.
 */

import { decodeBase64 } from "../bytes.js";
import { FormatError } from "../errors.js";

export const ROOT_BYTES = 32;
const MAX_SIZE = 2n ** 63n - 1n; // leaves; the largest number that every reader of C2SP formats supports
const SIZE = /^(?:0|[1-9][0-9]{0,18})$/;
const LINE = /^[^\x00-\x1f\ud800-\udfff]+$/u; // the characters allowed in a line of a signed note

/**
 * A tree head: `root` (32 bytes) of the first `size` leaves of the log `origin`.
 * @typedef {{origin: string, size: bigint, root: Uint8Array, extensions: string[]}} Checkpoint
 */

/**
 * Return the error for bytes that break a format of the log.
 * @param {string} detail
 * @param {{line?: number, pointer?: string}} [where]
 */
export const malformed = (detail, where) => new FormatError("log.malformed", detail, where);

/**
 * Read the text of a note as a checkpoint, without verifying signatures. Throws FormatError(`log.malformed`).
 * @param {string} text
 * @returns {Checkpoint}
 */
export function parseCheckpoint(text) {
  const lines = text.split("\n");
  if (lines.pop() !== "" || lines.length < 3)
    throw malformed("a checkpoint must have at least three lines (origin, size, root), each ending in LF");
  const [origin, decimal, encoded, ...extensions] = lines;
  if (!SIZE.test(decimal))
    throw malformed("the size of a checkpoint must be decimal, without sign or leading zeros", { line: 2 });
  const root = decodeBase64(encoded);
  if (root?.length !== ROOT_BYTES)
    throw malformed("the root of a checkpoint must be the canonical base64 of 32 bytes", { line: 3 });
  if (!LINE.test(origin)) throw malformed("the origin of a checkpoint must be one line that is not empty");
  const size = BigInt(decimal);
  if (size > MAX_SIZE) throw malformed("the size of a checkpoint must be a number from 0 to 2^63 - 1");
  if (!extensions.every((line) => LINE.test(line)))
    throw malformed("an extension of a checkpoint must be one line that is not empty");
  return { origin, size, root, extensions };
}
