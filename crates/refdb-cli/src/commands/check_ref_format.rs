//! `refdb check-ref-format`: whether a name may be the name of a ref or of a branch.
//!
//! Options come before the name and are never shortened, and no repository is needed: where there
//! is none, only `@{-1}` and the like mean nothing.

use refdb::name::{FormatOptions, is_well_formed, normalize};
use refdb_git::revision::Revisions;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::options::{Opt, Spec};
use crate::output::Output;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Normalize,
    AllowOnelevel,
    RefspecPattern,
    Branch,
}

/// What the usage text and the pages show, and the words that are known.
pub(super) const SPEC: Spec<Id> = Spec {
    name: "check-ref-format",
    forms: &[
        "[--normalize] [<options>] <refname>",
        "--branch <branchname-shorthand>",
    ],
    options: &[
        Opt::flag(
            Id::Normalize,
            "normalize",
            "print the name without needless slashes",
        )
        .positive(),
        Opt::flag(Id::Normalize, "print", "the same as --normalize")
            .positive()
            .hidden(),
        Opt::flag(
            Id::AllowOnelevel,
            "allow-onelevel",
            "accept names of one component",
        ),
        Opt::flag(Id::RefspecPattern, "refspec-pattern", "accept one `*`").positive(),
        Opt::flag(
            Id::Branch,
            "branch",
            "print the branch that the name stands for",
        )
        .positive(),
    ],
};

/// Runs `check-ref-format`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    match args {
        [only] if only == b"-h" || only == b"--help-all" => return Err(usage(true)),
        [option, name] if option == b"--branch" => return branch(context, out, name),
        _ => {}
    }
    let Some((name, options)) = args.split_last() else {
        return Err(usage(false));
    };
    let (mut normalized, mut rules) = (false, FormatOptions::FULL);
    for option in options {
        match SPEC.exact(option) {
            Some((Id::Normalize, _)) => normalized = true,
            Some((Id::AllowOnelevel, set)) => rules.allow_onelevel = set,
            Some((Id::RefspecPattern, _)) => rules.refspec_pattern = true,
            Some((Id::Branch, _)) | None => return Err(usage(false)),
        }
    }
    if name.starts_with(b"-") {
        return Err(usage(false));
    }
    let shown = if normalized {
        normalize(name)
    } else {
        name.clone()
    };
    if !is_well_formed(&shown, rules) {
        return Err(Failure::Exit(1));
    }
    if normalized {
        out.put([shown.as_slice(), b"\n"].concat())?;
    }
    Ok(())
}

/// Prints the branch that `name` stands for.
fn branch(context: &Context, out: &mut Output, name: &[u8]) -> Result<()> {
    let branch = match context.repository_if_any()? {
        Some(repository) => Revisions::new(repository).expand_branch(name)?,
        None => name.into(),
    };
    let full = [b"refs/heads/", branch.as_slice()].concat();
    let is_branch = !branch.starts_with(b"-")
        && full != b"refs/heads/HEAD"
        && is_well_formed(&full, FormatOptions::FULL);
    if !is_branch {
        return Err(Failure::fatal(
            [b"'", name, b"' is not a valid branch name"].concat(),
        ));
    }
    out.put([branch.as_slice(), b"\n"].concat())
}

fn usage(is_answer: bool) -> Failure {
    Failure::Usage {
        error: None,
        hint: None,
        text: SPEC.synopsis(),
        is_answer,
    }
}
