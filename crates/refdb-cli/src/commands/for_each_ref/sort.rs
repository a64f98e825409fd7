//! Sorting by the values of atoms.

use std::cmp::Ordering;

use refdb::{ObjectId, RefNameBuf};

use super::atom::{Atom, Kind, Part};
use super::value::{Item, Values};
use crate::failure::Result;

/// One key of sorting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortKey {
    atom: Atom,
    reverse: bool,
    version: bool,
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
}

#[derive(Debug)]
enum Key {
    Number(i64),
    Text(Vec<u8>),
}

impl SortKey {
    /// Reads a key: an atom, with `-` before it for the reverse order and `version:` or `v:` for
    /// the order of version numbers.
    ///
    /// # Errors
    /// Fatal, for an atom that does not exist.
    pub(super) fn parse(text: &[u8]) -> Result<SortKey> {
        let (reverse, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let rest = text
            .strip_prefix(b"version:")
            .or_else(|| text.strip_prefix(b"v:"));
        Ok(SortKey {
            atom: Atom::parse(rest.unwrap_or(text))?,
            reverse,
            version: rest.is_some(),
        })
    }

    /// Returns whether this is the order in which refs are read anyway.
    pub(super) fn is_natural(&self) -> bool {
        self.atom.text == "refname" && !self.reverse && !self.version
    }

    /// Returns whether values are compared as numbers.
    fn is_numeric(&self) -> bool {
        match &self.atom.kind {
            Kind::ObjectSize | Kind::NumParent => true,
            // A date in a certain format is compared as the text that it is.
            Kind::Person(_, Part::Date(_)) => {
                let (_, format) = self.atom.text.split_once(':').unwrap_or_default();
                format.is_empty()
            }
            _ => false,
        }
    }
}

impl Owned {
    /// Keeps a ref with the values of the keys.
    pub(super) fn new(item: Item<'_>, keys: &[SortKey], values: &mut Values<'_>) -> Result<Owned> {
        let keys = keys.iter().map(|key| {
            if key.is_numeric() && !key.version {
                return values.number(&key.atom, item).map(Key::Number);
            }
            let mut text = Vec::new();
            values.push(&key.atom, item, &mut text)?;
            Ok(Key::Text(text))
        });
        Ok(Owned {
            keys: keys.collect::<Result<_>>()?,
            name: item.name.to_owned(),
            oid: item.oid,
            peeled: item.peeled,
            symbolic: item.symbolic,
            packed: item.packed,
        })
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

/// Sorts refs; `keys` begins with the one that counts most. Equal refs are sorted by their names.
pub(super) fn sort(refs: &mut [Owned], keys: &[SortKey], ignore_case: bool) {
    let text = |a: &[u8], b: &[u8]| match ignore_case {
        true => a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()),
        false => a.cmp(b),
    };
    refs.sort_by(|a, b| {
        let values = a.keys.iter().zip(&b.keys);
        let by_keys = keys.iter().zip(values).map(|(key, values)| {
            let order = match values {
                (Key::Number(a), Key::Number(b)) => a.cmp(b),
                (Key::Text(a), Key::Text(b)) if key.version => compare_versions(a, b),
                (Key::Text(a), Key::Text(b)) => text(a, b),
                _ => Ordering::Equal,
            };
            if key.reverse { order.reverse() } else { order }
        });
        by_keys
            .fold(Ordering::Equal, Ordering::then)
            .then_with(|| text(a.name.as_bytes(), b.name.as_bytes()))
    });
}

/// Compares texts in which runs of digits are numbers; a run with leading zeros is a fraction.
fn compare_versions(a: &[u8], b: &[u8]) -> Ordering {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let mut versions = ["v1.10", "v1.9", "v1.2", "v2", "v1.02", "v1.10.1", "v1"];
        versions.sort_by(|a, b| compare_versions(a.as_bytes(), b.as_bytes()));
        assert_eq!(
            versions,
            ["v1", "v1.02", "v1.2", "v1.9", "v1.10", "v1.10.1", "v2"]
        );
        assert_eq!(compare_versions(b"1.01", b"1.0"), Ordering::Less);
        assert_eq!(compare_versions(b"1.0", b"1.00"), Ordering::Greater);
    }

    #[test]
    fn keys_are_read_with_their_prefixes() {
        let key = SortKey::parse(b"-v:refname").unwrap();
        assert!(key.reverse && key.version && !key.is_natural());
        assert!(SortKey::parse(b"refname").unwrap().is_natural());
        assert!(SortKey::parse(b"creatordate").unwrap().is_numeric());
        assert!(!SortKey::parse(b"creatordate:short").unwrap().is_numeric());
    }
}
