/**
 * Witness policies: the trusted logs and witnesses, and how many witnesses must have cosigned (c2sp.org/tlog-policy).
 *
 * This file has the policy as a value, and applies it to a signed checkpoint. `policy.js` reads its file; the caller
 * has the clock.
 */

import { FormatError } from "../errors.js";
import { parseCheckpoint } from "./checkpoint.js";
import { verifyNote } from "./note.js";
import { isSame } from "./vkey.js";

export const NO_QUORUM = "none";
const MAX_AHEAD_S = 60; // how far a witness's clock may be ahead of ours

/**
 * A policy. A log's origin is its key's name. A witness is named by the policy. A group has cosigned if at least
 * `threshold` of its members have: witnesses, or groups before it in the file. `url` is "" if the file has none.
 * `quorum` is the name of a witness or a group, or `none`.
 * @typedef {import("./vkey.js").Verifier} Verifier
 * @typedef {{verifier: Verifier, url: string}} LogKey
 * @typedef {{name: string, verifier: Verifier, url: string}} WitnessKey
 * @typedef {{name: string, threshold: number, members: string[]}} Group
 * @typedef {{logs: LogKey[], witnesses: WitnessKey[], groups: Group[], quorum: string}} WitnessPolicy
 */

/**
 * A checkpoint that a trusted log signed and the quorum cosigned, and its witnessed time in Unix seconds.
 *
 * `time` is null if the policy requires no witness, because then no time is proved.
 * @typedef {{checkpoint: import("./checkpoint.js").Checkpoint, log: LogKey, time: number | null}} Witnessed
 */

/**
 * Say whether the policy requires witnesses, so that a checkpoint has a witnessed time.
 * @param {WitnessPolicy} policy
 */
export const asksForWitnesses = (policy) => policy.quorum !== NO_QUORUM;

/**
 * Say whether these witnesses, by their names in the policy, are a quorum. The caller has verified their cosignatures.
 * @param {WitnessPolicy} policy
 * @param {Iterable<string>} cosigners
 */
export function isMetBy(policy, cosigners) {
  const cosigned = new Set([NO_QUORUM, ...cosigners]);
  for (const { name, threshold, members } of policy.groups)
    // members come before their group, so one pass is enough
    if (members.filter((member) => cosigned.has(member)).length >= threshold) cosigned.add(name);
  return cosigned.has(policy.quorum);
}

/**
 * Check a signed checkpoint at `now` (Unix seconds).
 *
 * Throws FormatError: `log.malformed` if the text is not a checkpoint; `log.signature` if no log of the policy with its
 * origin has signed it, or if any signature of a known key is bad; `log.quorum` if too few witnesses have cosigned it.
 * A cosignature with a time of zero, or over a minute ahead of `now`, does not count.
 * @param {WitnessPolicy} policy
 * @param {import("./note.js").Note} note
 * @param {number} now
 * @returns {Promise<Witnessed>}
 */
export async function checkNote(policy, note, now) {
  const checkpoint = parseCheckpoint(note.text);
  const verified = await verifyNote(note, [...policy.logs, ...policy.witnesses].map(({ verifier }) => verifier));
  const signed = (/** @type {LogKey} */ log) => verified.some((found) => isSame(found.verifier, log.verifier));
  const log = policy.logs.find((each) => each.verifier.name === checkpoint.origin && signed(each));
  if (!log)
    throw new FormatError("log.signature", "the checkpoint is not signed by a log of the policy with its origin");
  const times = cosignedAt(policy, verified, now);
  if (!isMetBy(policy, times.keys())) throw tooFew(policy, times);
  return { checkpoint, log, time: smallest(policy, times) };
}

/**
 * Return the earliest valid time of each witness that cosigned, by its name in the policy.
 * @param {WitnessPolicy} policy
 * @param {import("./vkey.js").Verified[]} verified
 * @param {number} now
 */
function cosignedAt(policy, verified, now) {
  /** @type {Map<string, number>} */
  const times = new Map();
  for (const { verifier, timestamp } of verified) {
    const witness = policy.witnesses.find((each) => isSame(each.verifier, verifier));
    if (!witness || !timestamp || timestamp > BigInt(now + MAX_AHEAD_S)) continue;
    times.set(witness.name, Math.min(Number(timestamp), times.get(witness.name) ?? Infinity));
  }
  return times;
}

/**
 * @param {WitnessPolicy} policy
 * @param {Map<string, number>} times
 */
function tooFew(policy, times) {
  const keys = policy.witnesses.filter(({ name }) => times.has(name)).map(({ verifier }) => verifier.name);
  const names = keys.sort(byCodePoint).join(", ") || "none";
  return new FormatError("log.quorum", `too few witnesses of the policy have cosigned: ${names}`);
}

/**
 * @param {string} one
 * @param {string} other
 */
function byCodePoint(one, other) {
  const [these, those] = [Array.from(one), Array.from(other)];
  const at = these.findIndex((char, place) => char !== those[place]);
  return at < 0 ? these.length - those.length : (these[at].codePointAt(0) ?? 0) - (those[at]?.codePointAt(0) ?? -1);
}

/**
 * Return the smallest time by which the cosigners were a quorum; null if the policy requires no witness. All cosigners
 * together are a quorum.
 * @param {WitnessPolicy} policy
 * @param {Map<string, number>} times
 */
function smallest(policy, times) {
  if (!asksForWitnesses(policy)) return null;
  const upTo = (/** @type {number} */ time) => [...times].filter(([, at]) => at <= time).map(([name]) => name);
  const sorted = [...times.values()].sort((one, other) => one - other);
  return sorted.find((time) => isMetBy(policy, upTo(time))) ?? null;
}
