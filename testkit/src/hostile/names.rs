//! Names that are paths as well: in tables, in packed-refs, as files, and as what symrefs say.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use refdb::name::{FormatOptions, is_well_formed};
use reftable::{LogRecord, LogUpdate, LogValue, RefRecord, RefValue, WriteOptions, Writer};

use super::{Kind, Made, Scene, kind};
use crate::format::RefFormat::{Files, Reftable};

/// Names that no ref may have. `{out}` is the way to the world, `{world}` the world itself.
const NAMES: &[(&str, &str)] = &[
    ("..", "refs/heads/../../{out}/home/new"),
    (".. to a file", "refs/heads/../../{out}/home/.bashrc"),
    ("../ at once", "../{out}/home/new"),
    ("absolute", "{world}home/new"),
    ("absolute to a file", "{world}home/.bashrc"),
    ("configuration", "config"),
    ("hook", "hooks/reference-transaction"),
    ("pack", "objects/pack/x"),
    ("lock", "refs/heads/main.lock"),
    ("journal", "refdb.journal"),
    ("migration", "refdb-migration/journal"),
    ("worktree ..", "worktrees/../{out}/other/refs/heads/x"),
    ("line feed", "refs/heads/a\nrefs/heads/b"),
    ("two slashes", "refs//heads/x"),
    ("dot", "refs/heads/./x"),
    ("folder", "refs/heads"),
    ("NUL", "refs/heads/a\0b"),
    ("HEAD.lock", "HEAD.lock"),
];

/// What symrefs say that lead to no ref.
const TARGETS: &[(&str, &str)] = &[
    ("absolute", "{world}home/new"),
    ("absolute to a file", "{world}home/.bashrc"),
    ("..", "../..//{out}/home/new"),
    (".. below refs", "refs/heads/../../{out}/home/new"),
    (
        ".. below refs to a file",
        "refs/heads/../../{out}/home/.bashrc",
    ),
    ("configuration", "config"),
    ("lock", "refs/heads/main.lock"),
    ("folder", "refs/heads"),
    ("dots alone", ".."),
    ("hook", "hooks/reference-transaction"),
    ("nothing", ""),
];

pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    let wants = "A file is made where the name leads.";
    for &(what, name) in NAMES {
        let made = move |scene: &Scene| filled(scene, name);
        let is_bad = is_bad(name);
        kinds.push(
            kind(format!("table, ref: {what}"), wants, move |scene| {
                add_table(scene, &[(&made(scene), None)], &[])
            })
            .only(Reftable)
            .told_if(is_bad)
            .by_hash(),
        );
        kinds.push(
            kind(format!("table, reflog: {what}"), wants, move |scene| {
                add_table(scene, &[], &[&made(scene)])
            })
            .only(Reftable)
            .told_if(is_bad)
            .by_hash(),
        );
        if !name.contains('\n') {
            kinds.push(
                kind(format!("packed-refs: {what}"), wants, move |scene| {
                    let path = scene.git_dir().join("packed-refs");
                    let old = fs::read_to_string(path).map_err(|error| error.to_string())?;
                    let old = old.replace(" sorted", "");
                    let id = &scene.objects().commits[1];
                    scene.write("packed-refs", format!("{old}{id} {}\n", made(scene)))
                })
                .only(Files)
                .told_if(is_bad)
                .by_hash(),
            );
        }
    }
    let wants = "An update writes where the symref leads.";
    for &(what, target) in TARGETS {
        for symref in ["refs/heads/sym", "HEAD"] {
            let mut loose = kind(format!("{symref} leads to: {what}"), wants, move |scene| {
                scene.write(symref, format!("ref: {}\n", filled(scene, target)))
            });
            let name = format!("table, {symref} leads to: {what}");
            let mut table = kind(name, wants, move |scene| {
                add_table(scene, &[(symref, Some(&filled(scene, target)))], &[])
            });
            (loose.only, table.only) = (Some(Files), Some(Reftable));
            (loose.told, table.told) = (is_bad(target), is_bad(target));
            kinds.extend([loose, table]);
        }
    }
    kinds.extend(loose());
    kinds
}

