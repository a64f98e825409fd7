// refdb where there are no files.

import { RefdbError } from "./error.js";
import { GivenRefs } from "./given.js";

export { RefdbError };

const modules = new Map();

/** Reads refs from the bytes of tables, the oldest first. */
export async function fromTables(tables, { logs = true } = {}) {
    const file = logs ? "./refdb.wasm" : "./refdb-small.wasm";
    if (!modules.has(file)) modules.set(file, load(file));
    try {
        return new GivenRefs(await modules.get(file), tables);
    } catch (error) {
        if (!(error instanceof RefdbError)) modules.delete(file);
        throw error;
    }
}

async function load(file) {
    // Written out, so that whatever puts packages together finds the files.
    const url = file === "./refdb.wasm" ? new URL("./refdb.wasm", import.meta.url)
        : new URL("./refdb-small.wasm", import.meta.url);
    const response = await fetch(url);
    if (!response.ok) throw new Error(`${url}: ${response.status}`);
    return WebAssembly.compile(await response.arrayBuffer());
}

/** There are no repositories without files. */
export function open() {
    throw new RefdbError("unsupported", "there are no files here: fromTables takes tables as bytes");
}
