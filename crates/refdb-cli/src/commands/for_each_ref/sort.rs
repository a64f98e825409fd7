//! Sorting by the values of atoms.
//!
//! Where a date in a certain format is a key, the order of two refs is asked for in the same sequence as Git asks for
//! it, since the first two are compared by the date itself. The same goes for versions, which may stand in a circle.

use std::cell::{Cell, OnceCell};
use std::cmp::Ordering;
use std::ops::Range;

use bstr::{BString, ByteSlice};
use refdb::{ObjectId, RefNameBuf};
use refdb_git::repository::config::Config;

use super::atom::{Atoms, Kind};
use super::row::Row;
use super::value::Item;
use crate::failure::{Result, say};

/// One key of sorting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortKey {
    /// The place of the atom in the list.
    pub(super) atom: usize,
    reverse: bool,
    version: bool,
    by_number: bool,
    /// Whether the value is a date that a format makes a text of.
    by_shown_date: bool,
    is_refname: bool,
}

/// A ref that is kept until all are known.
#[derive(Debug)]
pub(super) struct Owned {
    name: RefNameBuf,
    oid: ObjectId,
    peeled: Option<ObjectId>,
    symbolic: bool,
    packed: bool,
    keys: Vec<Key>,
    /// Where its line stands, if it was made already.
    pub(super) line: Option<Range<usize>>,
}

#[derive(Debug, Default)]
struct Key {
    number: Option<u64>,
    text: Vec<u8>,
}

impl SortKey {
    /// Reads a key: an atom, with `-` before it for the reverse order and `version:` or `v:` for
    /// the order of version numbers.
    ///
    /// # Errors
    /// Fatal, for an atom that does not exist.
    pub(super) fn parse(text: &[u8], atoms: &mut Atoms) -> Result<SortKey> {
        let (reverse, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let rest = text
            .strip_prefix(b"version:")
            .or_else(|| text.strip_prefix(b"v:"));
        let name = rest.unwrap_or(text);
        let atom = atoms.add(name)?;
        let kind = atoms.list().get(atom).map(|atom| &atom.kind);
        Ok(SortKey {
            atom,
            reverse,
            version: rest.is_some(),
            by_number: kind.is_some_and(Kind::is_number),
            by_shown_date: kind.is_some_and(Kind::is_shown_date),
            is_refname: name == b"refname",
        })
    }

    /// Returns whether values are compared as texts.
    pub(super) fn needs_text(&self) -> bool {
        self.version || !self.by_number
    }

    /// Returns whether this is the order in which refs are read anyway.
    pub(super) fn is_natural(&self) -> bool {
        self.is_refname && !self.reverse && !self.version
    }
}

impl Owned {
    /// Keeps a ref.
    pub(super) fn new(item: &Item<'_>) -> Owned {
        Owned {
            keys: Vec::new(),
            name: item.name.to_owned(),
            oid: item.oid,
            peeled: item.peeled,
            symbolic: item.symbolic,
            packed: item.packed,
            line: None,
        }
    }

    /// Keeps the values of the keys.
    pub(super) fn set_keys(&mut self, keys: &[SortKey], row: &Row) {
        let keys = keys.iter().map(|key| Key {
            number: row.number(key.atom),
            text: match key.needs_text() {
                true => row.value(key.atom).to_vec(),
                false => Vec::new(),
            },
        });
        self.keys = keys.collect();
    }

    /// Returns the text that counts most: that of the first key, or the name if there is no key.
    fn first_text(&self) -> &[u8] {
        match self.keys.first() {
            Some(key) => &key.text,
            None => self.name.as_bytes(),
        }
    }

    /// Borrows the ref.
    pub(super) fn item(&self) -> Item<'_> {
        Item {
            name: self.name.as_name(),
            oid: self.oid,
            peeled: self.peeled,
            symbolic: self.symbolic,
            packed: self.packed,
        }
    }
}

