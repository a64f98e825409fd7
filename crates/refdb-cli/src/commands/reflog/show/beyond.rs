//! What lies beyond this command: calls of `reflog show` that compare trees, choose by paths, or
//! show more than entries and commits are answered by Git's log, where there is a Git.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;

use bstr::{BStr, ByteSlice};
use refdb::RefName;
use refdb::layout::JOURNAL;
use refdb_git::objects::Object;
use refdb_git::repository::config::{Config, Entry};

use super::filter::Where;
use super::pretty::Pretty;
use super::walk::Walk;
use super::{Settings, options};
use crate::commands::for_each_ref::color::sequence;
use crate::context::Context;
use crate::failure::{Result, say};
use crate::output::Output;
use crate::pager::{Paging, somebody_looks, wants_no_color};
use crate::trace;

/// Becomes Git's log, with these arguments; returns where there is no Git.
pub(super) fn hand_over(
    context: &Context,
    out: &mut Output,
    args: &[Vec<u8>],
    pretty: &Pretty,
    paging: &Paging,
) -> Result<()> {
    out.flush()?;
    // Git knows of no transaction that is committed and not finished: what can be is finished before.
    context.store()?.log_exists(RefName::HEAD)?;
    let journal = context.repository()?.refs_base().join(JOURNAL);
    if context.repository()?.system().lstat(&journal).is_ok() {
        let text = format!(
            "'{}' is not finished: Git shows reflogs without it",
            journal.display()
        );
        say("warning", text.as_bytes());
    }
    let arguments = |args: &[Vec<u8>]| -> Vec<_> {
        let args = args.iter().map(|arg| OsStr::from_bytes(arg).to_owned());
        args.collect()
    };
    let mut git = crate::shim::real_git();
    git.args(arguments(&context.globals().as_arguments()));
    if let Some(program) = &paging.program {
        let setting = [b"core.pager=", program.as_slice()].concat();
        git.arg("-c").arg(OsStr::from_bytes(&setting));
    }
    let config = context.repository()?.config();
    let log_has_its_own = config.get("pager.log").is_some();
    match paging.wanted {
        Some(false) => git.arg("--no-pager"),
        Some(true) => git.arg("--paginate"),
        None if log_has_its_own => git.arg("--paginate"),
        None => &mut git,
    };
    // A reflog is no log in these: both would change what is shown of merges.
    git.args(["-c", "log.follow=false"]);
    let is_first_parent = options(args).any(|arg| arg == b"--first-parent");
    // A format on the command line would keep Git from reading what is set about notes.
    match config.get("format.pretty") {
        None => git.args(["-c", "format.pretty=oneline", "log", "--walk-reflogs"]),
        Some(_) => git.args(["log", "--walk-reflogs", "--pretty=oneline"]),
    };
    // Git does not know the variable; an option of the user's stands behind this one, and counts.
    if wants_no_color() && !always_colors(context)? {
        git.arg("--no-color");
    }
    git.arg(match pretty {
        Pretty::Raw => "--no-abbrev-commit",
        _ => "--abbrev-commit",
    });
    git.args(is_first_parent.then_some("--no-diff-merges"));
    git.args(arguments(args));
    trace::pass_on(&mut git);
    trace::exec(&git);
    // Only a failure returns.
    let _ = git.exec();
    Ok(())
}

/// Returns whether Git, if there is one, answers better what this command can answer as well: it
/// paints where somebody looks, knows what to say of settings that make no sense, and obeys those
/// that are seldom set.
pub(super) fn git_does_better(context: &Context) -> Result<bool> {
    if somebody_looks() {
        return Ok(true);
    }
    let config = context.repository()?.config();
    let is_strange = |entry: &Entry| !is_plain(entry, config);
    Ok(config.entries().iter().any(is_strange))
}

