// The transparency log: its checkpoint and witnesses, what changed since the last visit, a token's place, the newest entries.
import { equal, hex, utf8 } from "../verify/bytes.js";
import { FormatError } from "../verify/errors.js";
import { objection } from "../verify/log/inclusion.js";
import { readLines } from "../verify/log/leaf.js";
import { proofUrl, unverifiedLeaf } from "../verify/log/ask.js";
import { climb, leafHash, verifyConsistency, verifyInclusion } from "../verify/log/merkle.js";
import { parseNote, verifyNote } from "../verify/log/note.js";
import { parsePolicy } from "../verify/log/policy.js";
import { splitProof } from "../verify/log/proof.js";
import { parseCheckpoint } from "../verify/log/checkpoint.js";
import { checkNote } from "../verify/log/quorum.js";
import { consistencyProof, inclusionProof } from "../verify/log/prove.js";
import { nodeOfTiles, readEntries, tilePath, tileWidth } from "../verify/log/tiles.js";
import { isSame } from "../verify/log/vkey.js";
import { isObject, readJson } from "../verify/json.js";
import { byId, code, el, facts, moment, note, result, said, show, table } from "./dom.js";
import { fetchDocument } from "./fetching.js";
import { drawClimb, drawDays } from "./log-drawing.js";
import { forgetVisit, keepVisit, lastVisit, otherLogs } from "./visits.js";

const MOST_INFO = 512 * 1024;
const MOST_TILE = 256 * 65_537;
const BUNDLES = 4n;
const LOG = new URL("../log/", document.baseURI);

/** @typedef {import("../verify/log/checkpoint.js").Checkpoint} Checkpoint */
/** @typedef {import("../verify/log/quorum.js").WitnessPolicy} WitnessPolicy */

/** @typedef {{policy: WitnessPolicy, checkpoint: Checkpoint, node: import("../verify/log/tiles.js").Node}} Good */
/** What was found good at the last look. @type {Good | null} */
let good = null;
/** What is under way for each place: what was begun before something else is not shown there. @type {Map<string, object>} */
const turns = new Map();

/** Read a file of the log, or throw what a person is to be told. @param {string} path @param {number} most bytes */
async function read(path, most = MOST_TILE) {
  const { bytes, status, fault, code: refused } = await fetchDocument(new URL(path, LOG).href, most);
  if (refused === "log.no_leaf") throw new FormatError("log.no_leaf", "the log was asked, and has no such entry. One that is seconds old may need a moment");
  if (status === 404) throw new FormatError("log.unavailable", `${new URL(path, LOG).pathname} is not there: this issuer may keep no log`);
  if (bytes === null) throw new FormatError("log.unavailable", `${new URL(path, LOG).pathname}: ${fault}`);
  return bytes;
}

const now = () => Math.floor(Date.now() / 1000);
/** @param {bigint | number} count */
const counted = (count) => count.toLocaleString("en");

/** Show this in a place, and nothing of what is under way for it. Returns whether that is still so. @param {string} place @param {...(Node | string)} parts */
function begin(place, ...parts) {
  const own = {};
  turns.set(place, own);
  show(byId(place), ...parts);
  return () => turns.get(place) === own;
}

/**
 * Do some work, and show in a place what it finds or why it cannot, where nothing else was begun for it since.
 * @param {string} place @param {string} busy @param {(isNewest: () => boolean) => Promise<(Node | string)[]>} work
 */
async function into(place, busy, work) {
  const isNewest = begin(place, el("p.busy", busy));
  try {
    const found = await work(isNewest);
    if (isNewest()) show(byId(place), ...found);
  } catch (error) {
    if (!isNewest()) return;
    if (!(error instanceof FormatError)) {
      show(byId(place), note("bad", el("p", el("strong", "The page failed: nothing is known. "), said(error))));
      return;
    }
    const lie = ["log.signature", "log.unverified", "log.malformed"].includes(error.code);
    show(byId(place), note(lie ? "bad" : "open", el("p", el("strong", lie ? "This is not as it must be. " : "This cannot be checked now. "), said(error.message)), el("p.quiet", code(error.code))));
  }
}

