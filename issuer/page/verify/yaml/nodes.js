/**
 * The nodes of a YAML text: maps, lists and scalars, in blocks and in brackets, with the place of each.
 *
 * Of YAML it knows what people and libraries write into result files. What it does not know for certain it refuses to
 * guess: it throws Beyond. Nothing is resolved here: what a plain scalar means is said in `resolve.js`.
 */

import { FormatError } from "../errors.js";
import { block, demandPlain, plain, plainEnd, quoted, spacesAt, withoutSpaces } from "./scalars.js";

const MAX_DEPTH = 16;
const MAX_NODES = 200_000;
const MAX_KEY = 1000; // YAML's own limit is 1024 (YAML 1.2.2, 7.4)

/**
 * `start` is the place of its first sign. `style` is the quote or the sign of block text, "" for plain text.
 * @typedef {{kind: "scalar", start: number, text: string, style: string}} ScalarNode
 * @typedef {{kind: "map", start: number, members: [ScalarNode, Node][]}} MapNode
 * @typedef {{kind: "list", start: number, items: Node[]}} ListNode
 * @typedef {ScalarNode | MapNode | ListNode} Node
 * @typedef {import("./source.js").Source} Source
 */

/**
 * Read the one document of a text. Throws FormatError for one that is empty or too large, and Beyond.
 * @param {Source} source
 * @returns {Node}
 */
export function parseNodes(source) {
  return new Parser(source).document();
}

/** One walk over the text. `#at` is where the next sign is read; recurses no deeper than MAX_DEPTH. */
class Parser {
  #at = 0;
  #depth = 0;
  #nodes = 0;

  /** @param {Source} source */
  constructor(source) {
    this.source = source;
    this.text = source.text;
  }

  document() {
    this.#skipBlank();
    if (this.#column === 0 && /^---[ \n]/.test(this.text.slice(this.#at, this.#at + 4))) {
      this.#at += 3;
      this.#demandLineEnd();
      if (this.#isAtEnd) throw this.#beyond("a document without content");
    }
    this.#skipToContent();
    if (this.#isAtEnd) throw new FormatError("file.syntax", "the file is empty", this.source.place(this.text.length));
    const root = this.#blockNode(-1);
    if (!this.#isAtEnd) throw this.#beyond("a line that is no part of what is above it");
    return root;
  }

  // -- places --

  get #isAtEnd() {
    return this.#at >= this.text.length;
  }

  get #column() {
    return this.#at - (this.text.lastIndexOf("\n", this.#at - 1) + 1);
  }

  get #sign() {
    return this.text[this.#at] ?? "";
  }

  /** @param {string} what */
  #beyond(what) {
    return this.source.beyond(what, this.#at);
  }

  #skipSpaces() {
    this.#at += spacesAt(this.text, this.#at);
  }

  /** Go to the end of the line. */
  #skipComment() {
    const end = this.text.indexOf("\n", this.#at);
    this.#at = end < 0 ? this.text.length : end;
  }

