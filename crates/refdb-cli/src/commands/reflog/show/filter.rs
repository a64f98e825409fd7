//! Which entries are shown: by their time, their text, their commit.

use std::borrow::Cow;

use bstr::ByteSlice;
use refdb::LogEntry;
use refdb_git::objects::Object;
use regex_lite::{Regex, RegexBuilder};

use crate::commands::for_each_ref::mailmap::Mailmap;
use crate::commands::for_each_ref::message::Message;
use crate::failure::{Failure, Result};

/// Conditions that an entry has to meet.
#[derive(Default)]
pub(super) struct Filter {
    /// Seconds since 1970; entries before are passed over.
    pub(super) since: Option<u64>,
    /// Seconds since 1970; entries after are passed over.
    pub(super) until: Option<u64>,
    min_parents: Option<usize>,
    max_parents: Option<usize>,
    patterns: Vec<(Where, Vec<u8>)>,
    syntax: Syntax,
    ignores_case: bool,
    inverts: bool,
    all_match: bool,
    /// The names by which people are looked for, where those of commits are not.
    pub(super) mailmap: Option<Mailmap>,
    /// The patterns, when the first entry comes.
    compiled: std::cell::OnceCell<Vec<(Where, Option<Regex>)>>,
}

/// Where a pattern is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    Message,
    Author,
    Committer,
    Reflog,
}

/// How patterns are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Syntax {
    #[default]
    Basic,
    Extended,
    Fixed,
}

