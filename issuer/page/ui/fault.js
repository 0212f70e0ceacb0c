// An error to show to the person in place of an answer. It is not a bug of the page.

export class Fault extends Error {
  /**
   * @param {string} message
   * @param {{code?: string, place?: string}} [where] the verifier's code, and the place in the file
   */
  constructor(message, { code = "", place = "" } = {}) {
    super(message);
    this.code = code;
    this.place = place;
  }
}
