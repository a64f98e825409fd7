//! `refdb for-each-ref`, also `refdb refs list`: lists refs in a form that the caller chooses.
//!
//! In the natural order refs are printed as they are read; in any other they are gathered first.

mod ahead;
mod argument;
mod atom;
mod bad_tag;
mod block;
pub(super) mod color;
mod commits;
mod content;
pub(super) mod date;
mod format;
mod headers;
mod history;
mod lines;
pub(super) mod mailmap;
pub(super) mod message;
mod patterns;
mod points_at;
mod quote;
mod remote;
mod row;
mod selection;
mod signature;
mod sort;
mod strftime;
mod trailers;
mod value;

use bstr::ByteSlice;
use serde_json::{Map, Value as Json};

use crate::context::{Context, Tell};
use crate::failure::{Failure, Result, say};
use crate::options::{Opt, Spec, Value};
use crate::output::Output;
use atom::Atoms;
use color::When;
use commits::{CommitFilter, Commits};
use format::Format;
use history::Histories;
use lines::{LineWriter, Lines};
use points_at::PointsAt;
use quote::Quoting;
use row::Row;
use selection::Selection;
use sort::{Order, Owned, SortKey, first_looks};
use value::{Item, Values};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    Shell,
    Perl,
    Python,
    Tcl,
    OmitEmpty,
    Json,
    Count,
    Format,
    StartAfter,
    Color,
    Exclude,
    Sort,
    PointsAt,
    Merged,
    NoMerged,
    Contains,
    NoContains,
    IgnoreCase,
    Stdin,
    IncludeRootRefs,
}

const OPTIONS: &[Opt<Id>] = &[
    Opt::flag(Id::Shell, "shell", "quote values for a shell").short(b's'),
    Opt::flag(Id::Perl, "perl", "quote values for Perl").short(b'p'),
    Opt::flag(Id::Python, "python", "quote values for Python"),
    Opt::flag(Id::Tcl, "tcl", "quote values for Tcl"),
    Opt::flag(
        Id::OmitEmpty,
        "omit-empty",
        "no line for refs whose format comes to nothing",
    ),
    Opt::flag(Id::Json, "json", "a JSON object for each ref")
        .positive()
        .hidden()
        .own(),
    Opt::number(Id::Count, "count", "n", "show only <n> refs").group(),
    Opt::text(Id::Format, "format", "format", "what to print for each ref"),
    Opt::text(
        Id::StartAfter,
        "start-after",
        "marker",
        "begin behind this name",
    ),
    Opt::text(Id::Color, "color", "when", "use colors").optional(),
    Opt::text(
        Id::Exclude,
        "exclude",
        "pattern",
        "leave out refs that match",
    ),
    Opt::text(Id::Sort, "sort", "key", "sort by this field"),
    Opt::text(
        Id::PointsAt,
        "points-at",
        "object",
        "only refs that lead to the object",
    ),
    Opt::text(Id::Merged, "merged", "commit", "only refs that are merged")
        .last_default()
        .positive(),
    Opt::text(
        Id::NoMerged,
        "no-merged",
        "commit",
        "only refs that are not merged",
    )
    .last_default()
    .positive(),
    Opt::text(
        Id::Contains,
        "contains",
        "commit",
        "only refs that contain the commit",
    )
    .last_default()
    .positive(),
    Opt::text(
        Id::NoContains,
        "no-contains",
        "commit",
        "only refs that do not contain it",
    )
    .last_default()
    .positive(),
    Opt::flag(
        Id::IgnoreCase,
        "ignore-case",
        "sort and filter without regard for case",
    ),
    Opt::flag(Id::Stdin, "stdin", "read patterns from standard input"),
    Opt::flag(
        Id::IncludeRootRefs,
        "include-root-refs",
        "also HEAD and the refs beside it",
    ),
];

/// How the command is called.
const FORM: &str = "[--count=<count>] [--shell|--perl|--python|--tcl]\n\
     [(--sort=<key>)...] [--format=<format>]\n\
     [--include-root-refs] [--points-at=<object>]\n\
     [--merged[=<object>]] [--no-merged[=<object>]]\n\
     [--contains[=<object>]] [--no-contains[=<object>]]\n\
     [(--exclude=<pattern>)...] [--start-after=<marker>]\n\
     [ --stdin | (<pattern>...)]";

pub(super) const FOR_EACH_REF: Spec<Id> = Spec {
    name: "for-each-ref",
    forms: &[FORM],
    options: OPTIONS,
};

