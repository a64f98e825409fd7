//! Work that is drawn, on repositories that are: what nobody thought of.

use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;

use super::{STDIN, Work, base, refdb};

/// Names that can all be there at once, beside those that are there from the beginning.
const NAMES: [&str; 12] = [
    "refs/heads/both",
    "refs/heads/loose",
    "refs/heads/main",
    "refs/heads/side",
    "refs/heads/new/er/one",
    "refs/heads/new/other",
    "refs/notes/commits",
    "refs/remotes/o/HEAD",
    "refs/remotes/o/main",
    "refs/stash",
    "refs/tags/packed",
    "refs/tags/v2/rc",
];

/// A transaction that changes no ref twice, and that succeeds as often as it is done: nothing is
/// written through a symbolic ref, and HEAD is pointed elsewhere alone.
fn transaction(rng: &mut Rng, repo: &Repo) -> String {
    let mut script = String::new();
    if rng.percent(10) {
        let target = rng.pick(&NAMES[..4]);
        script.push_str(&format!("option no-deref\nsymref-update HEAD {target}\n"));
    } else {
        let mut names = NAMES.to_vec();
        for _ in 0..1 + rng.below(10) {
            let name = names.swap_remove(rng.below(names.len()));
            let line = match rng.below(10) {
                0 | 1 => format!("delete {name}\n"),
                2 => format!("symref-update {name} {}\n", rng.pick(&NAMES)),
                _ => format!("update {name} {}\n", rng.pick(&repo.objects().commits)),
            };
            script.push_str(&format!("option no-deref\n{line}"));
        }
    }
    script
}

/// Draws arguments and input.
fn work(rng: &mut Rng, repo: &Repo) -> (&'static [&'static str], String) {
    let args: &[&str] = match rng.below(12) {
        0 => &["pack-refs", "--all"],
        1 => &["reflog", "expire", "--expire=all", "--all"],
        2 => &["pack-refs", "--all", "--no-prune"],
        _ => return (STDIN, transaction(rng, repo)),
    };
    (args, String::new())
}

/// Draws a repository and what is done in it.
pub(super) fn case(format: refdb_testkit::Format, seed: u64) -> (Repo, Work) {
    let mut rng = Rng::new(seed);
    let repo = base(format);
    for _ in 0..rng.below(6) {
        let (args, input) = work(&mut rng, &repo);
        refdb(repo.path(), args, &input).ok();
    }
    let (args, input) = work(&mut rng, &repo);
    (repo, (format!("seed {seed}"), args, input))
}