/// Returns whether no ref can have that name: Git lets refs be outside of `refs/`, and a symref may lead
/// to one that is not there.
fn is_bad(name: &str) -> bool {
    let name = name.replace("{world}", "/world/").replace("{out}", "..");
    !is_well_formed(name.as_bytes(), FormatOptions::ONE_LEVEL)
}

/// Files below `refs` and `logs` whose names are odd.
fn loose() -> Vec<Kind> {
    let wants = "One name is read as two, or as none.";
    let mut kinds = vec![
        kind("loose: name with a line feed", wants, |scene| {
            let id = &scene.objects().commits[1];
            scene.write("refs/heads/a\nb", format!("{id}\n"))?;
            scene.write("logs/refs/heads/a\nb", "")
        })
        .told(),
        kind("loose: name with control bytes", wants, |scene| {
            let id = &scene.objects().commits[1];
            scene.write("refs/heads/\u{1b}[2J\u{7}", format!("{id}\n"))
        })
        .told(),
        kind(
            "loose: name that is no UTF-8",
            "Whoever takes names for text panics.",
            |scene| {
                let path = scene.git_dir().join("refs/heads");
                let name = std::ffi::OsStr::from_bytes(b"\xff\xfe\x80");
                let id = &scene.objects().commits[1];
                fs::write(path.join(name), format!("{id}\n")).map_err(|error| error.to_string())
            },
        ),
        kind(
            "loose: logs of what is no ref",
            "A sweep removes what is no reflog.",
            |scene| {
                scene.write("logs/refs/heads/x.lock", "the only copy\n")?;
                scene.write("logs/refs/heads/..x", "the only copy\n")?;
                scene.write("logs/precious", "the only copy\n")
            },
        ),
        kind(
            "loose: 200 folders deep",
            "A walk takes all of the stack.",
            |scene| {
                let deep = "d/".repeat(200);
                let id = &scene.objects().commits[1];
                scene.write(&format!("refs/heads/{deep}x"), format!("{id}\n"))
            },
        ),
    ];
    kinds.iter_mut().for_each(|kind| kind.only = Some(Files));
    kinds
}

fn filled(scene: &Scene, name: &str) -> String {
    let name = name.replace("{out}", scene.out());
    name.replace("{world}", &scene.absolute(""))
}

/// Adds a table to the stack with refs, each with what it says if it is a symref, and an entry of
/// each of the reflogs.
pub(super) fn add_table(scene: &Scene, refs: &[(&str, Option<&str>)], logs: &[&str]) -> Made {
    const INDEX: u64 = 0xff_ffff;
    let text = |error: reftable::Error| error.to_string();
    let objects = scene.format().objects;
    let mut options = WriteOptions::new(objects);
    (options.min_update_index, options.max_update_index) = (INDEX, INDEX);
    let id = bytes(&scene.objects().commits[1]);
    let mut table = Vec::new();
    let mut writer = Writer::new(&mut table, options).map_err(text)?;
    for (name, target) in refs {
        let value = match target {
            Some(target) => RefValue::Symref(target.as_bytes()),
            None => RefValue::Direct(&id),
        };
        let (name, update_index) = (name.as_bytes(), INDEX);
        writer
            .add_ref(RefRecord {
                name,
                update_index,
                value,
            })
            .map_err(text)?;
    }
    for name in logs {
        let (name, update_index) = (name.as_bytes(), INDEX);
        let value = LogValue::Update(LogUpdate {
            old: &vec![0; objects.raw_len()],
            new: &id,
            name: b"Mallory",
            email: b"mallory@example.org",
            time: 1_700_000_000,
            tz: 0,
            message: b"echo attacked\n",
        });
        writer
            .add_log(LogRecord {
                name,
                update_index,
                value,
            })
            .map_err(text)?;
    }
    writer.finish().map_err(text)?;
    let name = "0x000000ffffff-0x000000ffffff-0badf00d.ref";
    scene.write(&format!("reftable/{name}"), table)?;
    let list = fs::read_to_string(scene.git_dir().join("reftable/tables.list"));
    let list = list.map_err(|error| error.to_string())?;
    scene.write("reftable/tables.list", format!("{list}{name}\n"))
}

pub(super) fn bytes(id: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).expect("a digit");
    (0..id.len()).step_by(2).map(digits).collect()
}