// -- the checkpoint ----------------------------------------------------------------------------------------------------

async function look() {
  good = null;
  for (const place of ["visits", "found", "growth"]) begin(place); // what stood there was found by another policy
  await into("state", "Asking the log …", async (isNewest) => {
    const own = byId("policy", HTMLTextAreaElement).value;
    const policy = await parsePolicy(own.trim() ? utf8(own.endsWith("\n") ? own : `${own}\n`) : await statedPolicy());
    const raw = await read("checkpoint", MOST_INFO);
    const signed = parseNote(raw);
    const checkpoint = parseCheckpoint(signed.text);
    const { quorum, time } = await judged(policy, signed);
    const witnesses = await drawWitnesses(policy, signed);
    if (!isNewest()) return [];
    const under = { policy, checkpoint, node: nodeOfTiles((path) => read(path), checkpoint.size) };
    good = under;
    void into("visits", "Comparing …", (isAsked) => compared(under, raw, isAsked));
    return [drawState(checkpoint, quorum, time, Boolean(own.trim())), ...witnesses];
  });
}

/** The policy that the server itself states. */
async function statedPolicy() {
  const said = readJson(await read("log.json", MOST_INFO), { maxBytes: MOST_INFO, maxDepth: 8 });
  const info = isObject(said) ? said : {};
  if (typeof info.witness_policy === "string" && info.witness_policy) return utf8(info.witness_policy);
  const keys = Array.isArray(info.vkeys) ? info.vkeys.filter((key) => typeof key === "string") : [];
  if (!keys.length) throw new FormatError("log.unavailable", "this server names no key of its log: paste its witness policy below");
  return utf8(`${keys.map((key) => `log ${key}`).join("\n")}\nquorum none\n`);
}

/** Say by whom a checkpoint is signed; too few witnesses are said, and anything else is thrown. @param {WitnessPolicy} policy @param {import("../verify/log/note.js").Note} signed */
async function judged(policy, signed) {
  try {
    const { time } = await checkNote(policy, signed, now());
    return { quorum: policy.quorum === "none" ? "No witness is asked for, so nothing here proves a time or that others are shown the same log" : "", time };
  } catch (error) {
    if (!(error instanceof FormatError) || error.code !== "log.quorum") throw error;
    return { quorum: error.message, time: null };
  }
}

/** @param {Checkpoint} checkpoint @param {string} quorum @param {number | null} time @param {boolean} isOwn */
function drawState(checkpoint, quorum, time, isOwn) {
  const kind = quorum ? "open" : "good";
  const title = quorum ? "Signed by the log" : "Signed by the log, and cosigned by its witnesses";
  return el(
    `div.verdict.${kind}`,
    el("h3", el("span.sign", { "aria-hidden": "true" }, quorum ? "?" : "✓"), title),
    el("p", isOwn ? "By the policy that you gave." : "By the keys that this server names itself."),
    quorum ? el("p", said(quorum)) : "",
    facts([
      ["Log", said(checkpoint.origin)],
      ["Entries", counted(checkpoint.size)],
      ["Root", el("span.digest", hex(checkpoint.root))],
      ["Witnessed", moment(time)],
    ]),
  );
}

/** @param {WitnessPolicy} policy @param {import("../verify/log/note.js").Note} signed */
async function drawWitnesses(policy, signed) {
  if (!policy.witnesses.length) return [];
  const verified = await verifyNote(signed, [...policy.logs, ...policy.witnesses].map(({ verifier }) => verifier));
  const rows = policy.witnesses.map(({ name, verifier }) => {
    const times = verified.filter((each) => isSame(each.verifier, verifier) && each.timestamp).map((each) => Number(each.timestamp));
    const has = times.length > 0;
    return [
      el("th", { scope: "row" }, said(name)),
      result(has ? "good" : "none", has ? "cosigned" : "not on this checkpoint"),
      el("td", has ? moment(Math.min(...times)) : "–"),
    ];
  });
  return [table("Witnesses", ["Witness", "This checkpoint", "When"], rows)];
}

