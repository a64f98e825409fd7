//! The options of `reflog show`, in words.

use super::SPEC;
use crate::options::{Opt, Spec};

/// What people are told of it. The options are read by hand, as those of a log are: each of them may
/// stand among revisions, and what is not known here is Git's.
pub(in super::super) const TOLD: Spec<()> = Spec {
    options: &[
        Opt::number((), "max-count", "n", "only the newest <n> entries")
            .short(b'n')
            .positive(),
        Opt::number((), "skip", "n", "leave out the newest <n> entries").positive(),
        Opt::text((), "since", "time", "only entries from this time on").positive(),
        Opt::text((), "until", "time", "only entries up to this time").positive(),
        Opt::text(
            (),
            "grep-reflog",
            "pattern",
            "only entries with this reason",
        )
        .positive(),
        Opt::text((), "author", "pattern", "only commits by this author").positive(),
        Opt::text((), "grep", "pattern", "only commits with this message").positive(),
        Opt::flag((), "oneline", "a line for each entry (as it is without)")
            .positive()
            .group(),
        Opt::text(
            (),
            "format",
            "format",
            "another form: short, full, %H %gs, ...",
        )
        .positive(),
        Opt::text((), "date", "format", "dates: iso, relative, unix, ...").positive(),
        Opt::number((), "abbrev", "n", "how many digits of an object id").optional(),
        Opt::flag((), "abbrev-commit", "shorten ids of commits, too"),
        Opt::text(
            (),
            "decorate",
            "how",
            "refs beside each commit: short, full, auto, no",
        )
        .optional(),
        Opt::flag((), "json", "a JSON object for each entry").positive(),
    ],
    ..SPEC
};
