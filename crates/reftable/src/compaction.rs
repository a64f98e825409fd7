//! Which tables of a stack to compact: a pure function of their sizes.

use std::ops::Range;

/// Chooses the tables to compact so that every table is at least `factor` times as heavy as the
/// next newer one, as Git chooses them.
///
/// `weights` are those of [`Table::weight`](crate::Table::weight), oldest first. A factor of 0
/// stands for Git's default of 2. `None` if the tables are in proportion already.
///
/// ```
/// use reftable::compaction::choose;
/// assert_eq!(choose(&[64, 32, 16, 8, 4, 2, 1], 2), None);
/// assert_eq!(choose(&[64, 32, 16, 8, 4, 3, 1], 2), Some(0..6));
/// assert_eq!(choose(&[128, 32, 16, 8, 4, 3, 1], 2), Some(1..6));
/// ```
#[must_use]
pub fn choose(weights: &[u64], factor: u8) -> Option<Range<usize>> {
    choose_where(weights, factor, |_, _| true)
}

/// Chooses as [`choose`] does, but leaves older tables alone that are a small part of what would
/// have to be rewritten with them.
///
/// Each such table is so much lighter than what came after it that there can be but a few.
///
/// ```
/// use reftable::compaction::choose_worthwhile;
/// assert_eq!(choose_worthwhile(&[100, 9_000], 2), None);
/// assert_eq!(choose_worthwhile(&[100, 9_000, 30, 20], 2), Some(2..4));
/// assert_eq!(choose_worthwhile(&[1_000, 9_000], 2), Some(0..2));
/// ```
#[must_use]
pub fn choose_worthwhile(weights: &[u64], factor: u8) -> Option<Range<usize>> {
    choose_where(weights, factor, |older, newer| {
        older.saturating_mul(SMALL_PART) >= newer
    })
}

/// What part of the tables above it a table is at most if it is not worth rewriting them.
const SMALL_PART: u64 = 16;

fn choose_where(
    weights: &[u64],
    factor: u8,
    is_worthwhile: impl Fn(u64, u64) -> bool,
) -> Option<Range<usize>> {
    let factor = u64::from(if factor == 0 { FACTOR_DEFAULT } else { factor });
    let too_light = |older: u64, newer: u64| {
        older < newer.saturating_mul(factor) && is_worthwhile(older, newer)
    };

    // The newest pair out of proportion ends the range.
    let last = (1..weights.len())
        .rev()
        .find(|i| too_light(weights[i - 1], weights[*i]))?;
    // What will have been merged so far counts as one table; the oldest one out of proportion to
    // that starts the range, even if some between the two are in proportion.
    let mut merged = weights[last];
    let mut first = last;
    for i in (0..last).rev() {
        if too_light(weights[i], merged) {
            first = i;
        }
        merged = merged.saturating_add(weights[i]);
    }
    Some(first..last + 1)
}

/// What Git uses when nothing is configured.
const FACTOR_DEFAULT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_do() {
        assert_eq!(choose(&[], 2), None);
        assert_eq!(choose(&[1], 2), None);
        assert_eq!(choose(&[64, 32, 16, 8, 4, 2, 1], 2), None);
        assert_eq!(choose(&[64, 32, 16, 8, 4, 2, 1], 0), None);
    }

    #[test]
    fn the_newest_tables_may_stay() {
        assert_eq!(choose(&[64, 32, 16, 8, 4, 3, 1], 2), Some(0..6));
    }

    #[test]
    fn an_old_table_in_proportion_stays() {
        assert_eq!(choose(&[128, 32, 16, 8, 4, 3, 1], 2), Some(1..6));
    }

    #[test]
    fn equal_tables_are_all_taken() {
        assert_eq!(choose(&[3, 3], 2), Some(0..2));
        assert_eq!(choose(&[9, 9, 9, 9], 2), Some(0..4));
    }

    #[test]
    fn a_later_hit_moves_the_start_past_tables_in_proportion() {
        // 10 and 4 are in proportion to each other, 4 + 3 = 7 and 10 are not.
        assert_eq!(choose(&[10, 4, 3], 2), Some(0..3));
    }

    #[test]
    fn the_factor_counts() {
        assert_eq!(choose(&[6, 2], 3), None);
        assert_eq!(choose(&[5, 2], 3), Some(0..2));
    }
}
