// What the person gave: files, and what the form says. A question of it, or a Fault that says what is lacking.
import { byId } from "./dom.js";
import { Fault } from "./fault.js";

/** @typedef {import("./checking.js").Question} Question */
/** @typedef {import("./checking.js").Whom} Whom */
/** @typedef {{name: string, bytes: Uint8Array}} Named */

const MOST_FILE = 1024 * 1024;
const MOST_TRUST = 4 * 1024 * 1024;
export const MOST_PROOF = 512 * 1024;
const MOST_FILES = 200;
export const REPO = /^[A-Za-z0-9._-]{1,96}\/[A-Za-z0-9._-]{1,96}$/;
const ISSUER = /^https?:\/\/[^\s/?#@]+(\/[^\s?#@]*[^\s?#@/])?$/;
const TOKEN = /^\s*[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\s*$/;

/** The files, beside the fields. @type {{file: Named | null, trust: Named | null, benchmark: Named | null, proofs: Map<string, Uint8Array>}} */
export const given = { file: null, trust: null, benchmark: null, proofs: new Map() };

/** @param {string} id */
export const field = (id) => byId(id, HTMLInputElement);
export const pasted = () => byId("text", HTMLTextAreaElement);

/** @param {File} file @param {number} most @returns {Promise<Named>} */
export async function read(file, most) {
  if (file.size > most) throw new Fault(`${file.name} has ${file.size.toLocaleString()} bytes. At most ${most.toLocaleString()} are read.`);
  return { name: file.name, bytes: new Uint8Array(await file.arrayBuffer()) };
}

/** Take a result file and what lies beside it, by their names. @param {File[]} files */
export async function take(files) {
  given.file = null;
  if (files.length > MOST_FILES) throw new Fault(`${files.length} files. At most ${MOST_FILES} are read.`);
  const proofs = files.filter(({ name }) => name.endsWith(".tlog-proof"));
  const benchmark = files.find(({ name }) => name === "eval.yaml");
  const [file, ...others] = files.filter((each) => each !== benchmark && !proofs.includes(each));
  if (others.length) throw new Fault(`${others.length + 1} result files. One is checked at a time.`);
  for (const each of proofs) given.proofs.set(each.name, (await read(each, MOST_PROOF)).bytes);
  if (benchmark) given.benchmark = await read(benchmark, MOST_FILE);
  if (file) given.file = await read(file, MOST_FILE);
}

/** @param {File} file */
export async function takeTrust(file) {
  given.trust = null;
  given.trust = await read(file, MOST_TRUST);
}

/** What the form asks. Throws Fault. @returns {Question} */
export function question() {
  const subject = subjectOf(pasted().value);
  const repo = field("repo").value.trim();
  const path = field("path").value.trim();
  if (subject.file && !REPO.test(repo)) throw new Fault("2. Name the model repository, as OWNER/NAME: a file does not say where it sits.");
  if (subject.file && !path) throw new Fault("2. Name the file as it is called in the repository, as .eval_results/gsm8k.yaml.");
  return { ...subject, repo, path, trust: whom(), ...received() };
}

/** @param {string} text what is pasted, which counts before a file @returns {import("./checking.js").Subject} */
function subjectOf(text) {
  if (text.length > MOST_FILE) throw new Fault("The pasted text is longer than 1 MiB.");
  if (TOKEN.test(text)) return { file: null, token: text.trim() };
  const file = text.trim() ? new TextEncoder().encode(text) : given.file?.bytes;
  if (!file) throw new Fault("1. Drop a result file, choose one, or paste its text or a token.");
  return { file, token: null };
}

/** @returns {Whom} */
function whom() {
  if (field("by-file").checked) {
    if (!given.trust) throw new Fault("3. Choose your trust file.");
    return { bytes: given.trust.bytes };
  }
  const issuer = field("issuer").value.trim();
  const audience = field("audience").value.trim();
  if (!ISSUER.test(issuer)) throw new Fault("3. Name the issuer as its URL, https and without a slash at the end.");
  if (!audience) throw new Fault("3. Name the audience: the site that the token was made for, for example https://huggingface.co.");
  return { issuer, audience, published: { archive: true, revocations: true } };
}

function received() {
  const now = Math.floor(Date.now() / 1000);
  const how = byId("received", HTMLSelectElement).value;
  if (how === "unknown") return { now, at: null, witnessed: false };
  if (how === "now") return { now, at: now, witnessed: true };
  const at = Date.parse(`${field("at").value}Z`) / 1000;
  if (!Number.isFinite(at)) throw new Fault("2. Say when you received it.");
  return { now, at: Math.floor(at), witnessed: false };
}
