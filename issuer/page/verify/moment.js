/**
 * The time at which a file counts as received, and a time by which its token existed (contract section 6).
 *
 * There are three sources: this party's own clock or claim, a receipt that it wrote, and a witnessed inclusion in the
 * issuer's log. The first two say when the file came. The last says only that the token existed, but neither this party
 * nor the issuer can fake it. Checks 2 and 5 judge by them.
 */

import { FormatError } from "./errors.js";
import { readReceipt, receiptObjection } from "./receipt.js";

/**
 * `receiptIat` is when a good receipt was written, `witnessed` a time by which the log's witnesses had seen the token;
 * null without one. A reader does not know when the file came (`atFrom` is `unknown`), so `at` is now. If the token had
 * expired by then and witnesses saw it in time, `at` is `witnessed` (`log`). `note` says why a receipt at hand is not
 * usable. If it is unknown whether the receipt is usable, `unsure` is set.
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
 * Return the status of a token that is too old at this moment: fail, unless the file may have come earlier.
 * @param {Moment} moment
 * @returns {"unknown" | "fail"}
 */
export const lateStatus = ({ unsure, atFrom }) =>
  unsure || atFrom === "unknown" || atFrom === "log" ? "unknown" : "fail";

/**
 * Return the earliest time at which a receipt or witnesses show that the token existed, or null.
 * @param {Moment} moment
 */
export function existedAt({ receiptIat, witnessed }) {
  const times = [receiptIat, witnessed].filter((time) => time !== null);
  return times.length ? Math.min(...times) : null;
}

/**
 * Return every time at which the token is claimed or shown to have existed.
 * @param {Moment} moment
 */
export const timesOf = ({ at, witnessed }) => (witnessed === null ? [at] : [at, witnessed]);

/**
 * Take the moment from a receipt, if this party wrote it for this very entry.
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
    const reason = unsure ? "the receipt keys are unavailable" : "the trust file lists no receipt keys";
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
const withoutReceipt = (moment, reason) => ({ ...moment, note: `; the receipt at hand is not usable: ${reason}` });

/**
 * Add the witnessed time of a token that expires at `exp`.
 *
 * It shows that the token existed, not that the file had come. So only a reader is judged by it; a party that knows or
 * claims the time of receipt stays bound by `exp`.
 * @param {Moment} moment
 * @param {number | null} time
 * @param {number} exp
 * @returns {Moment}
 */
export const withWitnessed = (moment, time, exp) =>
  time !== null && moment.atFrom === "unknown" && moment.at > exp
    ? { ...moment, at: time, atFrom: "log", witnessed: time }
    : { ...moment, witnessed: time };
