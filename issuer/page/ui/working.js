// The worker (checking.js), begun for each task and ended with it: after CHECK_MS whatever it has come to.
import { Fault } from "./fault.js";

/** @typedef {import("./checking.js").Verbs} Verbs */
/** A worker's address is code: as text it is refused where Trusted Types are, whose own kind of it is no text.
 * @typedef {{createPolicy: (name: string, rules: {createScriptURL: () => string}) => {createScriptURL: (text: string) => URL}}} TrustedTypes */

const CHECK_MS = 60_000;
const LATE = `This could not be checked in ${CHECK_MS / 1000} s: it was stopped, and nothing is known. Use the command issuer verify.`;
const ABSENT = "The verifier did not load: this page may be of an older version than its host. Load it again; nothing is known.";
const WORKER = new URL("./checking.js", import.meta.url);
const { trustedTypes } = /** @type {{trustedTypes?: TrustedTypes}} */ (globalThis);
/** The one address that may be named. */
const addresses = trustedTypes?.createPolicy("checking", { createScriptURL: () => WORKER.href });

/**
 * Have the worker do this, or end it by `signal`, whose reason it throws. Throws Fault with what the person is told.
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
