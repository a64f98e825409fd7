//! What Git makes of a transaction, in the words of the model.

use bstr::{BString, ByteSlice};

use super::{Reason, Transaction};
use crate::repo::Repo;

/// What Git told: the rejected refs of a batch, or what ended the transaction.
#[derive(Debug)]
pub enum GitSays {
    /// It was done, but for these, sorted.
    Done(Vec<(BString, Reason)>),
    /// It was refused, for this reason among others perhaps.
    Refused(Reason),
    /// It failed in another way than the model knows.
    Failed,
}

/// Lets Git carry out a transaction; returns its answer, and in which words it came.
///
/// # Panics
///
/// If Git says what the model does not know.
pub fn git_says(repo: &Repo, transaction: &Transaction) -> (GitSays, String) {
    let out = repo
        .git(transaction.arguments())
        .stdin(transaction.script())
        .run();
    let text = format!("{}{}", out.stdout.as_bstr(), out.stderr.as_bstr());
    if out.code() != 0 {
        return match Reason::of_message(&out.stderr) {
            Some(reason) => (GitSays::Refused(reason), text),
            None => (GitSays::Failed, text),
        };
    }
    let mut rejections: Vec<(BString, Reason)> = out
        .stdout
        .lines()
        .map(|line| {
            let mut words = line.splitn_str(5, " ");
            assert_eq!(words.next(), Some(b"rejected".as_slice()), "{text}");
            let name = words.next().expect("a name").into();
            let reason = words.nth(2).expect("a reason").to_str().expect("ASCII");
            let known = Reason::REJECTIONS
                .into_iter()
                .find(|known| known.text() == reason);
            (
                name,
                known.unwrap_or_else(|| panic!("unknown reason: {reason}")),
            )
        })
        .collect();
    rejections.sort_unstable();
    (GitSays::Done(rejections), text)
}
