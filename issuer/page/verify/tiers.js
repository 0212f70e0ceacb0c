/**
 * Tiers: ranks of the evidence for a result, with a reason for people.
 *
 * A tier depends on the entry's report and, for `reproduced`, on the reports of the entries that name it; never on a
 * member of the file.
 */

import { aside, reproductionObjection } from "./reproduction.js";
import { showTime } from "./times.js";

/** @typedef {import("./report.js").Report} Report */
/** @typedef {import("./report.js").Tier} Tier */
/** @typedef {import("./reproduction.js").Tolerance} Tolerance */
/** @typedef {{tier: Tier, tier_reason: string}} Standing */

/** Equal numbers rank alike; `refuted` has no rank. @type {Record<Tier, number>} */
const RANKS = { reproduced: 5, logged: 4, verified: 3, signed: 2, "self-reported": 1, undecided: 1, refuted: 0 };
/**
 * If one of these checks fails, no trusted issuer signed the token, or it signed another result than the file shows.
 */
const CONTRADICTS = new Set([3, 7, 8, 9]);
const SIGNED = [1, 2, 3, 4, 6, 7, 8, 9];

/**
 * Return the report with the tier that it gets without reproductions.
 * @param {Report} report
 * @returns {Report}
 */
export const ranked = (report) => ({ ...report, ...standing(report) });

/**
 * @param {Report} report
 * @returns {Standing}
 */
function standing(report) {
  if (report.verdict === "verified") return verified(report);
  if (!report.token_digest) return { tier: "self-reported", tier_reason: "no issuer vouches for it: it has no token" };
  const refuted = refutation(report);
  if (refuted) return { tier: "refuted", tier_reason: refuted };
  if (isSigned(report)) return { tier: "signed", tier_reason: firstOpen(report) };
  return { tier: "undecided", tier_reason: firstOpen(report) || report.reason };
}

/** @param {Report} report */
function refutation({ revoked, shared_jti: shared, checks }) {
  if (revoked || shared) return checks.find(({ number }) => number === 5)?.evidence ?? "";
  const failed = checks.find(({ number, status }) => CONTRADICTS.has(number) && status === "fail");
  return failed ? inWords(failed) : "";
}

/**
 * @param {Report} report
 * @returns {Standing}
 */
function verified({ at, at_from: from, witnessed_at: witnessed }) {
  const own = { clock: "received in time, by this party's own clock", receipt: "received in time, by a receipt" };
  if (from === "clock" || from === "receipt") {
    if (witnessed === null) return { tier: "verified", tier_reason: own[from] };
    const seen = `in the issuer's log, witnessed at ${showTime(witnessed)}`;
    return { tier: "logged", tier_reason: `${own[from]}; ${seen}` };
  }
  if (from === "log")
    return { tier: "verified", tier_reason: `it existed in time, by the log's witnesses, at ${showTime(at)}` };
  return { tier: "verified", tier_reason: from === "unknown" ? "in time" : "received in time, as stated" };
}

/**
 * Say whether a good token binds the entry, and its other checks did not fail.
 * @param {Report} report
 */
function isSigned({ checks, verdict }) {
  const passed = new Set(checks.filter(({ status }) => status === "pass").map(({ number }) => number));
  return SIGNED.every((number) => passed.has(number)) && (verdict === "undecided" || verdict === "good_when_issued");
}

/**
 * Return the check that keeps a report from being verified: the first that failed, or else the first unknown one.
 * @param {Report} report
 */
function firstOpen({ checks }) {
  const open = checks.find(({ status }) => status === "fail") ?? checks.find(({ status }) => status === "unknown");
  return open ? inWords(open) : "";
}

/** @param {import("./report.js").Check} check */
const inWords = ({ number, name, evidence }) => `check ${number}, ${name}: ${evidence}`;

/**
 * Raise the ranked reports of a file that other entries of it reproduce, and keep their order. All results of a model
 * on a benchmark are in one file, so no other file matters.
 * @param {Report[]} reports
 * @param {Tolerance} tolerance
 */
export function withReproductions(reports, tolerance) {
  /**
   * The reports by the digest that they name and by token: a copy of an entry does not count twice.
   * @type {Map<string, Map<string, Report>>}
   */
  const named = new Map();
  for (const report of reports) {
    const { reproduces } = report.said;
    if (!reproduces || RANKS[report.tier] < RANKS.verified) continue;
    named.set(reproduces, (named.get(reproduces) ?? new Map()).set(report.token_digest, report));
  }
  return reports.map((report) => raised(report, [...(named.get(report.content_digest)?.values() ?? [])], tolerance));
}

/**
 * @param {Report} report
 * @param {Report[]} namedBy
 * @param {Tolerance} tolerance
 * @returns {Report}
 */
function raised(report, namedBy, tolerance) {
  if (!namedBy.length || RANKS[report.tier] < RANKS.verified) return report;
  const reasons = namedBy.map((other) => reproductionObjection(other, report, tolerance));
  const by = namedBy[reasons.indexOf("")];
  if (by) {
    const reason = `reproduced by ${by.integration}, ${showTime(by.issued_at ?? 0)}`;
    return { ...report, tier: "reproduced", tier_reason: reason + aside(by.said, report.said) };
  }
  const which = reasons.length === 1 ? "a reproduction does not count" : `${reasons.length} reproductions do not count`;
  return { ...report, tier_reason: `${report.tier_reason}; ${which}: ${reasons[0]}` };
}