pub(super) const LIST: Spec<Id> = Spec {
    name: "refs list",
    forms: &[FORM],
    options: OPTIONS,
};

const DEFAULT_FORMAT: &[u8] = b"%(objectname) %(objecttype)%09%(refname)";

/// What the options say.
#[derive(Debug, Default)]
struct Settings {
    quoting: Vec<Quoting>,
    omit_empty: bool,
    json: bool,
    count: i64,
    format: Option<Vec<u8>>,
    start_after: Option<Vec<u8>>,
    exclude: Vec<Vec<u8>>,
    /// The keys as they were given: the last counts most.
    sort: Vec<Vec<u8>>,
    /// Whether nothing is sorted, not even by the names.
    unsorted: bool,
    /// Whether `--no-sort` was given: from there on the names are no key of their own any more.
    sort_was_cleared: bool,
    points_at: Vec<refdb::ObjectId>,
    commits: Commits,
    ignore_case: bool,
    stdin: bool,
    root_refs: bool,
    color: When,
}

/// How much of the lines of sorted refs is kept from the time when their keys are known.
const LINES_MAX: usize = 256 << 20;

/// Runs `for-each-ref`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    each_ref(context, out, args, &FOR_EACH_REF)
}

/// Runs `refs list`.
pub(super) fn list(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    each_ref(context, out, args, &LIST)
}

/// What is asked for: the arguments, read and found to make sense together.
struct Question<'a> {
    settings: Settings,
    atoms: Atoms,
    format: Format,
    /// The first one counts most.
    keys: Vec<SortKey>,
    names: Vec<Vec<u8>>,
    histories: Histories<'a>,
}

fn question<'a>(context: &'a Context, args: &[Vec<u8>], spec: &Spec<Id>) -> Result<Question<'a>> {
    let mut settings = Settings::default();
    let operands = spec.parse(args, |id, value| settings.set(context, id, value))?;
    if settings.count < 0 {
        let text = format!("invalid --count argument: `{}'", settings.count);
        return Err(spec.mistake(&text, None));
    }
    let quoting = match settings.quoting.as_slice() {
        [] => Quoting::None,
        [quoting] => *quoting,
        _ => return Err(spec.mistake("more than one quoting style?", None)),
    };
    let text = settings.format.as_deref().unwrap_or(DEFAULT_FORMAT);
    let mut atoms = Atoms::new(settings.color.is_wanted(context)?);
    let mut histories = Histories::new(context);
    let format = Format::parse(text, quoting, &mut atoms);
    histories.find(&atoms)?;
    if format.is_err() {
        atoms.complain();
    }
    let format = format?.map_err(|malformed| {
        let text = format!("malformed format string {}", malformed.0.as_bstr());
        spec.mistake(&text, None)
    })?;
    // Git takes one key beside a marker, and the names are one unless they were cleared away.
    let sort_len = settings.sort.len() + usize::from(!settings.sort_was_cleared);
    if settings.start_after.is_some() && sort_len > 1 {
        let text = "cannot use --start-after with custom sort options";
        return Err(Failure::fatal(text));
    }
    let keys = settings.sort.iter();
    let keys = keys.map(|key| {
        let key = SortKey::parse(key, &mut atoms);
        if key.is_err() {
            atoms.complain();
        }
        histories.find(&atoms)?;
        key
    });
    let mut keys: Vec<SortKey> = keys.collect::<Result<_>>()?;
    // The last key counts most, and the first mistake is told.
    keys.reverse();
    let names = patterns::given(settings.stdin, operands)?;
    if settings.start_after.is_some() && !names.is_empty() {
        return Err(Failure::fatal("cannot use --start-after with patterns"));
    }
    Ok(Question {
        settings,
        atoms,
        format,
        keys,
        names,
        histories,
    })
}

