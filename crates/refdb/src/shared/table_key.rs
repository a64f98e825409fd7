//! The names of tables on a shared place.
//!
//! A table has one name for ever, and no other table gets it: the name has 64 random bits. It says what
//! a collector has to know: up to which index the table goes, and which maintainer made it.

use std::fmt;
use std::str::FromStr;

/// What the name of a table says.
///
/// ```
/// use refdb::shared::TableKey;
/// let name = "m3-0x000000000001-0x00000000000b-70a0facc70a0facc.ref";
/// let key: TableKey = name.parse().unwrap();
/// assert_eq!((key.epoch, key.max), (Some(3), 11));
/// assert_eq!(key.to_string(), name);
/// assert!("../../x.ref".parse::<TableKey>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableKey {
    /// The epoch of the maintainer that merged it; `None` for a table that a commit brought.
    pub epoch: Option<u64>,
    /// The least update index.
    pub min: u64,
    /// The greatest update index.
    pub max: u64,
    /// What no other table has.
    pub random: u64,
}

impl fmt::Display for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(epoch) = self.epoch {
            write!(f, "m{epoch}-")?;
        }
        let TableKey {
            min, max, random, ..
        } = self;
        write!(f, "0x{min:012x}-0x{max:012x}-{random:016x}.ref")
    }
}

/// A name that is not that of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTableKey;

impl fmt::Display for NoTableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the name of a table")
    }
}

impl std::error::Error for NoTableKey {}

impl FromStr for TableKey {
    type Err = NoTableKey;

    fn from_str(name: &str) -> Result<TableKey, NoTableKey> {
        parse(name).ok_or(NoTableKey)
    }
}

fn parse(name: &str) -> Option<TableKey> {
    let stem = name.strip_suffix(".ref")?;
    let (epoch, rest) = match stem.strip_prefix('m') {
        Some(rest) => {
            let (epoch, rest) = rest.split_once('-')?;
            (Some(epoch.parse().ok()?), rest)
        }
        None => (None, stem),
    };
    let (min, rest) = rest.strip_prefix("0x")?.split_once("-0x")?;
    let (max, random) = rest.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let key = TableKey {
        epoch,
        min: number(min)?,
        max: number(max)?,
        random: number(random)?,
    };
    // One spelling only: what is compared as text is the same table.
    (key.to_string() == name && key.min <= key.max).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_spelling_is_a_name() {
        let good = "0x000000000001-0x00000000000b-00000000000000ff.ref";
        assert_eq!(good.parse::<TableKey>().unwrap().random, 255);
        for bad in [
            "",
            "store",
            "0x1-0xb-ff.ref",
            "0x00000000000b-0x000000000001-00000000000000ff.ref",
            "0x000000000001-0x00000000000B-00000000000000ff.ref",
            "m-0x000000000001-0x00000000000b-00000000000000ff.ref",
            "m01-0x000000000001-0x00000000000b-00000000000000ff.ref",
            "m+1-0x000000000001-0x00000000000b-00000000000000ff.ref",
            "../0x000000000001-0x00000000000b-00000000000000ff.ref",
            "0x000000000001-0x00000000000b-00000000000000ff.ref/x",
        ] {
            assert!(bad.parse::<TableKey>().is_err(), "{bad}");
        }
    }
}