  /** Go on to the next sign that is not white space or in a comment, from where a comment may begin. */
  #skipBlank() {
    for (;;) {
      this.#skipSpaces();
      if (this.text[this.#at] === "#") this.#skipComment();
      if (this.#sign === "\t") throw this.#beyond("a tab outside of quotes");
      if (this.#sign !== "\n") return;
      this.#at++;
    }
  }

  /** Do the same, in a document that ends with the text. */
  #skipToContent() {
    this.#skipBlank();
    const line = this.text.slice(this.#at, this.#at + 4);
    if (this.#column === 0 && /^(?:(?:---|\.\.\.)(?![^ \t\n])|%)/.test(line)) throw this.#beyond("the sign of a document");
  }

  /** Behind a value: nothing, or a comment after a space, up to the line's end. Goes on to what is next. */
  #demandLineEnd() {
    const before = this.#at;
    this.#skipSpaces();
    const isComment = this.#sign === "#" && this.#at > before;
    if (!this.#isAtEnd && this.#sign !== "\n" && !isComment) throw this.#beyond("something behind a value");
    this.#skipToContent();
  }

  // -- nodes --

  /**
   * @template {Node} T
   * @param {T} node
   * @returns {T}
   */
  #counted(node) {
    if (++this.#nodes > MAX_NODES)
      throw new FormatError("file.too_large", `more than ${MAX_NODES} values`, this.source.place(node.start));
    return node;
  }

  /**
   * Read what is in a map or a list, one level deeper.
   * @param {number} start
   * @param {() => void} read
   */
  #within(start, read) {
    if (++this.#depth > MAX_DEPTH)
      throw new FormatError("file.too_large", `nested deeper than ${MAX_DEPTH}`, this.source.place(start));
    read();
    this.#depth--;
  }

  get #isDash() {
    return this.#sign === "-" && /^[ \n]?$/.test(this.text[this.#at + 1] ?? "");
  }

  /**
   * Read the node here, which may be a block: at the beginning of a line, or behind the dash of an item.
   * @param {number} parent  the column of the collection around it
   * @returns {Node}
   */
  #blockNode(parent) {
    if (this.#isDash) return this.#list(this.#column);
    return this.#keyEnd() < 0 ? this.#value(parent) : this.#map(this.#column);
  }

  /**
   * @param {number} column
   * @returns {ListNode}
   */
  #list(column) {
    /** @type {ListNode} */
    const list = this.#counted({ kind: "list", start: this.#at, items: [] });
    this.#within(list.start, () => {
      while (this.#isDash && this.#column === column) {
        this.#at++;
        list.items.push(this.#below(column, () => this.#blockNode(column)));
      }
    });
    return list;
  }

  /**
   * @param {number} column
   * @returns {MapNode}
   */
  #map(column) {
    /** @type {MapNode} */
    const map = this.#counted({ kind: "map", start: this.#at, members: [] });
    this.#within(map.start, () => {
      while (!this.#isAtEnd && this.#column === column && !this.#isDash) {
        const key = this.#key(column);
        map.members.push([key, this.#below(column, () => this.#value(column), true)]);
      }
    });
    return map;
  }

