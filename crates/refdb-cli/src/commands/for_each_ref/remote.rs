//! `%(upstream)` and `%(push)`: the tracking branches of a branch, and how far it is from them.

use std::borrow::Cow;

use bstr::{BStr, BString};
use refdb::objects::{ObjectKind, Peeled};
use refdb::{ObjectId, RefName, Store};
use refdb_git::graph::Graph;
use refdb_git::revision::{Direction, Revisions, Tracking};

use super::atom::NameForm;
use crate::context::{Context, resolve_listed};
use crate::failure::{Result, say};

/// What is told of a tracking branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemoteForm {
    pub(super) what: Told,
    /// Whether the remote is asked for, of which the tracking branch need not be known.
    pub(super) of_remote: bool,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Name(NameForm),
    /// How far the branch is ahead and behind.
    Track {
        brackets: bool,
    },
    /// The same as one of `<`, `>`, `<>` and `=`.
    TrackShort,
    RemoteName,
    RemoteRef,
}

impl RemoteForm {
    /// Reads the argument of an atom.
    ///
    /// # Errors
    /// Fatal, for one that is not known.
    pub(super) fn parse(argument: Option<&str>, whole: &str) -> Result<RemoteForm> {
        let mut form = RemoteForm {
            what: Told::Name(NameForm::Full),
            of_remote: false,
        };
        let Some(argument) = argument else {
            return Ok(form);
        };
        let mut brackets = true;
        for part in argument.split(',') {
            match part {
                "track" => form.what = Told::Track { brackets: true },
                "trackshort" => form.what = Told::TrackShort,
                "nobracket" => brackets = false,
                "remotename" | "remoteref" => {
                    form.of_remote = true;
                    form.what = match part {
                        "remotename" => Told::RemoteName,
                        _ => Told::RemoteRef,
                    };
                }
                // The form of a name is the whole of an argument, or a mistake.
                _ => match NameForm::parse(Some(argument), whole) {
                    Ok(name) => form.what = Told::Name(name),
                    Err(failure) => return Err(failure),
                },
            }
        }
        if let Told::Track { brackets: shown } = &mut form.what {
            *shown = brackets;
        }
        Ok(form)
    }
}

/// Tells of tracking branches.
pub(super) struct Remotes<'c> {
    context: &'c Context,
    store: &'c Store,
    revisions: Revisions<'c>,
    tracking: Tracking<'c>,
    graph: Option<Graph<'c>>,
}

impl<'c> Remotes<'c> {
    /// Takes the configuration apart.
    pub(super) fn new(context: &'c Context) -> Result<Self> {
        let repository = context.repository()?;
        Ok(Remotes {
            context,
            store: context.store()?,
            revisions: Revisions::new(repository),
            tracking: Tracking::new(repository)?,
            graph: None,
        })
    }

    /// Returns the branch that a name means: `HEAD` always is the one that is checked out.
    pub(super) fn meant<'b>(&self, branch: &'b [u8]) -> Result<Option<Cow<'b, [u8]>>> {
        if branch != b"HEAD" {
            return Ok(Some(branch.into()));
        }
        let current = self.revisions.current_branch()?;
        Ok(current.map(|current| Cow::Owned(current.into())))
    }

    /// Returns the tracking branch of a branch, given without `refs/heads/`.
    pub(super) fn tracking_branch(
        &self,
        branch: &[u8],
        direction: Direction,
    ) -> Result<Option<BString>> {
        Ok(self.tracking.branch(&self.revisions, branch, direction)?)
    }

    /// Returns the remote that is configured for a branch.
    pub(super) fn remote_name(&self, branch: &[u8], direction: Direction) -> Option<&BStr> {
        self.tracking.remote(branch, direction)
    }

    /// Returns the name of the ref in the remote.
    pub(super) fn remote_ref(&self, branch: &[u8], direction: Direction) -> Option<BString> {
        self.tracking.remote_ref(branch, direction)
    }

    /// Returns how far a branch is ahead of its tracking branch, and behind it; `None` if there is
    /// no such branch, or one of the two is no commit.
    pub(super) fn distance(&mut self, branch: &[u8], base: &[u8]) -> Result<Option<(u64, u64)>> {
        let branch = [b"refs/heads/", branch].concat();
        let Some(theirs) = self.commit(base)? else {
            return Ok(None);
        };
        let Some(ours) = self.commit(&branch)? else {
            return Ok(None);
        };
        if ours == theirs {
            return Ok(Some((0, 0)));
        }
        let graph = match &mut self.graph {
            Some(graph) => graph,
            none => none.insert(self.context.repository()?.graph()?),
        };
        let (ours, theirs) = (graph.commit(ours)?, graph.commit(theirs)?);
        let distance = graph.ahead_behind(ours, theirs)?;
        Ok(Some((distance.ahead, distance.behind)))
    }

    fn commit(&self, name: &[u8]) -> Result<Option<ObjectId>> {
        let Ok(name) = RefName::lax(name) else {
            return Ok(None);
        };
        let Some(found) = resolve_listed(self.store, name)? else {
            return Ok(None);
        };
        let oid = match self.store.objects().peel(found.oid)? {
            Peeled::Itself => found.oid,
            Peeled::To(peeled) => peeled,
            Peeled::Nowhere | Peeled::Missing => return Ok(None),
        };
        match self.context.odb()?.header(oid)?.map(|header| header.kind) {
            Some(ObjectKind::Commit) => Ok(Some(oid)),
            Some(kind) => {
                let text = format!("object {oid} is a {}, not a commit", kind.as_str());
                say("error", text.as_bytes());
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

/// Appends how far a branch is from another one.
pub(super) fn push_distance(distance: Option<(u64, u64)>, brackets: bool, out: &mut Vec<u8>) {
    let text = match distance {
        None => "gone".to_owned(),
        Some((0, 0)) => return,
        Some((0, behind)) => format!("behind {behind}"),
        Some((ahead, 0)) => format!("ahead {ahead}"),
        Some((ahead, behind)) => format!("ahead {ahead}, behind {behind}"),
    };
    let (open, close) = if brackets { ("[", "]") } else { ("", "") };
    out.extend_from_slice(format!("{open}{text}{close}").as_bytes());
}

/// Appends the same as signs.
pub(super) fn push_signs(distance: Option<(u64, u64)>, out: &mut Vec<u8>) {
    out.extend_from_slice(match distance {
        None => b"",
        Some((0, 0)) => b"=",
        Some((0, _)) => b"<",
        Some((_, 0)) => b">",
        Some(_) => b"<>",
    });
}