impl Filter {
    /// Reads an option; `value` gives the value of one with that name. Returns whether it is one
    /// that chooses entries.
    pub(super) fn option<'v>(
        &mut self,
        arg: &[u8],
        mut value: impl FnMut(&str) -> Result<Option<&'v [u8]>>,
    ) -> Result<bool> {
        match arg {
            b"-i" | b"--regexp-ignore-case" => self.ignores_case = true,
            b"-E" | b"--extended-regexp" => self.syntax = Syntax::Extended,
            b"-F" | b"--fixed-strings" => self.syntax = Syntax::Fixed,
            b"--basic-regexp" => self.syntax = Syntax::Basic,
            b"--invert-grep" => self.inverts = true,
            b"--all-match" => self.all_match = true,
            b"--merges" => self.min_parents = Some(2),
            b"--no-merges" => self.max_parents = Some(1),
            b"--no-min-parents" => self.min_parents = None,
            b"--no-max-parents" => self.max_parents = None,
            _ => {
                for (name, place) in [
                    ("--grep-reflog", Where::Reflog),
                    ("--grep", Where::Message),
                    ("--author", Where::Author),
                    ("--committer", Where::Committer),
                ] {
                    if let Some(pattern) = value(name)? {
                        self.patterns.push((place, pattern.to_vec()));
                        return Ok(true);
                    }
                }
                for (name, is_min) in [("--min-parents=", true), ("--max-parents=", false)] {
                    if let Some(count) = arg.strip_prefix(name.as_bytes()) {
                        let number = count.to_str().ok().and_then(|it| it.parse::<i64>().ok());
                        let Some(number) = number else {
                            let text = format!("'{}': not an integer", count.as_bstr());
                            return Err(Failure::fatal(text));
                        };
                        let limit = usize::try_from(number).ok();
                        match is_min {
                            true => self.min_parents = limit,
                            false => self.max_parents = limit,
                        }
                        return Ok(true);
                    }
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether a pattern means nothing to the library that matches them.
    pub(super) fn has_strange_pattern(&self) -> bool {
        let compiled = self.compiled.get_or_init(|| self.compile());
        compiled.iter().any(|(_, regex)| regex.is_none())
    }

    /// Returns whether a pattern is looked for in commits.
    pub(super) fn reads_commits(&self) -> bool {
        let mut places = self.patterns.iter().map(|(place, _)| *place);
        places.any(|place| place != Where::Reflog)
    }

    /// Returns whether a pattern is looked for there.
    pub(super) fn searches(&self, place: Where) -> bool {
        self.patterns.iter().any(|(at, _)| *at == place)
    }

    /// Returns whether an entry is older than the first that is asked for.
    pub(super) fn is_too_old(&self, entry: &LogEntry) -> bool {
        self.since.is_some_and(|since| entry.who.time < since)
    }

    /// Returns whether an entry meets the conditions. Where its commit is not known, only those of
    /// the entry itself count.
    pub(super) fn admits(&self, entry: &LogEntry, commit: Option<&Object>) -> bool {
        if self.until.is_some_and(|until| entry.who.time > until) {
            return false;
        }
        let data = commit.map_or(&b""[..], |commit| commit.data.as_slice());
        let headers = || data.lines().take_while(|line| !line.is_empty());
        let parents = headers()
            .filter(|line| line.starts_with(b"parent "))
            .count();
        if self.min_parents.is_some_and(|min| parents < min)
            || self.max_parents.is_some_and(|max| parents > max)
        {
            return false;
        }
        if self.patterns.is_empty() {
            return true;
        }
        // Without the time.
        let end = |line: &[u8]| line.rfind_byte(b'>').map_or(0, |at| at + 1);
        let person = |role: &str| -> Cow<'_, [u8]> {
            let line = headers().find_map(|line| line.strip_prefix(role.as_bytes()));
            let line = line.unwrap_or_default();
            match self.mailmap.as_ref().and_then(|map| map.rewrite(line)) {
                Some(mut mapped) => {
                    mapped.truncate(end(&mapped));
                    mapped.into()
                }
                None => line.get(..end(line)).unwrap_or_default().into(),
            }
        };
        let lines = |place: Where| -> Vec<Cow<'_, [u8]>> {
            match place {
                Where::Message => Message::parse(data).all.lines().map(Cow::from).collect(),
                Where::Author => vec![person("author ")],
                Where::Committer => vec![person("committer ")],
                Where::Reflog => vec![entry.message.as_slice().into()],
            }
        };
        let compiled = self.compiled.get_or_init(|| self.compile());
        let matches = |(place, regex): &(Where, Option<Regex>)| {
            let regex = regex.as_ref();
            lines(*place)
                .iter()
                .any(|line| regex.is_none_or(|regex| regex.is_match(&line.to_str_lossy())))
        };
        // One of the patterns for each place, and with `--all-match` each one for the message.
        let places = [
            Where::Message,
            Where::Author,
            Where::Committer,
            Where::Reflog,
        ];
        places.into_iter().all(|place| {
            let mut of_place = compiled.iter().filter(|(at, _)| *at == place).peekable();
            if of_place.peek().is_none() {
                return true;
            }
            let found = match place {
                Where::Message if self.all_match => of_place.all(matches),
                _ => of_place.any(matches),
            };
            found != (self.inverts && place == Where::Message)
        })
    }

    fn compile(&self) -> Vec<(Where, Option<Regex>)> {
        let compile = |(place, pattern): &(Where, Vec<u8>)| {
            let pattern = translate(&pattern.to_str_lossy(), self.syntax);
            let mut builder = RegexBuilder::new(&pattern);
            let regex = builder.case_insensitive(self.ignores_case).build();
            (*place, regex.ok())
        };
        self.patterns.iter().map(compile).collect()
    }
}

/// Returns a pattern as the library writes it.
fn translate(pattern: &str, syntax: Syntax) -> String {
    match syntax {
        Syntax::Extended => return pattern.to_owned(),
        Syntax::Fixed => return regex_lite::escape(pattern),
        Syntax::Basic => {}
    }
    // In a basic pattern a sign has its meaning where the other kind needs a backslash for the
    // letter itself, and the other way round.
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '[' => in_class = true,
            ']' => in_class = false,
            '\\' if !in_class => {
                match chars.next() {
                    Some(c @ ('(' | ')' | '{' | '}' | '+' | '?' | '|')) => out.push(c),
                    Some(c) => out.extend(['\\', c]),
                    None => out.push_str("\\\\"),
                }
                continue;
            }
            '(' | ')' | '{' | '}' | '+' | '?' | '|' if !in_class => out.push('\\'),
            _ => {}
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_patterns() {
        assert_eq!(translate("a+(b)", Syntax::Basic), "a\\+\\(b\\)");
        assert_eq!(translate("a\\+\\(b\\)", Syntax::Basic), "a+(b)");
        assert_eq!(translate("[+]\\.", Syntax::Basic), "[+]\\.");
        assert_eq!(translate("a.b", Syntax::Fixed), "a\\.b");
    }
}
