//! Damage to files, as a disk, a crash or a careless hand does it.
//!
//! The same seed does the same damage to the same bytes.
//!
//! ```
//! use refdb_testkit::{damage::Damage, rng::Rng};
//!
//! let mut bytes = b"some table".to_vec();
//! let damage = Damage::any(&mut Rng::new(3), &bytes);
//! damage.apply(&mut bytes);
//! assert_ne!(bytes, b"some table");
//! ```

pub mod corpus;

mod loose;
mod stack;
mod tables;

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::rng::Rng;

pub(crate) use tables::crc32;

/// One damage to a string of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Only the first bytes are left.
    Truncate(usize),
    /// One bit is the other way round: (offset, bit).
    Flip(usize, u8),
    /// A range holds zeros, as after a crash that lost the content but kept the length.
    Zero(Range<usize>),
    /// Two neighbouring ranges changed places.
    Swap(Range<usize>, Range<usize>),
    /// A range stands there twice.
    Repeat(Range<usize>),
}

impl Damage {
    /// Chooses a damage that changes `bytes`.
    ///
    /// # Panics
    ///
    /// If there are no bytes.
    pub fn any(rng: &mut Rng, bytes: &[u8]) -> Damage {
        loop {
            let damage = match rng.below(5) {
                0 => Damage::truncate(rng, bytes.len()),
                1 => Damage::flip(rng, bytes.len()),
                2 => Damage::zero(rng, bytes.len()),
                3 => Damage::swap(rng, bytes.len()),
                _ => Damage::Repeat(range(rng, bytes.len())),
            };
            let mut damaged = bytes.to_vec();
            damage.apply(&mut damaged);
            if damaged != bytes {
                return damage;
            }
        }
    }

    /// Chooses where the file ends early, at the very front with extra weight.
    ///
    /// # Panics
    ///
    /// If `len` is 0.
    pub fn truncate(rng: &mut Rng, len: usize) -> Damage {
        Damage::Truncate(if rng.percent(20) { 0 } else { rng.below(len) })
    }

    /// Chooses a bit to flip.
    ///
    /// # Panics
    ///
    /// If `len` is 0.
    pub fn flip(rng: &mut Rng, len: usize) -> Damage {
        Damage::Flip(rng.below(len), *rng.pick(&[0, 1, 2, 3, 4, 5, 6, 7]))
    }

    /// Chooses a range to fill with zeros: often the end, where unwritten bytes are.
    ///
    /// # Panics
    ///
    /// If `len` is 0.
    pub fn zero(rng: &mut Rng, len: usize) -> Damage {
        if rng.percent(50) {
            Damage::Zero(rng.below(len)..len)
        } else {
            Damage::Zero(range(rng, len))
        }
    }

    /// Chooses two neighbouring ranges.
    ///
    /// # Panics
    ///
    /// If `len` is 0.
    pub fn swap(rng: &mut Rng, len: usize) -> Damage {
        let both = range(rng, len);
        let middle = both.start + rng.below(both.len());
        Damage::Swap(both.start..middle, middle..both.end)
    }

    /// Swaps two neighbouring lines, the usual unit of a text file: `packed-refs`, `tables.list`,
    /// a reflog. A text of fewer than two lines is left as it is.
    pub fn swap_lines(rng: &mut Rng, bytes: &[u8]) -> Option<Damage> {
        let mut lines = Vec::new();
        let mut start = 0;
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            lines.push(start..start + line.len());
            start += line.len();
        }
        let first = rng.below(lines.len().checked_sub(1).filter(|n| *n > 0)?);
        Some(Damage::Swap(lines[first].clone(), lines[first + 1].clone()))
    }

    /// Does the damage. Ranges beyond the end do nothing.
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Damage::Truncate(len) => bytes.truncate(*len),
            Damage::Flip(offset, bit) => {
                if let Some(byte) = bytes.get_mut(*offset) {
                    *byte ^= 1 << bit;
                }
            }
            Damage::Zero(range) => {
                if let Some(part) = bytes.get_mut(range.clone()) {
                    part.fill(0);
                }
            }
            Damage::Swap(first, second) => {
                if let Some(part) = bytes.get_mut(first.start..second.end) {
                    part.rotate_left(first.len());
                }
            }
            Damage::Repeat(range) => {
                if range.end <= bytes.len() {
                    bytes.extend_from_within(range.clone());
                    bytes[range.end..].rotate_right(range.len());
                }
            }
        }
    }

    /// Does the damage to a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written.
    pub fn apply_to(&self, file: &Path) -> io::Result<()> {
        let mut bytes = fs::read(file)?;
        self.apply(&mut bytes);
        fs::write(file, bytes)
    }
}

/// Chooses a range that is not empty.
fn range(rng: &mut Rng, len: usize) -> Range<usize> {
    let start = rng.below(len);
    start..start + 1 + rng.below(len - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(damage: Damage, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        damage.apply(&mut bytes);
        String::from_utf8(bytes).expect("still text")
    }

    #[test]
    fn each_kind_does_what_it_says() {
        assert_eq!(damaged(Damage::Truncate(3), "abcdef"), "abc");
        assert_eq!(damaged(Damage::Flip(1, 0), "abcdef"), "accdef");
        assert_eq!(damaged(Damage::Zero(4..6), "abcdef"), "abcd\0\0");
        assert_eq!(damaged(Damage::Swap(1..2, 2..4), "abcdef"), "acdbef");
        assert_eq!(damaged(Damage::Repeat(1..3), "abcdef"), "abcbcdef");
    }

    #[test]
    fn lines_are_swapped_whole() {
        let text = "one\ntwo\n";
        let damage = Damage::swap_lines(&mut Rng::new(1), text.as_bytes()).expect("two lines");
        assert_eq!(damaged(damage, text), "two\none\n");
        assert_eq!(Damage::swap_lines(&mut Rng::new(1), b"one\n"), None);
    }

    #[test]
    fn any_damage_changes_the_bytes_and_repeats_with_its_seed() {
        for seed in 0..500 {
            let bytes = b"x0x0x0\0\0\0".to_vec();
            let damage = Damage::any(&mut Rng::new(seed), &bytes);
            assert_eq!(
                damage,
                Damage::any(&mut Rng::new(seed), &bytes),
                "seed {seed}"
            );
            let mut damaged = bytes.clone();
            damage.apply(&mut damaged);
            assert_ne!(damaged, bytes, "seed {seed}");
        }
    }
}
