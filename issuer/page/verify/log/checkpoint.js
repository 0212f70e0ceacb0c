/**
 * Checkpoints (c2sp.org/tlog-checkpoint): the text that a log signs about its tree.
 *
 * Knows the text alone. Who signed it is the matter of `note.js`; whether two of them agree is that of `merkle.js`.
 */

import { decodeBase64 } from "../bytes.js";
import { FormatError } from "../errors.js";

export const ROOT_BYTES = 32;
const MAX_SIZE = 2n ** 63n - 1n; // leaves; the largest number that every reader of C2SP formats holds
const SIZE = /^(?:0|[1-9][0-9]{0,18})$/;
const LINE = /^[^\x00-\x1f\ud800-\udfff]+$/u; // what a line of a signed note may hold

/**
 * A tree head: `root` (32 bytes) of the first `size` leaves of the log `origin`.
 * @typedef {{origin: string, size: bigint, root: Uint8Array, extensions: string[]}} Checkpoint
 */

/**
 * The error for what does not parse as a format of the log.
 * @param {string} detail
 * @param {{line?: number, pointer?: string}} [where]
 */
export const malformed = (detail, where) => new FormatError("log.malformed", detail, where);

/**
 * Read the text of a note as a checkpoint. Its signatures are still to be verified. Throws FormatError(`log.malformed`).
 * @param {string} text
 * @returns {Checkpoint}
 */
export function parseCheckpoint(text) {
  const lines = text.split("\n");
  if (lines.pop() !== "" || lines.length < 3)
    throw malformed("a checkpoint has at least three lines (origin, size, root), each ending in LF");
  const [origin, decimal, encoded, ...extensions] = lines;
  if (!SIZE.test(decimal))
    throw malformed("the size of a checkpoint is decimal, without sign or leading zeros", { line: 2 });
  const root = decodeBase64(encoded);
  if (root?.length !== ROOT_BYTES)
    throw malformed("the root of a checkpoint is the canonical base64 of 32 bytes", { line: 3 });
  if (!LINE.test(origin)) throw malformed("the origin of a checkpoint is one line that is not empty");
  const size = BigInt(decimal);
  if (size > MAX_SIZE) throw malformed("the size of a checkpoint is a number from 0 to 2^63 - 1");
  if (!extensions.every((line) => LINE.test(line)))
    throw malformed("an extension of a checkpoint is one line that is not empty");
  return { origin, size, root, extensions };
}
