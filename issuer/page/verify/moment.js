/**
 * When a file counts as received, and by when its token is known to have existed (contract section 6).
 *
 * Three things speak of it: this party's own clock or word, a receipt that it wrote, and a witnessed inclusion in the
 * issuer's log. The first two say when the file came. The last one says only that the token existed, and is the one
 * that neither this party nor the issuer can make up. Checks 2 and 5 judge by them.
 */

import { FormatError } from "./errors.js";
import { readReceipt, receiptObjection } from "./receipt.js";

/**
 * `receiptIat` is when a good receipt says so, `witnessed` by when the log's witnesses had seen the token; null
 * without. To a reader, who cannot know (`atFrom` is `unknown`), `at` is now: by then it had come. Where the token had
 * ended by then and `witnessed` stands in (`log`), `at` is that. `note` says why a receipt at hand does not serve,
 * `unsure` that this could not be decided.
 * @typedef {{at: number, atFrom: import("./report.js").AtFrom, receiptIat: number | null, witnessed: number | null,
 *   note: string, unsure: boolean}} Moment
 */

/**
 * @param {number} at
 * @param {Moment["atFrom"]} atFrom
 * @returns {Moment}
 */
export const momentOf = (at, atFrom) => ({ at, atFrom, receiptIat: null, witnessed: null, note: "", unsure: false });

/**
 * The status for a token that is too old at this moment: no, unless it may have come earlier.
 * @param {Moment} moment
 * @returns {"unknown" | "fail"}
 */
export const lateStatus = ({ unsure, atFrom }) =>
  unsure || atFrom === "unknown" || atFrom === "log" ? "unknown" : "fail";

/**
 * When the token existed, by evidence from outside of it: the earliest such time, null where there is none.
 * @param {Moment} moment
 */
export function existedAt({ receiptIat, witnessed }) {
  const times = [receiptIat, witnessed].filter((time) => time !== null);
  return times.length ? Math.min(...times) : null;
}

/**
 * Every time at which it is said or shown to have been there.
 * @param {Moment} moment
 */
export const timesOf = ({ at, witnessed }) => (witnessed === null ? [at] : [at, witnessed]);

/**
 * Take the moment from a receipt, where it is one of ours for just this entry.
 * @param {Moment} moment
 * @param {string} receipt
 * @param {import("./receipt.js").Subject} subject
 * @param {import("./trust.js").Trust} trust
 * @param {number} now
 * @returns {Promise<Moment>}
 */
export async function withReceipt(moment, receipt, subject, { receiptKeys }, now) {
  if (!receiptKeys) {
    const unsure = receiptKeys === null;
    const reason = unsure ? "the receipt keys are not to be had" : "the trust file lists no receipt keys";
    return { ...moment, note: `; there is a receipt, but ${reason}`, unsure };
  }
  try {
    const read = await readReceipt(receipt, receiptKeys);
    const reason = receiptObjection(read, subject, now);
    return reason
      ? withoutReceipt(moment, reason)
      : { ...moment, at: read.at, atFrom: "receipt", receiptIat: read.iat };
  } catch (error) {
    if (error instanceof FormatError) return withoutReceipt(moment, error.message);
    throw error;
  }
}

/**
 * @param {Moment} moment
 * @param {string} reason
 */
const withoutReceipt = (moment, reason) => ({ ...moment, note: `; the receipt at hand does not serve: ${reason}` });

/**
 * Add the witnessed time of a token that ends at `exp`.
 *
 * It shows that the token existed, not that the file had come: only who cannot know judges by it, and who receives the
 * file, or says when it came, stays bound by `exp`.
 * @param {Moment} moment
 * @param {number | null} time
 * @param {number} exp
 * @returns {Moment}
 */
export const withWitnessed = (moment, time, exp) =>
  time !== null && moment.atFrom === "unknown" && moment.at > exp
    ? { ...moment, at: time, atFrom: "log", witnessed: time }
    : { ...moment, witnessed: time };
