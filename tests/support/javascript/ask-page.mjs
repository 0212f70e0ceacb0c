// Makes in a browser the calls of a file of JSON lines, and prints an answer a line, as ask.mjs does in Node:
//   node ask-page.mjs COMMAND... FOLDER FILE
// A page on this machine loads the modules of FOLDER, makes the calls, and posts what they came to. COMMAND, and the
// page's URL behind it, opens it; it is ended with all that it started.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const [folder, file] = process.argv.slice(-2);
const [program, ...options] = process.argv.slice(2, -2);
const PAGE = `<!doctype html><title>calls</title><link rel="icon" href="data:,"><script type="module">
const post = (path, body) => fetch(path, { method: "POST", body });
try {
  const { answers } = await import("/answers.mjs");
  const calls = (await (await fetch("/calls")).text()).split("\\n").filter(Boolean);
  const said = [];
  for await (const line of answers(location.origin + "/modules", calls)) said.push(line + "\\n");
  await post("/answers", said.join(""));
} catch (error) {
  await post("/failed", String(error) + "\\n" + error.stack);
}
</script>`;

const given = (path) => {
  if (path === "/") return ["text/html", PAGE];
  if (path === "/answers.mjs") return ["text/javascript", readFileSync(new URL("answers.mjs", import.meta.url))];
  if (path === "/calls") return ["text/plain; charset=utf-8", readFileSync(file)];
  return ["text/javascript", readFileSync(folder + path.replace(/^\/modules/, ""))];
};

let browser;
const [path, text] = await new Promise((resolve, reject) => {
  const server = createServer((request, answer) => {
    if (request.method === "GET") {
      const [type, body] = given(request.url);
      return answer.writeHead(200, { "Content-Type": type }).end(body);
    }
    const parts = [];
    request.on("data", (part) => parts.push(part));
    return request.on("end", () => {
      answer.end();
      server.close();
      resolve([request.url, Buffer.concat(parts).toString()]);
    });
  });
  server.listen(0, "127.0.0.1", () => {
    const url = `http://127.0.0.1:${server.address().port}/`;
    browser = spawn(program, [...options, url], { detached: true, stdio: ["ignore", "ignore", "inherit"] });
    browser.on("error", reject);
    browser.on("exit", (code) => reject(new Error(`the browser ended: ${code}`)));
  });
});
browser.removeAllListeners("exit");
const ended = new Promise((resolve) => browser.on("exit", resolve));
process.kill(-browser.pid, "SIGTERM");
await ended;
if (path === "/failed") throw new Error(text);
process.stdout.write(text, () => process.exit());
