// Git's rules for names of refs.

import { RefdbError } from "./error.js";

/** Tells whether a name is well-formed; one component is enough. */
export function isWellFormed(name) {
    if (name === "@" || name.endsWith(".") || name.includes("..") || name.includes("@{")) return false;
    if (/[\x00-\x20\x7f:?*[\\^~]/.test(name)) return false;
    return name.split("/").every((part) => part !== "" && !part.startsWith(".") && !part.endsWith(".lock"));
}

/** Tells whether a name leads out of nothing: other programs may have made such a ref. */
export function isSafe(name) {
    if (!name.startsWith("refs/")) return /^[A-Z_]+$/.test(name);
    const parts = name.slice("refs/".length).split("/");
    return !name.includes("\0") && parts.every((part) => part !== "" && part !== "." && part !== "..");
}

/** Tells whether a ref of this name is ever looked for. */
export function mayExist(name) {
    return isWellFormed(name) || isSafe(name);
}

/** Throws unless a ref can have this name. */
export function check(name) {
    if (typeof name !== "string" || !mayExist(name)) {
        throw new RefdbError("name", `invalid ref format: ${String(name)}`);
    }
}

const isRootSyntax = (name) => /^[A-Z_-]+$/.test(name);

/** Tells whether a name is that of a root ref, such as HEAD. */
export function isRoot(name) {
    if (!isRootSyntax(name) || name === "FETCH_HEAD" || name === "MERGE_HEAD") return false;
    const others = ["HEAD", "AUTO_MERGE", "BISECT_EXPECTED_REV", "NOTES_MERGE_PARTIAL", "NOTES_MERGE_REF",
        "MERGE_AUTOSTASH"];
    return name.endsWith("_HEAD") || others.includes(name);
}

/** Tells whether every worktree has a ref of this name of its own. */
export function isPerWorktree(name) {
    return isRootSyntax(name) || /^refs\/(worktree|bisect|rewritten)\//.test(name);
}

/** Returns the worktree that a name speaks of, and its name there: "common", "own", or an id. */
export function worktreeOf(name) {
    if (isPerWorktree(name)) return { own: true, bare: name };
    const [, main, id, bare] = /^(?:(main-worktree)|worktrees\/([^/]+))\/(.*)$/s.exec(name) ?? [];
    if (bare === undefined || !isPerWorktree(bare)) return { bare: name };
    if (main !== undefined) return { bare };
    return id === "." || id === ".." ? { bare: name } : { id, bare };
}
