/**
 * A relying party's trust file, and the keys and lists that it points to.
 *
 * A trust file without an issuer or without an audience is an error, not a permissive default (contract section 6). The
 * fetcher calls `sources` to learn what to fetch, and passes the bytes to `resolve`.
 */

import { parseArchive } from "./archive.js";
import { equal, utf8 } from "./bytes.js";
import { digestOf, jsonText } from "./canonical.js";
import { REPO, REVISION } from "./claims.js";
import { Beyond, FormatError } from "./errors.js";
import { pointerTo } from "./json.js";
import { parseCompact } from "./jws.js";
import { parseKeySet } from "./keys.js";
import { parsePolicy } from "./log/policy.js";
import { plainNumber } from "./numbers.js";
import { MAX_BYTES as MAX_LIST_BYTES, listText, parseRevocations } from "./revocation.js";
import {
  anything,
  either,
  exactly,
  integer,
  list,
  map,
  number,
  object,
  oneOf,
  optional,
  shortText,
  text,
} from "./shape.js";
import { MAX_ATTEMPTS, MAX_TTL_S } from "./token.js";
import { readYaml } from "./yaml.js";

/** @typedef {import("./json.js").JsonObject} JsonObject */
/** @typedef {import("./keys.js").Key} Key */
/** @typedef {import("./keys.js").KeySet} KeySet */
/** @typedef {import("./archive.js").Archive} Archive */
/** @typedef {import("./revocation.js").Revocations} Revocations */
/** @typedef {import("./log/inclusion.js").TrustedLog} TrustedLog */

/**
 * A source of keys or lists: exactly one of a URL, a file beside the trust file, or the inline value.
 * @typedef {{url?: string, file?: string, inline?: JsonObject | string}} Source
 */
/**
 * @typedef {{issuer: string, keys: Source, archive?: Source, revocations?: Source, frameworks?: string[], log?:
 *   {policy: Source, url?: string}}} TrustedEntry
 */
/**
 * A trust file as written. `unpublished` is not a member of the file: its one issuer answered that it publishes no
 * revocations.
 * @typedef {{version: 1, audience: string, issuers: TrustedEntry[], max_token_life_s?: number, max_attempt?: number,
 *   receipt_keys?: Source, revocation_keys?: Source, require?: string[], definitions?: Record<string, string |
 *   string[]>, tolerance?: Record<string, number>, unpublished?: boolean}} TrustFile
 */
/**
 * An issuer with its keys. null: unavailable. undefined: the trust file does not name it. `keysFetchedAt` and
 * `archiveFetchedAt` (Unix seconds) are when the URL last confirmed them; null for files, which have no server to
 * confirm them.
 * @typedef {{issuer: string, keys: KeySet | null, frameworks: Set<string> | null, archive: Archive | null | undefined,
 *   revocations: Revocations | null | undefined, keysFetchedAt: number | null, archiveFetchedAt: number | null,
 *   unpublished: boolean, log: TrustedLog | null}} TrustedIssuer
 */
/**
 * A pointer in the trust file whose target is unavailable or unusable.
 * @typedef {{pointer: string, reason: string}} Absence
 */
/**
 * The issuers, keys and rules that `verifyEntries` judges by. Issuers are compared byte for byte. `maxTokenLife` is in
 * seconds. `definitions` has the commits whose definition is accepted, by the lowercase name of the benchmark's
 * repository; of any other benchmark, every commit is.
 * @typedef {{audience: string, issuers: Map<string, TrustedIssuer>, maxTokenLife: number,
 *   receiptKeys: KeySet | null | undefined, require: Set<string>, absent: Absence[], maxAttempt: number | null,
 *   tolerance: Map<string, number>, definitions: Map<string, string[]>}} Trust
 */

const POLICY = "/log/policy";
const ANY = "any"; // every commit of a benchmark

