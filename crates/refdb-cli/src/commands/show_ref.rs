//! `refdb show-ref`: lists refs with their object ids, or checks single ones.

use std::hash::BuildHasher;
use std::io::BufRead;
use std::ops::Range;

use bstr::ByteSlice;
use hashbrown::{DefaultHashBuilder, HashTable};
use refdb::name::{FormatOptions, is_safe, is_well_formed};
use refdb::objects::{ObjectKind, Objects};
use refdb::{ErrorKind, ObjectId, RefName};

use super::listed::{Broken, Rules, each_prefix};
use super::refs::check_exists;
use crate::context::{Context, Digits};
use crate::failure::{Failure, Result, say};
use crate::options::{Opt, Spec, Value};
use crate::output::Output;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Tags,
    Branches,
    Exists,
    Verify,
    Head,
    Dereference,
    Hash,
    Abbrev,
    Quiet,
    ExcludeExisting,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "show-ref",
    forms: &[
        "[--head] [-d | --dereference]\n[-s | --hash[=<n>]] [--abbrev[=<n>]] [--branches] \
         [--tags]\n[--] [<pattern>...]",
        "--verify [-q | --quiet] [-d | --dereference]\n[-s | --hash[=<n>]] [--abbrev[=<n>]]\n\
         [--] [<ref>...]",
        "--exclude-existing[=<pattern>]",
        "--exists <ref>",
    ],
    options: &[
        Opt::flag(
            Id::Tags,
            "tags",
            "only tags (and branches, with --branches)",
        ),
        Opt::flag(
            Id::Branches,
            "branches",
            "only branches (and tags, with --tags)",
        ),
        Opt::flag(Id::Branches, "heads", "the old name of --branches").hidden(),
        Opt::flag(Id::Exists, "exists", "tell only whether the ref is stored"),
        Opt::flag(
            Id::Verify,
            "verify",
            "take full names of refs, not patterns",
        ),
        Opt::flag(Id::Head, "", "HEAD first, whatever the patterns are")
            .short(b'h')
            .hidden(),
        Opt::flag(Id::Head, "head", "HEAD first, whatever the patterns are"),
        Opt::flag(Id::Dereference, "dereference", "also what tags point to").short(b'd'),
        Opt::number(
            Id::Hash,
            "hash",
            "n",
            "only the object ids, with <n> digits",
        )
        .optional()
        .short(b's'),
        Opt::number(Id::Abbrev, "abbrev", "n", "object ids with <n> digits").optional(),
        Opt::flag(
            Id::Quiet,
            "quiet",
            "print nothing: the exit code is the answer",
        )
        .short(b'q'),
        Opt::text(
            Id::ExcludeExisting,
            "exclude-existing",
            "pattern",
            "of the refs on standard input, those that do not exist",
        )
        .optional()
        .positive(),
    ],
};

/// What the options say.
#[derive(Debug, Default)]
struct Settings {
    tags: bool,
    branches: bool,
    head: bool,
    dereference: bool,
    hash_only: bool,
    quiet: bool,
    digits: Digits,
}

/// Runs `show-ref`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut settings = Settings::default();
    let (mut exists, mut verify) = (false, false);
    let mut exclude_existing: Option<Vec<u8>> = None;
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::Tags => settings.tags = value.is_set(),
            Id::Branches => settings.branches = value.is_set(),
            Id::Exists => exists = value.is_set(),
            Id::Verify => verify = value.is_set(),
            Id::Head => settings.head = value.is_set(),
            Id::Dereference => settings.dereference = value.is_set(),
            Id::Quiet => settings.quiet = value.is_set(),
            Id::Hash => {
                settings.hash_only = true;
                if let Value::Number(number) = value {
                    settings.digits = digits(number);
                }
            }
            Id::Abbrev => {
                settings.digits = match value {
                    Value::Number(number) => digits(number),
                    Value::Set | Value::Text(_) => Digits::Configured,
                    Value::Unset => Digits::All,
                }
            }
            Id::ExcludeExisting => {
                exclude_existing = Some(value.into_text().unwrap_or_default());
            }
        }
        Ok(())
    })?;
    check_modes(exclude_existing.is_some(), verify, exists)?;
    let mut printer = Printer {
        context,
        rules: Rules::new(context, Broken::Listed)?,
        settings: &settings,
        out,
        known: Vec::new(),
    };
    if let Some(prefix) = exclude_existing {
        printer.exclude_existing(&prefix)
    } else if verify {
        printer.verify(&operands)
    } else if exists {
        match operands.as_slice() {
            [name] => check_exists(context, name),
            [] => Err(Failure::fatal("--exists requires a reference")),
            _ => Err(Failure::fatal("--exists requires exactly one reference")),
        }
    } else {
        printer.list(&operands)
    }
}

fn digits(number: i64) -> Digits {
    match number {
        0 => Digits::All,
        number => Digits::Least(usize::try_from(number).unwrap_or(0)),
    }
}

