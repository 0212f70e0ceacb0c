/**
 * The errors of this verifier.
 *
 * A `FormatError` is a decision: the bytes break the rules of their format. `Beyond` is not: this reader does not know,
 * but the command `issuer verify` does.
 */

/** Bytes or a value that break the rules of their format. `code` is stable, `message` is for people. */
export class FormatError extends Error {
  /**
   * @param {string} code  of the registry that `issuer explain CODE` shows
   * @param {string} detail
   * @param {{pointer?: string, line?: number, column?: number}} [where]  a JSON pointer into the value; line and column
   *   in the text, from 1
   */
  constructor(code, detail, { pointer = "", line = 0, column = 0 } = {}) {
    super(detail);
    this.name = new.target.name;
    this.code = code;
    this.pointer = pointer;
    this.line = line;
    this.column = column;
  }

  /** Return `line:column` of the text if known, else the JSON pointer; "" for the whole. */
  get place() {
    return this.line ? `${this.line}:${this.column}` : this.pointer;
  }

  /**
   * Put `pointer` before the error's own, for a value inside another one; return the error.
   * @param {string} pointer
   */
  within(pointer) {
    this.pointer = pointer + this.pointer;
    return this;
  }
}

/** Input that only `issuer verify` can decide: neither good nor bad, but unknown. */
export class Beyond extends FormatError {
  /**
   * @param {string} what
   * @param {{pointer?: string, line?: number, column?: number}} [where]
   */
  constructor(what, where) {
    super("beyond", `${what}: use \`issuer verify\``, where);
  }
}
