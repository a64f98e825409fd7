//! The calendar: days and times of day to seconds since 1970 and back, in UTC and locally.

use super::Zone;

const SECONDS_PER_DAY: i64 = 86_400;
const DAYS_IN_400_YEARS: i64 = 146_097;

/// A day and a time of day. Parts beyond their range carry over: the 32nd of a month is a day of
/// the next one.
///
/// ```
/// let civil = refdb_git::date::Civil::from_seconds(1_700_000_000);
/// assert_eq!((civil.year, civil.month, civil.day), (2023, 11, 14));
/// assert_eq!(civil.weekday(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year; 0 is the one before the year 1.
    pub year: i64,
    /// From 1 for January.
    pub month: i64,
    /// From 1.
    pub day: i64,
    /// From 0.
    pub hour: i64,
    /// From 0.
    pub minute: i64,
    /// From 0.
    pub second: i64,
}

impl Civil {
    /// Returns the seconds since 1970 if this is a time in UTC.
    pub(super) fn seconds(self) -> i64 {
        let months = self.year * 12 + self.month - 1;
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        let days = days_to_month(year, month) + self.day - 1;
        days.saturating_mul(SECONDS_PER_DAY)
            .saturating_add(self.hour * 3600 + self.minute * 60 + self.second)
    }

    /// Returns the seconds since 1970 if this is a time in `zone`.
    pub(super) fn seconds_in(self, zone: &Zone) -> i64 {
        let seconds = self.seconds();
        let guess = seconds - i64::from(zone.offset(seconds));
        seconds - i64::from(zone.offset(guess))
    }

    /// Returns the time in UTC, so many seconds since 1970.
    pub fn from_seconds(seconds: i64) -> Civil {
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        let rest = seconds.rem_euclid(SECONDS_PER_DAY);
        // The year is this one or one of the two before it.
        let mut year = 1971 + (days * 400).div_euclid(DAYS_IN_400_YEARS);
        while days_to_month(year, 1) > days {
            year -= 1;
        }
        let month = (1..=12)
            .rev()
            .find(|&month| days_to_month(year, month) <= days);
        let month = month.unwrap_or(1);
        Civil {
            year,
            month,
            day: days - days_to_month(year, month) + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    /// Returns the time in `zone`, so many seconds since 1970.
    pub(super) fn at(seconds: i64, zone: &Zone) -> Civil {
        Civil::from_seconds(seconds.saturating_add(i64::from(zone.offset(seconds))))
    }

    /// Returns the day of the week, from 0 for Sunday.
    pub fn weekday(self) -> i64 {
        // The first day of 1970 was a Thursday.
        (self.seconds().div_euclid(SECONDS_PER_DAY) + 4).rem_euclid(7)
    }
}

/// Returns the days from the start of 1970 to the start of a month.
fn days_to_month(year: i64, month: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let past = year - 1;
    let leap_days = past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400);
    let is_leap = year.rem_euclid(4) == 0 && year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0;
    let index = usize::try_from(month - 1).unwrap_or(0);
    let before = BEFORE.get(index).copied().unwrap_or(0);
    // 477 leap days lie before 1970.
    let leap_day = i64::from(is_leap && month > 2);
    (year - 1970) * 365 + leap_days - 477 + before + leap_day
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_seconds() {
        for (seconds, date) in [
            (0, (1970, 1, 1)),
            (951_782_400, (2000, 2, 29)),
            (1_582_934_400, (2020, 2, 29)),
            (1_609_372_800, (2020, 12, 31)),
            (4_107_542_400, (2100, 3, 1)),
            (-86_400, (1969, 12, 31)),
        ] {
            let civil = Civil::from_seconds(seconds);
            assert_eq!((civil.year, civil.month, civil.day), date);
            assert_eq!(civil.seconds(), seconds);
        }
        for seconds in [i64::MIN, -1 << 53, -62_135_596_801, 1 << 53, i64::MAX] {
            let civil = Civil::from_seconds(seconds);
            assert!(
                (1..=12).contains(&civil.month) && (1..=31).contains(&civil.day),
                "{civil:?}"
            );
            assert!(civil.seconds().abs_diff(seconds) <= 86_400, "{civil:?}");
        }
        for seconds in (0..4_000_000_000).step_by(12_345_678) {
            assert_eq!(Civil::from_seconds(seconds).seconds(), seconds);
        }
    }

    #[test]
    fn parts_carry_over() {
        let civil = |year, month, day| Civil {
            year,
            month,
            day,
            hour: 0,
            minute: 0,
            second: 0,
        };
        assert_eq!(civil(2021, 2, 31).seconds(), civil(2021, 3, 3).seconds());
        assert_eq!(civil(2021, 14, 1).seconds(), civil(2022, 2, 1).seconds());
        assert_eq!(civil(2022, 0, 1).seconds(), civil(2021, 12, 1).seconds());
        assert_eq!(civil(2022, 8, 18).weekday(), 4);
    }
}
