// The page "Verify a result": a file, where it sits, whom the person trusts; what is fetched, with consent; every check.
import { byId, code, el, note, onDrop, said, show } from "./dom.js";
import { fetchDocument } from "./fetching.js";
import { drawReports } from "./report.js";

const MOST_FILE = 1024 * 1024;
const MOST_PROOF = 512 * 1024;
const MOST_SUPPLIED = 4 * 1024 * 1024;
const MOST_FILES = 200;
// As the readers of each take them.
/** @type {Record<string, number>} */
const MOST = { keys: 256 * 1024, archive: 1024 * 1024, revocations: 4 * 1024 * 1024, policy: 1024 * 1024, receipt_keys: 256 * 1024, revocation_keys: 256 * 1024 };
/** @type {Record<string, string>} */
const WHAT = {
  keys: "the keys that sign its tokens", archive: "every key that ever signed, for older tokens", revocations: "what it has taken back",
  policy: "the witnesses of its log", receipt_keys: "the keys of your receipts", revocation_keys: "the keys that sign what was taken back",
};
const CHECK_MS = 60_000;
const REPO = /^[A-Za-z0-9._-]{1,96}\/[A-Za-z0-9._-]{1,96}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const TOKEN = /^\s*[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\s*$/;
const NOT_FOUND = new Set([404, 410]);

/** @typedef {{name: string, bytes: Uint8Array}} Named */
/** What was given, beside the fields. @type {{file: Named | null, trust: Named | null, benchmark: Named | null, proofs: Map<string, Uint8Array>}} */
const given = { file: null, trust: null, benchmark: null, proofs: new Map() };
let turn = 0; // what was begun before another question is not shown

// -- what is to be checked ----------------------------------------------------------------------------------------------

/** @param {File} file @param {number} most @returns {Promise<Named>} */
async function read(file, most) {
  if (file.size > most) throw new Said(`${file.name} has ${file.size.toLocaleString()} bytes. At most ${most.toLocaleString()} are read.`);
  return { name: file.name, bytes: new Uint8Array(await file.arrayBuffer()) };
}

/** What is said to the person, and no fault of the program. */
class Said extends Error {}

/** @param {File[]} files */
async function take(files) {
  const place = byId("chosen");
  forgetFound();
  try {
    if (files.length > MOST_FILES) throw new Said(`${files.length} files. At most ${MOST_FILES} are read.`);
    for (const file of files) {
      if (file.name.endsWith(".tlog-proof")) given.proofs.set(file.name, (await read(file, MOST_PROOF)).bytes);
      else if (file.name === "eval.yaml") given.benchmark = await read(file, MOST_FILE);
      else given.file = await read(file, MOST_FILE);
    }
    byId("text").value = "";
    if (given.file && !byId("path").value) byId("path").value = `.eval_results/${given.file.name}`;
    const others = [given.benchmark && "its eval.yaml", given.proofs.size && `proofs of the log: ${given.proofs.size}`].filter(Boolean);
    const size = given.file ? `, ${given.file.bytes.length.toLocaleString()} bytes` : "";
    show(place, said(given.file ? given.file.name : "No result file yet"), size, others.length ? `; ${others.join(", ")}` : "");
  } catch (error) {
    given.file = null;
    show(place, el("span.result.bad", said(messageOf(error))));
  }
}

/** @param {unknown} error */
function messageOf(error) {
  if (error instanceof Said) return error.message;
  return "This file cannot be read.";
}

/** What the form says, or Said. */
function question() {
  const text = byId("text").value;
  if (text.length > MOST_FILE) throw new Said("The pasted text is longer than 1 MiB.");
  const token = TOKEN.test(text) ? text.trim() : null;
  const file = text.trim() && !token ? new TextEncoder().encode(text) : token ? null : given.file?.bytes ?? null;
  if (!file && !token) throw new Said("1. Drop a result file, choose one, or paste its text or a token.");
  const repo = byId("repo").value.trim();
  const path = byId("path").value.trim();
  if (file && !REPO.test(repo)) throw new Said("2. Name the model repository, as OWNER/NAME: a file does not say where it sits.");
  if (file && !path) throw new Said("2. Name the file as it is called in the repository, as .eval_results/gsm8k.yaml.");
  return { file, token, repo, path, trust: trusted(), ...received() };
}

function trusted() {
  if (byId("by-file").checked) {
    if (!given.trust) throw new Said("3. Choose your trust file.");
    return { bytes: given.trust.bytes };
  }
  const issuer = byId("issuer").value.trim();
  const audience = byId("audience").value.trim();
  if (!/^https?:\/\/[^\s/?#@]+(\/[^\s?#@]*[^\s?#@/])?$/.test(issuer)) throw new Said("3. Name the issuer as its URL, https and without a slash at the end.");
  if (!audience) throw new Said("3. Name the audience: the site that the token was made for, for example https://huggingface.co.");
  return { issuer, audience, published: { archive: true, revocations: true } };
}

function received() {
  const now = Math.floor(Date.now() / 1000);
  const how = byId("received").value;
  if (how === "unknown") return { now, at: null, witnessed: false };
  if (how === "now") return { now, at: now, witnessed: true };
  const at = Date.parse(`${byId("at").value}Z`) / 1000;
  if (!Number.isFinite(at)) throw new Said("2. Say when you received it.");
  return { now, at: Math.floor(at), witnessed: false };
}

// -- the worker ---------------------------------------------------------------------------------------------------------

const WORKER = new URL("./checking.js", import.meta.url).href;
/** A worker's address is code: the one that may be named is this. */
const addresses = globalThis.trustedTypes?.createPolicy("checking", { createScriptURL: () => WORKER });

/** Have the worker do this, within CHECK_MS. @param {string} verb @param {any} asked @returns {Promise<any>} */
function work(verb, asked) {
  const worker = new Worker(/** @type {any} */ (addresses ? addresses.createScriptURL("") : WORKER), { type: "module" });
  return new Promise((resolve, reject) => {
    const end = setTimeout(() => reject(new Said(`This could not be checked in ${CHECK_MS / 1000} s: it was stopped, and nothing is known. Use the command issuer verify.`)), CHECK_MS);
    worker.onmessage = ({ data }) => {
      clearTimeout(end);
      if (data.fault) reject(Object.assign(new Said(data.fault.message), data.fault));
      else resolve(data.done);
    };
    worker.onerror = (event) => {
      clearTimeout(end);
      event.preventDefault();
      reject(new Said("The verifier did not load. Load this page again; nothing is known."));
    };
    worker.postMessage({ verb, ...asked });
  }).finally(() => worker.terminate());
}

// -- what is needed -----------------------------------------------------------------------------------------------------

async function look() {
  const own = ++turn;
  show(byId("answer"));
  try {
    const asked = question();
    show(byId("plan"), el("p.busy", "Reading …"));
    const plan = await work("plan", asked);
    if (own !== turn) return;
    await offer(asked, plan);
  } catch (error) {
    if (own === turn) refuse(error);
  }
}

/** @param {any} error */
function refuse(error) {
  const beyond = error.code === "beyond";
  const place = error.place ? el("p", "Where: ", code(error.place)) : "";
  const kind = beyond ? "open" : "bad";
  const title = beyond ? "This page does not read all of it: nothing is known" : "Not checked";
  show(byId("plan"), note(kind, el("h2", title), el("p", said(error instanceof Said ? error.message : `The page failed: ${error}`)), error.code ? el("p", "Code: ", code(error.code)) : "", place));
}

/** Show what would be fetched, and wait for the person. @param {any} asked @param {any} plan */
async function offer(asked, plan) {
  if (asked.file && !plan.entries) return show(byId("plan"), note("", el("p", "This file has no entries: there is nothing to check.")));
  const fetched = [...plan.needs.filter((/** @type {any} */ need) => need.url), ...plan.leaves.filter((/** @type {any} */ leaf) => leaf.url).map((/** @type {any} */ leaf) => ({ url: leaf.url, leaf: leaf.leaf }))];
  const files = plan.needs.filter((/** @type {any} */ need) => need.file);
  const count = asked.file ? `${plan.entries.toLocaleString()} ${plan.entries === 1 ? "entry" : "entries"}, ${plan.tokens.toLocaleString()} with a token.` : "One token.";
  const rows = fetched.map((/** @type {any} */ need) => el("li", code(need.url), " ", el("span.quiet", `(${whatIs(need)})`)));
  const inputs = files.map((/** @type {any} */ need, /** @type {number} */ index) => el("div", el("label", { for: `need-${index}` }, "Your trust file names ", code(need.file), `: ${whatIs(need)}`), el("input", { type: "file", id: `need-${index}` })));
  const go = el("button", { type: "button", id: "go" }, fetched.length ? `Fetch ${fetched.length === 1 ? "this" : `these ${fetched.length}`}, and check` : "Check");
  show(
    byId("plan"),
    el("div.panel", el("h2", "What is needed"), el("p", count),
      fetched.length ? el("p", "To judge this, documents are fetched that everybody may have. Whoever serves them sees your address, and which documents; of the file, nothing but what stands here:") : el("p", "Nothing is fetched."),
      fetched.length ? el("ul", ...rows) : "", ...inputs, el("p.buttons", go)),
  );
  go.focus();
  go.addEventListener("click", () => void check(asked, plan, fetched, files));
}

/** @param {any} need */
const whatIs = (need) => (need.leaf ? "is the token in its log? The address has the token's digest and time" : WHAT[need.pointer.split("/").pop()] ?? "named by your trust file");

/** @param {any} asked @param {any} plan @param {any[]} fetched @param {any[]} files */
async function check(asked, plan, fetched, files) {
  const own = ++turn;
  const busy = el("p.busy", "Reading …");
  const go = byId("go");
  go.disabled = true;
  go.after(busy);
  try {
    const supplied = await Promise.all(files.map(async (need, index) => {
      const [file] = byId(`need-${index}`).files;
      return [need.pointer, file ? (await read(file, MOST_SUPPLIED)).bytes : null];
    }));
    const got = await gather(fetched, (done) => { busy.textContent = `Fetched ${done} of ${fetched.length} …`; });
    if (own !== turn) return;
    busy.textContent = "Checking …";
    const judged = await work("judge", { ...asked, ...evidence(asked, plan, got, supplied) });
    if (own !== turn) return;
    go.disabled = false;
    busy.remove();
    const faults = got.filter((one) => one.fault && !isLeftOut(asked, one));
    drawReports(byId("answer"), judged.reports, { token: !asked.file, linked: linked(), trust: plan, faults, absent: judged.absent });
    byId("answer").focus();
  } catch (error) {
    if (own === turn) refuse(error);
  }
}

/** @param {any[]} fetched @param {(done: number) => void} tell */
async function gather(fetched, tell) {
  const got = [];
  for (const need of fetched) { // one after the other: a log is not asked a hundred things at once
    tell(got.length);
    got.push({ ...need, ...(await fetchDocument(need.url, need.leaf ? MOST_PROOF : MOST[need.pointer.split("/").pop()] ?? MOST_FILE)) });
  }
  return got;
}

/** An issuer alone is asked for what it may not publish: that is no fault. @param {any} asked @param {any} one */
const isLeftOut = (asked, one) => !asked.trust.bytes && NOT_FOUND.has(one.status) && /archive|revocation/.test(one.pointer ?? "");

/** What was fetched and given, as the verifier takes it. @param {any} asked @param {any} plan @param {any[]} got @param {any[]} supplied */
function evidence(asked, plan, got, supplied) {
  const documents = got.filter((one) => one.pointer);
  const found = new Map([...documents.map((one) => [one.pointer, one.bytes]), ...supplied]);
  const fetchedAt = new Map(documents.filter((one) => one.bytes).map((one) => [one.pointer, one.at]));
  const lacks = (/** @type {string} */ name) => documents.some((one) => one.pointer.endsWith(name) && isLeftOut(asked, one));
  const published = { archive: !lacks("/archive"), revocations: !lacks("/revocations") };
  const proofs = new Map();
  for (const { leaf, name } of plan.leaves) if (given.proofs.has(name)) proofs.set(leaf, { proof: given.proofs.get(name) });
  const answers = new Map(got.filter((one) => one.leaf).map((one) => [one.leaf, answerOf(one)]));
  return { trust: asked.trust.bytes ? asked.trust : { ...asked.trust, published }, found, fetchedAt, proofs, asked: answers, benchmark: given.benchmark?.bytes ?? null };
}

/** What a log answered. Only its own word is a no: another 404 may be anybody's. @param {any} one */
function answerOf({ bytes, fault, code: refused }) {
  if (bytes) return { proof: bytes };
  return refused === "log.no_leaf" ? { denied: true } : { fault };
}

// -- links --------------------------------------------------------------------------------------------------------------

/** What the page's address says: digests, and where the file sits. Never whom to trust: that is nobody else's to say. */
function linked() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const content = parts.get("content") ?? "";
  const repo = parts.get("repo") ?? "";
  const path = parts.get("path") ?? "";
  return DIGEST.test(content) && REPO.test(repo) ? { content, repo, path: path.slice(0, 300) } : null;
}

function showLinked() {
  const asked = linked();
  if (!asked) return show(byId("linked"));
  byId("repo").value = asked.repo;
  byId("path").value = asked.path;
  return show(byId("linked"), note("", el("p", "The link that you followed speaks of the entry with this digest, of ", said(asked.repo), ":"), el("p", code(asked.content)), el("p.quiet", "A link proves nothing, and has no token in it. Drop the file here to check it.")));
}

// -- the form -----------------------------------------------------------------------------------------------------------

function showChosen() {
  byId("issuer-fields").hidden = byId("by-file").checked;
  byId("file-fields").hidden = !byId("by-file").checked;
  byId("at-field").hidden = byId("received").value !== "stated";
}

byId("verify").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  void look();
});
/** What was found was found of something else. */
function forgetFound() {
  turn += 1;
  show(byId("plan"));
  show(byId("answer"));
}

byId("verify").addEventListener("input", () => {
  forgetFound();
  showChosen();
});
byId("file").addEventListener("change", () => void take([...byId("file").files]));
byId("trust-file").addEventListener("change", async () => {
  try {
    given.trust = await read(byId("trust-file").files[0], MOST_SUPPLIED);
  } catch (error) {
    given.trust = null;
    refuse(error);
  }
});
byId("text").addEventListener("input", () => { given.file = null; });
onDrop(byId("what"), (files) => void take(files));
addEventListener("hashchange", showLinked);
byId("issuer").value = document.body.dataset.issuer ?? "";
if (!globalThis.crypto?.subtle) show(byId("plan"), note("bad", el("p", "This browser checks signatures only on a page that came by https, or from its own machine. Open this page so, or use ", code("issuer verify"), ".")));
showChosen();
showLinked();
