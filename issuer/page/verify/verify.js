/**
 * The eleven checks by which a relying party compares a token with an entry (contract section 6).
 *
 * Each check comes with its evidence. This code has no network and no clock: the caller passes all input. Any entry and
 * any token become a report, never an error. Checks 1 to 5 are in `check-token.js`, 6 to 11 in `check-entry.js`.
 */

import { definedIn, digestsRecompute, fieldsEqual, logged, metricsEqual, placed } from "./check-entry.js";
import { GOOD_WHEN_ISSUED, judgeToken, revokedBy } from "./check-token.js";
import { CheckedNotes } from "./log/inclusion.js";
import { asksForWitnesses } from "./log/quorum.js";
import { momentOf } from "./moment.js";
import { runUrl } from "./provenance.js";
import { tokenDigest } from "./receipt.js";
import { ALWAYS_DUE, NUMBERS, check, saidBy, verdictOf } from "./report.js";
import { ranked, withReproductions } from "./tiers.js";

/** @typedef {import("./check-token.js").JudgedToken} JudgedToken */
/** @typedef {import("./check-token.js").Signed} Signed */
/** @typedef {import("./entry.js").Entry} Entry */
/** @typedef {import("./log/inclusion.js").Proofs} Proofs */
/** @typedef {import("./report.js").Report} Report */
/** @typedef {import("./trust.js").Trust} Trust */

/**
 * Facts that a relying party has beside the file and its trust.
 *
 * `now` is the relying party's clock (Unix seconds). `witnessed`: `at` comes from its own clock or record of the push,
 * not from a claim. `benchmarks` maps `owner/name@commit` to `eval.yaml`, `receipts` maps token digests to the text of
 * receipts. By the leaf's text, `proofs` has the inclusion proofs at hand and `asked` the answers of logs for tokens
 * without a usable proof. `notes` has the checkpoints that passed, for many files.
 * @typedef {{now: number, witnessed?: boolean, benchmarks?: import("./check-entry.js").Benchmarks, receipts?:
 *   ReadonlyMap<string, string>, proofs?: Proofs, asked?: Proofs, notes?: CheckedNotes}} Context
 */

/**
 * Judge all entries of a file `path` in the model repository `repo`, as received at `at` (Unix seconds).
 *
 * A reader passes null for `at`, because it does not know when the file came: check 5 of an expired token is then
 * `unknown` and does not fail. Two different tokens of one issuer with one jti both fail. A reproduced result
 * among the others gets the tier `reproduced`.
 * @param {Entry[]} entries
 * @param {string} repo
 * @param {string} path
 * @param {Trust} trust
 * @param {number | null} at
 * @param {Context} context
 */
export async function verifyEntries(entries, repo, path, trust, at, context) {
  const known = { notes: new CheckedNotes(), ...context };
  const reports = await Promise.all(entries.map((entry) => verifyEntry(entry, repo, path, trust, at, known)));
  if (reports.length === 1) return reports;
  return withReproductions(
    reports.map((report) => unshared(report, reports)),
    trust.tolerance,
  );
}

/**
 * Judge one entry. Every check is made and reported. An entry is verified only if `verdict` says so, never because a
 * member of the file does.
 * @param {Entry} entry
 * @param {string} repo
 * @param {string} path
 * @param {Trust} trust
 * @param {number | null} at
 * @param {Context} context
 */
export const verifyEntry = async (entry, repo, path, trust, at, context) =>
  ranked(await judged(entry, repo, path, trust, at, context));

/**
 * Judge a token alone. Without a file to compare with, it is never `verified`.
 * @param {string} token
 * @param {Trust} trust
 * @param {number | null} at
 * @param {Context} context
 */
export async function inspectToken(token, trust, at, context) {
  const dataset = { id: "" };
  const entry = {
    pointer: "",
    line: 0,
    form: {},
    token,
    dataset,
    model_revision: undefined,
    framework: {},
    metrics: [],
    value: undefined,
  };
  const own = ownMoment(at, context);
  const found = await judgeToken(token, trust, occurrence("", "", own, await tokenDigest(token), context));
  const others = NUMBERS.slice(5, 10).map((number) => check(number, "skip", "there is no file to compare with"));
  const checks = [...found.checks, ...others, logged(found.inclusion, trust.require.has("log"))];
  const report = { ...(await blankReport(entry, "", "", own)), ...outcome(found, checks, trust) };
  return ranked(report);
}

/**
 * @param {Entry} entry
 * @param {string} repo
 * @param {string} path
 * @param {Trust} trust
 * @param {number | null} at
 * @param {Context} context
 * @returns {Promise<Report>}
 */
async function judged(entry, repo, path, trust, at, context) {
  const own = ownMoment(at, context);
  const blank = await blankReport(entry, repo, path, own);
  if (entry.token === null) return unverified(blank, "no token");
  if (entry.metrics === null)
    return unverified(blank, "profile: an entry without `metrics` names no metric that a token could bind");
  const token = await judgeToken(entry.token, trust, occurrence(repo, path, own, blank.token_digest, context));
  const { signed, inclusion } = token;
  const { benchmarks = new Map() } = context;
  const checks = [
    ...token.checks,
    placed(entry, repo, path, signed),
    fieldsEqual(entry, signed),
    metricsEqual(entry, signed, benchmarks),
    await digestsRecompute(entry, signed),
    definedIn(entry, signed, benchmarks, trust),
    logged(inclusion, trust.require.has("log")),
  ];
  return { ...blank, ...outcome(token, checks, trust) };
}

