// A repository: where it is, in which format its refs are, and which directory a name belongs to.

import { readFileSync, statSync } from "node:fs";
import { dirname, resolve as absolute } from "node:path";
import { fileURLToPath } from "node:url";

import { isAbsent, read } from "./disk.js";
import { RefdbError } from "./error.js";
import { Files } from "./files.js";
import { isPerWorktree, worktreeOf } from "./names.js";
import { Refs } from "./refs.js";
import { Tables } from "./tables.js";
import { compare } from "./text.js";

const SMALL_MAX = 1 << 20;
const KNOWN = ["noop", "preciousobjects", "partialclone", "worktreeconfig"];
const KNOWN_IN_1 = ["noop-v1", "relativeworktrees", "submodulepathconfig", "compatobjectformat", "objectformat",
    "refstorage"];

/** The refs of a repository, as one of its worktrees sees them. */
export class Repository extends Refs {
    #stores = new Map();
    #module;

    constructor(path, module) {
        super();
        const start = absolute(path instanceof URL ? fileURLToPath(path) : String(path));
        const { gitDir, commonDir } = find(start);
        const { format, hash } = formatOf(commonDir);
        this.#module = module;
        Object.assign(this, { gitDir, commonDir, format, hash });
    }

    close() {
        for (const store of this.#stores.values()) store.close();
        this.#stores.clear();
    }

    _read(name) {
        const { dir, bare } = this.#place(name);
        const found = this.#store(dir).read(bare);
        return found === null ? null : { ...found, name };
    }

    _log(name) {
        const { dir, bare } = this.#place(name);
        return this.#store(dir).log(bare);
    }

    *_list(prefix, after) {
        const shared = this.#store(this.commonDir).list(prefix, after);
        if (this.gitDir === this.commonDir) return yield* shared;
        // Of the names that every worktree has for itself, those in the common directory are another one's.
        const others = only(shared, (name) => !isPerWorktree(name));
        const own = only(this.#store(this.gitDir).list(prefix, after), isPerWorktree);
        let [left, right] = [others.next(), own.next()];
        while (!left.done || !right.done) {
            if (right.done || (!left.done && compare(left.value.name, right.value.name) < 0)) {
                yield left.value;
                left = others.next();
            } else {
                yield right.value;
                right = own.next();
            }
        }
    }

    #place(name) {
        const { own, id, bare } = worktreeOf(name);
        if (id !== undefined) return { dir: `${this.commonDir}/worktrees/${id}`, bare };
        return { dir: own ? this.gitDir : this.commonDir, bare };
    }

    #store(dir) {
        let store = this.#stores.get(dir);
        if (store === undefined) {
            const make = { files: () => new Files(dir, this.hash), reftable: () => new Tables(dir, this.hash, this.#module) };
            store = make[this.format]();
            this.#stores.set(dir, store);
        }
        return store;
    }
}

function* only(refs, isWanted) {
    for (const ref of refs) if (isWanted(ref.name)) yield ref;
}

// Finds the repository that is at a path, or around it.
function find(start) {
    for (let dir = start; ; dir = dirname(dir)) {
        const found = at(`${dir}/.git`) ?? at(dir);
        if (found !== null) return found;
        if (dirname(dir) === dir) throw new RefdbError("repository", "not a Git repository", { path: start });
    }
}

// Returns the directories of the repository whose directory this is, or that this file names; null if none.
function at(path) {
    if (isDirectory(path)) return gitDirectory(path);
    const content = small(path);
    if (content === null) return null;
    const [, named] = /^gitdir: ([^]*?)[\r\n]*$/.exec(content) ?? [];
    const gitDir = named === undefined ? undefined : absolute(dirname(path), named);
    const found = gitDir === undefined || !isDirectory(gitDir) ? null : gitDirectory(gitDir);
    // A directory of the user's, with a file that has this name for no reason.
    if (found === null && path.endsWith("/.git")) throw new RefdbError("repository", "names no repository", { path });
    return found;
}

function gitDirectory(gitDir) {
    const head = read(gitDir, "HEAD", SMALL_MAX);
    const isHead = head?.link?.startsWith("refs/") ?? /^(ref:\s*refs\/|[0-9a-f]{40})/i.test(head?.content?.latin1Slice() ?? "");
    if (!isHead) return null;
    const named = small(`${gitDir}/commondir`)?.replace(/[\r\n]+$/, "");
    const commonDir = named === undefined ? gitDir : absolute(gitDir, named);
    const isWhole = isDirectory(`${commonDir}/objects`) && isDirectory(`${commonDir}/refs`);
    return isWhole ? { gitDir, commonDir } : null;
}

function isDirectory(path) {
    try {
        return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
    } catch (cause) {
        if (isAbsent(cause)) return false;
        throw new RefdbError("io", cause.code ?? String(cause), { path, cause });
    }
}

// Returns the content of a small file, which may be a link, as Git has it; null if there is none.
function small(path) {
    try {
        const stat = statSync(path, { throwIfNoEntry: false });
        if (stat === undefined) return null;
        if (stat.isFile() && stat.size <= SMALL_MAX) return readFileSync(path, "utf8");
    } catch (cause) {
        if (isAbsent(cause)) return null;
        throw new RefdbError("io", cause.code ?? String(cause), { path, cause });
    }
    // To take it for missing would be to read refs in another format than they have.
    throw new RefdbError("corrupt", "is no file, or one that is too long", { path });
}

// Returns the format of refs and the hash, which the configuration of a repository says.
function formatOf(commonDir) {
    const path = `${commonDir}/config`;
    const settings = parse(small(path) ?? "");
    const version = settings.find(([key]) => key === "core.repositoryformatversion");
    const answer = { format: "files", hash: "sha1" };
    if (version === undefined) return answer;
    const number = Number(settings.findLast(([key]) => key === "core.repositoryformatversion")[1]);
    const refuse = (what) => {
        throw new RefdbError("unsupported", what, { path });
    };
    if (number !== 0 && number !== 1) refuse(`the repository has the format version ${number}`);
    for (const [key, value] of settings) {
        const name = key.startsWith("extensions.") ? key.slice("extensions.".length) : undefined;
        if (name === undefined || KNOWN.includes(name)) continue;
        const isKnown = KNOWN_IN_1.includes(name);
        if (number === 0 ? isKnown : !isKnown) refuse(`the extension ${name} is not known to format version ${number}`);
        if (number === 0) continue;
        if (name === "objectformat") answer.hash = oneOf(value, ["sha1", "sha256"]) ?? refuse(`unknown hash '${value}'`);
        // Refs at another place than the repository would be behind a path that the repository says.
        if (name === "refstorage") {
            answer.format = oneOf(value, ["files", "reftable"]) ?? refuse(`unknown ref storage '${value}'`);
        }
    }
    return answer;
}

function oneOf(value, values) {
    return values.includes(value) ? value : undefined;
}

/** Reads a configuration: pairs of a key, small letters outside of the name in the middle, and a value. */
export function parse(content) {
    const settings = [];
    let section = "";
    const lines = content.replace(/^\ufeff/, "").replace(/\r\n/g, "\n").split("\n");
    for (let at = 0; at < lines.length; at++) {
        let line = lines[at].trimStart();
        const header = /^\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]/.exec(line);
        if (header !== null) {
            const middle = header[2]?.replace(/\\(.)/g, "$1");
            section = header[1].toLowerCase() + (middle === undefined ? "" : `.${middle}`);
            line = line.slice(header[0].length).trimStart();
        }
        const key = /^([a-zA-Z][\w-]*)\s*(=?)/.exec(line);
        if (key === null) continue;
        let rest = line.slice(key[0].length);
        while (/(^|[^\\])(\\\\)*\\$/.test(rest) && at + 1 < lines.length) rest = rest.slice(0, -1) + lines[++at];
        settings.push([`${section}.${key[1].toLowerCase()}`, key[2] === "" ? undefined : value(rest)]);
    }
    return settings;
}

// Returns a value without quotes, comments and the space around it.
function value(rest) {
    let [text, kept, isQuoted] = ["", 0, false];
    for (let at = 0; at < rest.length; at++) {
        const character = rest[at];
        if (character === '"') isQuoted = !isQuoted;
        else if (character === "\\") text += { n: "\n", t: "\t", b: "\b" }[rest[++at]] ?? rest[at] ?? "";
        else if (!isQuoted && (character === "#" || character === ";")) break;
        else if (text !== "" || isQuoted || !/\s/.test(character)) text += character;
        if (isQuoted || !/\s/.test(character)) kept = text.length;
    }
    return text.slice(0, kept);
}
