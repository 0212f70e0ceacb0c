/**
 * Checks 1 to 5 of contract section 6: is this a valid token of a trusted issuer, for us, in time?
 *
 * This file knows only the entry's token and place, which a receipt must name. It returns the claims only if the
 * signature is good.
 */

import { covers } from "./archive.js";
import { Beyond, FormatError } from "./errors.js";
import { EDDSA_NAMES, TOKEN_TYPE, parseCompact } from "./jws.js";
import { keyVerifies } from "./keys.js";
import { findInclusion } from "./log/inclusion.js";
import { existedAt, lateStatus, timesOf, withReceipt, withWitnessed } from "./moment.js";
import { tokenDigest } from "./receipt.js";
import { check, restsOn } from "./report.js";
import { revokedReason } from "./revocation.js";
import { showSpan, showTime } from "./times.js";
import { readPayload, showAttempt } from "./token.js";

/** @typedef {import("./archive.js").ArchivedKey} ArchivedKey */
/** @typedef {import("./claims.js").RunClaims} RunClaims */
/** @typedef {import("./keys.js").Key} Key */
/** @typedef {import("./log/inclusion.js").Inclusion} Inclusion */
/** @typedef {import("./moment.js").Moment} Moment */
/** @typedef {import("./report.js").Check} Check */
/** @typedef {import("./token.js").TokenClaims} TokenClaims */
/** @typedef {import("./trust.js").Trust} Trust */
/** @typedef {import("./trust.js").TrustedIssuer} TrustedIssuer */
/** @typedef {Pick<Parameters<typeof findInclusion>[0], "proofs" | "asked" | "notes">} Search */

/**
 * The place where a token was found (the file `path` in the model repository `repo`), and the evidence of the time.
 * `moment` is what this party knows by itself; `receipt` and `search` may show an earlier time. `now` is the relying
 * party's clock.
 * @typedef {{repo: string, path: string, moment: Moment, now: number, receipt: string | null, search: Search}}
 *   Occurrence
 */
/**
 * The claims that a good signature vouches for, with the issuer that made it.
 * @typedef {{claims: TokenClaims, run: RunClaims, kid: string, issuer: TrustedIssuer, archived: ArchivedKey | null}}
 *   Signed
 */
/**
 * Checks 1 to 5, and the inclusion in the log; `signed` is null unless the signature is good.
 * @typedef {{checks: Check[], moment: Moment, signed: Signed | null, inclusion: Inclusion | null, wantsKeysOf: string}}
 *   JudgedToken
 */
/**
 * @typedef {{claims: TokenClaims, run: RunClaims, algorithm: string, kid: string, signature: Uint8Array, signingInput:
 *   Uint8Array}} Parsed
 */

/** How far the issuer's clock may run ahead of the relying party's. */
const NOT_BEFORE_LEEWAY_S = 60;
const NOT_KNOWN_HERE = "it is not known when this file was received";
/** The words for an expired token if only the time of receipt is missing. */
export const GOOD_WHEN_ISSUED = `good when it was issued; ${NOT_KNOWN_HERE}`;

/**
 * Make checks 1 to 5 of a token at the place where it was found.
 * @param {string} token
 * @param {Trust} trust
 * @param {Occurrence} found
 * @returns {Promise<JudgedToken>}
 */
export async function judgeToken(token, trust, found) {
  const [first, parsed] = wellFormed(token);
  const nothing = { signed: null, inclusion: null, wantsKeysOf: "" };
  const unsigned = [restsOn(4, 3), restsOn(5, 3)];
  if (!parsed) return { ...nothing, checks: [first, restsOn(2, 1), restsOn(3, 1), ...unsigned], moment: found.moment };
  const issuer = trust.issuers.get(parsed.claims.iss) ?? null;
  const held = await heldKey(parsed, issuer);
  // The log is searched before the key's window is judged, because a witnessed time may open the window; and only for
  // tokens with a good signature.
  const inclusion = issuer && held.signed ? await lookUp(parsed, issuer, found) : null;
  const moment = await momentFor(parsed, token, trust, found, inclusion);
  const second = judgeKey(parsed, issuer, held, moment, found.now);
  const third = judgeSignature(second, held);
  if (!issuer || third.status !== "pass") {
    const wanted = issuer && second.status === "unknown" && isOutdated(parsed, issuer) ? issuer.issuer : "";
    return { ...nothing, checks: [first, second, third, ...unsigned], moment, wantsKeysOf: wanted };
  }
  const signed = { claims: parsed.claims, run: parsed.run, kid: parsed.kid, issuer, archived: held.archived };
  const checks = [first, second, third, judgeTrust(signed, trust), judgeFreshness(signed, trust, moment, found.now)];
  return { checks, moment, signed, inclusion, wantsKeysOf: "" };
}

