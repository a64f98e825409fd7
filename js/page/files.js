// The files that were dropped or chosen, and which of them are the tables of a stack, oldest first.

// Nobody waits for the folder of all his files.
const FILES_MAX = 20000;
// Nor for leave to read a folder that nobody gives.
const HANDLE_MS = 2000;

/** Returns the files of a drop, folders opened: `{ path, file }`. */
async function filesOfDrop(transfer) {
    // All of them at once: afterwards the drop is over.
    const items = [...transfer.items].filter((item) => item.kind === "file").map((item) => ({
        file: item.getAsFile(),
        entry: item.webkitGetAsEntry?.(),
        handle: item.getAsFileSystemHandle?.().catch(() => undefined),
    }));
    const found = [];
    for (const { file, entry, handle } of items) {
        if (!entry?.isDirectory) {
            found.push({ path: file.name, file });
            continue;
        }
        const before = found.length;
        try {
            await openEntry(entry, found);
        } catch (error) {
            // A page that lies on a disk may not read what is in an entry, but perhaps by a handle.
            found.length = before;
            const late = new Promise((done) => setTimeout(done, HANDLE_MS));
            const folder = await Promise.race([handle, late]);
            if (folder === undefined) throw error;
            await openHandle(folder, entry.name, found);
        }
    }
    return found;
}

async function openHandle(folder, path, found) {
    for await (const handle of folder.values()) {
        if (found.length >= FILES_MAX) return;
        const below = `${path}/${handle.name}`;
        if (handle.kind === "file") found.push({ path: below, file: await handle.getFile() });
        else if (handle.name !== "objects") await openHandle(handle, below, found);
    }
}

async function openEntry(folder, found) {
    const reader = folder.createReader();
    for (;;) {
        const some = await new Promise((done, failed) => reader.readEntries(done, failed));
        if (some.length === 0 || found.length >= FILES_MAX) return;
        for (const entry of some) {
            const path = entry.fullPath.replace(/^\//, "");
            if (entry.isFile) found.push({ path, file: await new Promise((done, failed) => entry.file(done, failed)) });
            else if (entry.name !== "objects") await openEntry(entry, found);
        }
    }
}

/** Returns the files of an input. */
function filesOfInput(input) {
    return [...input.files].slice(0, FILES_MAX).map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

/** Returns the tables, oldest first, and what is wrong with the choice. */
async function stackOf(files) {
    const folderOf = (path) => path.slice(0, path.lastIndexOf("/") + 1);
    const lists = files.filter(({ path }) => /(^|\/)tables\.list$/.test(path)).sort((a, b) => a.path.length - b.path.length);
    const problems = [];
    if (lists.length === 0) {
        const tables = files.filter(({ path }) => /\.(ref|log)$/i.test(path));
        const chosen = tables.length > 0 ? tables : files;
        // Their names begin with the numbers of their transactions.
        chosen.sort((a, b) => (a.path < b.path ? -1 : 1));
        if (chosen.length > 1) problems.push("There is no tables.list: the tables are in the order of their names.");
        return { tables: chosen, problems };
    }
    const folder = folderOf(lists[0].path);
    if (lists.length > 1) problems.push(`There are ${lists.length} stacks; this is ${folder || "the first one"}.`);
    const text = await lists[0].file.slice(0, 1 << 20).text();
    const tables = [];
    for (const name of text.split("\n").filter((name) => name !== "")) {
        const table = name.includes("/") ? undefined : files.find(({ path }) => path === folder + name);
        if (table === undefined) problems.push(`tables.list names ${visible(name)}, which is missing.`);
        else tables.push(table);
    }
    return { tables, problems };
}