fn each_ref(context: &Context, out: &mut Output, args: &[Vec<u8>], spec: &Spec<Id>) -> Result<()> {
    let Question {
        settings,
        atoms,
        format,
        keys,
        names,
        histories,
    } = question(context, args, spec)?;
    let mut listing = Listing {
        selection: Selection::new(context, &settings, names)?,
        points_at: PointsAt::new(context, settings.points_at.clone())?,
        commits: CommitFilter::new(context, &settings.commits)?,
    };
    let texts = keys.iter().filter(|key| key.needs_text());
    let shown = format.atoms().chain(texts.map(|key| key.atom));
    let headers = listing.points_at.headers();
    let values = Values::new(context, &atoms, shown, histories, headers.clone())?;
    let lines = match settings.json {
        true => None,
        false => Lines::of(context, &format, &atoms, settings.omit_empty, headers)?,
    };
    let mut printer = Printer {
        values,
        row: Row::default(),
        atoms: &atoms,
        format: &format,
        lines: lines.as_ref().map(LineWriter::new),
        settings: &settings,
        left: usize::try_from(settings.count)
            .ok()
            .filter(|count| *count > 0),
        out,
    };
    let mut tell = |severity, text: String| say(severity, text.as_bytes());
    let ignore_case = settings.ignore_case && !settings.unsorted;
    let is_natural = keys.iter().all(SortKey::is_natural) && keys.len() < 2 && !ignore_case;
    if is_natural && !printer.values.histories.needs_all() {
        if let Some(lines) = &lines
            && printer.left.is_none()
            && listing.is_all_selected()
        {
            let refs = listing.selection.rules.store.refs()?;
            let selection = &listing.selection;
            return selection
                .each_range(refs, |refs| lines.print_range(selection, refs, printer.out));
        }
        return match printer.values.needs_objects() {
            true => ahead::print(&mut listing, &mut printer),
            false => listing.read(&mut tell, |item| printer.print(item)),
        };
    }
    let mut gathered = Vec::new();
    listing.read(&mut tell, |item| {
        gathered.push(Owned::new(item));
        Ok(true)
    })?;
    printer.values.histories.prepare(&gathered)?;
    let order = Order::new(&keys, ignore_case, context.repository()?.config());
    print_sorted(&mut gathered, &keys, order, &mut printer)
}

/// Prints refs in the order of the keys. What is found out about a ref for its keys is enough for
/// its line: no object is read twice.
fn print_sorted(
    refs: &mut [Owned],
    keys: &[SortKey],
    order: Order<'_>,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let mut lines = Vec::new();
    for looks in first_looks(refs.len()).chunks(ahead::LEN_MAX) {
        let looked_at = looks.iter().filter_map(|index| refs.get(*index));
        printer.values.learn(looked_at.map(Owned::item));
        for index in looks {
            let Some(owned) = refs.get_mut(*index) else {
                continue;
            };
            printer.fill(&owned.item())?;
            owned.set_keys(keys, &printer.row);
            let start = lines.len();
            if start < LINES_MAX && printer.push(&mut lines).is_ok() {
                owned.line = Some(start..lines.len());
            }
        }
    }
    for index in order.sort(refs) {
        let Some(owned) = refs.get(index) else {
            continue;
        };
        let made = owned.line.clone().and_then(|line| lines.get(line));
        let goes_on = match made {
            Some(line) => printer.print_made(line)?,
            None => printer.print(&owned.item())?,
        };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

impl Settings {
    fn set(&mut self, context: &Context, id: Id, value: Value) -> Result<()> {
        let is_set = value.is_set();
        match id {
            Id::Shell => self.quote(Quoting::Shell, is_set),
            Id::Perl => self.quote(Quoting::Perl, is_set),
            Id::Python => self.quote(Quoting::Python, is_set),
            Id::Tcl => self.quote(Quoting::Tcl, is_set),
            Id::OmitEmpty => self.omit_empty = is_set,
            Id::Json => self.json = is_set,
            Id::Count => {
                self.count = match value {
                    Value::Number(count) => count,
                    _ => 0,
                }
            }
            Id::Format => self.format = value.into_text(),
            Id::StartAfter => self.start_after = value.into_text(),
            Id::Color => self.color = When::parse(value)?,
            Id::Exclude => value.add_or_clear(&mut self.exclude),
            Id::Sort => {
                self.unsorted = !is_set;
                self.sort_was_cleared |= !is_set;
                value.add_or_clear(&mut self.sort);
            }
            Id::PointsAt => match value.into_text() {
                None => self.points_at.clear(),
                Some(text) => match context.named_object(&text)? {
                    Some(oid) => self.points_at.push(oid),
                    None => {
                        let text = format!("malformed object name '{}'", text.as_bstr());
                        return Err(Failure::error(text, 129));
                    }
                },
            },
            Id::Merged | Id::NoMerged => {
                let is_merged = matches!(id, Id::Merged);
                let commit = value.into_text().unwrap_or_else(|| b"HEAD".to_vec());
                self.commits.add_merged(context, &commit, is_merged)?;
            }
            Id::Contains | Id::NoContains => {
                let contains = matches!(id, Id::Contains);
                let commit = value.into_text().unwrap_or_else(|| b"HEAD".to_vec());
                self.commits.add_contained(context, &commit, contains)?;
            }
            Id::IgnoreCase => self.ignore_case = is_set,
            Id::Stdin => self.stdin = is_set,
            Id::IncludeRootRefs => self.root_refs = is_set,
        }
        Ok(())
    }

    fn quote(&mut self, quoting: Quoting, is_set: bool) {
        self.quoting.retain(|other| *other != quoting);
        if is_set {
            self.quoting.push(quoting);
        }
    }
}

/// Ends the line that began there; one that is empty may be omitted.
#[inline]
fn end_line(start: usize, omit_empty: bool, out: &mut Vec<u8>) {
    if out.len() > start || !omit_empty {
        out.push(b'\n');
    }
}

struct Listing<'a> {
    selection: Selection<'a>,
    points_at: PointsAt<'a>,
    commits: Option<CommitFilter<'a>>,
}

impl Listing<'_> {
    /// Returns whether all refs are listed that are selected.
    fn is_all_selected(&self) -> bool {
        self.points_at.is_any() && self.commits.is_none()
    }

    /// Calls `each` for every ref that is asked for, until it gives `false`, and tells what is wrong with others.
    fn read(
        &mut self,
        tell: &mut Tell<'_>,
        mut each: impl FnMut(&Item<'_>) -> Result<bool>,
    ) -> Result<()> {
        let (selection, points_at) = (&self.selection, &mut self.points_at);
        let commits = &mut self.commits;
        let candidates = points_at.candidates(selection.rules.store)?;
        selection.each_range(candidates, |refs| {
            refs.each(|record| {
                let Some(item) = selection.item(&record, tell)? else {
                    return Ok(true);
                };
                let is_listed = points_at.matches(&item)?
                    && match commits {
                        Some(commits) => commits.matches(&item)?,
                        None => true,
                    };
                if is_listed { each(&item) } else { Ok(true) }
            })
        })
    }
}

struct Printer<'a> {
    values: Values<'a>,
    /// The values of the ref that was filled in last.
    row: Row,
    atoms: &'a Atoms,
    format: &'a Format,
    /// Where lines need no row of values.
    lines: Option<LineWriter<'a>>,
    settings: &'a Settings,
    /// How many refs are still to be printed, if that is limited.
    left: Option<usize>,
    out: &'a mut Output,
}

