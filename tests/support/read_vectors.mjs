// Holds a verifier that shares nothing with ours to tests/vectors/contract/: `node read_vectors.mjs FOLDER`. Prints how many
// answers of each kind it gave alike; the first other one ends it. It knows RFC 8785, the two digests, check 3, check 4, and
// of check 1 what an attempt is.
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const folder = process.argv[2];
const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
const counts = {};

function alike(kind, name, found, wanted) {
  if (found !== wanted) {
    console.error(`${kind}: ${name}: ${found} is not ${wanted}`);
    process.exit(1);
  }
  counts[kind] = (counts[kind] ?? 0) + 1;
}

// RFC 8785: what JavaScript writes, with members in the order of their UTF-16 code units.
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

const digest = (text) => `sha256:${createHash("sha256").update(text, "utf8").digest("hex")}`;

for (const { name, base64, canonical: wanted } of read("json.json").cases) {
  if (wanted === undefined) continue; // JSON.parse takes most of what must be refused
  alike("json", name, canonical(JSON.parse(Buffer.from(base64, "base64").toString("utf8"))), wanted);
}

const bytes = (text) => Buffer.from(text, "utf8");
const order = (one, other) =>
  Buffer.compare(bytes(one.metric_id), bytes(other.metric_id)) || Buffer.compare(bytes(one.slice ?? ""), bytes(other.slice ?? ""));

for (const { name, json, claims_digest: wanted } of read("claims.json").cases) {
  if (wanted === undefined) continue;
  const claims = JSON.parse(json);
  alike("claims", name, digest(canonical({ ...claims, metrics: claims.metrics.sort(order) })), wanted);
}

for (const { name, entries } of read("entries.json").cases) {
  for (const entry of entries ?? []) {
    alike("entries", name, canonical(JSON.parse(entry.canonical)), entry.canonical);
    alike("entries", name, digest(entry.canonical), entry.content_digest);
  }
}

// -- tokens ------------------------------------------------------------------------------------------------------------

const RUN = ["model_repo", "model_revision", "benchmark_repo", "benchmark_revision", "task_id", "metrics", "framework"];

function signatureOf(token, documents) {
  const [head, payload, signature] = token.split(".");
  const { kid } = JSON.parse(Buffer.from(head, "base64url"));
  const keys = ["keys", "archive"].flatMap((at) => JSON.parse(documents[`/issuers/0/${at}`]?.text ?? '{"keys":[]}').keys);
  const key = keys.find((each) => each.kid === kid);
  const publicKey = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: key.x }, format: "jwk" });
  return verify(null, Buffer.from(`${head}.${payload}`), publicKey, Buffer.from(signature, "base64url")) ? "pass" : "fail";
}

const textOf = (token) => Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8");

function claimsOf(token) {
  try {
    return JSON.parse(textOf(token));
  } catch {
    return null;
  }
}

const isWhole = (value) => Number.isInteger(value) && value >= 0;

function isAttempt({ attempt, iat }) {
  if (canonical(Object.keys(attempt ?? {})) !== '["number","since"]') return false;
  const { number, since } = attempt;
  return isWhole(number) && isWhole(since) && number >= 1 && number <= 64 && since <= iat + 60;
}

// Contract section 6, check 4, of a token whose signature is good.
function trusted({ iss, aud, framework, attempt }, { audience, issuers, max_attempt = 64, require = [] }) {
  const issuer = issuers.find((each) => each.issuer === iss);
  const frameworks = issuer.frameworks ?? [framework.name];
  const counted = attempt ? attempt.number <= max_attempt : !require.includes("attempt");
  return frameworks.includes(framework.name) && aud === audience && counted ? "pass" : "fail";
}

const { cases, trusts } = read("verify.json");
for (const { name, file, trust, reports } of cases) {
  const tokens = [...file.matchAll(/verify_?[tT]oken: "([^"]*)"/g)].map((found) => found[1]);
  if (tokens.length !== reports.length) continue;
  reports.forEach((report, index) => {
    if (report.token_digest) alike("token digests", name, digest(tokens[index]), report.token_digest);
    const claims = claimsOf(tokens[index]);
    if (claims && "attempt" in claims && canonical(claims) === textOf(tokens[index]))
      alike("attempts", name, isAttempt(claims) ? "pass" : "fail", report.checks[1]);
    if (!["pass", "fail"].includes(report.checks[3])) return;
    alike("signatures", name, signatureOf(tokens[index], trusts[trust].documents), report.checks[3]);
    if (report.checks[3] === "fail") return;
    const payload = claimsOf(tokens[index]);
    alike("payloads", name, canonical(payload), textOf(tokens[index]));
    alike("trusted", name, trusted(payload, trusts[trust].file), report.checks[4]);
    alike("content digests", name, payload.content_digest, report.content_digest);
    const run = Object.fromEntries(RUN.map((member) => [member, payload[member]]));
    alike("claims digests", name, digest(canonical(run)), payload.claims_digest);
  });
}
console.log(JSON.stringify(counts));