/// Refuses two ways of working at once.
fn check_modes(exclude_existing: bool, verify: bool, exists: bool) -> Result<()> {
    let given: Vec<&str> = [
        (exclude_existing, "'--exclude-existing'"),
        (verify, "'--verify'"),
        (exists, "'--exists'"),
    ]
    .into_iter()
    .filter_map(|(given, name)| given.then_some(name))
    .collect();
    let list = match given.as_slice() {
        [one, two] => format!("{one} and {two}"),
        [one, two, three] => format!("{one}, {two}, and {three}"),
        _ => return Ok(()),
    };
    let text = format!("options {list} cannot be used together");
    Err(Failure::fatal(text))
}

/// Of so many objects a listing remembers whether they are there.
const KNOWN_MAX: usize = 1024;

/// What an object that a ref names turned out to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    NoTag,
    /// It is there, and may be a tag.
    Perhaps,
}

struct Printer<'a> {
    context: &'a Context,
    rules: Rules<'a>,
    settings: &'a Settings,
    out: &'a mut Output,
    /// What a listing found out about the last objects, by the beginnings of their ids: refs often name the same ones.
    known: Vec<Option<(ObjectId, Found)>>,
}

impl Printer<'_> {
    /// Lists the refs that match a pattern; fails quietly if there is none.
    fn list(&mut self, patterns: &[Vec<u8>]) -> Result<()> {
        self.known = vec![None; KNOWN_MAX];
        let mut found = false;
        if self.settings.head {
            let head = RefName::HEAD;
            if let Some(resolved) = self.rules.store.resolve(head)? {
                self.show(head, resolved.oid, resolved.peeled)?;
                found = true;
            }
        }
        let prefixes: &[&[u8]] = match (self.settings.branches, self.settings.tags) {
            (true, true) => &[b"refs/heads/", b"refs/tags/"],
            (true, false) => &[b"refs/heads/"],
            (false, true) => &[b"refs/tags/"],
            (false, false) => &[b"refs/"],
        };
        self.each_ref(prefixes, |printer, name, oid, peeled| {
            if matches(name, patterns) {
                found = true;
                printer.show(name, oid, peeled)?;
            }
            Ok(())
        })?;
        if found { Ok(()) } else { Err(Failure::Exit(1)) }
    }

    /// Calls `each` for every ref below prefixes that is listed.
    fn each_ref(
        &mut self,
        prefixes: &[&[u8]],
        mut each: impl FnMut(&mut Self, RefName<'_>, ObjectId, Option<ObjectId>) -> Result<()>,
    ) -> Result<()> {
        let rules = self.rules;
        let mut tell = |severity, text: String| say(severity, text.as_bytes());
        each_prefix(&mut rules.store.refs()?, prefixes, |refs| {
            while let Some(record) = refs.next()? {
                if let Some((oid, peeled)) = rules.leads(&record, &mut tell)? {
                    each(self, record.name, oid, peeled)?;
                }
            }
            Ok(true)
        })
    }

    /// Prints one ref, whose object must exist.
    fn show(&mut self, name: RefName<'_>, oid: ObjectId, peeled: Option<ObjectId>) -> Result<()> {
        let found = self.find(oid)?;
        if found == Found::Nothing {
            // The words are Git's to the letter, its name among them.
            let text = format!("git show-ref: bad ref {name} ({oid})");
            return Err(Failure::fatal(text));
        }
        if self.settings.quiet {
            return Ok(());
        }
        let name_of_ref = (!self.settings.hash_only).then_some(name);
        self.line(oid, name_of_ref, b"")?;
        if !self.settings.dereference {
            return Ok(());
        }
        let peeled = match peeled {
            None if found == Found::Perhaps => self.context.odb()?.tagged(oid)?,
            peeled => peeled,
        };
        peeled.map_or(Ok(()), |peeled| self.line(peeled, Some(name), b"^{}"))
    }

    /// Looks for an object, unless that was just done.
    fn find(&mut self, oid: ObjectId) -> Result<Found> {
        if oid.is_null() {
            return Ok(Found::Nothing);
        }
        let beginning = oid
            .as_bytes()
            .first_chunk()
            .map_or(0, |it| u16::from_be_bytes(*it));
        let place = usize::from(beginning) % KNOWN_MAX;
        if let Some(Some((known, found))) = self.known.get(place)
            && *known == oid
        {
            return Ok(*found);
        }
        let odb = self.context.odb()?;
        // Its kind says that it is there, too, unless that is the kind of what is read instead of it.
        let kind = match self.settings.dereference && !odb.has_replacements()? {
            true => odb.kind(oid)?,
            false => None,
        };
        let found = match kind {
            Some(ObjectKind::Tag) => Found::Perhaps,
            Some(_) => Found::NoTag,
            None if odb.exists(oid)? => Found::Perhaps,
            None => Found::Nothing,
        };
        if let Some(known) = self.known.get_mut(place) {
            *known = Some((oid, found));
        }
        Ok(found)
    }

    fn line(&mut self, oid: ObjectId, name: Option<RefName<'_>>, suffix: &[u8]) -> Result<()> {
        let buffer = self.out.buffer();
        self.context.push_oid(oid, self.settings.digits, buffer)?;
        if let Some(name) = name {
            buffer.push(b' ');
            buffer.extend_from_slice(name.as_bytes());
            buffer.extend_from_slice(suffix);
        }
        buffer.push(b'\n');
        self.out.line_done()
    }

    /// Shows refs by their full names, each of which must resolve.
    fn verify(&mut self, names: &[Vec<u8>]) -> Result<()> {
        if names.is_empty() {
            return Err(Failure::fatal("--verify requires a reference"));
        }
        for name in names {
            let full = name.starts_with(b"refs/") || is_safe(name);
            let given = RefName::new(name).ok().filter(|_| full);
            let resolved = match given.map(|given| self.rules.store.resolve(given)) {
                // Any other failure may hide a ref: a file that cannot be read, or the other format, may hold it.
                Some(Err(error)) if error.kind() != ErrorKind::BrokenRef => {
                    return Err(error.into());
                }
                Some(resolved) => resolved.unwrap_or(None),
                None => None,
            };
            match given.zip(resolved) {
                Some((given, found)) => self.show(given, found.oid, found.peeled)?,
                None if self.settings.quiet => return Err(Failure::Exit(1)),
                None => {
                    let text = [b"'", name.as_slice(), b"' - not a valid ref"].concat();
                    return Err(Failure::fatal(text));
                }
            }
        }
        Ok(())
    }

    /// Prints those lines of standard input whose last word is no existing ref.
    fn exclude_existing(&mut self, prefix: &[u8]) -> Result<()> {
        let mut existing = Names::default();
        self.each_ref(&[b"refs/"], |_, name, _, _| {
            existing.add(name.as_bytes());
            Ok(())
        })?;
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input.read_until(b'\n', &mut line);
            let count = read.map_err(|error| {
                let why = refdb::error::io_text(&error);
                Failure::fatal(format!("cannot read standard input: {why}"))
            })?;
            if count == 0 {
                return Ok(());
            }
            // Git reads so many bytes at once, and takes what is longer for several lines.
            for line in line.chunks(1023) {
                self.unless_existing(line, prefix, &existing)?;
            }
        }
    }

    fn unless_existing(&mut self, line: &[u8], prefix: &[u8], existing: &Names) -> Result<()> {
        // For Git a line ends at a zero byte, too.
        let end = line.find_byteset(b"\0\n").unwrap_or(line.len());
        let line = line.get(..end).unwrap_or(line);
        let line = line.strip_suffix(b"^{}").unwrap_or(line);
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let start = line.iter().rposition(is_space).map_or(0, |at| at + 1);
        let name = line.get(start..).unwrap_or_default();
        if !name.starts_with(prefix) {
            return Ok(());
        }
        if !is_well_formed(name, FormatOptions::FULL) {
            say(
                "warning",
                format!("ref '{}' ignored", name.as_bstr()).as_bytes(),
            );
            return Ok(());
        }
        if !existing.contains(name) {
            self.out.put(line)?;
            self.out.put("\n")?;
        }
        Ok(())
    }
}

