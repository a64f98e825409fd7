//! What a measured repository holds: which refs, under which names, with which values.
//!
//! 1. Names come in name order, one after another, and are not kept: the memory that this process
//!    takes is a floor under what the system reports for the processes it starts.
//! 2. A tenth of the names are *more* names: they are not in the repository at first, and lie
//!    between those that are.

use std::path::{Path, PathBuf};

use refdb::name::is_per_worktree;
use refdb::{ObjectFormat, ObjectId};
use refdb_git::Repository;

/// Groups in a family of names, as a hosting service has teams and releases.
const GROUPS: usize = 89;

/// How many refs, and what they are called.
#[derive(Debug)]
pub(crate) struct Shape {
    source: Source,
    /// Commits, or whatever the refs of a given repository name.
    pub(crate) commits: Vec<ObjectId>,
    /// Annotated tags.
    pub(crate) tags: Vec<ObjectId>,
    /// One object for each ref, if there are workloads that need it.
    pub(crate) own: Vec<ObjectId>,
    /// The hash of the objects.
    pub(crate) objects: ObjectFormat,
    /// Objects that are read from elsewhere.
    pub(crate) alternate: Option<PathBuf>,
}

#[derive(Debug)]
enum Source {
    /// So many names, made up.
    Made(usize),
    /// The names of a given repository, sorted.
    Listed(Vec<Vec<u8>>),
}

/// One ref of a shape.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    /// The number of the ref, from which its value follows.
    pub(crate) at: usize,
    /// Whether it is one of those that come later.
    pub(crate) more: bool,
}

impl Shape {
    /// Makes up `refs` names.
    pub(crate) fn made(refs: usize, commits: Vec<ObjectId>, tags: Vec<ObjectId>) -> Self {
        Shape {
            source: Source::Made(refs),
            commits,
            tags,
            own: Vec::new(),
            objects: ObjectFormat::Sha1,
            alternate: None,
        }
    }

    /// Takes the names and values of the shared refs of a given repository, and its objects from
    /// where they are; with `own`, it is kept which ref names which.
    ///
    /// # Errors
    /// When there is no repository, or fewer than ten refs; the text is for people.
    pub(crate) fn of_repository(path: &Path, with_own: bool) -> Result<Self, String> {
        let told = |error: refdb::Error| error.to_string();
        let repository = Repository::discover(path).map_err(told)?;
        let (mut names, mut own) = (Vec::new(), Vec::new());
        let (mut commits, mut tags) = (Vec::new(), Vec::new());
        let mut refs = repository.store().refs().map_err(told)?;
        refs.seek_prefix(b"refs/").map_err(told)?;
        while let Some(record) = refs.next().map_err(told)? {
            let shared = !is_per_worktree(record.name.as_bytes());
            let Some(oid) = record.target.oid().filter(|_| shared) else {
                continue;
            };
            names.push(record.name.as_bytes().to_vec());
            if with_own {
                own.push(oid);
            }
            match record.peeled {
                Some(_) => tags.push(oid),
                None => commits.push(oid),
            }
        }
        if names.len() < 10 {
            let (path, count) = (path.display(), names.len());
            return Err(format!(
                "{path} has {count} refs; at least 10 are needed to measure anything"
            ));
        }
        // A repository may have none of the one or of the other.
        if commits.is_empty() {
            commits.clone_from(&tags);
        } else if tags.is_empty() {
            tags.clone_from(&commits);
        }
        let objects = repository.common_dir().join("objects");
        Ok(Shape {
            source: Source::Listed(names),
            commits,
            tags,
            own,
            objects: repository.object_format(),
            alternate: Some(objects.canonicalize().map_err(|error| error.to_string())?),
        })
    }

    /// Returns how many refs there are at first.
    pub(crate) fn len(&self) -> usize {
        match &self.source {
            Source::Made(refs) => *refs,
            Source::Listed(names) => names.len(),
        }
    }

    /// Returns how many more come later, of commits or of tags.
    pub(crate) fn more(&self) -> usize {
        self.len().div_ceil(10)
    }

    /// Returns the value of ref `at` after so many updates.
    pub(crate) fn value(&self, at: usize, updates: usize) -> ObjectId {
        cyclic(&self.commits, at.wrapping_mul(7919).wrapping_add(updates))
    }

    /// Returns the value of annotated tag `at`.
    pub(crate) fn tag(&self, at: usize) -> ObjectId {
        cyclic(&self.tags, at)
    }