/// Returns whether a setting means nothing for a log, or nothing that this command does not do.
fn is_plain(entry: &Entry, config: &Config) -> bool {
    let Ok(key) = entry.key().to_str() else {
        return true;
    };
    let value = entry.value();
    let boolean = || match value {
        None => Some(true),
        Some(_) => config.boolean(key).ok().flatten(),
    };
    let Some((section, name)) = key.split_once('.') else {
        return true;
    };
    match (section, name) {
        ("format", "pretty") => value.is_some_and(|value| Pretty::named(value, config).is_ok()),
        ("log", "showsignature") => boolean() == Some(false),
        ("log", "showroot" | "follow") | ("diff", "renames" | "noprefix" | "mnemonicprefix") => {
            boolean().is_some()
        }
        ("log", "diffmerges") | ("notes" | "grep", _) => false,
        ("diff", "tool" | "guitool") | ("core", "notesref") => value.is_some(),
        // Those with one more part are about kinds of files.
        ("diff", name) => name.contains('.'),
        ("color", "ui" | "diff") => {
            let word = |value: &BStr| ["auto", "always", "never"].iter().any(|it| value == *it);
            value.is_some_and(word) || boolean().is_some()
        }
        ("color", name) if name.starts_with("diff.") || name.starts_with("decorate.") => {
            let color = value.and_then(|value| value.to_str().ok());
            color.is_some_and(|color| sequence(color).is_some())
        }
        ("i18n", "logoutputencoding" | "commitencoding") => {
            value.is_some_and(|value| value.eq_ignore_ascii_case(b"utf-8"))
        }
        _ => true,
    }
}

/// Returns whether one of the commits to show is in another encoding, which Git translates, or names people in a
/// form of which Git makes something of its own. Where nothing that commits say is shown, or chooses entries, none is
/// looked for; else those that are to be shown are read once more. What fails, fails again when it is shown.
pub(super) fn has_strange_commit(
    context: &Context,
    settings: &Settings,
    names: &[Vec<u8>],
) -> bool {
    let reads_commits = settings.pretty != Pretty::Oneline || settings.filter.reads_commits();
    if settings.json || !reads_commits {
        return false;
    }
    let mut is_strange = false;
    let mut look = |commit: Option<&Object>| {
        is_strange = commit.is_some_and(|commit| !is_usual(&commit.data));
        Ok(!is_strange)
    };
    let walk = Walk::through(context, true, names);
    let _ = walk.and_then(|walk| walk.for_each(settings, &mut |_, commit, _| look(commit)));
    is_strange
}

/// Returns whether a commit is in UTF-8, as far as it says, and has one author and one committer as every commit that
/// Git makes.
fn is_usual(commit: &[u8]) -> bool {
    let (mut authors, mut committers) = (0, 0);
    let mut headers = commit.lines().take_while(|line| !line.is_empty());
    let is_usual = headers.all(|line| match line.split_once_str(" ") {
        Some((b"author", person)) => {
            authors += 1;
            is_usual_person(person)
        }
        Some((b"committer", person)) => {
            committers += 1;
            is_usual_person(person)
        }
        Some((b"encoding", name)) => {
            name.eq_ignore_ascii_case(b"utf-8") || name.eq_ignore_ascii_case(b"utf8")
        }
        _ => true,
    });
    is_usual && (authors, committers) == (1, 1)
}

/// Returns whether a line is `NAME <EMAIL> SECONDS ZONE`, and nothing else.
fn is_usual_person(line: &[u8]) -> bool {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let Some((name, rest)) = line
        .split_once_str(" <")
        .or(line.strip_prefix(b"<").map(|it| (&b""[..], it)))
    else {
        return false;
    };
    let Some((email, date)) = rest.split_once_str("> ") else {
        return false;
    };
    let Some((seconds, zone)) = date.split_once_str(" ") else {
        return false;
    };
    let is_zone = matches!(zone.split_first(), Some((b'+' | b'-', digits)) if digits.len() == 4 && is_number(digits));
    let is_text = |text: &[u8]| text.trim_ascii() == text && text.find_byteset("<>").is_none();
    is_text(name) && is_text(email) && is_number(seconds) && is_zone
}

