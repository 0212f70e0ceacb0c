// The web worker (checking.js): it is started for each task, and ended with it or after CHECK_MS.
import { Fault } from "./fault.js";

/** @typedef {import("./checking.js").Verbs} Verbs */
/** With Trusted Types, the URL of a worker must be a TrustedScriptURL, because the URL chooses code. A string is refused.
 * @typedef {{createPolicy: (name: string, rules: {createScriptURL: () => string}) => {createScriptURL: (text: string) => URL}}} TrustedTypes */

const CHECK_MS = 60_000;
const LATE = `This could not be checked in ${CHECK_MS / 1000} s, so it was stopped without a verdict. Use the command issuer verify.`;
const ABSENT = "The verifier did not load, so there is no verdict: the host may have a newer version of this page. Load it again.";
const WORKER = new URL("./checking.js", import.meta.url);
const { trustedTypes } = /** @type {{trustedTypes?: TrustedTypes}} */ (globalThis);
/** The only URL that the policy allows. */
const addresses = trustedTypes?.createPolicy("checking", { createScriptURL: () => WORKER.href });

/**
 * Give the worker a task. After `signal`, end it and throw the signal's reason. Throws Fault with a message for the person.
 * @template {keyof Verbs} Verb
 * @param {Verb} verb @param {Verbs[Verb]["given"]} given @param {AbortSignal} signal
 * @returns {Promise<Verbs[Verb]["done"]>}
 */
export function work(verb, given, signal) {
  signal.throwIfAborted();
  const worker = new Worker(addresses?.createScriptURL("") ?? WORKER, { type: "module" });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let end;
  return new Promise((resolve, reject) => {
    end = setTimeout(() => reject(new Fault(LATE)), CHECK_MS);
    signal.addEventListener("abort", () => reject(signal.reason));
    worker.onmessage = (/** @type {MessageEvent<import("./checking.js").Answer<Verbs[Verb]["done"]>>} */ { data }) => {
      if ("fault" in data) reject(new Fault(data.fault.message, data.fault));
      else resolve(data.done);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      reject(new Fault(ABSENT));
    };
    worker.postMessage({ verb, given });
  }).finally(() => {
    clearTimeout(end);
    worker.terminate();
  });
}