    /// Returns a commit that refs with objects of their own name, half of them before it.
    pub(crate) fn commit(&self) -> ObjectId {
        let half = self.len() / 2;
        match &self.source {
            Source::Made(_) => self.own(half),
            Source::Listed(_) => cyclic(&self.commits, self.commits.len() / 2),
        }
    }

    /// Returns the object that only ref `at` names, or that it names in a given repository.
    pub(crate) fn own(&self, at: usize) -> ObjectId {
        cyclic(&self.own, at)
    }

    /// Calls `each` for every ref, in name order, until it fails.
    pub(crate) fn each<E>(&self, mut each: impl FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
        match &self.source {
            Source::Made(refs) => made(*refs, &mut each),
            Source::Listed(names) => listed(names, &mut each),
        }
    }

    /// Returns the name that is in the middle of those that are there at first.
    pub(crate) fn middle(&self) -> Vec<u8> {
        let (mut seen, half) = (0, self.len() / 2);
        let found = self.each(|entry| {
            seen += usize::from(!entry.more);
            if seen > half && !entry.more {
                return Err(entry.name);
            }
            Ok(())
        });
        found.err().unwrap_or_default()
    }
}

fn cyclic(ids: &[ObjectId], at: usize) -> ObjectId {
    // A shape is never made without objects.
    ids.iter()
        .copied()
        .nth(at % ids.len().max(1))
        .unwrap_or_else(|| ObjectId::null(ObjectFormat::Sha1))
}

/// Returns the number of the first tag among so many made-up refs: a quarter of them, and the last ones.
pub(crate) fn first_tag(refs: usize) -> usize {
    refs * 3 / 4
}

/// Makes up names as a hosting service has them: branches of teams, pull requests, branches of a
/// remote repository, tags of releases; a quarter each.
fn made<E>(refs: usize, each: &mut impl FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
    type Name = fn(usize, usize, bool) -> String;
    let families: [Name; 4] = [
        |group, at, more| format!("refs/heads/team-{group:02}/feature-{at:08}{}", dash(more)),
        |_, at, more| format!("refs/pull/{at:08}/{}", if more { "merge" } else { "head" }),
        |group, at, more| format!("refs/remotes/origin/topic-{group:02}/{at:08}{}", dash(more)),
        |group, at, more| format!("refs/tags/release-{group:02}/v{at:08}{}", dash(more)),
    ];
    let mut first = 0;
    for (number, name) in families.iter().enumerate() {
        let end = refs * (number + 1) / families.len();
        let in_group = (end - first).div_ceil(GROUPS).max(1);
        for at in first..end {
            let group = (at - first) / in_group;
            for more in [false, true] {
                if more && at % 10 != 0 {
                    continue;
                }
                each(Entry {
                    name: name(group, at, more).into_bytes(),
                    at,
                    more,
                })?;
            }
        }
        first = end;
    }
    Ok(())
}

fn dash(more: bool) -> &'static str {
    if more { "-more" } else { "" }
}

/// Gives the names of a repository, and after them more in a folder of their own.
fn listed<E>(names: &[Vec<u8>], each: &mut impl FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
    let folder: &[u8] = b"refs/refdb-bench-more/";
    let split = names.partition_point(|name| name.as_slice() < folder);
    let (before, after) = names.split_at(split);
    let given = |(at, name): (usize, &Vec<u8>)| Entry {
        name: name.clone(),
        at,
        more: false,
    };
    for entry in before.iter().enumerate().map(given) {
        each(entry)?;
    }
    for at in (0..names.len()).step_by(10) {
        let mut name = folder.to_vec();
        name.extend(format!("{at:08}").into_bytes());
        each(Entry {
            name,
            at,
            more: true,
        })?;
    }
    for (at, name) in after.iter().enumerate() {
        each(given((split + at, name)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_sorted_and_in_the_right_number() {
        let id = ObjectId::null(ObjectFormat::Sha1);
        let names = vec![b"refs/heads/b".to_vec(), b"refs/tags/a".to_vec()];
        let listed = Shape {
            source: Source::Listed(names),
            ..Shape::made(2, vec![id], vec![id])
        };
        for shape in [Shape::made(1003, vec![id], vec![id]), listed] {
            let mut all = Vec::new();
            let mut more = 0;
            let done: Result<(), ()> = shape.each(|entry| {
                more += usize::from(entry.more);
                all.push(entry.name);
                Ok(())
            });
            done.expect("nothing fails");
            assert!(all.is_sorted_by(|a, b| a < b));
            assert_eq!(more, shape.more());
            assert_eq!(all.len(), shape.len() + more);
            assert!(all.contains(&shape.middle()));
        }
    }
}