const source = object(
  {
    url: optional(shortText),
    file: optional(shortText),
    inline: optional(
      either("text or a map", (value) =>
        typeof value === "string" ? text() : typeof value === "object" && value !== null ? map(anything) : undefined,
      ),
    ),
  },
  { closed: true },
);
const shape = object(
  {
    version: exactly(1),
    audience: shortText,
    issuers: list(
      object(
        {
          issuer: shortText,
          keys: source,
          archive: optional(source),
          revocations: optional(source),
          frameworks: optional(list(shortText, { min: 1 })),
          log: optional(object({ policy: source, url: optional(shortText) }, { closed: true })),
        },
        { closed: true },
      ),
      { min: 1 },
    ),
    max_token_life_s: optional(integer({ min: 1, max: MAX_TTL_S })),
    max_attempt: optional(integer({ min: 1, max: MAX_ATTEMPTS })),
    receipt_keys: optional(source),
    revocation_keys: optional(source),
    require: optional(list(oneOf("attempt", "benchmark", "log"))),
    definitions: optional(
      map(
        either("text or a list", (value) =>
          typeof value === "string" ? text() : Array.isArray(value) ? list(text(), { min: 1 }) : undefined,
        ),
        shortText,
      ),
    ),
    tolerance: optional(map(number({ min: 0 }), shortText)),
  },
  { closed: true },
);

// -- the file ---------------------------------------------------------------------------------------------------------

/**
 * Read a trust file, YAML or JSON. Throws FormatError, or Beyond for YAML that only `issuer verify` reads.
 * @param {Uint8Array} raw
 * @returns {Promise<TrustFile>}
 */
export async function readTrustFile(raw) {
  const value = readYaml(raw);
  shape(value);
  const trust = /** @type {JsonObject & TrustFile} */ (value);
  trust.issuers.forEach((entry, index) => checkIssuer(trust, entry, `/issuers/${index}`));
  checkDefinitions(Object.entries(trust.definitions ?? {}));
  for (const [pointer, each] of sources(trust)) await checkSource(pointer, each);
  return trust;
}

/** @param {[repo: string, commits: string | string[]][]} stated */
function checkDefinitions(stated) {
  const commit = "a full commit (40 or 64 lowercase hex characters)";
  /** @type {Set<string>} */
  const seen = new Set();
  for (const [repo, commits] of stated) {
    const at = pointerTo("/definitions", repo);
    if (!REPO.test(repo)) throw broken(at, "must be a benchmark's repository: `owner/name`");
    if (seen.has(repo.toLowerCase()))
      throw broken(at, "this benchmark occurs twice: upper and lower case are the same here");
    seen.add(repo.toLowerCase());
    if (typeof commits === "string" && commits !== ANY && !REVISION.test(commits))
      throw broken(at, `must be \`any\`, ${commit}, or a list of commits`);
    const wrong = typeof commits === "string" ? -1 : commits.findIndex((each) => !REVISION.test(each));
    if (wrong >= 0) throw broken(`${at}/${wrong}`, `must be ${commit}`);
  }
}

/**
 * @param {TrustFile} trust
 * @param {TrustedEntry} entry
 * @param {string} pointer
 */
function checkIssuer({ issuers, require = [], revocation_keys: keys }, entry, pointer) {
  if (issuers.filter(({ issuer }) => issuer === entry.issuer).length > 1)
    throw broken(`${pointer}/issuer`, "this issuer occurs twice");
  if (require.includes("log") && !entry.log)
    throw broken(pointer, "`require` has `log`, so each issuer needs one: `log: {policy: {file: NAME}}`");
  if (entry.revocations && !keys)
    throw broken(`${pointer}/revocations`, "a revocation list needs `revocation_keys`, or its signature cannot be checked");
}

/**
 * @param {string} pointer
 * @param {Source} each
 */
async function checkSource(pointer, { url, file, inline }) {
  if ([url, file, inline].filter((part) => part !== undefined).length !== 1)
    throw broken(pointer, "give exactly one of `url`, `file` and `inline`");
  if (url !== undefined && pointer.endsWith(POLICY))
    throw broken(
      pointer,
      "give `file` or `inline`: you decide which log and which witnesses to trust, not a server",
    );
  if (inline === undefined) return;
  try {
    await checkFound(pointer, inlineBytes(inline));
  } catch (error) {
    throw error instanceof FormatError ? error.within(`${pointer}/inline`) : error;
  }
}

/**
 * @param {string} pointer
 * @param {string} rule
 */
const broken = (pointer, rule) => new FormatError("file.rule", rule, { pointer });

/**
 * Return a trust file for one issuer by its published documents. Leave out documents that the issuer does not
 * publish: without an archive old keys are unknown, and an issuer without a list has revoked nothing.
 * @param {string} issuer  its URL
 * @param {string} audience  this relying party
 * @param {{archive?: boolean, revocations?: boolean}} [published]
 * @returns {TrustFile}
 */
