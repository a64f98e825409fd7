// What somebody else may have made: nothing leads out of a repository, nothing hangs, damage is told.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

import { fromTables, open, RefdbError } from "refdb";

import { folder, git, inAll, make } from "./git.js";

// Everything that can be asked, as far as it goes. Returns what was found; other errors than those meant for it fail.
function askAll(refs) {
    const found = [];
    const attempt = (ask) => {
        try {
            found.push(JSON.stringify(ask()));
        } catch (error) {
            if (!(error instanceof RefdbError)) throw error;
            found.push(error);
        }
    };
    attempt(() => refs.head());
    attempt(() => [...refs.list()]);
    attempt(() => [...refs.list({ prefix: "refs/heads/dir1/", after: "refs/heads/dir1/branch5" })]);
    for (const name of ["HEAD", "refs/heads/main", "refs/tags/v1"]) {
        attempt(() => refs.resolve(name));
        attempt(() => [...refs.log(name)]);
    }
    return found;
}

const errors = (found) => found.filter((one) => one instanceof RefdbError);

// Numbers without chance, so that a failure comes again.
function* numbers(seed) {
    for (let state = seed; ; ) {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        yield state >>> 8;
    }
}

function crc32(bytes) {
    let crc = ~0;
    for (const byte of bytes) {
        crc ^= byte;
        for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
    }
    return ~crc >>> 0;
}

test("a damaged table is read or told, wherever it is damaged", async (context) => {
    const { dir } = make(context, "reftable", "sha1");
    const tables = join(dir, ".git", "reftable");
    const names = readFileSync(join(tables, "tables.list"), "utf8").trim().split("\n");
    const whole = names.map((name) => ({ name, data: new Uint8Array(readFileSync(join(tables, name))) }));
    const healthy = askAll(await fromTables(whole));
    assert.equal(errors(healthy).length, 0);
    const random = numbers(20261125);
    const next = (below) => random.next().value % below;
    let told = 0;
    let other = 0;
    for (let round = 0; round < 1500; round++) {
        const damaged = whole.map(({ name, data }) => ({ name, data: data.slice() }));
        const { data } = damaged[next(damaged.length)];
        // Sizes are damaged most, since these are what is believed.
        const footer = data.length - 68;
        const at = [() => next(data.length), () => next(64), () => footer + next(68)][next(3)]();
        for (let byte = 0; byte <= next(4); byte++) data[(at + byte) % data.length] = [0, 0xff, 0x80, next(256)][next(4)];
        if (next(2)) data.copyWithin(footer, 0, 24);
        if (next(2)) new DataView(data.buffer).setUint32(data.length - 4, crc32(data.subarray(footer, data.length - 4)));
        if (next(8) === 0) damaged[0].data = damaged[0].data.slice(0, next(damaged[0].data.length));
        let found;
        try {
            found = askAll(await fromTables(damaged));
        } catch (error) {
            if (!(error instanceof RefdbError)) throw error;
            found = [error];
        }
        for (const error of errors(found)) {
            assert.ok(["corrupt", "name"].includes(error.kind), error.stack);
            if (error.kind === "corrupt") assert.ok(error.path !== undefined || error.message.includes("hash"), error.stack);
        }
        told += errors(found).length > 0;
        other += found.some((one, index) => typeof one === "string" && one !== healthy[index]);
    }
    assert.ok(told > 300, `${told} were told`);
    context.diagnostic(`1500 damaged stacks: ${told} told, ${other} with another answer`);
});