// -- visits ------------------------------------------------------------------------------------------------------------

/** @param {Good} under @param {Uint8Array} raw its checkpoint, signed @param {() => boolean} isAsked whether it was not forgotten since */
async function compared(under, raw, isAsked) {
  const { checkpoint } = under;
  const before = lastVisit(checkpoint.origin);
  if (before === null) {
    const others = otherLogs(checkpoint.origin, LOG.href);
    if (others.length) return [note("bad", el("p", el("strong", "This is another log than before. "), "At this address your browser has seen ", said(others.join(", ")), ". A log of another name needs to have nothing of what that one had: ask who runs the issuer. If it is meant, forget the old one."))];
    keepVisit(checkpoint.origin, LOG.href, raw, now());
    return [note("", el("p", "This is your first visit with this browser. From now on it can tell whether history is rewritten."))];
  }
  const earlier = parseCheckpoint(parseNote(before.raw).text);
  const grown = checkpoint.size - earlier.size;
  const since = el("p", "Then, at ", moment(before.at), `: ${counted(earlier.size)} entries.`);
  if (grown < 0n) return [note("bad", el("p", el("strong", "The log is smaller than it was. "), "It shows another tree than then."), since)];
  if (!(await isBeginning(earlier, under))) {
    return [note("bad", el("p", el("strong", "History was rewritten, or you are shown another log. "), "What this browser saw then is not the beginning of what it is shown now. Keep what you have, and tell who relies on this issuer."), since)];
  }
  if (isAsked()) keepVisit(checkpoint.origin, LOG.href, raw, now());
  const more = grown === 0n ? "Nothing was added." : `${counted(grown)} entries were added, and everything that was there is there.`;
  return [note("good", el("p", el("strong", more)), since)];
}

/** @param {Checkpoint} earlier @param {{checkpoint: Checkpoint, node: Good["node"]}} later */
async function isBeginning(earlier, { checkpoint, node }) {
  if (earlier.size === checkpoint.size) return equal(earlier.root, checkpoint.root);
  if (earlier.size === 0n) return true;
  const proof = await consistencyProof(earlier.size, checkpoint.size, node);
  return verifyConsistency(earlier.size, checkpoint.size, earlier.root, checkpoint.root, proof);
}

// -- a token -----------------------------------------------------------------------------------------------------------

async function find() {
  const text = byId("token", HTMLTextAreaElement).value.trim();
  await into("found", "Asking the log …", async () => {
    if (!text) return [note("", el("p", "Nothing is pasted yet."))];
    if (good === null) return [note("open", el("p", "The log's checkpoint is not good, or not there: look above."))];
    const shown = good;
    const { leaf, claims } = await unverifiedLeaf(text);
    const raw = await read(proofUrl(LOG.href.replace(/\/$/, ""), leaf), MOST_INFO);
    const proof = splitProof(raw);
    const witnessed = parseNote(proof.checkpoint);
    const checkpoint = parseCheckpoint(witnessed.text);
    await judged(shown.policy, witnessed);
    const reason = await objection(proof, checkpoint, claims.log ?? checkpoint.origin, utf8(leaf));
    const hash = await leafHash(utf8(leaf));
    const steps = (await climb(proof.index, checkpoint.size, hash, proof.hashes)) ?? [];
    if (reason) throw new FormatError("log.unverified", `the log's proof does not serve: ${reason}`);
    if (!(await isOfOneTree(checkpoint, shown))) throw new FormatError("log.unverified", "the proof is of another tree than the one above: the log shows two histories");
    return [
      note("good", el("p", el("strong", `It is entry ${counted(proof.index + 1n)} of ${counted(checkpoint.size)}. `), `${steps.length} hashes lead from it to the root that the log has signed.`),
        el("p.quiet", "This shows that the entry is there. Whether the token is good for a result, and its signature, is the matter of the page that checks a result.")),
      facts([...readLines(utf8(leaf))].map(([name, value]) => [name, name === "iat" || name === "exp" ? moment(Number(value)) : value])),
      drawClimb(proof.index, hash, steps, checkpoint.root),
    ];
  });
}

