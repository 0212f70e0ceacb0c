/**
 * The questions to the logs of trusted issuers about the tokens of a file, before it is judged. A log that is asked
 * learns which tokens interest the caller, so there are questions only if the answers may decide something. The caller
 * sends them.
 */

import { seekInLog } from "./check-token.js";
import { proofUrl } from "./log/ask.js";
import { searchOf } from "./verify.js";

/**
 * The text of a token's leaf, under which the answer goes into `asked`, and the address of its proof.
 * @typedef {{leaf: string, url: string}} Question
 */

const MAX_QUESTIONS = 100; // of one file, which may have a thousand tokens

/**
 * Return the questions for tokens that have no usable proof at hand, if the log is required or the token has expired,
 * and the trust file has the log's URL.
 * @param {import("./entry.js").Entry[]} entries
 * @param {import("./trust.js").Trust} trust
 * @param {import("./verify.js").Context} context
 * @returns {Promise<Question[]>}
 */
export async function questions(entries, trust, context) {
  /** @type {Map<string, Question>} */
  const found = new Map();
  for (const { token, metrics } of entries) {
    if (found.size === MAX_QUESTIONS) break;
    const sought =
      token && metrics ? await seekInLog(token, trust, { search: searchOf(context), now: context.now }) : null;
    if (!sought) continue;
    const { claims, issuer, inclusion } = sought;
    const decides = trust.require.has("log") || claims.exp < context.now;
    if (decides && issuer.log?.url && inclusion.leaf && inclusion.status === "unknown")
      found.set(inclusion.leaf, { leaf: inclusion.leaf, url: proofUrl(issuer.log.url, inclusion.leaf) });
  }
  return [...found.values()];
}