/**
 * @param {number | null} at
 * @param {Context} context
 */
const ownMoment = (at, { now, witnessed }) =>
  at === null ? momentOf(now, "unknown") : momentOf(at, witnessed ? "clock" : "stated");

/**
 * @param {string} repo
 * @param {string} path
 * @param {import("./moment.js").Moment} moment
 * @param {string} digest
 * @param {Context} context
 */
const occurrence = (repo, path, moment, digest, context) => ({
  repo,
  path,
  moment,
  now: context.now,
  receipt: context.receipts?.get(digest) ?? null,
  search: searchOf(context),
});

/**
 * Return the sources of inclusion proofs.
 * @param {Context} context
 */
export const searchOf = ({ proofs = new Map(), asked = new Map(), notes = new CheckedNotes() }) => ({
  proofs,
  asked,
  notes,
});

/**
 * Return the members of a report that the checks decide.
 * @param {JudgedToken} token
 * @param {import("./report.js").Check[]} checks
 * @param {Trust} trust
 */
function outcome(token, checks, trust) {
  const { moment, signed, wantsKeysOf } = token;
  const due = dueBy(trust);
  const said = verdictOf(checks, due);
  const reason = said === "undecided" ? reasonOf(checks, due) : "";
  return {
    verdict: reason && !couldStillSay(token, trust) ? /** @type {const} */ ("good_when_issued") : said,
    reason,
    at: moment.at,
    at_from: moment.atFrom,
    checks,
    ...(signed ? vouched(signed) : {}),
    witnessed_at: moment.witnessed,
    wants_keys_of: wantsKeysOf,
  };
}

/**
 * Return the numbers of the checks that must pass: 1 to 9, and those that the trust file requires. Check 4 covers
 * `attempt`. No other check may fail.
 * @param {Trust} trust
 */
function dueBy({ require }) {
  const due = new Set(ALWAYS_DUE);
  if (require.has("benchmark")) due.add(10);
  if (require.has("log")) due.add(11);
  return due;
}

/**
 * Return the sentence for an expired token that passes every other check that is due; else "".
 * @param {import("./report.js").Check[]} checks
 * @param {Set<number>} due
 */
function reasonOf(checks, due) {
  const [only, ...others] = checks.filter(({ number, status }) => due.has(number) && status === "unknown");
  return only && !others.length && only.evidence.startsWith(GOOD_WHEN_ISSUED) ? GOOD_WHEN_ISSUED : "";
}

/**
 * Say whether a receipt or the issuer's log could still show that the token counts.
 * @param {JudgedToken} token
 * @param {Trust} trust
 */
function couldStillSay({ signed, inclusion }, { receiptKeys }) {
  if (receiptKeys !== undefined) return true;
  const log = signed?.issuer.log;
  return Boolean(log && inclusion?.status === "unknown" && asksForWitnesses(log.policy));
}

/**
 * Return the members of a report that a good signature vouches for.
 * @param {Signed} signed
 */
function vouched(signed) {
  const { claims, run, kid } = signed;
  return {
    issuer: claims.iss,
    framework: run.framework.name,
    jti: claims.jti,
    kid,
    content_digest: claims.content_digest,
    claims: run,
    caller: claims.caller,
    run_url: runUrl(claims.caller),
    integration: claims.sub,
    issued_at: claims.iat,
    expires_at: claims.exp,
    attempt: claims.attempt ?? null,
    revoked: revokedBy(signed) !== "",
  };
}

/**
 * @param {Entry} entry
 * @param {string} repo
 * @param {string} path
 * @param {import("./moment.js").Moment} moment
 * @returns {Promise<Report>}
 */
const blankReport = async (entry, repo, path, { at, atFrom }) => ({
  version: 1,
  repo,
  path,
  pointer: entry.pointer,
  verdict: "unverified",
  reason: "",
  at,
  at_from: atFrom,
  issuer: "",
  framework: "",
  jti: "",
  kid: "",
  content_digest: "",
  token_digest: entry.token ? await tokenDigest(entry.token) : "",
  checks: [],
  said: saidBy(entry),
  claims: null,
  caller: {},
  run_url: "",
  integration: "",
  issued_at: null,
  expires_at: null,
  attempt: null,
  line: entry.line,
  shared_jti: false,
  witnessed_at: null,
  revoked: false,
  tier: "self-reported",
  tier_reason: "",
  badges: null,
  wants_keys_of: "",
});

/**
 * @param {Report} blank
 * @param {string} reason
 */
const unverified = (blank, reason) => ({
  ...blank,
  reason,
  checks: NUMBERS.map((number) => check(number, "skip", reason)),
});

/**
 * Turn check 5 of a verified report into a failure if another entry of the file has another token with its jti.
 * @param {Report} report
 * @param {Report[]} reports
 * @returns {Report}
 */
function unshared(report, reports) {
  if (report.verdict !== "verified") return report;
  const other = reports.find(
    ({ verdict, issuer, jti, token_digest: token }) =>
      verdict === "verified" && issuer === report.issuer && jti === report.jti && token !== report.token_digest,
  );
  if (!other) return report;
  const has = `entry ${other.pointer} of this file has another good token with the jti ${report.jti}`;
  const fifth = check(5, "fail", `${has}: the issuer is at fault, and neither counts`);
  const checks = report.checks.map((made) => (made.number === 5 ? fifth : made));
  return ranked({ ...report, verdict: "failed", checks, shared_jti: true });
}
