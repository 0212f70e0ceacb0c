// Makes calls to the modules of a folder, in their order, in Node and in a browser alike. A call is {module, call, args}. What
// JSON has not is an object with one member: {"$bytes": base64}, {"$big": decimal}, {"$map": pairs}, {"$float": number},
// {"$nothing": true} (undefined), {"$matches": pattern} (says whether a text does), {"$answers": pairs} (gives what belongs
// to a path), and {"$line": n} the value that line n (from 0) came to. A call of `new NAME` constructs.

/**
 * Yield for each call, written as JSON, the answer as JSON.
 * @param {string} folder its URL @param {string[]} calls
 */
export async function* answers(folder, calls) {
  const { Float } = await import(`${folder}/numbers.js`);
  const { FormatError } = await import(`${folder}/errors.js`);
  const values = [];

  // What an earlier call came to; where that threw, so does who asks.
  function came(line) {
    if (values[line] instanceof FormatError) throw values[line];
    return values[line];
  }

  const read = (value) => {
    if (Array.isArray(value)) return value.map(read);
    if (value === null || typeof value !== "object") return value;
    const [[name, held] = [], ...more] = Object.entries(value);
    if (more.length || !name?.startsWith("$"))
      return Object.fromEntries(Object.entries(value).map(([each, part]) => [each, read(part)]));
    if (name === "$bytes") return Uint8Array.from(atob(held), (sign) => sign.charCodeAt(0));
    if (name === "$big") return BigInt(held);
    if (name === "$map") return new Map(held.map(read));
    if (name === "$float") return new Float(held);
    if (name === "$answers") return async (path) => new Map(held.map(read)).get(path);
    if (name === "$line") return came(held);
    if (name === "$matches") return (text) => new RegExp(held).test(text);
    return undefined;
  };

  const write = (value) => {
    if (value === undefined) return { $nothing: true };
    if (typeof value === "bigint") return { $big: String(value) };
    if (value instanceof Uint8Array) return { $bytes: btoa(Array.from(value, (byte) => String.fromCharCode(byte)).join("")) };
    if (value instanceof Float) return { $float: value.value };
    if (value instanceof Map) return { $map: [...value].map(write) };
    if (value instanceof Set) return { $set: [...value].map(write) };
    if (Array.isArray(value)) return value.map(write);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, write(part)]));
  };

  async function answer({ module, call, args }) {
    const exported = await import(`${folder}/${module}`);
    const given = args.map(read);
    const [word, name] = call.split(" ");
    if (name) return new exported[name](...given);
    const [of, method] = word.split(".");
    return method ? given[0][method](...given.slice(1)) : exported[of](...given);
  }

  for (const each of calls) {
    let said;
    try {
      values.push(await answer(JSON.parse(each)));
      said = { value: write(values.at(-1)) };
    } catch (error) {
      values.push(error);
      if (!(error instanceof FormatError)) throw error;
      const { name, code, message, pointer, line, column } = error;
      said = { error: { name, code, message, pointer, line, column } };
    }
    yield JSON.stringify(said);
  }
}