/// Returns whether notes may be shown beside commits, or searched as a part of their messages.
pub(super) fn needs_notes(context: &Context, settings: &Settings) -> Result<bool> {
    let is_long = !matches!(
        settings.pretty,
        Pretty::Oneline | Pretty::Template(..) | Pretty::Reference
    );
    if !is_long && !settings.filter.searches(Where::Message) {
        return Ok(false);
    }
    let repository = context.repository()?;
    let (config, environment) = (repository.config(), repository.environment());
    let is_set = ["notes.displayref", "core.notesref"]
        .iter()
        .any(|key| config.string(key).is_some());
    let is_named = ["GIT_NOTES_REF", "GIT_NOTES_DISPLAY_REF"]
        .iter()
        .any(|name| environment.get(name).is_some());
    let usual = RefName::new("refs/notes/commits")?;
    Ok(is_set || is_named || context.store()?.read(usual)?.is_some())
}

/// Returns whether the configuration asks for colours also where nobody looks.
pub(super) fn always_colors(context: &Context) -> Result<bool> {
    let config = context.repository()?.config();
    let setting = config.string("color.diff");
    let setting = setting.or_else(|| config.string("color.ui"));
    Ok(setting.is_some_and(|setting| setting == "always"))
}

/// Returns whether a template asks for nothing but what this command shows itself: no notes,
/// signatures, trailers, padding, and no colours that depend on anything.
pub(super) fn is_within(template: &[u8]) -> bool {
    let mut rest = template;
    while let Some(at) = rest.find_byte(b'%') {
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some(b'+' | b'-' | b' ') = rest.first() {
            rest = rest.get(1..).unwrap_or_default();
            if rest.starts_with(b"%") {
                continue;
            }
        }
        match rest.first() {
            Some(b'N' | b'G' | b'<' | b'>' | b'w' | b'(') => return false,
            Some(b'C') if rest.starts_with(b"C(always") => return false,
            Some(_) => rest = rest.get(1..).unwrap_or_default(),
            None => break,
        }
    }
    true
}

/// Returns whether a template asks for decorations; it is also said of some that do not.
pub(super) fn decorates(pretty: &Pretty) -> bool {
    let Pretty::Template(template, _) = pretty else {
        return false;
    };
    template.find_iter("%").any(|at| {
        let after = template.get(at + 1..).unwrap_or_default();
        let after = after.trim_start_with(|sign| matches!(sign, '+' | '-' | ' '));
        matches!(after.first(), Some(b'd' | b'D'))
    })
}

/// What a call cannot do without Git that names paths.
pub(super) const PATHS: &str = "entries cannot be chosen by paths";

/// Says how a revision and a path are told from each other.
pub(super) fn separate() -> String {
    let called = crate::shim::called();
    format!(
        "Use '--' to separate paths from revisions, like this:\n\
         '{called} <command> [<revision>...] -- [<file>...]'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_that_git_shows_otherwise() {
        let usual =
            "tree 1\nauthor A B <a@b> 1700000000 +0100\ncommitter <> 0 -0000\n\nencoding x\n";
        assert!(is_usual(usual.as_bytes()));
        let encoded = usual.replace("\n\n", "\nencoding utf-8\n\n");
        assert!(is_usual(encoded.as_bytes()));
        for (from, to) in [
            ("\n\n", "\nencoding ISO-8859-1\n\n"),
            (" +0100", ""),
            (" +0100", " UTC"),
            (" +0100", " 0100"),
            (" +0100", " +0100 "),
            ("> 17", ">17"),
            ("<a@b>", "<a@b> <c@d>"),
            ("A B", " A B"),
            ("A B <a@b>", "A B a@b"),
            ("1700000000", "17e8"),
            ("author", "auth"),
            ("committer", "author A <a@b> 1 +0000\ncommitter"),
        ] {
            let strange = usual.replacen(from, to, 1);
            assert!(!is_usual(strange.as_bytes()), "{strange}");
        }
    }

    #[test]
    fn templates_within_and_beyond() {
        for within in [
            "",
            "%h %gd: %gs",
            "100%%N",
            "%C(red)%h%Creset",
            "%x41%N".get(..4).unwrap(),
        ] {
            assert!(is_within(within.as_bytes()), "{within}");
        }
        for beyond in [
            "%N",
            "%G?",
            "a %<(10)%h",
            "%>>(3)%h",
            "%w(20)%B",
            "%(trailers)",
            "%+N",
            "%-N",
            "% N",
            "%+%N",
        ] {
            assert!(!is_within(beyond.as_bytes()), "{beyond}");
        }
    }
}
