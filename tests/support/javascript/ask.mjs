// Makes in Node the calls of a file of JSON lines, and prints an answer a line:
//   node ask.mjs FOLDER FILE
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { answers } from "./answers.mjs";

const [folder, file] = process.argv.slice(2);
const calls = readFileSync(file, "utf8").split("\n").filter(Boolean);
for await (const line of answers(pathToFileURL(folder).href, calls)) process.stdout.write(`${line}\n`);
