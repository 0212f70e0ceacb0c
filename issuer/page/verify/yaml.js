/**
 * A strict reader of the YAML of result files and trust files (contract section 3).
 *
 * It reads what this project writes, and harmless variations of it, with the same value or refusal as the strict reader
 * of `issuer verify`. For anything else it throws Beyond instead of guessing. It resolves scalars as PyYAML,
 * ruamel.yaml, js-yaml and yaml agree; where they disagree, it refuses the file and says what to write.
 */

import { FormatError } from "./errors.js";
import { parseNodes } from "./yaml/nodes.js";
import { isText, resolve } from "./yaml/resolve.js";
import { Source } from "./yaml/source.js";

const DATE = /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/;
const INDEX = /^(?:0|[1-9][0-9]{0,9})$/;

/**
 * @typedef {import("./yaml/nodes.js").Node} Node
 * @typedef {import("./yaml/nodes.js").ScalarNode} ScalarNode
 * @typedef {null | boolean | string | number | import("./numbers.js").Float | Values | Members} Value
 * @typedef {Value[]} Values
 * @typedef {{[name: string]: Value}} Members
 */

/**
 * `bareDates` says for which pointers a bare ISO date is text.
 * @typedef {{bareDates?: (pointer: string) => boolean}} Options
 */

/** The content of a file: its value, and the place of every node. */
export class YamlDocument {
  #source;
  #root;

  /**
   * @param {Source} source
   * @param {Node} root
   * @param {Value} value  maps are objects without a prototype
   */
  constructor(source, root, value) {
    this.#source = source;
    this.#root = root;
    this.value = value;
  }

  /**
   * Return the place of the node at a JSON pointer, or of the nearest node around it.
   * @param {string} pointer
   */
  place(pointer) {
    let node = this.#root;
    for (const name of pointer.split("/").slice(1)) {
      const inner = within(node, name.replaceAll("~1", "/").replaceAll("~0", "~"));
      if (!inner) break;
      node = inner;
    }
    return this.#source.place(node.start);
  }
}

/**
 * @param {Node} node
 * @param {string} name
 */
function within(node, name) {
  if (node.kind === "map") return node.members.find(([key]) => key.text === name)?.[1];
  return node.kind === "list" && INDEX.test(name) ? node.items[Number(name)] : undefined;
}

/**
 * Read one YAML document of at most 1 MiB, 16 levels and 200,000 values. Throws FormatError with line and column for
 * input that the contract refuses, and Beyond for input that only `issuer verify` reads.
 * @param {Uint8Array} raw
 * @param {Options} [options]
 */
export function readYamlDocument(raw, { bareDates = () => false } = {}) {
  const source = Source.read(raw);
  const root = parseNodes(source);
  return new YamlDocument(source, root, new Walk(source, bareDates).value(root));
}

/**
 * Read the value of one YAML document, as `readYamlDocument` does.
 * @param {Uint8Array} raw
 * @param {Options} [options]
 */
export const readYaml = (raw, options) => readYamlDocument(raw, options).value;

/**
 * Say whether text is an ISO date. PyYAML fails for one that is in no calendar, such as 2026-02-30 or one of year 0.
 * @param {string} text
 */
function isDate(text) {
  if (!DATE.test(text) || text.startsWith("0000")) return false;
  const time = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(text);
}

/** One walk over the nodes, which stops at the first refusal. */
class Walk {
  /** @type {(string | number)[]} */
  #path = [];

  /**
   * @param {Source} source
   * @param {(pointer: string) => boolean} bareDates
   */
  constructor(source, bareDates) {
    this.source = source;
    this.bareDates = bareDates;
  }

  /**
   * @param {Node} node
   * @returns {Value}
   */
  value(node) {
    if (node.kind === "scalar") return this.#scalar(node, true);
    if (node.kind === "list") return node.items.map((item, index) => this.#at(index, () => this.value(item)));
    /** @type {{[name: string]: Value}} */
    const members = Object.create(null);
    for (const [key, inner] of node.members) {
      const name = this.#key(key);
      this.#at(name, () => {
        if (name in members) this.#refuse(key, "file.duplicate_key", "this key is here twice");
        members[name] = this.value(inner);
      });
    }
    return members;
  }

  /**
   * @template T
   * @param {string | number} name
   * @param {() => T} read
   */
  #at(name, read) {
    this.#path.push(name);
    const value = read();
    this.#path.pop();
    return value;
  }

  get #pointer() {
    return this.#path.map((name) => `/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
  }

  /**
   * @param {Node} node
   * @param {string} code
   * @param {string} detail
   * @returns {never}
   */
  #refuse(node, code, detail) {
    throw new FormatError(code, detail, { pointer: this.#pointer, ...this.source.place(node.start) });
  }

  /** @param {ScalarNode} key */
  #key(key) {
    if (key.text === "<<" && !key.style)
      this.#refuse(key, "file.feature", "a merge key (<<): write the members out");
    const isKey = typeof this.#scalar(key, false) === "string";
    if (!isKey) this.#refuse(key, "file.scalar", "a key must be text: put it in double quotes");
    return key.text;
  }

  /**
   * @param {ScalarNode} node
   * @param {boolean} mayBeDate
   */
  #scalar(node, mayBeDate) {
    if (node.text.includes("\0")) this.#refuse(node, "file.encoding", "a NUL character");
    if (node.style || isText(node.text)) return node.text;
    if (mayBeDate && isDate(node.text) && this.bareDates(this.#pointer)) return node.text;
    const resolved = resolve(node.text);
    if ("code" in resolved) this.#refuse(node, resolved.code, resolved.detail);
    return resolved.value;
  }
}
