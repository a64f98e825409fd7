//! The answer to the question of Git's shell completion: which words a command takes.
//!
//! 1. It is Git's answer, so options and subcommands that Git does not have are no part of it;
//!    refdb's own completions (`refdb completions`) know them all.

use super::{Spec, Takes};
use crate::failure::Failure;

/// What the completion asks with, and what it asks with if it wants hidden options too.
const QUESTION: &[u8] = b"--git-completion-helper";
const QUESTION_FOR_ALL: &[u8] = b"--git-completion-helper-all";

/// Returns whether the arguments are the question, and whether it is for hidden options too.
pub(crate) fn question(args: &[Vec<u8>]) -> Option<bool> {
    match args {
        [only] if only == QUESTION => Some(false),
        [only] if only == QUESTION_FOR_ALL => Some(true),
        _ => None,
    }
}

/// Returns the answer of a command with subcommands, if `args` are the question.
pub(crate) fn of_subcommands<'n>(
    args: &[Vec<u8>],
    names: impl Iterator<Item = &'n str>,
) -> Option<Failure> {
    question(args)?;
    let names: Vec<&str> = names.collect();
    Some(Failure::Answered(format!("{}\n", names.join(" "))))
}

impl<Id: Copy> Spec<Id> {
    /// Returns the words for options: as they are called, then their opposites behind `--`. One
    /// opposite stands before it, to show that there are some; an option that is called `no-...`
    /// shows that already, and its own opposite stands there as well.
    pub(super) fn completion(&self, all: bool) -> Failure {
        let mut text = String::new();
        let shown = self.options.iter().enumerate();
        let shown: Vec<_> = shown
            .filter(|(_, option)| !option.long.is_empty() && !option.own)
            .filter(|(_, option)| all || !option.hidden)
            .collect();
        for (index, option) in &shown {
            let space = if *index == 0 { "" } else { " " };
            let equals = match option.takes {
                Takes::Text | Takes::Number => "=",
                _ => "",
            };
            text.push_str(&format!("{space}--{}{equals}", option.long));
        }
        let opposites = shown.iter().filter(|(_, option)| option.negatable);
        let (of_negative, of_positive): (Vec<_>, Vec<_>) =
            opposites.partition(|(_, option)| option.long.starts_with("no-"));
        for (_, option) in of_negative {
            text.push_str(&format!(" --{}", option.long.trim_start_matches("no-")));
        }
        let is_shown = shown.iter().any(|(_, it)| it.long.starts_with("no-"));
        let bar_at = if is_shown { 0 } else { 1 };
        for (index, (_, option)) in of_positive.into_iter().enumerate() {
            if index == bar_at {
                text.push_str(" --");
            }
            text.push_str(&format!(" --no-{}", option.long));
        }
        text.push('\n');
        Failure::Answered(text)
    }
}