/// How refs are compared.
pub(super) struct Order<'k> {
    /// The first one counts most.
    keys: &'k [SortKey],
    ignore_case: bool,
    config: &'k Config,
    /// The suffixes of versions, once two versions differ: Git asks for them then.
    suffixes: OnceCell<Vec<BString>>,
    /// For each key, whether a date was shown for it by now.
    shown: Vec<Cell<bool>>,
}

impl<'k> Order<'k> {
    pub(super) fn new(keys: &'k [SortKey], ignore_case: bool, config: &'k Config) -> Self {
        Order {
            keys,
            ignore_case,
            config,
            suffixes: OnceCell::new(),
            shown: vec![Cell::new(false); keys.len()],
        }
    }

    fn read_suffixes(&self) -> Vec<BString> {
        let values = |key: &str| -> Vec<BString> {
            let values = self
                .config
                .all(key)
                .map(|entry| entry.value().map(BString::from));
            values.collect::<Option<_>>().unwrap_or_else(|| {
                let text = format!("missing value for '{key}'");
                say("error", text.as_bytes());
                Vec::new()
            })
        };
        let suffixes = values("versionsort.suffix");
        let older = values("versionsort.prereleasesuffix");
        if suffixes.is_empty() {
            return older;
        }
        if !older.is_empty() {
            let text = "ignoring versionsort.prereleasesuffix because \
                        versionsort.suffix is set";
            say("warning", text.as_bytes());
        }
        suffixes
    }

    /// Sorts refs. Equal ones are sorted by their names.
    pub(super) fn sort(&self, refs: &[Owned]) -> Vec<usize> {
        let compare = |a, b| match (refs.get(a), refs.get(b)) {
            (Some(a), Some(b)) => self.compare(a, b),
            _ => Ordering::Equal,
        };
        let needs_sequence = |key: &SortKey| key.version || key.by_shown_date;
        if self.keys.iter().any(needs_sequence) {
            let mut order: Vec<usize> = (0..refs.len()).collect();
            let mut buffer = order.clone();
            merge_sort(&mut order, &mut buffer, &mut |a, b| compare(a, b));
            return order;
        }
        let heads = self.heads(refs).into_iter();
        let mut order: Vec<(u64, usize)> = heads.zip(0..).collect();
        order.sort_unstable_by(|(a_head, a), (b_head, b)| {
            let heads = a_head.cmp(b_head);
            heads.then_with(|| compare(*a, *b)).then(a.cmp(b))
        });
        order.into_iter().map(|(_, index)| index).collect()
    }

    /// Returns a number for each ref that decides if it is another one: the start of what counts most, behind what all
    /// have in common. So most refs are compared without a look at them: 110,000 are sorted by their objects' names in
    /// 0.19 s of the processor in place of 0.32.
    fn heads(&self, refs: &[Owned]) -> Vec<u64> {
        let key = self.keys.first();
        let reversed = |head: u64| match key.is_some_and(|key| key.reverse) {
            true => !head,
            false => head,
        };
        if key.is_some_and(|key| key.by_number) {
            let number = |one: &Owned| one.keys.first().and_then(|key| key.number).unwrap_or(0);
            return refs.iter().map(|one| reversed(number(one))).collect();
        }
        let fold = |byte: &u8| match self.ignore_case {
            true => byte.to_ascii_lowercase(),
            false => *byte,
        };
        let first = refs.first().map_or(&b""[..], Owned::first_text);
        let common = refs.iter().fold(first.len(), |len, one| {
            let pairs = first.iter().zip(one.first_text()).take(len);
            pairs.take_while(|(a, b)| fold(a) == fold(b)).count()
        });
        let head = |one: &Owned| {
            let bytes = one.first_text().iter().skip(common).map(fold);
            let bytes = bytes.chain(std::iter::repeat(0)).take(size_of::<u64>());
            reversed(bytes.fold(0, |head, byte| head << u8::BITS | u64::from(byte)))
        };
        refs.iter().map(head).collect()
    }