export function trustIssuer(issuer, audience, { archive = true, revocations = true } = {}) {
  /** @param {string} name */
  const at = (name) => ({ url: `${issuer}/.well-known/${name}` });
  /** @type {TrustedEntry} */
  const entry = { issuer, keys: at("jwks.json") };
  if (archive) entry.archive = at("jwks-archive.json");
  if (revocations) entry.revocations = at("revocations.json");
  /** @type {TrustFile} */
  const file = { version: 1, audience, issuers: [entry], unpublished: !revocations };
  if (revocations) file.revocation_keys = at("revocation-keys.json");
  return file;
}

/**
 * Return every source that the trust file names, by its JSON pointer there.
 * @param {TrustFile} trust
 * @returns {Map<string, Source>}
 */
export function sources({ issuers, receipt_keys: receiptKeys, revocation_keys: revocationKeys }) {
  /** @type {[string, Source | undefined][]} */
  const found = issuers.flatMap(({ keys, archive, revocations, log }, index) => [
    [`/issuers/${index}/keys`, keys],
    [`/issuers/${index}/archive`, archive],
    [`/issuers/${index}/revocations`, revocations],
    [`/issuers/${index}${POLICY}`, log?.policy],
  ]);
  found.push(["/receipt_keys", receiptKeys], ["/revocation_keys", revocationKeys]);
  return new Map(found.flatMap(([pointer, each]) => (each ? [[pointer, each]] : [])));
}

/**
 * Throw FormatError if the bytes do not have the format that belongs at this pointer. Of a revocation list only the
 * form is checked, because `resolve` has the keys for its signature.
 * @param {string} pointer
 * @param {Uint8Array} raw
 */
export async function checkFound(pointer, raw) {
  if (pointer.endsWith("/revocations")) parseCompact(listText(raw), MAX_LIST_BYTES);
  else if (pointer.endsWith("/archive")) parseArchive(raw);
  else if (pointer.endsWith(POLICY)) await readPolicy(raw);
  else readKeys(raw);
}

/** @param {Uint8Array} raw */
function readKeys(raw) {
  const keys = parseKeySet(raw);
  if (!keys.keys.size) throw new FormatError("file.rule", "the key set has no usable key");
  return keys;
}

/** @param {Uint8Array} raw */
async function readPolicy(raw) {
  let policy;
  try {
    policy = await parsePolicy(raw);
  } catch (error) {
    if (!(error instanceof FormatError) || error instanceof Beyond) throw error;
    throw new FormatError(error.code, error.message + (error.line ? ` (line ${error.line} of the policy)` : ""));
  }
  if (!policy.logs.length)
    throw new FormatError("log.policy", "it has no `log` line, so it names no log");
  return policy;
}

// -- the trust with its keys and lists --------------------------------------------------------------------------------

/**
 * Return the trust with all its keys and lists. `found` has the bytes of URLs and files by the pointers of `sources`.
 *
 * `fetchedAt` says when a URL last confirmed its bytes (Unix seconds). A source that `found` lacks, or that came
 * malformed from a URL, counts as unavailable: `absent` lists it, and checks that need it are `unknown`. Throws
 * FormatError with the pointer if a file or an inline value is malformed.
 * @param {TrustFile} file
 * @param {ReadonlyMap<string, Uint8Array | null>} found
 * @param {ReadonlyMap<string, number>} [fetchedAt]
 * @returns {Promise<Trust>}
 */
export async function resolve(file, found, fetchedAt = new Map()) {
  const reading = new Reading(file, found);
  /** @type {Map<string, TrustedIssuer>} */
  const issuers = new Map();
  for (const [index, entry] of file.issuers.entries())
    issuers.set(entry.issuer, await trustedIssuer(`/issuers/${index}`, entry, reading, fetchedAt, file.unpublished));
  const tokenKeys = [...issuers.values()].flatMap(keysOf);
  const receiptKeys = await reading.apart("/receipt_keys", tokenKeys);
  const revocationKeys = await reading.apart("/revocation_keys", tokenKeys);
  for (const [index, issuer] of [...issuers.values()].entries())
    issuer.revocations = await reading.revocations(`/issuers/${index}/revocations`, issuer.issuer, revocationKeys);
  const tolerance = Object.entries(file.tolerance ?? {});
  const definitions = Object.entries(file.definitions ?? {}).filter(([, commits]) => commits !== ANY);
  return {
    audience: file.audience,
    issuers,
    maxTokenLife: file.max_token_life_s ?? MAX_TTL_S,
    receiptKeys,
    require: new Set(file.require),
    absent: reading.absent,
    maxAttempt: file.max_attempt ?? null,
    tolerance: new Map(tolerance.map(([id, limit]) => [id, plainNumber(limit) ?? 0])),
    definitions: new Map(definitions.map(([repo, commits]) => [repo.toLowerCase(), [commits].flat()])),
  };
}

