// Repositories beside Git.

import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { pathToFileURL } from "node:url";

import { fromTables, open } from "refdb";

import { folder, git, inAll, make } from "./git.js";

const utf8 = (text) => Buffer.from(text, "latin1").toString("utf8");

/** What Git lists, in the words of this package. */
function listed(dir, ...patterns) {
    const format = "%(refname) %(objectname) %(*objectname) %(symref)";
    const lines = git(dir, ["for-each-ref", "--include-root-refs", `--format=${format}`, ...patterns]);
    return lines === "" ? [] : utf8(lines).split("\n");
}

function shown(refs, repository) {
    return Array.from(refs, (ref) => {
        const end = repository.resolve(ref.name);
        const peeled = ref.symref === undefined ? (ref.peeled ?? "") : (end?.peeled ?? "");
        return end === null ? undefined : `${ref.name} ${end.oid} ${peeled} ${ref.symref ?? ""}`;
    }).filter((line) => line !== undefined);
}

inAll(test, "lists, reads and resolves what Git does", (context, format, hash) => {
    const { dir, one, two } = make(context, format, hash);
    const repository = open(dir);
    assert.equal(repository.format, format);
    assert.equal(repository.hash, hash);
    assert.equal(repository.gitDir, join(dir, ".git"));
    // A tag that is loose does not say what it leads to.
    git(dir, ["pack-refs", "--all"]);
    assert.deepEqual(shown(repository.list(), repository), listed(dir));
    const heads = Array.from(repository.list({ prefix: "refs/heads/dir3/" }), (ref) => ref.name);
    assert.deepEqual(heads, git(dir, ["for-each-ref", "--format=%(refname)", "refs/heads/dir3/"]).split("\n"));
    assert.equal(heads.length, 158);
    const after = repository.list({ prefix: "refs/heads/dir3/", after: heads[100] });
    assert.deepEqual(Array.from(after, (ref) => ref.name), heads.slice(101));
    for (const after of ["refs/heads/dir3/loose", "refs/heads/dir3/loosf", "refs/z", "refs/heads/dir4"]) {
        assert.deepEqual(Array.from(repository.list({ prefix: "refs/heads/dir3/", after })), []);
    }
    assert.equal([...repository.list({ prefix: "refs/heads/dir3/", after: "HEAD" })].length, 158);
    assert.deepEqual([...repository.list({ prefix: "refs/nothing" })], []);
    const names = Array.from(repository.list({ prefix: "refs/heads/m" }), (ref) => ref.name);
    assert.deepEqual(names, ["refs/heads/main"]);

    assert.deepEqual(repository.read("refs/heads/main"), { name: "refs/heads/main", oid: two });
    assert.equal(repository.read("refs/tags/v1").peeled, one);
    assert.deepEqual(repository.read("HEAD"), { name: "HEAD", symref: "refs/heads/main" });
    assert.equal(repository.resolve("HEAD").oid, two);
    assert.equal(repository.resolve("HEAD").name, "refs/heads/main");
    assert.equal(repository.resolve("refs/heads/nowhere"), null);
    assert.equal(repository.resolve("refs/heads/gr\u00fcn-\u{1f600}").oid, one);
    for (const name of ["refs/heads/missing", "refs/heads", "refs/heads/dir3", "refs/heads/dir4/branch11", "ORIG_HEAD"]) {
        assert.equal(repository.read(name), null, name);
    }
    repository.close();
    assert.equal(repository.resolve("HEAD").oid, two, "a closed one can be asked again");
});

inAll(test, "HEAD: a branch, none yet, an object", (context, format, hash) => {
    const { dir, one, two } = make(context, format, hash);
    const repository = open(pathToFileURL(dir));
    assert.deepEqual(repository.head(), { ref: "refs/heads/main", oid: two });
    git(dir, ["symbolic-ref", "HEAD", "refs/heads/unborn"]);
    assert.deepEqual(repository.head(), { ref: "refs/heads/unborn", oid: null });
    git(dir, ["update-ref", "--no-deref", "HEAD", one]);
    assert.deepEqual(repository.head(), { ref: null, oid: one });
});