  /**
   * Read what a dash or a colon has: on its line by `inLine`, or in deeper lines. A map's value may also be a list whose
   * dashes stand below the key.
   * @param {number} column
   * @param {() => Node} inLine
   * @param {boolean} [isMember]
   * @returns {Node}
   */
  #below(column, inLine, isMember = false) {
    const sign = this.#at;
    this.#skipSpaces();
    const isComment = this.#sign === "#" && this.#at > sign;
    if (!this.#isAtEnd && this.#sign !== "\n" && !isComment) return inLine();
    this.#skipToContent();
    if (!this.#isAtEnd && this.#column > column) return this.#blockNode(column);
    if (isMember && this.#isDash && this.#column === column) return this.#list(column);
    return this.#counted({ kind: "scalar", start: sign, text: "", style: "" });
  }

  /**
   * Read a value that is no block collection, up to the end of its line.
   * @param {number} parent
   * @returns {Node}
   */
  #value(parent) {
    const sign = this.#sign;
    if (sign === "[" || sign === "{") {
      const node = this.#flow(parent, 1);
      this.#demandLineEnd();
      return node;
    }
    if (this.#isDash) throw this.#beyond("a list item where none can stand");
    const isBlock = sign === "|" || sign === ">";
    const node = this.#scalar(isBlock ? block : undefined, parent);
    if (isBlock) this.#skipToContent();
    else this.#demandLineEnd();
    return node;
  }

  /**
   * @param {typeof plain | undefined} scan
   * @param {number} parent
   * @returns {ScalarNode}
   */
  #scalar(scan, parent) {
    const start = this.#at;
    const style = scan === block || /["']/.test(this.#sign) ? this.#sign : "";
    if (!style) demandPlain(this.source, start);
    const { text, end } = (scan ?? (style ? quoted : plain))(this.source, start, parent);
    this.#at = end;
    return this.#counted({ kind: "scalar", start, text, style });
  }

  // -- keys --

  /** Where the key here ends, before its colon and the spaces there; -1 where no key is here. */
  #keyEnd() {
    const start = this.#at;
    const isQuoted = this.#sign === '"' || this.#sign === "'";
    if (/[[{|>]/.test(this.#sign)) return -1;
    if (!isQuoted) demandPlain(this.source, start);
    const end = isQuoted ? quoted(this.source, start, -1).end : plainEnd(this.source, start, false);
    const isOneLine = !this.text.slice(start, end).includes("\n");
    const colon = end + spacesAt(this.text, end);
    return isOneLine && this.text[colon] === ":" && /^[ \n]?$/.test(this.text[colon + 1] ?? "") ? end : -1;
  }

  /**
   * Read a key and its colon.
   * @param {number} parent
   * @returns {ScalarNode}
   */
  #key(parent) {
    const end = this.#keyEnd();
    if (end < 0) throw this.#beyond("neither a key with its colon nor a list item");
    if (end - this.#at > MAX_KEY) throw this.#beyond(`a key longer than ${MAX_KEY} characters`);
    const start = this.#at;
    const style = /["']/.test(this.#sign) ? this.#sign : "";
    const text = style ? quoted(this.source, start, parent).text : withoutSpaces(this.text.slice(start, end));
    this.#at = end + spacesAt(this.text, end) + 1;
    return this.#counted({ kind: "scalar", start, text, style });
  }

  // -- brackets --

  /**
   * Read a map or a list in brackets.
   * @param {number} parent
   * @param {number} level  of brackets, from 1
   * @returns {Node}
   */
  #flow(parent, level) {
    const start = this.#at;
    const isMap = this.#sign === "{";
    /** @type {[ScalarNode, Node][]} */
    const members = [];
    /** @type {Node[]} */
    const items = [];
    this.#at++;
    const node = this.#counted(
      isMap ? { kind: /** @type {const} */ ("map"), start, members } : { kind: /** @type {const} */ ("list"), start, items },
    );
    this.#within(start, () => {
      while (!this.#closes(isMap ? "}" : "]", parent, level)) {
        if (isMap) members.push([this.#flowKey(parent, level), this.#flowNode(parent, level)]);
        else items.push(this.#flowNode(parent, level));
        this.#skipInFlow(parent, level);
        if (this.#sign === ",") this.#at++;
        else if (this.#sign !== (isMap ? "}" : "]")) throw this.#beyond("neither a comma nor a closing bracket");
      }
    });
    return node;
  }

  /**
   * @param {string} bracket
   * @param {number} parent
   * @param {number} level
   */
  #closes(bracket, parent, level) {
    this.#skipInFlow(parent, level);
    if (this.#sign !== bracket) return false;
    this.#at++;
    return true;
  }

  /**
   * @param {number} parent
   * @param {number} level
   * @returns {Node}
   */
  #flowNode(parent, level) {
    this.#skipInFlow(parent, level);
    if (this.#sign === "[" || this.#sign === "{") return this.#flow(parent, level + 1);
    return this.#scalar(/["']/.test(this.#sign) ? quoted : plainInFlow, parent);
  }

  /**
   * Read a key in a map in brackets, with its colon.
   * @param {number} parent
   * @param {number} level
   * @returns {ScalarNode}
   */
  #flowKey(parent, level) {
    this.#skipInFlow(parent, level);
    if (/[[{]/.test(this.#sign)) throw this.#beyond("a key that is no text");
    const start = this.#at;
    const key = this.#scalar(/["']/.test(this.#sign) ? quoted : plainInFlow, parent);
    if (this.#at - start > MAX_KEY || this.text.slice(start, this.#at).includes("\n"))
      throw this.source.beyond(`a key of several lines, or longer than ${MAX_KEY} characters`, start);
    this.#skipSpaces();
    if (this.#sign !== ":") throw this.#beyond("a key without a colon and a space");
    this.#at++;
    this.#skipInFlow(parent, level);
    if (/[,\]}]/.test(this.#sign)) throw this.#beyond("a key without a value");
    return key;
  }

  /**
   * Skip white space and comments between brackets. Lines there are deeper than the block around them, but for one that
   * begins with the bracket that ends it all.
   * @param {number} parent
   * @param {number} level
   */
  #skipInFlow(parent, level) {
    for (;;) {
      const before = this.#at;
      this.#skipSpaces();
      const atLineStart = this.text[before - 1] === "\n";
      if (this.text[this.#at] === "#" && (this.#at > before || atLineStart)) this.#skipComment();
      if (this.#sign === "\t") throw this.#beyond("a tab outside of quotes");
      if (this.#sign !== "\n") {
        if (atLineStart) this.#demandDeeper(parent, level);
        return;
      }
      this.#at++;
    }
  }

  /**
   * @param {number} parent
   * @param {number} level
   */
  #demandDeeper(parent, level) {
    const isLast = level === 1 && /[\]}]/.test(this.#sign);
    if (this.#column <= parent && !isLast) throw this.#beyond("a line that is indented too little");
    if (this.#column === 0 && /[-.%]/.test(this.#sign)) throw this.#beyond("a sign of a document");
  }
}

/** @type {typeof plain} */
const plainInFlow = (source, start, parent) => plain(source, start, parent, true);