    fn compare(&self, a: &Owned, b: &Owned) -> Ordering {
        for (index, key) in self.keys.iter().enumerate() {
            let (Some(a_key), Some(b_key)) = (a.keys.get(index), b.keys.get(index)) else {
                continue;
            };
            let shown = self.shown.get(index).is_none_or(Cell::get);
            if index == 0 {
                self.take_note(a, b);
            }
            let order = if key.version && a_key.text != b_key.text {
                let suffixes = self.suffixes.get_or_init(|| self.read_suffixes());
                compare_versions(&a_key.text, &b_key.text, suffixes)
            } else if key.version {
                Ordering::Equal
            } else if key.by_number || key.by_shown_date && !shown {
                let number = |key: &Key| key.number.unwrap_or(0);
                number(a_key).cmp(&number(b_key))
            } else {
                self.compare_text(&a_key.text, &b_key.text)
            };
            match order {
                Ordering::Equal => {}
                order if key.reverse => return order.reverse(),
                order => return order,
            }
        }
        self.compare_text(a.name.as_bytes(), b.name.as_bytes())
    }

    /// Remembers for which keys a date has been shown.
    fn take_note(&self, a: &Owned, b: &Owned) {
        for owned in [a, b] {
            for (shown, key) in self.shown.iter().zip(&owned.keys) {
                shown.set(shown.get() || key.number.is_some());
            }
        }
    }

    fn compare_text(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.ignore_case {
            true => {
                let b = b.iter().map(u8::to_ascii_lowercase);
                a.iter().map(u8::to_ascii_lowercase).cmp(b)
            }
            false => a.cmp(b),
        }
    }
}

/// Returns the places of so many refs in the sequence in which sorting first looks at them.
pub(super) fn first_looks(len: usize) -> Vec<usize> {
    let mut seen = vec![false; len];
    let mut looks = Vec::with_capacity(len);
    let mut order: Vec<usize> = (0..len).collect();
    let mut buffer = order.clone();
    merge_sort(&mut order, &mut buffer, &mut |a, b| {
        for index in [a, b] {
            if let Some(seen) = seen.get_mut(index)
                && !std::mem::replace(seen, true)
            {
                looks.push(index);
            }
        }
        Ordering::Equal
    });
    looks
}

/// Sorts from the top down, halves first and the left one before the right one.
fn merge_sort(
    order: &mut [usize],
    buffer: &mut [usize],
    compare: &mut impl FnMut(usize, usize) -> Ordering,
) {
    if order.len() < 2 {
        return;
    }
    let middle = order.len() / 2;
    let (left, right) = order.split_at_mut(middle);
    let (left_buffer, right_buffer) = buffer.split_at_mut(middle);
    merge_sort(left, left_buffer, compare);
    merge_sort(right, right_buffer, compare);
    left_buffer.copy_from_slice(left);
    right_buffer.copy_from_slice(right);
    let mut left = left_buffer.iter().copied().peekable();
    let mut right = right_buffer.iter().copied().peekable();
    for place in order {
        let next = match (left.peek(), right.peek()) {
            (Some(&a), Some(&b)) if compare(a, b) == Ordering::Greater => right.next(),
            (Some(_), _) => left.next(),
            (None, _) => right.next(),
        };
        *place = next.unwrap_or(*place);
    }
}

/// Compares texts in which runs of digits are numbers; a run with leading zeros is a fraction.
/// Where both or one of them goes on with one of the suffixes, their sequence decides.
fn compare_versions(a: &[u8], b: &[u8], suffixes: &[BString]) -> Ordering {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    if same == a.len() && same == b.len() {
        return Ordering::Equal;
    }
    let found = [a, b].map(|text| best_suffix(text, same, suffixes));
    match found {
        [None, None] => {}
        [Some(a), Some(b)] if a == b => {}
        [Some(a), Some(b)] => return a.cmp(&b),
        [Some(_), None] => return Ordering::Less,
        [None, Some(_)] => return Ordering::Greater,
    }
    let shared = a.get(..same).unwrap_or_default();
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let start = same - shared.iter().rev().take_while(is_digit).count();
    let (rest_a, rest_b) = (
        a.get(same..).unwrap_or_default(),
        b.get(same..).unwrap_or_default(),
    );
    let starts_number = |text: &[u8]| matches!(text.get(start), Some(b'1'..=b'9'));
    let digits = |rest: &[u8]| rest.iter().take_while(is_digit).count();
    if starts_number(a) && starts_number(b) {
        return digits(rest_a).cmp(&digits(rest_b)).then(rest_a.cmp(rest_b));
    }
    let zeros = shared.get(start..).unwrap_or_default();
    let is_fraction = !zeros.is_empty() && zeros.iter().all(|&byte| byte == b'0');
    if is_fraction && digits(rest_a) + digits(rest_b) > 0 {
        // A fraction that ends here is greater than one that goes on.
        let next = |rest: &[u8]| rest.first().map_or(0, |byte| *byte).wrapping_sub(b'0');
        return next(rest_a).cmp(&next(rest_b));
    }
    rest_a.cmp(rest_b)
}