test("a list of tables leads nowhere else", (context) => {
    const { dir } = make(context, "reftable", "sha1");
    const tables = join(dir, ".git", "reftable");
    const list = join(tables, "tables.list");
    const [first, ...rest] = readFileSync(list, "utf8").trim().split("\n");
    const outside = join(dir, "..", "outside.ref");
    cpSync(join(tables, first), outside);
    cpSync(join(tables, first), join(tables, "..", "above.ref"));
    const told = (names, kind = "corrupt", content = `${names.join("\n")}\n`) => {
        writeFileSync(list, content);
        const repository = open(dir);
        assert.throws(() => repository.head(), { name: "RefdbError", kind }, names.join());
        assert.throws(() => [...repository.list()], { kind });
        assert.throws(() => [...repository.log("HEAD")], { kind });
    };
    for (const name of ["../above.ref", "../../../outside.ref", outside, "./x.ref", ".ref", "a/../b.ref", "tables.list",
        `${first}\0`, "x.ref ", "\xff.ref", `${"x".repeat(300)}.ref`]) {
        told([name, ...rest]);
        told([first, name]);
    }
    told([first, first]);
    told([first, "0x000000000009-0x000000000009-00000000.ref"]);
    told([], "corrupt", "x".repeat(2 << 20));
    told([], "corrupt", "");
    told([], "corrupt", first);
    writeFileSync(list, "\n");
    assert.equal(open(dir).head(), null, "a stack without tables");
    assert.deepEqual([...open(dir).list()], []);
    symlinkSync(outside, join(tables, "linked.ref"));
    told(["linked.ref"], "unsafe");
    mkdirSync(join(tables, "folder.ref"));
    told(["folder.ref"]);
    execFileSync("mkfifo", [join(tables, "pipe.ref")]);
    told(["pipe.ref"]);
    rmSync(list);
    symlinkSync(outside, list);
    assert.throws(() => open(dir).head(), { kind: "unsafe" });
    rmSync(list);
    assert.throws(() => open(dir).head(), { kind: "corrupt" });
    renameSync(tables, join(dir, "..", "tables"));
    assert.throws(() => open(dir).head(), { kind: "corrupt" });
    symlinkSync(join(dir, "..", "tables"), tables);
    assert.throws(() => open(dir).head(), { kind: "unsafe" });
    rmSync(tables);
    renameSync(join(dir, "..", "tables"), tables);
    writeFileSync(list, `${[first, ...rest].join("\n")}\n`);
    assert.equal(open(dir).head().ref, "refs/heads/main");
    // Tables of another hash.
    const other = make(context, "reftable", "sha256");
    cpSync(join(other.dir, ".git", "reftable"), tables, { recursive: true });
    assert.throws(() => open(dir).head(), { kind: "corrupt" });
});

test("loose refs: links, pipes, folders, and what is no ref", (context) => {
    const { dir, one } = make(context, "files", "sha1");
    const at = (name) => join(dir, ".git", name);
    const secret = join(dir, "..", "secret");
    mkdirSync(secret);
    writeFileSync(join(secret, "ref"), `${one}\n`);
    symlinkSync(join(secret, "ref"), at("refs/heads/file"));
    const repository = open(dir);
    assert.deepEqual(repository.read("refs/heads/file"), { name: "refs/heads/file", broken: "value" });
    assert.throws(() => [...repository.list()], { kind: "unsafe" });
    rmSync(at("refs/heads/file"));
    symlinkSync(secret, at("refs/heads/folder"));
    assert.throws(() => repository.read("refs/heads/folder/ref"), { kind: "unsafe" });
    assert.throws(() => [...repository.list({ prefix: "refs/heads/f" })], { kind: "unsafe" });
    assert.ok([...repository.list({ prefix: "refs/tags/" })].length > 0, "it is in no other's way");
    rmSync(at("refs/heads/folder"));
    symlinkSync("refs/heads/main", at("refs/heads/symref"));
    assert.deepEqual(repository.read("refs/heads/symref"), { name: "refs/heads/symref", symref: "refs/heads/main" });
    execFileSync("mkfifo", [at("refs/heads/pipe")]);
    for (const [name, content] of [["empty", ""], ["short", "12345\n"], ["text", "hello"], ["more", `${one}x`], ["null", "0".repeat(40)],
        ["long", "0".repeat(2 << 20)]]) {
        writeFileSync(at(`refs/heads/${name}`), content);
    }
    writeFileSync(at("refs/heads/bad..name"), `${one}\n`);
    writeFileSync(at("refs/heads/nowhere2"), "ref: ../../../config\n");
    writeFileSync(at("refs/heads/x.lock"), `${one}\n`);
    const broken = [...repository.list()].filter((ref) => ref.broken !== undefined);
    assert.deepEqual(broken.map((ref) => `${ref.name} ${ref.broken}`).sort(), ["refs/heads/bad..name name",
        ...["empty", "long", "more", "null", "pipe", "short", "text"].map((name) => `refs/heads/${name} value`)]);
    assert.equal(repository.resolve("refs/heads/nowhere2"), null);
    assert.equal(repository.read("refs/heads/bad..name").oid, one, "it leads nowhere else, and Git reads it");
    for (const name of ["refs/heads/../../config", "../config", "/etc/passwd", "refs//heads", "", "a\0b", "HEAD/",
        "refs/heads/.", 7, null]) {
        assert.throws(() => repository.read(name), { kind: "name" }, String(name));
        assert.throws(() => repository.log(name), { kind: "name" });
    }
    assert.deepEqual(repository.read("config"), { name: "config", broken: "value" }, "one that says nothing of what is in it");
    for (const name of ["refs/heads/pipe", "refs/heads/main"]) {
        rmSync(at("packed-refs"), { force: true });
        symlinkSync(at(name), at("packed-refs"));
        assert.throws(() => [...open(dir).list()], { kind: "unsafe" });
    }
    rmSync(at("packed-refs"));
    execFileSync("mkfifo", [at("packed-refs")]);
    assert.throws(() => [...open(dir).list()], { kind: "corrupt" });
    rmSync(at("refs"), { recursive: true });
    symlinkSync(secret, at("refs"));
    rmSync(at("packed-refs"));
    assert.throws(() => open(dir).read("refs/ref"), { kind: "unsafe" });
});

