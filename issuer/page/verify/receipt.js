/**
 * A relying party's receipts: its own confirmation that it saw a verified entry in time (contract section 6).
 *
 * A receipt is a JWS with `typ` `eval-receipt+jwt`, signed by a key that `receipt_keys` lists and that never signs
 * tokens. Tokens expire within a day, but files stay. A receipt counts only for freshness and the key's window of the
 * entry that it names.
 */

import { utf8 } from "./bytes.js";
import { digestOf } from "./canonical.js";
import { FormatError } from "./errors.js";
import { ALWAYS_DUE, NUMBERS } from "./report.js";
import { exactly, integer, map, object, oneOf, text } from "./shape.js";
import { readStatement, withoutLineBreaks } from "./statement.js";
import { MAX_UNIX_S } from "./times.js";

/**
 * The members that a receipt and an entry must have in common.
 * @typedef {{repo: string, path: string, token: string, jti: string, content_digest: string, kid: string}} Subject
 */
/**
 * `kid` is the token's key; `iat` is the writer's clock, `at` when it received the file.
 * @typedef {Subject & {at: number, iat: number, checks: Record<string, import("./report.js").Status>}} Receipt
 */

const RECEIPT_TYPE = "eval-receipt+jwt";
const MAX_BYTES = 16 * 1024;
/** How far apart the clocks of writers and readers of receipts may be. */
const LEEWAY_S = 60;

const time = integer({ min: 0, max: MAX_UNIX_S });
const shape = object(
  {
    ver: exactly(1),
    repo: text(),
    path: text(),
    token: text(),
    jti: text(),
    content_digest: text(),
    at: time,
    kid: text(),
    trust: text(),
    checks: map(oneOf("pass", "fail", "unknown", "skip")),
    iat: time,
  },
  { closed: true },
);

/** @type {[keyof Subject, string][]} */
const NAMED = [
  ["repo", "another repository"],
  ["path", "another file"],
  ["token", "another token"],
  ["jti", "another jti"],
  ["content_digest", "another entry"],
  ["kid", "another key"],
];

/**
 * Return the SHA-256 of a token's text, by which receipts name the token.
 * @param {string} token
 */
export const tokenDigest = (token) => digestOf(utf8(token));

/**
 * Read a receipt that one of the keys has signed. Throws FormatError. `receiptObjection` judges whether it fits an
 * entry.
 * @param {string} receipt
 * @param {import("./keys.js").KeySet} keys
 * @returns {Promise<Receipt>}
 */
export async function readReceipt(receipt, keys) {
  const { payload } = await readStatement(withoutLineBreaks(receipt), RECEIPT_TYPE, keys, MAX_BYTES);
  shape(payload);
  const read = /** @type {import("./json.js").JsonObject & Receipt} */ (payload);
  const numbers = Object.keys(read.checks);
  if (numbers.length !== NUMBERS.length || !NUMBERS.every((number) => numbers.includes(String(number))))
    throw new FormatError("file.rule", "it does not have every check", { pointer: "/checks" });
  return read;
}

/**
 * Return why a valid receipt does not count for this entry, or "".
 * @param {Receipt} receipt
 * @param {Subject} subject
 * @param {number} now
 */
export function receiptObjection(receipt, subject, now) {
  const other = NAMED.find(([name]) => receipt[name] !== subject[name]);
  if (other) return `it is for ${other[1]}`;
  if ([...ALWAYS_DUE].some((number) => receipt.checks[number] !== "pass"))
    return "it is of an entry that was not verified";
  if (receipt.at > receipt.iat + LEEWAY_S) return "its time of receipt is later than its time of writing";
  return receipt.iat > now + LEEWAY_S ? "it was written in the future" : "";
}