inAll(test, "a chain of four symrefs ends, one of five does not", (context, format, hash) => {
    const { dir, one } = make(context, format, hash);
    git(dir, ["update-ref", "refs/chain/0", one]);
    for (let at = 1; at <= 5; at++) git(dir, ["symbolic-ref", `refs/chain/${at}`, `refs/chain/${at - 1}`]);
    const repository = open(dir);
    assert.equal(repository.resolve("refs/chain/4").oid, one);
    assert.equal(repository.resolve("refs/chain/5"), null);
    git(dir, ["symbolic-ref", "refs/chain/0", "refs/chain/4"]);
    assert.equal(repository.resolve("refs/chain/2"), null);
});

inAll(test, "reflogs are those of Git", (context, format, hash) => {
    const { dir, one, two } = make(context, format, hash);
    git(dir, ["update-ref", "-m", "a: \u00fc < > \t.", "refs/heads/main", one, two]);
    const repository = open(dir);
    for (const name of ["refs/heads/main", "HEAD", "refs/heads/dir3/loose", "refs/heads/dir1/branch1"]) {
        const args = ["reflog", "show", "--date=raw", "--format=%H%x00%gn%x00%ge%x00%gD%x00%gs", name];
        const wanted = utf8(git(dir, args)).split("\n");
        const found = Array.from(repository.log(name), (entry) =>
            [entry.new, entry.name, entry.email, `${name}@{${entry.time} ${entry.zone}}`, entry.message].join("\0"));
        assert.deepEqual(found, wanted, name);
    }
    assert.ok([...repository.log("refs/heads/main")].length > 1);
    assert.match([...repository.log("refs/heads/main")].at(-1).old, /^0+$/);
    assert.deepEqual([...repository.log("refs/heads/missing")], []);
});

inAll(test, "what others write is seen, merged tables and packed refs too", (context, format, hash) => {
    const { dir, one, two } = make(context, format, hash);
    const repository = open(dir);
    const slow = repository.list({ prefix: "refs/heads/dir" });
    slow.next();
    for (let round = 0; round < 12; round++) {
        const name = `refs/heads/new${round}`;
        git(dir, ["update-ref", name, round % 2 ? one : two]);
        if (round % 5 === 4) git(dir, ["pack-refs", "--all", "--prune"]);
        assert.equal(repository.read(name).oid, round % 2 ? one : two);
        git(dir, ["update-ref", "-d", name]);
        assert.equal(repository.read(name), null);
    }
    assert.equal([...slow].length, 1099, "a listing goes on");
    assert.deepEqual(shown(repository.list(), repository).length, listed(dir).length);
});

inAll(test, "worktrees have their own HEAD and refs", (context, format, hash) => {
    const { dir, one, two } = make(context, format, hash);
    const other = join(dir, "..", "other");
    git(dir, ["worktree", "add", "--quiet", "--no-checkout", "-b", "topic", other, one]);
    git(other, ["update-ref", "refs/bisect/bad", two]);
    git(dir, ["update-ref", "refs/bisect/bad", one]);
    git(dir, ["update-ref", "refs/worktree/only", one]);
    mkdirSync(join(other, "deep", "below"), { recursive: true });
    const linked = open(join(other, "deep", "below"));
    assert.deepEqual(linked.head(), { ref: "refs/heads/topic", oid: one });
    assert.equal(linked.read("refs/bisect/bad").oid, two);
    assert.equal(linked.read("refs/worktree/only"), null);
    assert.equal(linked.read("main-worktree/refs/bisect/bad").oid, one);
    assert.equal(linked.read("refs/heads/main").oid, two);
    assert.deepEqual(shown(linked.list(), linked).map((line) => line.split(" ")[0]), listed(other).map((line) => line.split(" ")[0]));
    const main = open(dir);
    assert.deepEqual(main.head(), { ref: "refs/heads/main", oid: two });
    assert.equal(main.read("refs/bisect/bad").oid, one);
    assert.equal(main.read("worktrees/other/refs/bisect/bad").oid, two);
    assert.equal(main.resolve("worktrees/other/HEAD").oid, one);
    assert.equal([...linked.log("HEAD")].length, [...main.log("worktrees/other/HEAD")].length);
});

