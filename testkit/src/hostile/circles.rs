//! Circles, and what has no end: whoever follows has to stop.

use std::fmt::Write as _;

use super::names::{add_table, bytes};
use super::{Kind, Made, Scene, kind};
use crate::format::RefFormat::{self, Files, Reftable};

pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = symrefs();
    kinds.extend(folders());
    kinds.extend(settings());
    kinds.extend(objects());
    kinds
}

fn symrefs() -> Vec<Kind> {
    let wants = "Whoever follows symrefs never ends.";
    vec![
        kind("circle: a symref to itself", wants, |scene| {
            symref(scene, &[("refs/heads/sym", "refs/heads/sym")])
        })
        .told(),
        kind("circle: two symrefs", wants, |scene| {
            symref(
                scene,
                &[
                    ("refs/heads/a", "refs/heads/sym"),
                    ("refs/heads/sym", "refs/heads/a"),
                ],
            )
        })
        .told(),
        kind("circle: HEAD to itself", wants, |scene| {
            symref(scene, &[("HEAD", "HEAD")])
        })
        .told(),
        kind("circle: HEAD and a symref", wants, |scene| {
            symref(
                scene,
                &[("HEAD", "refs/heads/sym"), ("refs/heads/sym", "HEAD")],
            )
        })
        .told(),
        kind(
            "circle: a long chain",
            "Every step costs a look, and there are many.",
            |scene| {
                let names: Vec<String> =
                    (0..3000).map(|at| format!("refs/heads/c{at:04}")).collect();
                let mut chain: Vec<(&str, &str)> = vec![("refs/heads/sym", &names[0])];
                // Sorted by name, as a table has to be.
                let steps = names.iter().zip(&names[1..]);
                chain.splice(0..0, steps.map(|(from, to)| (from.as_str(), to.as_str())));
                symref(scene, &chain)
            },
        ),
        kind(
            "circle: all symrefs to HEAD",
            "One update changes all of them.",
            |scene| {
                symref(
                    scene,
                    &[("refs/heads/main", "HEAD"), ("refs/heads/sym", "HEAD")],
                )
            },
        )
        .told(),
    ]
}