/**
 * @param {string} at
 * @param {TrustedEntry} entry
 * @param {Reading} reading
 * @param {ReadonlyMap<string, number>} fetchedAt
 * @returns {Promise<TrustedIssuer>}
 */
async function trustedIssuer(at, entry, reading, fetchedAt, unpublished = false) {
  return {
    issuer: entry.issuer,
    keys: (await reading.read(`${at}/keys`, readKeys)) ?? null,
    frameworks: entry.frameworks ? new Set(entry.frameworks) : null,
    archive: await reading.read(`${at}/archive`, parseArchive),
    revocations: undefined,
    keysFetchedAt: fetchedAt.get(`${at}/keys`) ?? null,
    archiveFetchedAt: fetchedAt.get(`${at}/archive`) ?? null,
    unpublished,
    log: (await reading.log(`${at}${POLICY}`, entry.log?.url ?? "")) ?? null,
  };
}

/** @param {TrustedIssuer} issuer */
const keysOf = ({ keys, archive }) => [
  ...(keys?.keys.values() ?? []),
  ...[...(archive?.values() ?? [])].map(({ key }) => key),
];

/** One call of `resolve`: the sources, and those that turned out to be absent. */
class Reading {
  /**
   * @param {TrustFile} file
   * @param {ReadonlyMap<string, Uint8Array | null>} found
   */
  constructor(file, found) {
    this.sources = sources(file);
    this.found = found;
    /** @type {Absence[]} */
    this.absent = [];
  }

  /**
   * Return the parsed source at a pointer: null if unavailable, undefined if the trust file does not name it.
   * @template T
   * @param {string} pointer
   * @param {(raw: Uint8Array) => T | Promise<T>} parse
   * @returns {Promise<T | null | undefined>}
   */
  async read(pointer, parse) {
    const source = this.sources.get(pointer);
    if (!source) return undefined;
    const raw = source.inline === undefined ? this.found.get(pointer) : inlineBytes(source.inline);
    if (!raw) return this.lacks(pointer, "unavailable");
    try {
      return await parse(raw);
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      // The error drops its line and column: they are places in the other file, not in the trust file.
      if (source.url === undefined) throw Object.assign(error.within(pointer), { line: 0, column: 0 });
      return this.lacks(pointer, error.message);
    }
  }

  /**
   * @param {string} pointer
   * @param {string} reason
   */
  lacks(pointer, reason) {
    this.absent.push({ pointer, reason });
    return null;
  }

  /**
   * @param {string} pointer
   * @param {string} url
   * @returns {Promise<TrustedLog | null | undefined>}
   */
  log(pointer, url) {
    return this.read(pointer, async (raw) => ({ policy: await readPolicy(raw), digest: await digestOf(raw), url }));
  }

  /**
   * Read a key set and leave out keys that also sign tokens: an issuer must not also vouch for the time.
   * @param {string} pointer
   * @param {Key[]} tokenKeys
   */
  async apart(pointer, tokenKeys) {
    const set = await this.read(pointer, readKeys);
    if (!set) return set;
    const kept = [...set.keys].filter(([, { publicKey }]) => !tokenKeys.some((key) => equal(key.publicKey, publicKey)));
    if (kept.length < set.keys.size)
      this.lacks(pointer, "a key that signs tokens must not sign this as well: it is ignored");
    return { keys: new Map(kept), skipped: set.skipped + set.keys.size - kept.length };
  }

  /**
   * @param {string} pointer
   * @param {string} issuer
   * @param {KeySet | null | undefined} keys
   * @returns {Promise<Revocations | null | undefined>}
   */
  async revocations(pointer, issuer, keys) {
    if (!keys) return this.sources.has(pointer) ? null : undefined;
    return this.read(pointer, (raw) => parseRevocations(raw, issuer, keys));
  }
}

/** @param {JsonObject | string} inline */
const inlineBytes = (inline) => utf8(typeof inline === "string" ? inline : jsonText(inline));