inAll(test, "bare repositories, and names that are no UTF-8", (context, format, hash) => {
    const { dir, one } = make(context, format, hash);
    const bare = join(dir, "..", "bare.git");
    git(dir, ["clone", "--quiet", "--bare", `--ref-format=${format}`, dir, bare]);
    const raw = Buffer.from("refs/heads/\xff-\xc3\xbc-\xed\xb2\x80-\xf0", "latin1");
    git(bare, ["update-ref", "--stdin"], Buffer.concat([Buffer.from("create "), raw, Buffer.from(` ${one}\n`)]));
    const repository = open(bare);
    const name = [...repository.list({ prefix: "refs/heads/\udcff" })].map((ref) => ref.name);
    assert.deepEqual(name, ["refs/heads/\udcff-\u00fc-\udced\udcb2\udc80-\udcf0"]);
    assert.equal(repository.read(name[0]).oid, one);
    const order = Array.from(repository.list(), (ref) => ref.name);
    const wanted = git(bare, ["for-each-ref", "--format=%(refname)"]).split("\n");
    assert.equal(order.filter((ref) => ref.startsWith("refs/")).length, wanted.length);
    assert.equal(wanted.at(wanted.findIndex((ref) => ref.includes("\xff"))), raw.latin1Slice());
    assert.throws(() => repository.read("refs/heads/\ud800"), { kind: "name" });
});

test("tables that are given as bytes", async (context) => {
    for (const hash of ["sha1", "sha256"]) {
        const { dir, two } = make(context, "reftable", hash);
        git(dir, ["update-ref", "refs/heads/last", two]);
        const tables = join(dir, ".git", "reftable");
        const names = readFileSync(join(tables, "tables.list"), "utf8").trim().split("\n");
        assert.ok(names.length > 1);
        const data = names.map((name) => ({ name, data: readFileSync(join(tables, name)) }));
        for (const logs of [true, false]) {
            const refs = await fromTables(data, { logs });
            assert.deepEqual(refs.head(), { ref: "refs/heads/main", oid: two });
            assert.deepEqual([...refs.list()], [...open(dir).list()]);
            if (logs) assert.deepEqual([...refs.log("HEAD")], [...open(dir).log("HEAD")]);
            else assert.throws(() => [...refs.log("HEAD")], { kind: "unsupported" });
        }
        const bytes = new Uint8Array(data[0].data);
        assert.ok([...(await fromTables([bytes.buffer])).list()].length > 0);
    }
    await assert.rejects(fromTables([new Uint8Array(3)]), { kind: "corrupt", path: "table 0", offset: 0 });
    await assert.rejects(fromTables(["REFT"]), TypeError);
    assert.equal((await fromTables([])).head(), null);
});

test("what is no repository, and what is not understood", (context) => {
    const dir = folder(context);
    assert.throws(() => open(join(dir, "missing")), { name: "RefdbError", kind: "repository" });
    git(dir, ["init", "--quiet", "--ref-format=reftable", "repo"]);
    const config = join(dir, "repo", ".git", "config");
    copyFileSync(config, `${config}.whole`);
    const whole = readFileSync(config, "utf8");
    for (const [from, to] of [
        ["repositoryformatversion = 1", "repositoryformatversion = 2"],
        ["repositoryformatversion = 1", "repositoryformatversion = 0"],
        ["repositoryformatversion = 1", "repositoryformatversion = one"],
        ["refstorage = reftable", "refstorage = other"],
        ["refstorage = reftable", "refstorage = reftable:///etc"],
        ["refstorage = reftable", "refstorage = reftable\n\tunheardof"],
    ]) {
        const text = whole.replace(new RegExp(from, "i"), to);
        assert.notEqual(text, whole, from);
        writeFileSync(config, text);
        assert.throws(() => open(join(dir, "repo")), { kind: "unsupported" }, to);
    }
    for (const text of [
        whole.replace(/refstorage = reftable/i, '[core "x"]\n\tnone\n[EXTENSIONS] refStorage="ref"table ; so'),
        whole.replace(/refstorage = reftable/i, "refstorage = ref\\\ntable # so"),
    ]) {
        writeFileSync(config, text);
        assert.equal(git(join(dir, "repo"), ["rev-parse", "--show-ref-format"]), "reftable");
        assert.equal(open(join(dir, "repo")).format, "reftable");
    }
    assert.ok(readdirSync(dir).includes("repo"));
});
