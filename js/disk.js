// Files of a repository, which somebody else may have made: no link is followed below its directories,
// nothing but a file is read, and none without end.

import { closeSync, constants, fstatSync, lstatSync, openSync, readdirSync, readlinkSync, readSync } from "node:fs";

import { RefdbError } from "./error.js";
import { fromBytes, isAscii, toBytes } from "./text.js";

const FLAGS = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
const ABSENT = new Set(["ENOENT", "ENOTDIR", "ENAMETOOLONG"]);

/** Tells whether an error of the system says that there is no such file. */
export function isAbsent(error) {
    return ABSENT.has(error?.code);
}

/** Returns a path for the system: a string, or bytes where a string would not be the same. */
export function join(dir, name) {
    return isAscii(name) ? `${dir}/${name}` : Buffer.concat([Buffer.from(`${dir}/`), toBytes(name)]);
}

/** Fails if what leads to `name` below `dir` is not made of directories alone. */
function checkParents(dir, name) {
    for (let at = name.indexOf("/"); at >= 0; at = name.indexOf("/", at + 1)) {
        const path = join(dir, name.slice(0, at));
        if (lstatSync(path).isSymbolicLink()) throw leadsOut(dir, name.slice(0, at));
    }
}

function leadsOut(dir, name) {
    return new RefdbError("unsafe", "is a link, which is not followed", { path: `${dir}/${name}` });
}

/**
 * Reads a file below a directory. Returns null if there is none, `{ link }` for a link, `{ odd: true }` for what
 * is neither, or is longer than `max`, and else `{ content, stat }`.
 */
export function read(dir, name, max) {
    const path = join(dir, name);
    let file;
    try {
        checkParents(dir, name);
        file = openSync(path, FLAGS);
    } catch (error) {
        if (isAbsent(error)) return null;
        if (error.code === "ELOOP" || error.code === "EMLINK") return { link: linkText(path) };
        // A socket, or a device without anything behind it.
        if (error.code === "ENXIO") return { odd: true };
        throw failed(error, dir, name);
    }
    try {
        const stat = fstatSync(file, { bigint: true });
        if (stat.isDirectory()) return null;
        if (!stat.isFile() || stat.size > BigInt(max)) return { odd: true };
        return { content: readAll(file, Number(stat.size)), stat };
    } catch (error) {
        throw failed(error, dir, name);
    } finally {
        closeSync(file);
    }
}

function readAll(file, len) {
    const content = Buffer.allocUnsafe(len);
    let at = 0;
    while (at < len) {
        const more = readSync(file, content, at, len - at, at);
        if (more === 0) break;
        at += more;
    }
    return content.subarray(0, at);
}

function linkText(path) {
    return fromBytes(readlinkSync(path, { encoding: "buffer" }));
}

/** Describes a file below a directory, without following a link; null if there is none. */
export function stat(dir, name) {
    try {
        return lstatSync(join(dir, name), { bigint: true });
    } catch (error) {
        if (isAbsent(error)) return null;
        throw failed(error, dir, name);
    }
}

/** Returns what is in a directory, with the kind of each; nothing if there is none. */
export function entries(dir, name) {
    try {
        checkParents(dir, `${name}/`);
        const found = readdirSync(join(dir, name), { withFileTypes: true, encoding: "buffer" });
        return found.map((entry) => ({
            name: fromBytes(entry.name),
            isDirectory: entry.isDirectory(),
            isLink: entry.isSymbolicLink(),
        }));
    } catch (error) {
        if (isAbsent(error)) return [];
        throw failed(error, dir, name);
    }
}

function failed(error, dir, name) {
    if (error instanceof RefdbError) return error;
    return new RefdbError("io", error.code ?? String(error), { path: `${dir}/${name}`, cause: error });
}
