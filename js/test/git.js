// Repositories by Git, which is the measure of what is read.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const FORMATS = ["files", "reftable"];
export const HASHES = ["sha1", "sha256"];

/** Runs a test in both formats and with both hashes. */
export function inAll(test, title, body) {
    for (const format of FORMATS) {
        for (const hash of HASHES) test(`${title} (${format}, ${hash})`, (context) => body(context, format, hash));
    }
}

/** Returns a folder that goes with the test. */
export function folder(context) {
    const dir = mkdtempSync(join(tmpdir(), "refdb-js-"));
    context.after(() => rmSync(dir, { recursive: true, force: true }));
    return dir;
}

/** Runs Git, and returns what it prints without the last line end. */
export function git(dir, args, input) {
    const all = ["-c", "core.fsync=none", ...args];
    const out = execFileSync("git", all, { cwd: dir, input, encoding: "latin1", maxBuffer: 1 << 30, stdio: ["pipe", "pipe", "pipe"] });
    return out.replace(/\n$/, "");
}

/** Makes a repository with a work tree: two commits, 1,100 branches, a tag, symrefs, reflogs. */
export function make(context, format, hash) {
    const dir = join(folder(context), "repo");
    git(".", ["init", "--quiet", "--initial-branch=main", `--ref-format=${format}`, `--object-format=${hash}`, dir]);
    git(dir, ["config", "core.logAllRefUpdates", "always"]);
    const tree = git(dir, ["hash-object", "-w", "-t", "tree", "/dev/null"]);
    const one = git(dir, ["commit-tree", "-m", "one", tree]);
    const two = git(dir, ["commit-tree", "-m", "two", "-p", one, tree]);
    const many = Array.from({ length: 1100 }, (_, at) => `create refs/heads/dir${at % 7}/branch${at} ${one}\n`);
    git(dir, ["update-ref", "-m", "many", "--stdin"], `create refs/heads/main ${one}\n${many.join("")}`);
    git(dir, ["tag", "-a", "-m", "tag", "v1", one]);
    git(dir, ["pack-refs", "--all"]);
    git(dir, ["update-ref", "-m", "moved\ttwice", "refs/heads/main", two]);
    git(dir, ["update-ref", "refs/heads/dir3/loose", two]);
    git(dir, ["update-ref", "-d", "refs/heads/dir4/branch11"]);
    git(dir, ["update-ref", "refs/remotes/origin/main", two]);
    git(dir, ["update-ref", "refs/heads/gr\u00fcn-\u{1f600}", one]);
    git(dir, ["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
    git(dir, ["symbolic-ref", "refs/heads/nowhere", "refs/heads/missing"]);
    return { dir, one, two };
}
