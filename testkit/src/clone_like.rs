//! A repository like a clone from a hosting service: many refs with nested names.
//!
//! 1. Git itself makes it: with `update-ref --stdin` in a stack, and `packed-refs` with
//!    `git clone` from there, which takes a tenth of the time of making the refs one by one.
//! 2. The same formats and number of refs give the same refs, values and reflogs everywhere.
//! 3. It is made once and copied, so that each test may write to its own.
//!
//! ```
//! use refdb_testkit::{clone_like::clone_like, Format};
//!
//! let clone = clone_like(Format::REFTABLE_SHA1, 1000);
//! assert_eq!(clone.refs.len(), 1000);
//! // The symrefs HEAD and refs/remotes/origin/HEAD come on top.
//! assert_eq!(clone.repo.refs().len(), 1002);
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use crate::cache;
use crate::format::{Format, RefFormat};
use crate::objects::Objects;
use crate::repo::Repo;
use crate::rng::Rng;

/// The number of refs of the usual clone: one that a hosting service would call large.
pub const LARGE: usize = 100_000;

/// Annotated tags, but never more than one ref in five.
const ANNOTATED: usize = 2000;
/// The seed of all names and values.
const SEED: u64 = 0x5eed;
/// One branch of so many has moved since the clone, and so has a reflog and a loose ref.
const BRANCHES_PER_MOVED: usize = 100;

/// A repository with many refs.
#[derive(Debug)]
pub struct CloneLike {
    /// The repository, for one test alone.
    pub repo: Repo,
    /// The objects that the refs point at.
    pub objects: Objects,
    /// The value of every direct ref by its name.
    pub refs: BTreeMap<String, String>,
}

/// Makes a repository with `count` direct refs: branches, remote-tracking branches, tags and the
/// heads and merges of pull requests.
///
/// # Panics
///
/// If `count` is below 100: there would be kinds without a ref.
pub fn clone_like(format: Format, count: usize) -> CloneLike {
    assert!(count >= 100, "too few refs for all kinds");
    let tags = ANNOTATED.min(count / 50);
    let objects = Objects::new(format.objects, count.div_ceil(2), tags);
    let first = first_values(&objects, count);
    let moves = moves(&objects, &first);
    let made = cache::folder(&format!("clone-{format}-{count}"), |dir| {
        let repo = make(format, &objects, &first, &moves);
        cache::copy(repo.path(), dir).expect("a repository can be copied");
    });
    let mut refs = first;
    for step in moves {
        refs.extend(step);
    }
    CloneLike {
        repo: Repo::copy_of(&made, format, false),
        objects,
        refs,
    }
}

fn make(
    format: Format,
    objects: &Objects,
    first: &BTreeMap<String, String>,
    moves: &[BTreeMap<String, String>],
) -> Repo {
    let repo = match format.refs {
        RefFormat::Reftable => make_stack(format, objects, first),
        RefFormat::Files => make_packed(format, objects, first),
    };
    for (message, step) in ["fetch origin", "commit"].iter().zip(moves) {
        let update = repo.git(["update-ref", "-m", message, "--stdin"]);
        update.stdin(script("update", step)).run().ok();
    }
    let target = "refs/remotes/origin/main";
    repo.git(["symbolic-ref", "refs/remotes/origin/HEAD", target])
        .run()
        .ok();
    repo
}

fn make_stack(format: Format, objects: &Objects, refs: &BTreeMap<String, String>) -> Repo {
    let repo = Repo::init(format);
    objects.put_into(&repo.git_dir().join("objects"));
    // A clone leaves no reflogs for what it fetched.
    let quiet = ["-c", "core.logAllRefUpdates=false", "update-ref", "--stdin"];
    repo.git(quiet).stdin(script("create", refs)).run().ok();
    repo
}

fn make_packed(format: Format, objects: &Objects, refs: &BTreeMap<String, String>) -> Repo {
    let repo = Repo::init(format);
    objects.put_into(&repo.git_dir().join("objects"));
    let stack = make_stack(
        Format::new(RefFormat::Reftable, format.objects),
        objects,
        refs,
    );
    let mirror = tempfile::tempdir().expect("a folder");
    let clone = ["clone", "-q", "--mirror", "--shared", "--ref-format=files"];
    stack
        .git(clone)
        .arg(stack.path())
        .arg(mirror.path())
        .run()
        .ok();
    let packed = mirror.path().join("packed-refs");
    fs::copy(packed, repo.git_dir().join("packed-refs")).expect("a clone packs its refs");
    repo
}

