//! Something else in the place of each file and folder: FIFOs, devices, sockets, folders, files,
//! files without end, nothing.

use std::os::unix::net::UnixListener;

use super::{Kind, Made, Scene, kind};
use crate::format::RefFormat::{Files, Reftable};

/// What is read as a file. `{table}` is the newest table, `{pack}` a pack, `{index}` its index.
const FILES: &[&str] = &[
    "HEAD",
    "config",
    "config.worktree",
    "commondir",
    "packed-refs",
    "refs/heads/main",
    "refs/heads/strange",
    "ORIG_HEAD",
    "logs/HEAD",
    "logs/refs/heads/main",
    "reftable/tables.list",
    "{table}",
    "{pack}",
    "{index}",
    "objects/info/alternates",
    "objects/info/commit-graph",
    "objects/info/commit-graphs/commit-graph-chain",
    "objects/pack/multi-pack-index",
    "objects/aa/{rest}",
    "shallow",
    "info/grafts",
    "worktrees/side/gitdir",
    "worktrees/side/commondir",
    "worktrees/side/HEAD",
    "worktrees/side/locked",
    "hooks/reference-transaction",
    "index",
    "../.git",
];

/// What is a folder.
const FOLDERS: &[&str] = &[
    "refs",
    "refs/heads",
    "logs",
    "logs/refs/heads",
    "objects",
    "objects/pack",
    "objects/info",
    "worktrees",
    "worktrees/side",
    "reftable",
    "hooks",
    "info",
];

/// How long a file is of which nothing is there.
const HUGE: u64 = 8 << 30;

type Make = fn(&Scene, &str) -> Made;

/// What there is instead of a file.
const INSTEAD: &[(&str, &str, Make)] = &[
    (
        "FIFO",
        "Whoever opens it waits for ever.",
        |scene, place| scene.fifo(place),
    ),
    ("device", "Whoever reads it never ends.", |scene, place| {
        scene.device(place)
    }),
    (
        "huge",
        "Whoever reads it takes all memory.",
        |scene, place| scene.sparse(place, HUGE),
    ),
    (
        "folder",
        "Whoever replaces it removes what is in it.",
        |scene, place| scene.write(&format!("{place}/precious"), "the only copy\n"),
    ),
];

pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for &place in FILES {
        for &(what, wants, make) in INSTEAD {
            // Git waits for ever for a HEAD that is a FIFO; of any other that is no file it passes
            // over the folder, and so does refdb.
            let belongs = (what == "FIFO" && place == "HEAD").then_some("work/.git");
            let name = format!("{what}: {place}");
            let made = kind(name, wants, move |scene| {
                if place == "config.worktree" {
                    scene.configure("[extensions]\n\tworktreeConfig = true")?;
                }
                make(scene, &filled(scene, place))
            });
            let mut made = with_format(made, place);
            made.belongs = belongs;
            kinds.push(made);
        }
    }
    for &place in FOLDERS {
        let wants = "Whoever makes a folder removes the file.";
        let made = kind(format!("file: {place}"), wants, move |scene| {
            scene.write(place, "the only copy\n")
        });
        kinds.push(with_format(made, place));
        let wants = "What is missing is taken for empty.";
        let made = kind(format!("missing: {place}"), wants, move |scene| {
            scene.remove(place)
        });
        kinds.push(match place {
            "reftable" => with_format(made, place).told(),
            _ => with_format(made, place),
        });
        let wants = "Whoever opens it waits for ever.";
        let made = kind(format!("FIFO: {place}"), wants, move |scene| {
            scene.fifo(place)
        });
        kinds.push(with_format(made, place));
    }
    kinds.push(
        kind(
            "empty: reftable",
            "What is missing is taken for empty.",
            |scene| scene.folder("reftable"),
        )
        .only(Reftable)
        .told(),
    );
    kinds.push(
        kind(
            "missing: tables.list",
            "What is missing is taken for empty.",
            |scene| scene.remove("reftable/tables.list"),
        )
        .only(Reftable)
        .told(),
    );
    kinds.push(
        kind(
            "socket: a ref",
            "Whoever opens it fails in an odd way.",
            |scene| {
                let path = scene.place("refs/heads/socket");
                UnixListener::bind(path)
                    .map(drop)
                    .map_err(|error| error.to_string())
            },
        )
        .only(Files),
    );
    kinds
}

/// Leaves out what the other format does not have.
fn with_format(kind: Kind, place: &str) -> Kind {
    let only_files = ["packed-refs", "refs/heads/", "ORIG_HEAD", "logs"];
    if place.starts_with("reftable") || place == "{table}" {
        kind.only(Reftable)
    } else if only_files.iter().any(|start| place.starts_with(start)) {
        kind.only(Files)
    } else {
        kind
    }
}

fn filled(scene: &Scene, place: &str) -> String {
    match place {
        "{table}" => scene.table(),
        "{pack}" => pack(scene, "pack"),
        "{index}" => pack(scene, "idx"),
        "objects/aa/{rest}" => {
            let rest = "a".repeat(scene.format().objects.hex_len() - 2);
            format!("objects/aa/{rest}")
        }
        place => place.to_owned(),
    }
}

/// Returns the first file in the folder of packs that ends so.
fn pack(scene: &Scene, end: &str) -> String {
    let entries = std::fs::read_dir(scene.git_dir().join("objects/pack")).expect("packs");
    let names = entries.map(|entry| entry.expect("a pack").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.retain(|name| name.ends_with(end));
    names.sort();
    format!("objects/pack/{}", names.first().expect("a pack"))
}
