// The page of the log: its checkpoint and witnesses, changes since the last visit, a token's place, and the newest leaves.
import { hex, utf8 } from "../verify/bytes.js";
import { FormatError } from "../verify/errors.js";
import { isObject, readJson } from "../verify/json.js";
import { parseCheckpoint } from "../verify/log/checkpoint.js";
import { parseNote, verifyNote } from "../verify/log/note.js";
import { parsePolicy } from "../verify/log/policy.js";
import { nodeOfTiles } from "../verify/log/tiles.js";
import { isSame } from "../verify/log/vkey.js";
import { byId, code, el, facts, moment, note, result, said, show, table } from "./dom.js";
import { LOG, MOST_INFO, counted, isBeginning, judged, now, read } from "./log-reading.js";
import { forgetVisit, keepVisit, lastVisit, otherLogs } from "./visits.js";

/** @typedef {import("./log-reading.js").Checkpoint} Checkpoint */
/** @typedef {import("./log-reading.js").Good} Good */
/** @typedef {import("./log-reading.js").WitnessPolicy} WitnessPolicy */

/** The last checkpoint that was found good. @type {Good | null} */
let good = null;
/** The newest work for each place of the page: only its result is shown there. @type {Map<string, object>} */
const turns = new Map();

/** Show parts in a place, and discard older work for it. Returns a function that says whether this is still newest. @param {string} place @param {...(Node | string)} parts */
function begin(place, ...parts) {
  const own = {};
  turns.set(place, own);
  show(byId(place), ...parts);
  return () => turns.get(place) === own;
}

/**
 * Do some work, and show its result or its error in a place, unless newer work for that place has begun.
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
    show(byId(place), note(lie ? "bad" : "open", el("p", el("strong", lie ? "The log is wrong. " : "This cannot be checked now. "), said(error.message)), el("p.quiet", code(error.code))));
  }
}

// -- the checkpoint ----------------------------------------------------------------------------------------------------

async function look() {
  good = null;
  for (const place of ["visits", "found", "growth"]) begin(place); // their content was found under another policy
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

/** Return the policy that the server itself publishes. */
async function statedPolicy() {
  const said = readJson(await read("log.json", MOST_INFO), { maxBytes: MOST_INFO, maxDepth: 8 });
  const info = isObject(said) ? said : {};
  if (typeof info.witness_policy === "string" && info.witness_policy) return utf8(info.witness_policy);
  const keys = Array.isArray(info.vkeys) ? info.vkeys.filter((key) => typeof key === "string") : [];
  if (!keys.length) throw new FormatError("log.unavailable", "this server does not say its log's key: paste the log's witness policy below");
  return utf8(`${keys.map((key) => `log ${key}`).join("\n")}\nquorum none\n`);
}

/** @param {Checkpoint} checkpoint @param {string} quorum @param {number | null} time @param {boolean} isOwn */
function drawState(checkpoint, quorum, time, isOwn) {
  const kind = quorum ? "open" : "good";
  const title = quorum ? "Signed by the log" : "Signed by the log, and cosigned by its witnesses";
  return el(
    `div.verdict.${kind}`,
    el("h3", el("span.sign", { "aria-hidden": "true" }, quorum ? "?" : "✓"), title),
    el("p", isOwn ? "By the policy that you gave." : "By the keys that this server itself names."),
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

/** @param {Good} under @param {Uint8Array} raw its checkpoint, signed @param {() => boolean} isAsked false after the person pressed "forget" */
async function compared(under, raw, isAsked) {
  const { checkpoint } = under;
  const before = lastVisit(checkpoint.origin);
  if (before === null) {
    const others = otherLogs(checkpoint.origin, LOG.href);
    if (others.length) return [note("bad", el("p", el("strong", "This is another log than before. "), "At this address your browser has seen ", said(others.join(", ")), ". A log with another name need not have the entries of that one. Ask the issuer's operator; if the change is intended, forget the old log."))];
    keepVisit(checkpoint.origin, LOG.href, raw, now());
    return [note("", el("p", "This is your first visit with this browser. From now on it can tell whether history is rewritten."))];
  }
  const earlier = parseCheckpoint(parseNote(before.raw).text);
  const grown = checkpoint.size - earlier.size;
  const since = el("p", "Then, at ", moment(before.at), `: ${counted(earlier.size)} entries.`);
  if (grown < 0n) return [note("bad", el("p", el("strong", "The log is smaller than it was. "), "Its tree is not the one that this browser saw."), since)];
  if (!(await isBeginning(earlier, under))) {
    return [note("bad", el("p", el("strong", "History was rewritten, or you are shown another log. "), "The tree that this browser saw then is not the beginning of today's. Keep your data, and tell the relying parties of this issuer."), since)];
  }
  if (isAsked()) keepVisit(checkpoint.origin, LOG.href, raw, now());
  const more = grown === 0n ? "Nothing was added." : `${counted(grown)} entries were added, and all earlier ones are unchanged.`;
  return [note("good", el("p", el("strong", more)), since)];
}

// -- scripts that are loaded when they are needed ----------------------------------------------------------------------------

/** @template Part @param {Promise<Part>} part */
const loaded = (part) => part.catch(() => { throw new FormatError("log.unavailable", "a part of this page did not load: try again"); });

/** Do work for a form, which needs a good checkpoint. @param {string} place @param {string} busy @param {(shown: Good) => Promise<(Node | string)[]>} work */
const under = (place, busy, work) =>
  into(place, busy, async () => (good === null ? [note("open", el("p", "The log has no good checkpoint: see above."))] : work(good)));

async function find() {
  const text = byId("token", HTMLTextAreaElement).value.trim();
  if (!text) return void begin("found", note("", el("p", "Paste a token first.")));
  return under("found", "Asking the log …", async (shown) => (await loaded(import("./log-token.js"))).findToken(text, shown));
}

const readNewest = () => under("growth", "Reading entries …", async (shown) => (await loaded(import("./log-entries.js"))).newestEntries(shown));

byId("find").addEventListener("input", () => begin("found"));
byId("forget").addEventListener("click", () => {
  forgetVisit();
  begin("visits", note("", el("p", "Forgotten. The next visit counts as the first.")));
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