/**
 * Look for a token in its issuer's log; null unless the signature is good. If nothing is found, the caller may ask the
 * log.
 * @param {string} token
 * @param {Trust} trust
 * @param {Pick<Occurrence, "search" | "now">} found
 */
export async function seekInLog(token, trust, found) {
  const [, parsed] = wellFormed(token);
  const issuer = trust.issuers.get(parsed?.claims.iss ?? "");
  if (!parsed || !issuer || !(await heldKey(parsed, issuer)).signed) return null;
  return { claims: parsed.claims, issuer, inclusion: await lookUp(parsed, issuer, found) };
}

/**
 * @param {Parsed} parsed
 * @param {TrustedIssuer} issuer
 * @param {Pick<Occurrence, "search" | "now">} found
 * @returns {Promise<Inclusion>}
 */
async function lookUp({ claims, kid, signingInput }, { log }, { search, now }) {
  try {
    return await findInclusion({ claims, kid, signingInput, log, ...search, now });
  } catch (error) {
    if (!(error instanceof Beyond)) throw error;
    return { status: "unknown", evidence: error.message, witnessed: null, origin: "", leaf: "" };
  }
}

/**
 * Combine the evidence of the time: this party's own, its receipt for this entry, and the log's.
 * @param {Parsed} parsed
 * @param {string} token
 * @param {Trust} trust
 * @param {Occurrence} found
 * @param {Inclusion | null} inclusion
 */
async function momentFor({ claims, kid }, token, trust, { repo, path, moment, receipt, now }, inclusion) {
  let known = moment;
  if (receipt !== null) {
    const { jti, content_digest } = claims;
    const subject = { repo, path, token: await tokenDigest(token), jti, content_digest, kid };
    known = await withReceipt(moment, receipt, subject, trust, now);
  }
  return withWitnessed(known, inclusion?.witnessed ?? null, claims.exp);
}

// -- (1) --------------------------------------------------------------------------------------------------------------

/**
 * @param {string} token
 * @returns {[Check, Parsed | null]}
 */
function wellFormed(token) {
  try {
    const { header, payload, signature, signingInput } = parseCompact(token);
    const { alg, kid, typ } = header;
    if (Object.keys(header).length !== 3 || ![alg, kid, typ].every((member) => typeof member === "string"))
      return [check(1, "fail", "the header must have exactly the members alg, kid and typ, all text"), null];
    if (typ !== TOKEN_TYPE) return [check(1, "fail", `typ is not ${TOKEN_TYPE}: a JWT of another kind`), null];
    const { claims, run } = readPayload(payload);
    const parsed = { claims, run, algorithm: String(alg), kid: String(kid), signature, signingInput };
    return [check(1, "pass", `${token.length} bytes, version ${claims.ver}`), parsed];
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    return [check(1, "fail", `${error.message}${error.pointer && ` at ${error.pointer}`}`), null];
  }
}

// -- (2) --------------------------------------------------------------------------------------------------------------

/**
 * The key for the token's kid, from the current set (`current`) or the archive; the archive's member; and whether that
 * key made the token's signature.
 * @typedef {{key: Key | null, current: boolean, archived: ArchivedKey | null, signed: boolean}} Held
 */

/**
 * Find the key for the token's kid, in the current set first.
 * @param {Parsed} parsed
 * @param {TrustedIssuer | null} issuer
 * @returns {Promise<Held>}
 */
async function heldKey({ kid, algorithm, signature, signingInput }, issuer) {
  const archived = issuer?.archive?.get(kid) ?? null;
  const [now, once] = [issuer?.keys?.keys.get(kid), archived?.key];
  const key = [now, once].find((each) => each && isEddsa(each)) ?? null;
  const signed = key !== null && (await keyVerifies(key, algorithm, signingInput, signature));
  return { key, current: key !== null && key === now, archived, signed };
}

/** @param {Key} key */
const isEddsa = ({ algorithms }) => [...EDDSA_NAMES].some((name) => algorithms.has(name));

/**
 * Judge the key: it is in the current set, or in the archive with a window that covers the token and the moment.
 * @param {Parsed} parsed
 * @param {TrustedIssuer | null} issuer
 * @param {Held} held
 * @param {Moment} moment
 * @param {number} now
 */
