// refdb in Node.

import { readFileSync } from "node:fs";

import { RefdbError } from "./error.js";
import { GivenRefs } from "./given.js";
import { Repository } from "./repository.js";

export { RefdbError };

const modules = new Map();

// Returns the WebAssembly module with reflogs, or the smaller one.
function module(logs) {
    const file = logs ? "./refdb.wasm" : "./refdb-small.wasm";
    if (!modules.has(file)) {
        modules.set(file, new WebAssembly.Module(readFileSync(new URL(file, import.meta.url))));
    }
    return modules.get(file);
}

/** Opens the repository that is at a path, or around it. */
export function open(path = ".") {
    return new Repository(path, module);
}

/** Reads refs from the bytes of tables, the oldest first. */
export async function fromTables(tables, { logs = true } = {}) {
    return new GivenRefs(module(logs), tables);
}
