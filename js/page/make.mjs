// Puts the page that shows tables into one file: node make.mjs PACKAGE OUT
//
// The modules of the package become one script, and the WebAssembly module a text in it, so that the page
// needs nothing else: it can be kept, sent, and opened from a disk.

import { readFileSync, writeFileSync } from "node:fs";

const [, , from, to] = process.argv;
const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");

// A name that stands at the outside of two modules would be one: the script would not run, and its test tells.
const script = ["error.js", "text.js", "engine.js"]
    .map((name) => readFileSync(`${from}/${name}`, "utf8"))
    .concat(read("rows.js"), read("files.js"), read("app.js"))
    .map((source) => source.replace(/^import [^;]*;\n/gm, "").replace(/^export /gm, ""))
    .join("\n");
const wasm = readFileSync(`${from}/refdb.wasm`).toString("base64");
const page = read("page.html")
    .replace("/* style */", () => read("style.css"))
    .replace("/* script */", () => `const WASM = "${wasm}";\n${script}`);
writeFileSync(to, page);