function judgeKey(parsed, issuer, held, moment, now) {
  const { claims, kid, algorithm } = parsed;
  if (!EDDSA_NAMES.has(algorithm)) return check(2, "fail", "the algorithm is not EdDSA (Ed25519)");
  if (!issuer)
    return check(2, "fail", "no trusted issuer has this name", { token: claims.iss });
  if (held.current) return check(2, "pass", `kid ${kid}${ageOf(issuer, now)}`);
  if (held.key && held.archived) return judgeArchivedKey(parsed, issuer, held.archived, moment);
  if (issuer.keys === null || issuer.archive === null) {
    const missing = issuer.keys === null ? "key set" : "archive of keys";
    return check(2, "unknown", `the ${missing} of ${issuer.issuer} is unavailable`);
  }
  if (isOutdated(parsed, issuer)) {
    const evidence = `no key at hand has this kid, but the keys of ${issuer.issuer} may be older than the token`;
    return check(2, "unknown", evidence, { token: kid });
  }
  if (issuer.archive === undefined && mayHaveRetired(claims, moment, now)) {
    const evidence = "the key may have retired since, and the trust file names no archive of the issuer's keys";
    return check(2, "unknown", evidence, { token: kid });
  }
  return check(2, "fail", "no good Ed25519 key of the issuer's key set has this kid", { token: kid });
}

/**
 * Say whether the keys at hand lack the token's key and may be older than the token, so that a newer set could have it.
 * @param {Parsed} parsed
 * @param {TrustedIssuer} issuer
 */
function isOutdated({ kid, claims }, { keys, archive, keysFetchedAt, archiveFetchedAt }) {
  if (keys?.keys.has(kid) || archive?.has(kid)) return false;
  const fetched = archive === undefined ? [keysFetchedAt] : [keysFetchedAt, archiveFetchedAt];
  return !fetched.every((at) => at !== null && at > claims.iat);
}

/**
 * Say whether the issuer may have removed the key as planned: it keeps a key until its last token has expired.
 * @param {TokenClaims} claims
 * @param {Moment} moment
 * @param {number} now
 */
function mayHaveRetired({ exp }, moment, now) {
  if (moment.atFrom === "receipt" || moment.unsure) return true;
  const receivedLate = moment.atFrom === "clock" && moment.at > exp;
  return now > exp && !receivedLate;
}

/**
 * @param {Parsed} parsed
 * @param {TrustedIssuer} issuer
 * @param {ArchivedKey} archived
 * @param {Moment} moment
 */
function judgeArchivedKey({ claims: { iat }, kid }, { keys }, archived, moment) {
  const issued = covers(archived, iat);
  // A token of a revoked key needs a time shown by a receipt or witnesses. Without one, check 5 fails for any time of
  // receipt.
  const onlyShown = archived.revokedFrom !== null && existedAt(moment) === null;
  if (issued && (onlyShown || timesOf(moment).some((time) => covers(archived, time, NOT_BEFORE_LEEWAY_S))))
    return check(2, "pass", `kid ${kid}, from the archive`);
  const status = keys === null ? "unknown" : issued ? lateStatus(moment) : "fail";
  const end = archived.lastTokenExp === null ? "now" : showTime(archived.lastTokenExp);
  const used = `the archived key was in use from ${showTime(archived.activeFrom)} to ${end}`;
  return check(2, status, `${used}; issued at ${showTime(iat)}, judged at ${showTime(moment.at)}${moment.note}`);
}

/**
 * @param {TrustedIssuer} issuer
 * @param {number} now
 */
const ageOf = ({ keysFetchedAt }, now) =>
  keysFetchedAt === null ? "" : `, of the key set fetched ${showSpan(now - keysFetchedAt)} ago`;

// -- (3) and (4) ------------------------------------------------------------------------------------------------------

/**
 * @param {Check} second
 * @param {Held} held
 */
function judgeSignature(second, { signed }) {
  if (second.status === "unknown") return check(3, "unknown", "no key is available");
  if (second.status !== "pass") return restsOn(3, 2);
  return signed
    ? check(3, "pass", "Ed25519, by that key")
    : check(3, "fail", "the signature does not match the token and the key");
}

/**
 * @param {Signed} signed
 * @param {Trust} trust
 */
function judgeTrust({ claims, run, issuer }, trust) {
  const framework = run.framework.name;
  if (issuer.frameworks && !issuer.frameworks.has(framework))
    return check(4, "fail", "the issuer is not trusted to speak for this framework", { token: framework });
  if (claims.aud !== trust.audience)
    return check(4, "fail", "the token is for another relying party", { token: claims.aud, file: trust.audience });
  return judgeAttempt(claims, trust);
}

/**
 * Judge the attempt by the trust file. It does not depend on the time, so no receipt or log changes the result.
 * @param {TokenClaims} claims
 * @param {Trust} trust
 */
function judgeAttempt({ iss, aud, attempt }, { maxAttempt: most, require }) {
  const forUs = `${iss}, for ${aud}`;
  const required = require.has("attempt");
  if (most === null && !required) return check(4, "pass", forUs);
  if (!attempt)
    return required
      ? check(4, "fail", "the trust file requires an attempt, but the token states none")
      : check(4, "pass", `${forUs}; attempts were not counted`);
  const shown = `attempt ${showAttempt(attempt)}`;
  if (most !== null && attempt.number > most) {
    const evidence = "more different results were signed for this run than the trust file allows";
    return check(4, "fail", evidence, { token: shown, file: `at most ${most}` });
  }
  return check(4, "pass", `${forUs}; ${shown}${most === null ? "" : `, of at most ${most}`}`);
}