/** Say whether a checkpoint and the one that is shown are of one tree that grew. @param {Checkpoint} checkpoint @param {Good} shown */
async function isOfOneTree(checkpoint, shown) {
  if (checkpoint.size <= shown.checkpoint.size) return isBeginning(checkpoint, shown);
  return isBeginning(shown.checkpoint, { checkpoint, node: nodeOfTiles((path) => read(path), checkpoint.size) });
}

// -- entries -----------------------------------------------------------------------------------------------------------

async function readNewest() {
  await into("growth", "Reading entries …", async () => {
    if (good === null) return [note("open", el("p", "The log's checkpoint is not good, or not there: look above."))];
    const { size } = good.checkpoint;
    if (size === 0n) return [note("", el("p", "The log has no entry yet."))];
    const last = (size - 1n) / 256n;
    const first = last >= BUNDLES ? last - BUNDLES + 1n : 0n;
    const leaves = [];
    for (let index = first; index <= last; index += 1n) leaves.push(...(await checkedBundle(index, good)));
    return drawEntries(leaves.map(readLines), size);
  });
}

/**
 * Read a bundle of entries, each of which must be under the signed root.
 * @param {bigint} index @param {NonNullable<typeof good>} under
 */
async function checkedBundle(index, { checkpoint: { size, root }, node }) {
  const width = tileWidth("entries", index, size);
  const leaves = readEntries(await read(tilePath("entries", index, width)));
  const isUnder = await Promise.all(
    leaves.map(async (leaf, at) => {
      const place = index * 256n + BigInt(at);
      return at < width && verifyInclusion(place, size, await leafHash(leaf), await inclusionProof(place, size, node), root);
    }),
  );
  if (leaves.length === width && isUnder.every(Boolean)) return leaves;
  throw new FormatError("log.unverified", "the entries that the log gives are not those under the root that it has signed");
}

/** @param {Map<string, string>[]} entries @param {bigint} size */
function drawEntries(entries, size) {
  /** @type {Map<string, Map<string, number>>} */
  const days = new Map();
  /** @type {Map<string, number>} */
  const kinds = new Map();
  for (const entry of entries) {
    const kind = (entry.get("first_line") ?? "").split("/")[1] ?? "?";
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    const seconds = Number(entry.get("iat"));
    if (kind !== "token" || !Number.isSafeInteger(seconds)) continue;
    const day = new Date(seconds * 1000).toISOString().slice(0, 10);
    const of = days.get(day) ?? new Map();
    const who = entry.get("sub") ?? "?";
    days.set(day, of.set(who, (of.get(who) ?? 0) + 1));
  }
  const sorted = [...days].sort(([one], [other]) => (one < other ? 1 : -1));
  const rows = sorted.flatMap(([day, of]) =>
    [...of].sort(([, one], [, other]) => other - one).map(([who, count]) => [
      el("th", { scope: "row" }, day), el("td", said(who)), el("td.number", counted(count)),
    ]),
  );
  return [
    el("p", `${counted(entries.length)} of ${counted(size)} entries, each checked up to the root: `, [...kinds].map(([kind, count]) => `${counted(count)} × ${kind}`).join(", "), ". Days are UTC."),
    sorted.length ? drawDays(sorted.map(([day, of]) => ({ day, count: [...of.values()].reduce((sum, one) => sum + one, 0) })).reverse()) : "",
    rows.length ? table("Tokens by day and integration", ["Day", "Integration", "Tokens"], rows.slice(0, 400)) : "",
  ].filter((part) => part !== "");
}

byId("find").addEventListener("input", () => begin("found"));
byId("forget").addEventListener("click", () => {
  forgetVisit();
  begin("visits", note("", el("p", "Forgotten. The next look is a first visit.")));
});
for (const [form, work] of /** @type {const} */ ([["find", find], ["trust", look]])) {
  byId(form).addEventListener("submit", (event) => {
    event.preventDefault();
    void work();
  });
}
byId("read").addEventListener("click", () => void readNewest());
void look();
byId("late").remove();