/// Makes symrefs, whose names are sorted, in whatever format.
fn symref(scene: &Scene, refs: &[(&str, &str)]) -> Made {
    if scene.format().refs == RefFormat::Reftable {
        let refs: Vec<_> = refs.iter().map(|&(name, to)| (name, Some(to))).collect();
        return add_table(scene, &refs, &[]);
    }
    let write = |&(name, to): &(&str, &str)| scene.write(name, format!("ref: {to}\n"));
    refs.iter().try_for_each(write)
}

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn folders() -> Vec<Kind> {
    let wants = "A walk over folders never ends.";
    vec![
        kind("circle: refs in refs", wants, |scene| {
            scene.link("refs/heads/a", "..")?;
            scene.link("refs/heads/b", "..")
        })
        .only(Files),
        kind("circle: refs in the repository", wants, |scene| {
            scene.link("refs/heads/a", "../..")?;
            scene.link("refs/heads/b", "../..")?;
            scene.link("refs/tags/c", "../..")
        })
        .only(Files),
        kind(
            "circle: folders without a circle",
            "Ten to the power of ten folders.",
            |scene| {
                for depth in 0..10 {
                    for number in 0..10 {
                        let name = format!("refs/heads/d{depth}/l{number}");
                        scene.link(&name, format!("../d{}", depth + 1))?;
                    }
                }
                let id = &scene.objects().commits[1];
                scene.write("refs/heads/d10/x", format!("{id}\n"))
            },
        )
        .only(Files),
        kind(
            "circle: one folder behind many links",
            "Millions of refs, of a few thousand files.",
            |scene| {
                let id = &scene.objects().commits[1];
                for number in 0..2000 {
                    scene.write(&format!("refs/heads/many/{number}"), format!("{id}\n"))?;
                    scene.link(&format!("refs/heads/link{number}"), "many")?;
                }
                Ok(())
            },
        )
        .only(Files),
        kind("circle: reflogs in reflogs", wants, |scene| {
            scene.link("logs/refs/heads/a", "..")?;
            scene.link("logs/refs/heads/b", "..")
        })
        .only(Files),
        kind("circle: worktrees in worktrees", wants, |scene| {
            scene.link("worktrees/a", "..")?;
            scene.link("worktrees/b", ".")
        }),
        kind("circle: a link to itself as refs", wants, |scene| {
            scene.link("refs", "refs")
        }),
        kind("circle: a link to itself as tables", wants, |scene| {
            scene.link("reftable", "reftable")
        })
        .only(Reftable)
        .told(),
        kind("circle: a link to itself as HEAD", wants, |scene| {
            scene.link("HEAD", "HEAD")
        }),
        kind("circle: commondir leads to itself", wants, |scene| {
            scene.write("commondir", ".\n")
        }),
        kind("commondir: huge", wants, |scene| {
            scene.sparse("commondir", 1 << 30)
        }),
        kind("circle: commondir of a worktree", wants, |scene| {
            scene.write("worktrees/side/commondir", "../side\n")
        })
        .seen_from("side"),
        kind("circle: commondir and back", wants, |scene| {
            scene.write("commondir", "worktrees/side\n")
        })
        .seen_from("side"),
        kind("circle: .git leads to itself", wants, |scene| {
            scene.write("../.git", "gitdir: .git\n")
        }),
        kind("circle: two gitfiles", wants, |scene| {
            scene.write("../.git", "gitdir: side/.git\n")?;
            std::fs::write(scene.thing().join("side/.git"), "gitdir: ../.git\n")
                .map_err(|error| error.to_string())
        }),
    ]
}

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn settings() -> Vec<Kind> {
    vec![
        kind(
            "circle: configuration includes itself",
            "Reading it never ends.",
            |scene| scene.configure("[include]\n\tpath = config"),
        ),
        kind(
            "circle: configuration includes itself often",
            "Ten to the power of ten.",
            |scene| scene.configure(&format!("[include]\n{}", "\tpath = config\n".repeat(10))),
        ),
        kind(
            "circle: two configurations",
            "Reading them never ends.",
            |scene| {
                scene.write("more", "[include]\n\tpath = config\n".repeat(4))?;
                scene.configure(&"[include]\n\tpath = more\n".repeat(4))
            },
        ),
        kind(
            "circle: includes without a circle",
            "Two to the power of ten files.",
            |scene| {
                for depth in 0..9 {
                    let line = format!("[include]\n\tpath = deep{}\n", depth + 1);
                    scene.write(&format!("deep{depth}"), line.repeat(8))?;
                }
                scene.configure("[include]\n\tpath = deep0")
            },
        ),
        kind(
            "no end: includes one large file often",
            "Each is read for a second, and there are many.",
            |scene| {
                scene.sparse_after(b"#", "large", 400 << 20)?;
                scene.configure(&format!("[include]\n{}", "\tpath = large\n".repeat(900)))
            },
        ),
        kind(
            "no end: patterns of includes",
            "Each star is tried at each place.",
            |scene| {
                let pattern = format!("{}{}zz", "**/".repeat(40), "*a*b*c*d*".repeat(8));
                let (dirs, letters) =
                    (["a".repeat(60).as_str(); 20].join("/"), "*a*a*a*".repeat(8));
                scene.configure(&format!(
                    "[includeIf \"gitdir:{pattern}\"]\n\tpath = more\n\
                     [includeIf \"onbranch:{pattern}\"]\n\tpath = more\n\
                     [includeIf \"onbranch:{letters}b\"]\n\tpath = more"
                ))?;
                scene.write("HEAD", format!("ref: refs/heads/{dirs}/x\n"))
            },
        ),
        kind("no end: includes a device", "All of the memory.", |scene| {
            scene.configure("[include]\n\tpath = /dev/zero")
        }),
        kind("no end: includes a FIFO", "Waits for ever.", |scene| {
            scene.fifo("more")?;
            scene.configure("[include]\n\tpath = more")
        }),
        kind("no end: includes if, a FIFO", "Waits for ever.", |scene| {
            scene.fifo("more")?;
            scene.configure("[includeIf \"gitdir:**\"]\n\tpath = more")?;
            scene.configure("[includeIf \"onbranch:**\"]\n\tpath = more")
        }),
        kind("no end: attributes of a FIFO", "Waits for ever.", |scene| {
            scene.fifo("fifo")?;
            let path = scene.git_dir().join("fifo");
            let path = path.display();
            scene.configure(&format!(
                "[mailmap]\n\tfile = {path}\n[core]\n\tattributesFile = {path}\n\
                 \texcludesFile = {path}\n[gpg \"ssh\"]\n\tallowedSignersFile = {path}"
            ))
        }),
        kind(
            "no end: mailmap is a device",
            "All of the memory.",
            |scene| scene.configure("[mailmap]\n\tfile = /dev/zero"),
        ),
        kind("no end: .mailmap is a FIFO", "Waits for ever.", |scene| {
            scene.fifo("../.mailmap")
        }),
        kind(
            "no end: .mailmap leads to a device",
            "All of the memory.",
            |scene| scene.link("../.mailmap", "/dev/zero"),
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn objects() -> Vec<Kind> {
    let wants = "A walk over the history never ends.";
    vec![
        kind("circle: replaced by each other", wants, |scene| {
            let commits = &scene.objects().commits;
            replace(
                scene,
                &[(&commits[3], &commits[9]), (&commits[9], &commits[3])],
            )
        })
        .by_hash(),
        kind("circle: replaced by a child", wants, |scene| {
            let commits = &scene.objects().commits;
            replace(scene, &[(&commits[3], &commits[9])])
        })
        .by_hash(),
        kind(
            "circle: two packs",
            "An object is a difference from one that is a difference from it, each in a pack of its own.",
            |scene| {
                scene.remove("objects/pack")?;
                let other = vec![0x22; bytes(&scene.objects().commits[1]).len()];
                let ids = scene.objects().commits.iter().map(|commit| bytes(commit));
                let mut ones: Vec<_> = ids.map(|id| (id, other.clone())).collect();
                ones.sort();
                let back = ones[0].0.clone();
                differences(scene, "1", &ones)?;
                differences(scene, "2", &[(other, back)])
            },
        )
        .by_hash(),
        kind("circle: grafts", wants, |scene| {
            let commits = &scene.objects().commits;
            let line = format!(
                "{} {}\n{} {}\n",
                commits[0], commits[9], commits[3], commits[9]
            );
            scene.write("info/grafts", line)
        })
        .by_hash(),
        kind(
            "circle: alternates name themselves",
            "Reading them never ends.",
            |scene| scene.write("objects/info/alternates", "../objects\n.\n"),
        ),
        kind(
            "circle: alternates name each other",
            "Reading them never ends.",
            |scene| {
                let (here, other) = (scene.git_dir(), scene.world().join("extra"));
                std::fs::create_dir_all(other.join("info")).map_err(|error| error.to_string())?;
                let line = format!("{}\n", here.join("objects").display());
                std::fs::write(other.join("info/alternates"), line.repeat(3))
                    .map_err(|error| error.to_string())?;
                let line = format!("{}\n", other.display());
                scene.write("objects/info/alternates", line.repeat(3))
            },
        ),
        kind(
            "no end: alternates of the home",
            "The home is taken for objects.",
            |scene| {
                let line = format!("{0}\n{0}/notes\n/dev/zero\n/\n", scene.absolute("home"));
                scene.write("objects/info/alternates", line)
            },
        ),
        kind(
            "no end: alternates by way of many links",
            "Each of them is looked for for a hundredth of a second.",
            |scene| {
                for at in 0..39 {
                    let next = match at {
                        38 => "pack".to_owned(),
                        _ => format!("way{}", at + 1),
                    };
                    let target = format!("{}{next}", "./".repeat(2000));
                    scene.link(&format!("objects/way{at}"), &target)?;
                }
                scene.write("objects/info/alternates", "way0/none\n".repeat(20_000))
            },
        ),
        kind(
            "no end: a graph of itself",
            "A chain of graphs never ends.",
            |scene| {
                let zeros = scene.format().zero();
                let mut chain = String::new();
                for _ in 0..2000 {
                    let _ = writeln!(chain, "{zeros}");
                }
                let name = format!("objects/info/commit-graphs/graph-{zeros}.graph");
                scene.link(&name, "/dev/zero")?;
                scene.write("objects/info/commit-graphs/commit-graph-chain", chain)
            },
        ),
    ]
}

/// Makes a pack of objects, sorted, each of which is a difference from another one, which is named.
fn differences(scene: &Scene, name: &str, objects: &[(Vec<u8>, Vec<u8>)]) -> Made {
    // Of a byte it makes a byte; uncompressed, and with the sum that zlib has at the end.
    const DIFFERENCE: &[u8] = &[
        0x78, 1, 1, 4, 0, 0xfb, 0xff, 1, 1, 1, b'x', 0, 0x85, 0, 0x7c,
    ];
    let count = u32::try_from(objects.len()).expect("few").to_be_bytes();
    let (mut pack, mut places) = ([b"PACK", &2_u32.to_be_bytes()[..], &count].concat(), vec![]);
    for (_, base) in objects {
        places.extend(u32::try_from(pack.len()).expect("few").to_be_bytes());
        pack.extend([&[0x74], &base[..], DIFFERENCE].concat());
    }
    let zeros = vec![0; objects[0].0.len()];
    pack.extend(&zeros);
    let mut index = [b"\xfftOc", &2_u32.to_be_bytes()[..]].concat();
    for first in 0..=u8::MAX {
        let below = objects.iter().filter(|(id, _)| id[0] <= first).count();
        index.extend(u32::try_from(below).expect("few").to_be_bytes());
    }
    index.extend(objects.iter().flat_map(|(id, _)| id));
    index.extend(vec![0; 4 * objects.len()]);
    index.extend(places);
    index.extend([&zeros[..], &zeros].concat());
    scene.write(&format!("objects/pack/pack-{name}.pack"), pack)?;
    scene.write(&format!("objects/pack/pack-{name}.idx"), index)
}

/// Has objects replaced by others, as Git reads them: by refs.
fn replace(scene: &Scene, pairs: &[(&str, &str)]) -> Made {
    for (old, new) in pairs {
        let name = format!("refs/replace/{old}");
        let update = crate::oracle::git(scene.thing()).args(["update-ref", &name, new]);
        let out = update.run();
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).into_owned());
        }
    }
    Ok(())
}
