//! Random histories of commits: merges of up to four parents, criss-cross merges, several roots,
//! clocks that were wrong.
//!
//! ```
//! use refdb_testkit::{Format, history::History, repo::Repo, rng::Rng};
//!
//! let repo = Repo::init(Format::FILES_SHA1);
//! let history = History::import(&repo, &mut Rng::new(1), 10);
//! let first = repo.git(["rev-parse", "refs/heads/c0"]).run().text();
//! assert_eq!(first, history.commits[0]);
//! ```

use std::fmt::Write as _;
use std::fs;

use crate::oracle::{EMAIL, NAME, TIME, ZONE};
use crate::repo::Repo;
use crate::rng::Rng;

/// A history that was put into a repository: commit number i has the branch `c<i>`.
#[derive(Clone, Debug)]
pub struct History {
    /// The ids of the commits, parents before children.
    pub commits: Vec<String>,
    /// The numbers of each commit's parents.
    pub parents: Vec<Vec<usize>>,
    /// Whether a commit may be older than its parents by its own account.
    pub is_skewed: bool,
}

impl History {
    /// Makes so many commits.
    ///
    /// # Panics
    ///
    /// If Git refuses.
    pub fn import(repo: &Repo, rng: &mut Rng, commits: usize) -> History {
        let is_skewed = rng.percent(50);
        let spread = 1 + rng.below(12);
        let mut all = Vec::with_capacity(commits);
        let mut stream = String::new();
        for number in 0..commits {
            let parents = parents(rng, number, spread);
            let step = u64::try_from(number).expect("a small number") * 60;
            let time = match is_skewed && rng.percent(30) {
                true => TIME + rng.next_u64() % 6000,
                // Some commits are of the same second.
                false => TIME + step / 180 * 180,
            };
            let mark = number + 1;
            write!(
                stream,
                "reset refs/heads/c{number}\ncommit refs/heads/c{number}\nmark :{mark}\n\
                 author {NAME} <{EMAIL}> {time} {ZONE}\n\
                 committer {NAME} <{EMAIL}> {time} {ZONE}\ndata 2\nx\n"
            )
            .expect("a string takes everything");
            for (index, parent) in parents.iter().enumerate() {
                let word = if index == 0 { "from" } else { "merge" };
                writeln!(stream, "{word} :{}", parent + 1).expect("a string takes everything");
            }
            writeln!(
                stream,
                "M 100644 inline file\ndata <<E\n{number} {parents:?}\nE\n"
            )
            .expect("a string takes everything");
            all.push(parents);
        }
        let import = ["fast-import", "--quiet", "--force", "--export-marks=marks"];
        repo.git(import).stdin(stream).run().ok();
        let marks = fs::read_to_string(repo.path().join("marks")).expect("just written");
        let mut ids = vec![String::new(); commits];
        for line in marks.lines() {
            let (mark, id) = line[1..].split_once(' ').expect("a mark and an id");
            let mark: usize = mark.parse().expect("a mark is a number");
            ids[mark - 1] = id.to_owned();
        }
        History {
            commits: ids,
            parents: all,
            is_skewed,
        }
    }
}

/// Chooses the parents of a commit among those before it.
fn parents(rng: &mut Rng, number: usize, spread: usize) -> Vec<usize> {
    let count = match rng.below(20) {
        _ if number == 0 => 0,
        0 => 0,
        1..=12 => 1,
        13..=17 => 2,
        _ => 4,
    };
    let mut parents = Vec::new();
    for _ in 0..count {
        let parent = number - 1 - rng.below(spread.min(number));
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }
    parents
}
