//! What Git and refdb leave behind, and what may differ in it.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice};
use refdb::name::{FormatOptions, is_well_formed};
use refdb_testkit::RefFormat;
use refdb_testkit::repo::Repo;
use refdb_testkit::scripts::Call;
use refdb_testkit::state::{LogEntry, State, Target, ref_format};

/// What a script did that Git and refdb record in different ways.
#[derive(Default)]
pub(super) struct Deeds {
    /// An edit was rejected: Git tells the reflogs of the symrefs that led to it nonetheless.
    rejects: bool,
    /// A ref was verified: in `files` Git tells the reflogs of the symrefs that led to it.
    verifies: bool,
    /// Reflogs expired: in `reftable` Git takes all entries of symrefs for unreachable.
    expires: bool,
    /// A symref was written as a link: Git writes those that led to it, too.
    links: bool,
    /// Refs were migrated: Git leaves out what it takes for no entry, and empty reflogs.
    migrates: bool,
    /// A ref was deleted: in `reftable` Git keeps the reflogs of some symrefs.
    deletes: bool,
    /// The end of a ref was written into its reflog: in `reftable` Git takes the reflog away.
    ended: BTreeSet<BString>,
}

impl Deeds {
    /// Takes note of a call, with the zero id of the repository.
    pub(super) fn note(&mut self, call: &Call, stdout: &str, zero: &str) {
        self.rejects |= stdout.contains("rejected ");
        self.verifies |= call.stdin.iter().any(|it| it.starts_with(b"verify"));
        self.expires |= call.args.iter().any(|it| it == "expire");
        self.migrates |= call.args.iter().any(|it| it == "migrate");
        let deletes = |it: &BString| it.starts_with(b"-d") || it.starts_with(b"--d");
        self.deletes |=
            call.args.iter().any(deletes) || call.stdin.iter().any(|it| it.contains_str("delete"));
        self.links |= call.before.contains(&"core.preferSymlinkRefs=true");
        if let [_, verb, name, _, new, ..] = call.args.as_slice()
            && verb == "write"
            && (new.starts_with(b"{zero}") || new.starts_with(zero.as_bytes()))
        {
            self.ended.insert(name.clone());
        }
    }

    /// Returns whether reflogs may already differ, so that what is read from them may.
    pub(super) fn concern_logs(&self, format: RefFormat) -> bool {
        match format {
            _ if self.rejects || self.migrates => true,
            RefFormat::Files => self.verifies,
            RefFormat::Reftable => self.expires || self.deletes || !self.ended.is_empty(),
        }
    }

    /// Returns what differs in what the two repositories hold, and is not explained.
    pub(super) fn difference(&self, git: &Repo, ours: &Repo) -> String {
        // It may have been migrated.
        let format = ref_format(&git.git_dir());
        let (git, ours) = (states(git), states(ours));
        let mut text = String::new();
        for (mut git, mut ours) in git.into_iter().zip(ours) {
            if self.links {
                forget_links(&mut git, &mut ours);
            }
            forget_zeros(&mut git, &ours);
            // A zero byte in a loose ref is damage, and carried along as it is.
            for state in [&mut git, &mut ours] {
                state.refs.remove(b"refs/heads/nul".as_bstr());
            }
            let names: BTreeSet<BString> =
                git.logs.keys().chain(ours.logs.keys()).cloned().collect();
            for name in names {
                if self.explains(&name, &git, &ours, format) {
                    git.logs.remove(&name);
                    ours.logs.remove(&name);
                }
            }
            text.push_str(&git.difference(&ours));
        }
        text
    }

    /// Returns whether the reflogs of a ref are the same, or differ in what is known.
    fn explains(&self, name: &BString, git: &State, ours: &State, format: RefFormat) -> bool {
        let is_symref = is_symref(git, name) || is_symref(ours, name);
        let (exists, made) = (git.logs.contains_key(name), ours.logs.contains_key(name));
        let (git, ours) = (git.log(name), ours.log(name));
        if git.len() == ours.len() && exists == made {
            return git.iter().zip(ours).all(|(git, ours)| is_same(git, ours));
        }
        if self.migrates && is_within(git, ours) {
            return true;
        }
        if format == RefFormat::Files {
            let tells = (self.rejects || self.verifies) && is_symref;
            return tells && is_within(ours, git);
        }
        // In `reftable` Git keeps the reflogs of some deleted symrefs, and goes on with them should
        // a ref of the name be made again.
        git.ends_with(ours)
            || self.rejects && is_symref && is_within(ours, git)
            || self.expires && is_symref && name != "HEAD"
            || self.ended.contains(name) && ours.ends_with(git)
    }
}

/// Returns whether two entries are the same. Where a ref was reached through several symrefs, Git
/// may not know its old value in the reflog of the first.
fn is_same(git: &LogEntry, ours: &LogEntry) -> bool {
    let knows = git.old.bytes().any(|byte| byte != b'0');
    git == ours
        || !knows
            && *git
                == LogEntry {
                    old: git.old.clone(),
                    ..ours.clone()
                }
}

/// Returns whether `some` entries are among `all`, in this order.
fn is_within(some: &[LogEntry], all: &[LogEntry]) -> bool {
    let mut all = all.iter();
    some.iter().all(|ours| all.any(|git| is_same(git, ours)))
}

fn is_symref(state: &State, name: &BString) -> bool {
    matches!(state.refs.get(name), Some(Target::Symbolic(_)))
}

/// Gives refs with names that are none their values where Git wrote the zero id when it packed them.
fn forget_zeros(git: &mut State, ours: &State) {
    for (name, target) in &mut git.refs {
        let is_zero = target
            .id()
            .is_some_and(|id| id.bytes().all(|it| it == b'0'));
        if let (true, Some(known)) = (is_zero, ours.refs.get(name))
            && !is_well_formed(name, FormatOptions::ONE_LEVEL)
        {
            target.clone_from(known);
        }
    }
}

/// Gives symrefs that lead on by one more step the target that they have in the end.
fn forget_links(git: &mut State, ours: &mut State) {
    for (name, target) in &mut ours.refs.clone() {
        if let Target::Symbolic(next) = target
            && let Some(end @ Target::Symbolic(_)) = ours.refs.get(next)
            && git.refs.get(name) == Some(end)
        {
            ours.refs.insert(name.clone(), end.clone());
        }
    }
}

/// Returns what is stored, in the repository and in its linked worktree.
fn states(repo: &Repo) -> [State; 2] {
    let linked = repo.git_dir().join("worktrees/w");
    let linked = linked.is_dir().then(|| State::read(&linked));
    [repo.state(), linked.unwrap_or_default()]
}
