// The page "Why was I refused?": it explains a pasted answer, and asks this issuer's endpoint for explanations.
import { byId, code, el, note, onDrop, said, show } from "./dom.js";
import { readBounded } from "./fetching.js";
import { drawAnswer, findObject } from "./problem.js";

const MOST_BYTES = 256 * 1024;
const MOST_BODY = 64 * 1024; // the issuer's own limit (POST /tokens)
const MOST_ANSWER = 1024 * 1024;
const WAIT_MS = 30_000;
const BEARER = /^[A-Za-z0-9._~+/-]{1,16384}=*$/; // RFC 6750 2.1

const EXAMPLE = {
  type: `${location.origin}/errors/identity.claim_mismatch`,
  title: "A claim of the identity token does not match.",
  status: 403,
  detail: "ref is refs/heads/fork. Run the job from where the registration says, or ask the operator to change it.",
  instance: "urn:uuid:00000000-0000-4000-8000-000000000000",
  code: "identity.claim_mismatch",
  retryable: false,
  request_id: "00000000-0000-4000-8000-000000000000",
  errors: [],
  checks: [
    { code: "identity.claim_mismatch", pointer: "", rule: "identities[0].require.ref", passed: false,
      actual: "refs/heads/fork", expected: "refs/heads/main", hint: "Run the job on refs/heads/main." },
    { code: "identity.event_forbidden", pointer: "", rule: "identities[0].events", passed: true,
      actual: "push", expected: "", hint: "" },
    { code: "policy.framework", pointer: "/claims/framework/name", rule: "grants.frameworks", passed: true,
      actual: "inspect-ai", expected: "", hint: "" },
  ],
};

const problem = () => byId("problem", HTMLTextAreaElement);
const credentialField = () => byId("credential", HTMLTextAreaElement);

let asking = new AbortController();

/** @param {string} text */
function showPasted(text) {
  const place = byId("answer");
  if (!text.trim()) return show(place, note("", el("p", "Paste an answer first.")));
  if (text.length > MOST_BYTES) return show(place, note("bad", el("p", `More than ${MOST_BYTES / 1024} KiB: this is not an issuer's answer.`)));
  const found = findObject(text);
  if (found === null) {
    return show(place, note("bad", el("p", "There is no JSON object in this text. The answer begins with "), code("{"), el("p", "In a CI's log it follows the request; copy all of it, to the last brace.")));
  }
  return show(place, ...drawAnswer(found, { isPasted: true }));
}

/** @param {File[]} files */
async function takeFile([file, ...others]) {
  const place = byId("answer");
  if (others.length) return show(place, note("bad", el("p", `${others.length + 1} files. One answer is read at a time.`)));
  if (file.size > MOST_BYTES) return show(place, note("bad", el("p", said(file.name), ` has ${file.size.toLocaleString()} bytes, and at most ${MOST_BYTES.toLocaleString()} are read.`)));
  const text = await file.text().catch(() => null);
  if (text === null) return show(place, note("bad", el("p", said(file.name), " cannot be read: it is a folder, or is no longer there.")));
  problem().value = text;
  return showPasted(text);
}

async function ask() {
  const place = byId("explained");
  const send = byId("send", HTMLButtonElement);
  const credential = credentialField().value.trim().replace(/^Bearer\s+/i, "");
  const body = byId("body", HTMLTextAreaElement).value.trim() || "{}";
  if (!BEARER.test(credential)) return show(place, note("bad", el("p", credential ? "This is not a bearer credential: it has characters that a credential cannot have." : "Paste a credential first.")));
  if (new Blob([body]).size > MOST_BODY) return show(place, note("bad", el("p", `The request has more than ${MOST_BODY / 1024} KiB.`)));
  forgetAnswer();
  const { signal } = asking;
  send.disabled = true;
  show(place, el("p.busy", `Asking ${location.origin} …`));
  try {
    const answered = await fetch(new URL("../tokens/explain", document.baseURI), {
      method: "POST", body, headers: { "Content-Type": "application/json", Authorization: `Bearer ${credential}` },
      credentials: "omit", redirect: "error", cache: "no-store", referrerPolicy: "no-referrer", signal: AbortSignal.any([signal, AbortSignal.timeout(WAIT_MS)]),
    });
    const found = findObject(new TextDecoder().decode(await readBounded(answered, MOST_ANSWER)));
    return show(place, ...(found ? drawAnswer(found, { isPasted: false }) : [note("bad", el("p", `The issuer answered ${answered.status}, without JSON.`))]));
  } catch (error) {
    if (signal.aborted) return undefined;
    const late = error instanceof DOMException && error.name === "TimeoutError";
    return show(place, note("open", el("p", late ? `No answer in ${WAIT_MS / 1000} s. Nothing was decided: ask again.` : "The issuer could not be reached. Nothing was decided: ask again.")));
  } finally {
    send.disabled = false;
  }
}

/** Remove the answer, which belongs to other input, and end a request in progress. */
function forgetAnswer() {
  asking.abort();
  asking = new AbortController();
  show(byId("explained"));
}

function forget() {
  credentialField().value = "";
  forgetAnswer();
}

byId("origin").textContent = location.origin;
byId("paste").addEventListener("submit", (event) => {
  event.preventDefault();
  showPasted(problem().value);
});
byId("example").addEventListener("click", () => {
  problem().value = JSON.stringify(EXAMPLE, null, 2);
  showPasted(problem().value);
});
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  void ask();
});
byId("paste").addEventListener("input", () => show(byId("answer")));
byId("ask").addEventListener("input", forgetAnswer);
byId("forget").addEventListener("click", forget);
addEventListener("pagehide", forget); // a browser may keep the page for "back", but not with the credential
onDrop(byId("paste"), takeFile);
byId("late").remove();