inAll(test, "HEAD that is a pipe, a folder or an outside link is no repository's", (context, format, hash) => {
    const { dir } = make(context, format, hash);
    const head = join(dir, ".git", "HEAD");
    for (const put of [() => execFileSync("mkfifo", [head]), () => mkdirSync(head), () => symlinkSync("/etc/hostname", head)]) {
        rmSync(head, { recursive: true });
        put();
        assert.throws(() => open(dir), { kind: "repository" });
    }
});

inAll(test, "a configuration that cannot be read is not one that is missing", (context, format, hash) => {
    const { dir } = make(context, format, hash);
    const config = join(dir, ".git", "config");
    for (const put of [() => execFileSync("mkfifo", [config]), () => mkdirSync(config), () => writeFileSync(config, "#".repeat(2 << 20)),
        () => symlinkSync("/dev/zero", config)]) {
        rmSync(config, { recursive: true });
        put();
        assert.throws(() => open(dir), { kind: "corrupt" });
    }
});

test("packed-refs: in any order, and damaged anywhere", (context) => {
    const { dir, one } = make(context, "files", "sha1");
    git(dir, ["pack-refs", "--all"]);
    const path = join(dir, ".git", "packed-refs");
    const content = readFileSync(path, "latin1");
    const healthy = [...open(dir).list()].map((ref) => ref.name);
    const [header, ...lines] = content.trimEnd().split("\n");
    const records = [];
    for (const line of lines) line.startsWith("^") ? (records[records.length - 1] += `\n${line}`) : records.push(line);
    writeFileSync(path, `${header.replace(" sorted", "")}\n${records.reverse().join("\n")}\n`, "latin1");
    assert.deepEqual([...open(dir).list()].map((ref) => ref.name), healthy);
    assert.equal(open(dir).read("refs/heads/dir1/branch1").oid, one);
    assert.equal(open(dir).read("refs/tags/v1").peeled, one);
    const random = numbers(7);
    let told = 0;
    for (let round = 0; round < 300; round++) {
        const bytes = Buffer.from(content, "latin1");
        for (let byte = 0; byte < 3; byte++) bytes[random.next().value % bytes.length] = [10, 94, 32, random.next().value & 255][round % 4];
        writeFileSync(path, round % 10 ? bytes : bytes.subarray(0, random.next().value % bytes.length));
        told += errors(askAll(open(dir))).length > 0;
    }
    assert.ok(told > 100, `${told} were told`);
    writeFileSync(path, `${header}\n${one} refs/heads/../../config\n`);
    const bad = [...open(dir).list()].find((ref) => ref.broken === "name");
    assert.deepEqual(bad, { name: "refs/heads/../../config", broken: "name" });
});

test("tables that vanish are looked for in the list as it is then", (context) => {
    const { dir, one, two } = make(context, "reftable", "sha1");
    const repository = open(dir);
    repository.head();
    // A whole other stack in the place of the one that is known.
    const copy = mkdtempSync(join(dir, "..", "copy-"));
    git(dir, ["update-ref", "refs/heads/main", one]);
    git(dir, ["pack-refs", "--all"]);
    cpSync(join(dir, ".git", "reftable"), copy, { recursive: true });
    assert.equal(repository.head().oid, one);
    git(dir, ["update-ref", "refs/heads/main", two]);
    assert.equal(repository.head().oid, two);
    assert.ok(readdirSync(copy).length > 0);
});
