/**
 * What this verifier says of what it cannot take.
 *
 * A `FormatError` is a decision: the bytes are not what their format demands. `Beyond` is none: this reader does not know,
 * and the command `issuer verify` does.
 */

/** Bytes or a value are not what their format demands. `code` is stable, `message` is for people. */
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

  /** Where: `line:column` of the text if that is known, else the JSON pointer; "" for the whole. */
  get place() {
    return this.line ? `${this.line}:${this.column}` : this.pointer;
  }

  /**
   * Put `pointer` before the error's own, for a value that is a part of another; returns the error itself.
   * @param {string} pointer
   */
  within(pointer) {
    this.pointer = pointer + this.pointer;
    return this;
  }
}

/** What this reader leaves to `issuer verify`: neither good nor bad, but unknown. */
export class Beyond extends FormatError {
  /**
   * @param {string} what
   * @param {{pointer?: string, line?: number, column?: number}} [where]
   */
  constructor(what, where) {
    super("beyond", `${what}: use \`issuer verify\``, where);
  }
}