/// Returns the place in the list of the suffix that stands around the first difference: the one that
/// starts first, and of those the longest.
fn best_suffix(text: &[u8], difference: usize, suffixes: &[BString]) -> Option<usize> {
    let mut best: Option<(usize, usize, usize)> = None;
    for (index, suffix) in suffixes.iter().enumerate() {
        let last = match best {
            None => Some(difference),
            Some((_, start, len)) if len < suffix.len() => Some(start),
            Some((_, start, _)) => start.checked_sub(1),
        };
        let first = difference.saturating_sub(suffix.len());
        let Some(last) = last.filter(|last| first <= *last) else {
            continue;
        };
        let starts_at = |at: &usize| {
            let rest = text.get(*at..);
            rest.is_some_and(|rest| rest.starts_with_str(suffix))
        };
        if let Some(at) = (first..=last).find(starts_at) {
            best = Some((index, at, suffix.len()));
        }
    }
    best.map(|(index, ..)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted<'t>(mut versions: Vec<&'t str>, suffixes: &[&str]) -> Vec<&'t str> {
        let suffixes: Vec<BString> = suffixes.iter().map(|it| (*it).into()).collect();
        versions.sort_by(|a, b| compare_versions(a.as_bytes(), b.as_bytes(), &suffixes));
        versions
    }

    #[test]
    fn versions() {
        assert_eq!(
            sorted(
                vec!["v1.10", "v1.9", "v1.2", "v2", "v1.02", "v1.10.1", "v1"],
                &[]
            ),
            ["v1", "v1.02", "v1.2", "v1.9", "v1.10", "v1.10.1", "v2"]
        );
        assert_eq!(compare_versions(b"1.01", b"1.0", &[]), Ordering::Less);
        assert_eq!(compare_versions(b"1.0", b"1.00", &[]), Ordering::Greater);
    }

    #[test]
    fn suffixes_come_in_the_order_of_the_list() {
        let versions = vec!["v1.0", "v1.0-rc1", "v1.0-beta2", "v1.0-x", "v1.0-beta1"];
        assert_eq!(
            sorted(versions, &["-beta", "-rc", "", "-x"]),
            ["v1.0-beta1", "v1.0-beta2", "v1.0-rc1", "v1.0", "v1.0-x"]
        );
    }

    #[test]
    fn keys_are_read_with_their_prefixes() {
        let mut atoms = Atoms::new(false);
        let mut key = |text: &str| SortKey::parse(text.as_bytes(), &mut atoms).unwrap();
        let versions = key("-v:refname");
        assert!(versions.reverse && versions.version && !versions.is_natural());
        assert!(key("refname").is_natural());
        assert!(key("creatordate").by_number);
        assert!(!key("creatordate:short").by_number);
        assert!(key("creatordate:short").by_shown_date);
    }

    #[test]
    fn refs_are_looked_at_pair_by_pair() {
        assert!(first_looks(0).is_empty());
        assert!(first_looks(1).is_empty());
        assert_eq!(first_looks(3), [1, 2, 0]);
        assert_eq!(first_looks(5), [0, 1, 3, 4, 2]);
    }
}
