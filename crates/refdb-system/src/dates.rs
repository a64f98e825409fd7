//! When the date of a file tells one state of it from the next.

use std::time::Duration;

use crate::{Stat, platform};

/// A round date may have lost digits: those of FAT and of old inodes of ext4 have up to two seconds.
const SECONDS_MAX: Duration = Duration::from_millis(2050);

/// Returns whether what changes from `begun` on, by the clock of files, gets a later date than that. `is_exact` tells
/// whether files are dated by no other clock.
pub(crate) fn is_past(date_ns: i128, begun: Duration, is_exact: impl FnOnce() -> bool) -> bool {
    let nanos = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(0);
    let age_ns = nanos(begun).saturating_sub(date_ns);
    let is_round = |digits: Duration| date_ns % nanos(digits) == 0;
    let tick = match is_round(Duration::from_secs(1)) {
        true => platform::TICK_MAX.max(SECONDS_MAX),
        false => platform::TICK_MAX,
    };
    // Where all digits of a date are kept, that is so as soon as the clock has ticked: then one reading is enough, where
    // three were a fifth of what asks for the refs of an object, and a tenth of a migration. That Linux dates each
    // change by a finer clock since 6.13 does not help: it dates some before it makes them.
    age_ns > nanos(tick) || age_ns > 0 && !is_round(Duration::from_millis(1)) && is_exact()
}

impl Stat {
    /// Returns whether any change from `now` on gives the file another date than it has. When it changed is what its
    /// inode says; its content may be dated otherwise.
    pub fn is_settled(&self, now: Duration) -> bool {
        is_past(self.ctime_ns, now, || false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_just_changed_is_not_trusted_to_stay() {
        let second = Duration::from_secs(1);
        assert!(!is_past(999_000_000, second, || false));
        assert!(is_past(900_000_000, second, || false));
        assert!(!is_past(2_000_000_000, second, || false));
        assert!(!is_past(1_000_000_000, 3 * second, || false));
        assert!(is_past(1_000_000_000, 4 * second, || false));
    }
}
