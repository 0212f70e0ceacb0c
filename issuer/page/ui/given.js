// The person's input: files and the fields of the form. It becomes a question, or a Fault about a missing part.
import { byId } from "./dom.js";
import { Fault } from "./fault.js";

/** @typedef {import("./checking.js").Question} Question */
/** @typedef {import("./checking.js").Whom} Whom */
/** The definition that the person vouches for, and proofs by name. @typedef {{benchmark: Uint8Array | null, proofs: Map<string, Uint8Array>}} Beside */

const MOST_FILE = 1024 * 1024;
const MOST_TRUST = 4 * 1024 * 1024;
export const MOST_PROOF = 512 * 1024;
const MOST_FILES = 200;
export const REPO = /^[A-Za-z0-9._-]{1,96}\/[A-Za-z0-9._-]{1,96}$/;
const ISSUER = /^https?:\/\/[^\s/?#@]+(\/[^\s?#@]*[^\s?#@/])?$/;
const TOKEN = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;
const MEMBER = /^\s*verify_token:/; // a copied token may come with its member's name, and with line breaks

/**
 * The files that were dropped or chosen. They are read at each check, so an answer is always about their current content.
 * @type {{file: File | null, proofs: Map<string, File>}}
 */
export const given = { file: null, proofs: new Map() };

/** @param {string} id */
export const field = (id) => byId(id, HTMLInputElement);
export const pasted = () => byId("text", HTMLTextAreaElement);

/** @param {File} file @param {number} most @returns {File} */
function bounded(file, most) {
  if (file.size > most) throw new Fault(`${file.name} has ${file.size.toLocaleString()} bytes. At most ${most.toLocaleString()} are read.`);
  return file;
}

/** Read a file as it is now. Throws Fault. @param {File} file @param {number} most */
export async function read(file, most) {
  try {
    return new Uint8Array(await bounded(file, most).arrayBuffer());
  } catch (error) {
    if (error instanceof Fault) throw error;
    throw new Fault(`${file.name} cannot be read: it is a folder, or was changed since you chose it. Choose it again.`);
  }
}

/**
 * Take a result file and its proofs, by their names. Those of an earlier result file are dropped. A definition has a
 * separate field: the submitter of a result may have put one beside it.
 * Throws Fault. @param {File[]} files
 */
export function take(files) {
  if (files.length > MOST_FILES) throw new Fault(`${files.length} files. At most ${MOST_FILES} are read.`);
  const proofs = files.filter(({ name }) => name.endsWith(".tlog-proof"));
  if (files.some(({ name }) => name === "eval.yaml"))
    throw new Fault("eval.yaml is a benchmark's definition, not a result. If you vouch for it, choose it under 3.");
  const [file, ...others] = files.filter((each) => !proofs.includes(each));
  if (others.length) throw new Fault(`${others.length + 1} result files. One is checked at a time.`);
  if (file) Object.assign(given, { file: bounded(file, MOST_FILE), proofs: new Map() });
  for (const each of proofs) given.proofs.set(each.name, bounded(each, MOST_PROOF));
}

/** Read the definition and the proofs. Throws Fault. @returns {Promise<Beside>} */
export async function beside() {
  const proofs = [...given.proofs.values()].map(async (file) => /** @type {const} */ ([file.name, await read(file, MOST_PROOF)]));
  const [definition] = field("definition").files ?? [];
  return { benchmark: definition ? await read(definition, MOST_FILE) : null, proofs: new Map(await Promise.all(proofs)) };
}

/** Return the form's question. Throws Fault. @returns {Promise<Question>} */
export async function question() {
  const subject = await subjectOf(pasted().value);
  const repo = field("repo").value.trim();
  const path = field("path").value.trim();
  if (subject.file && !REPO.test(repo)) throw new Fault("2. Name the model repository, as OWNER/NAME: the file does not say it.");
  if (subject.file && !path) throw new Fault("2. Give the file's path in the repository, such as .eval_results/gsm8k.yaml.");
  return { ...subject, repo, path, trust: await whom(), ...received() };
}

/** @param {string} text the pasted text, which takes precedence over a file @returns {Promise<import("./checking.js").Subject>} */
async function subjectOf(text) {
  if (text.length > MOST_FILE) throw new Fault("The pasted text is longer than 1 MiB.");
  const bare = text.replace(MEMBER, "").replace(/["'\s]/g, "");
  if (TOKEN.test(bare)) return { file: null, token: bare };
  const file = text.trim() ? new TextEncoder().encode(text) : given.file && (await read(given.file, MOST_FILE));
  if (!file) throw new Fault("1. Drop a result file, choose one, or paste its text or a token.");
  return { file, token: null };
}

/** @returns {Promise<Whom>} */
async function whom() {
  if (field("by-file").checked) {
    const [file] = field("trust-file").files ?? [];
    if (!file) throw new Fault("3. Choose your trust file.");
    return { bytes: await read(file, MOST_TRUST) };
  }
  const issuer = field("issuer").value.trim();
  const audience = field("audience").value.trim();
  if (!ISSUER.test(issuer)) throw new Fault("3. Give the issuer's URL, with https and without a slash at the end.");
  if (!audience) throw new Fault("3. Name the audience: the site that the token was made for, for example https://huggingface.co.");
  return { issuer, audience, published: { archive: true, revocations: true } };
}

function received() {
  const now = Math.floor(Date.now() / 1000);
  const how = byId("received", HTMLSelectElement).value;
  if (how === "unknown") return { now, at: null, witnessed: false };
  if (how === "now") return { now, at: now, witnessed: true };
  const at = Date.parse(`${field("at").value}Z`) / 1000;
  if (!Number.isFinite(at)) throw new Fault("2. Say when you received the file.");
  return { now, at: Math.floor(at), witnessed: false };
}