impl Printer<'_> {
    /// Finds the values of a ref.
    fn fill(&mut self, item: &Item<'_>) -> Result<()> {
        self.values.fill(item, &mut self.row)
    }

    /// Prints a ref; returns whether more may follow.
    fn print(&mut self, item: &Item<'_>) -> Result<bool> {
        match &mut self.lines {
            Some(lines) => lines.push(item.name.as_bytes(), &item.oid, None, self.out.buffer())?,
            None => {
                self.fill(item)?;
                let mut buffer = std::mem::take(self.out.buffer());
                let start = buffer.len();
                let pushed = self.push(&mut buffer);
                if pushed.is_err() {
                    // Nobody is to take half a line for a whole one.
                    buffer.truncate(start);
                }
                *self.out.buffer() = buffer;
                pushed?;
            }
        }
        self.printed()
    }

    /// Prints a line that was made before.
    fn print_made(&mut self, line: &[u8]) -> Result<bool> {
        self.out.buffer().extend_from_slice(line);
        self.printed()
    }

    fn printed(&mut self) -> Result<bool> {
        self.out.line_done()?;
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        Ok(self.left != Some(0))
    }

    /// Appends the line of the ref whose values are known.
    fn push(&self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        if self.settings.json {
            self.push_json(out);
        } else {
            self.format.push(&self.row, self.atoms, out)?;
        }
        end_line(start, self.settings.omit_empty, out);
        Ok(())
    }

    /// Appends an object whose keys are the atoms. A value that is no text is given in hexadecimal
    /// digits under a key with `_hex` at its end.
    fn push_json(&self, out: &mut Vec<u8>) {
        let mut object = Map::new();
        for index in self.format.atoms() {
            let Some(atom) = self.atoms.list().get(index) else {
                continue;
            };
            if atom.kind.is_of_blocks() {
                continue;
            }
            match std::str::from_utf8(self.row.value(index)) {
                Ok(text) => object.insert(atom.text.clone(), Json::String(text.to_owned())),
                Err(_) => {
                    let bytes = self.row.value(index).iter();
                    let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
                    object.insert(format!("{}_hex", atom.text), Json::String(hex))
                }
            };
        }
        out.extend_from_slice(Json::Object(object).to_string().as_bytes());
    }
}
