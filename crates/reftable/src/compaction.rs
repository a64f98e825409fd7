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
    let factor = u64::from(if factor == 0 { FACTOR_DEFAULT } else { factor });
    let too_light = |older: u64, newer: u64| older < newer.saturating_mul(factor);

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