// -- (5) --------------------------------------------------------------------------------------------------------------

/**
 * @param {Signed} signed
 * @param {Trust} trust
 * @param {Moment} moment
 * @param {number} now
 */
function judgeFreshness(signed, { maxTokenLife }, moment, now) {
  const { claims, issuer } = signed;
  const { at, note } = moment;
  const revoked = judgeRevocation(signed, moment);
  if (revoked) return revoked;
  const life = claims.exp - claims.iat;
  if (life > maxTokenLife)
    return check(5, "fail", `valid for ${showSpan(life)}; the trust file allows at most ${showSpan(maxTokenLife)}`);
  // A time from the log is used only if the token has expired by now.
  if (at < claims.nbf - NOT_BEFORE_LEEWAY_S && moment.atFrom !== "log")
    return check(5, "fail", `becomes valid only in ${showSpan(claims.nbf - at)}${note}`);
  const late = showSpan(at - claims.exp);
  if (at > claims.exp && lateStatus(moment) === "fail")
    return check(5, "fail", `expired ${late} before the time it is judged at${besides(moment)}`);
  const missing = unknownRevocations(issuer, now);
  if (missing) return check(5, "unknown", missing);
  if (at > claims.exp) return check(5, "unknown", `${GOOD_WHEN_ISSUED}: it expired ${late} ago${note}`);
  return check(5, "pass", `${whenIn(claims, moment)}; revocations ${saidOf(issuer)}`);
}

/**
 * Name the witnessed time, and say why it does not help a party that receives the file late.
 * @param {Moment} moment
 */
const besides = ({ witnessed, note }) =>
  witnessed === null
    ? note
    : `; the token existed at ${showTime(witnessed)}, but this file may have come later${note}`;

/**
 * @param {TokenClaims} claims
 * @param {Moment} moment
 */
function whenIn({ iat, exp }, { at, atFrom }) {
  if (atFrom === "log") return `existed at ${showTime(at)}; ${NOT_KNOWN_HERE}`;
  const by = atFrom === "receipt" ? ", by a receipt" : "";
  const when = atFrom === "unknown" ? "judged" : "received";
  const side = at >= iat ? "after" : "before";
  return `${when} ${showSpan(at - iat)} ${side} issue, ${showSpan(exp - at)} before expiry${by}`;
}

/**
 * Return why the issuer has revoked this token, or "". A revoked key is not considered here.
 * @param {Signed} signed
 */
export const revokedBy = ({ claims: { jti, sub, iat }, issuer: { revocations } }) =>
  revocations ? revokedReason(revocations, jti, sub, iat) : "";

/**
 * @param {Signed} signed
 * @param {Moment} moment
 */
function judgeRevocation(signed, moment) {
  const reason = revokedBy(signed);
  if (reason) return check(5, "fail", reason);
  const revokedFrom = signed.archived?.revokedFrom ?? null;
  const existed = existedAt(moment);
  if (revokedFrom === null || (existed !== null && existed < revokedFrom)) return null;
  // The thief of a key writes iat and the stated time, so they do not count here.
  const since = `its key is revoked from ${showTime(revokedFrom)} on`;
  const evidence = `${since}, and neither a receipt nor a witness of the log shows an earlier time${moment.note}`;
  return check(5, moment.unsure ? "unknown" : "fail", evidence);
}

/**
 * Return why it is unknown whether the token is revoked, or "" if it is known.
 * @param {TrustedIssuer} trusted
 * @param {number} now
 */
function unknownRevocations({ issuer, revocations: listed, archive }, now) {
  if (listed === null || listed?.held) return `the revocation list of ${issuer} is unavailable`;
  if (listed && listed.iat > now + NOT_BEFORE_LEEWAY_S)
    return `the revocation list of ${issuer} is dated ${showSpan(listed.iat - now)} in the future`;
  if (listed && now > listed.nextUpdate)
    return `the revocation list of ${issuer} is ${showSpan(now - listed.nextUpdate)} past its next update`;
  return archive === null ? `the archive of ${issuer}, which lists revoked keys, is unavailable` : "";
}

/**
 * Say which revocations were checked.
 * @param {TrustedIssuer} issuer
 */
function saidOf({ revocations, unpublished }) {
  if (revocations) return `by list ${revocations.number} of ${showTime(revocations.iat)}`;
  return unpublished ? "not published by the issuer" : "not asked for";
}
