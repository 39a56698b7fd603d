// Reads YAML with npm's yaml: a JSON array of texts on standard input, a JSON array of their values on standard output.
//
// usage: node read.mjs 1.1|1.2|--version
//
// A value that JSON has not is shown as {"not JSON": its type and text}, a text that is refused as {"refused": the reason}.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// Node looks for packages in NODE_PATH only when they are required.
const require = createRequire(import.meta.url);
const { parse } = require("yaml");
const [version] = process.argv.slice(2);

function shown(value) {
  if (Array.isArray(value)) return value.map(shown);
  if (value instanceof Map && [...value.keys()].every((key) => typeof key === "string"))
    return Object.fromEntries([...value].map(([key, item]) => [key, shown(item)]));
  if (value === null || ["boolean", "string"].includes(typeof value)) return value;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  return { "not JSON": `${value?.constructor?.name} ${String(value)}` };
}

function read(text) {
  try {
    return shown(parse(text, { version, mapAsMap: true, logLevel: "error" }));
  } catch (error) {
    return { refused: error.message.split("\n")[0] };
  }
}

if (version === "--version") console.log(`yaml ${require("yaml/package.json").version}`);
else console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(read)));