/// The names of refs. All lie in one piece: a piece for each took half of the time to list 100,000.
#[derive(Default)]
struct Names {
    text: Vec<u8>,
    places: HashTable<Range<usize>>,
    hasher: DefaultHashBuilder,
}

impl Names {
    /// Adds a name that is not among them.
    fn add(&mut self, name: &[u8]) {
        let Names {
            text,
            places,
            hasher,
        } = self;
        let place = text.len()..text.len() + name.len();
        text.extend_from_slice(name);
        let at = |place: &Range<usize>| text.get(place.clone()).unwrap_or_default();
        places.insert_unique(hasher.hash_one(name), place, |it| hasher.hash_one(at(it)));
    }

    fn contains(&self, name: &[u8]) -> bool {
        let is_it = |place: &Range<usize>| self.text.get(place.clone()) == Some(name);
        self.places
            .find(self.hasher.hash_one(name), is_it)
            .is_some()
    }
}

/// Returns whether a pattern is the end of `name`, from the start of a component on.
fn matches(name: RefName<'_>, patterns: &[Vec<u8>]) -> bool {
    let name = name.as_bytes();
    patterns.is_empty()
        || patterns.iter().any(|pattern| {
            name.strip_suffix(pattern.as_slice())
                .is_some_and(|before| before.is_empty() || before.ends_with(b"/"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_components_from_the_end() {
        let name = RefName::new("refs/heads/topic/main").unwrap();
        let matches = |pattern: &str| matches(name, &[pattern.as_bytes().to_vec()]);
        assert!(matches("main"));
        assert!(matches("topic/main"));
        assert!(matches("refs/heads/topic/main"));
        assert!(!matches("ain"));
        assert!(!matches("topic"));
        assert!(!matches("/refs/heads/topic/main"));
    }
}
