/**
 * The nodes of a YAML text: maps, lists and scalars, in block and flow style, with the place of each.
 *
 * This parser knows the YAML that people and libraries write into result files. For anything else it throws Beyond
 * instead of guessing. It resolves nothing: `resolve.js` gives plain scalars their meaning.
 */

import { FormatError } from "../errors.js";
import { block, demandPlain, plain, plainEnd, quoted, spacesAt, withoutSpaces } from "./scalars.js";

const MAX_DEPTH = 16;
const MAX_NODES = 200_000;
const MAX_KEY = 1000; // YAML's own limit is 1024 (YAML 1.2.2, 7.4)

/**
 * `start` is the position of its first character. `style` is the quote or the indicator of a block scalar, "" for plain
 * text.
 * @typedef {{kind: "scalar", start: number, text: string, style: string}} ScalarNode
 * @typedef {{kind: "map", start: number, members: [ScalarNode, Node][]}} MapNode
 * @typedef {{kind: "list", start: number, items: Node[]}} ListNode
 * @typedef {ScalarNode | MapNode | ListNode} Node
 * @typedef {import("./source.js").Source} Source
 */

/**
 * Read the one document of a text. Throws FormatError if it is empty or too large, and Beyond.
 * @param {Source} source
 * @returns {Node}
 */
export function parseNodes(source) {
  return new Parser(source).document();
}

/** One walk over the text. `#at` is the position of the next character; recursion is at most MAX_DEPTH deep. */
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
    if (!this.#isAtEnd) throw this.#beyond("a line that does not belong to the lines above it");
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

  /** Skip white space and comments; a comment may begin here. */
  #skipBlank() {
    for (;;) {
      this.#skipSpaces();
      if (this.text[this.#at] === "#") this.#skipComment();
      if (this.#sign === "\t") throw this.#beyond("a tab outside of quotes");
      if (this.#sign !== "\n") return;
      this.#at++;
    }
  }

  /** Skip white space and comments outside of flow collections, where a document marker is Beyond. */
  #skipToContent() {
    this.#skipBlank();
    const line = this.text.slice(this.#at, this.#at + 4);
    if (this.#column === 0 && /^(?:---|\.\.\.(?![^ \t\n])|%)/.test(line)) throw this.#beyond("a document marker");
  }

  /** After a value, require the line's end, or a space and a comment; then go to the next content. */
  #demandLineEnd() {
    const before = this.#at;
    this.#skipSpaces();
    const isComment = this.#sign === "#" && this.#at > before;
    if (!this.#isAtEnd && this.#sign !== "\n" && !isComment) throw this.#beyond("text after a value");
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
   * Read the content of a map or a list, one level deeper.
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
   * Read the node here, which may be a block: at the start of a line, or after the dash of an item.
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
   * Read the value after a dash or a colon: on the same line by `inLine`, or in deeper lines. A map's value may also be a
   * list whose dashes are in the column of the key.
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
   * Read a value that is not a block collection, up to the end of its line.
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
    if (this.#isDash) throw this.#beyond("a list item is not allowed here");
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

  /** Return the end of the key here, before spaces and its colon; -1 if there is no key here. */
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

  // -- flow style --

  /**
   * Read a map or a list in flow style.
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
   * Read a key in a map in flow style, with its colon.
   * @param {number} parent
   * @param {number} level
   * @returns {ScalarNode}
   */
  #flowKey(parent, level) {
    this.#skipInFlow(parent, level);
    if (/[[{]/.test(this.#sign)) throw this.#beyond("a key that is not text");
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
   * Skip white space and comments in a flow collection. Its lines must be deeper than the block around it, except for a
   * line that begins with the last closing bracket.
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
    if (this.#column < parent + Number(!isLast)) throw this.#beyond("a line that is indented too little");
    if (this.#column === 0 && /[-.%]/.test(this.#sign)) throw this.#beyond("a document marker");
  }
}

/** @type {typeof plain} */
const plainInFlow = (source, start, parent) => plain(source, start, parent, true);