fn script(verb: &str, refs: &BTreeMap<String, String>) -> String {
    let mut script = String::new();
    for (name, id) in refs {
        writeln!(script, "{verb} {name} {id}").expect("a string takes everything");
    }
    script
}

/// Returns the refs as the clone made them.
fn first_values(objects: &Objects, count: usize) -> BTreeMap<String, String> {
    let mut rng = Rng::new(SEED);
    let mut refs = BTreeMap::new();
    for name in ["refs/heads/main", "refs/remotes/origin/main"] {
        refs.insert(name.to_owned(), objects.commits[0].clone());
    }
    for (i, tag) in objects.tags.iter().enumerate() {
        refs.insert(
            format!("refs/tags/v{}.{}.{}", i / 100, i / 10 % 10, i % 10),
            tag.id.clone(),
        );
    }
    let mut pull = 0;
    while refs.len() < count {
        let id = rng.pick(&objects.commits).clone();
        match rng.below(10) {
            0 => refs.insert(format!("refs/heads/{}", branch(&mut rng)), id),
            1..4 => refs.insert(format!("refs/remotes/origin/{}", branch(&mut rng)), id),
            4..6 => {
                let (day, build) = (rng.below(1000), rng.below(100));
                refs.insert(format!("refs/tags/nightly/{day:04}/build-{build}"), id)
            }
            _ => {
                // Some numbers are those of issues.
                pull += 1 + rng.below(3);
                if rng.percent(70) && refs.len() + 1 < count {
                    let merge = rng.pick(&objects.commits).clone();
                    refs.insert(format!("refs/pull/{pull}/merge"), merge);
                }
                refs.insert(format!("refs/pull/{pull}/head"), id)
            }
        };
    }
    refs
}

fn branch(rng: &mut Rng) -> String {
    const TEAMS: [&str; 8] = [
        "core", "docs", "infra", "mobile", "payments", "platform", "search", "web",
    ];
    const KINDS: [&str; 4] = ["bug", "chore", "feature", "release"];
    const WORDS: [&str; 8] = [
        "cache", "cursor", "index", "lock", "parser", "quota", "retry", "upload",
    ];
    let (team, kind) = (*rng.pick(&TEAMS), *rng.pick(&KINDS));
    let (one, two) = (*rng.pick(&WORDS), *rng.pick(&WORDS));
    format!("{team}/{kind}/{}-{one}-{two}", rng.below(100_000))
}

/// Returns what moved after the clone, in two steps.
fn moves(objects: &Objects, refs: &BTreeMap<String, String>) -> [BTreeMap<String, String>; 2] {
    let mut rng = Rng::new(SEED + 1);
    let is_branch = |name: &&String| {
        name.starts_with("refs/heads/") || name.starts_with("refs/remotes/origin/")
    };
    [0, 1].map(|_| {
        let mut step = BTreeMap::new();
        for name in refs.keys().filter(is_branch) {
            if name == "refs/heads/main" || rng.below(BRANCHES_PER_MOVED) == 0 {
                step.insert(name.clone(), rng.pick(&objects.commits).clone());
            }
        }
        step
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Target;

    #[test]
    fn it_holds_what_it_says_in_every_format() {
        for format in Format::ALL {
            let clone = clone_like(format, 2000);
            let state = clone.repo.state();
            let direct: BTreeMap<String, String> = state
                .refs
                .iter()
                .filter_map(|(name, target)| Some((name.to_string(), target.id()?.to_owned())))
                .collect();
            assert_eq!(direct, clone.refs);
            let origin = Target::Symbolic("refs/remotes/origin/main".into());
            assert_eq!(
                state.refs.get("refs/remotes/origin/HEAD".as_bytes()),
                Some(&origin)
            );
            assert_eq!(state.log("refs/heads/main").len(), 2);
            assert_eq!(state.log("HEAD").len(), 2);
            let peeled = clone
                .repo
                .refs()
                .iter()
                .filter(|r| r.peeled.is_some())
                .count();
            assert_eq!(peeled, 40);
            clone.repo.assert_sound();
        }
    }

    #[test]
    fn the_reflogs_are_the_same_in_both_ref_formats() {
        let files = clone_like(Format::FILES_SHA1, 1000).repo;
        let reftable = clone_like(Format::REFTABLE_SHA1, 1000).repo;
        assert_eq!(files.state(), reftable.state());
    }
}
