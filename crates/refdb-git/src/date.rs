//! Dates as people write them, read as Git reads them.
//!
//! [`parse`] takes a full date with a time and is strict: it is for times that get recorded.
//! [`approximate`] takes anything from `yesterday` to `3.weeks.ago`: it is for questions.
//!
//! ```
//! use refdb_git::date::{self, Zone};
//! let zone = Zone::utc();
//! assert_eq!(date::parse(b"@1700000000 +0230", 0, &zone), Some((1_700_000_000, 230)));
//! assert_eq!(date::parse(b"2023-11-14 22:13:20", 0, &zone), Some((1_700_000_000, 0)));
//! assert_eq!(date::parse(b"yesterday", 0, &zone), None);
//! assert_eq!(date::approximate(b"2 hours ago", 1_700_007_200, &zone), Some(1_700_000_000));
//! assert_eq!(date::approximate(b"nonsense", 0, &zone), None);
//! ```

mod approximate;
mod civil;
mod zone;

use std::ops::Range;

use bstr::ByteSlice;

pub use approximate::approximate;
pub use civil::Civil;
pub use zone::Zone;
pub(crate) use zone::mail_date;

/// Numbers from here on are seconds since 1970, and no part of a date.
const EPOCH_MIN: i64 = 100_000_000;

/// The years that dates are read of, unless `@` stands before the number.
const YEARS: Range<i64> = 1970..2100;

/// The last second of the last of these years.
const EPOCH_MAX: i64 = 4_102_444_799;

/// Reads a date with a time: seconds since 1970, and the zone as the decimal number `HHMM` with
/// its sign. A date that names no zone is one of `zone`. What lies behind `now` may show which of two numbers is the
/// month.
pub fn parse(text: &[u8], now: i64, zone: &Zone) -> Option<(u64, i16)> {
    let (seconds, offset) = raw(text).or_else(|| {
        let mut fields = Fields::at(now);
        fields.read(text);
        fields.finish(zone)
    })?;
    Some((seconds, zone::decimal(offset)))
}

/// Reads `@<seconds> <zone>`.
fn raw(text: &[u8]) -> Option<(u64, i32)> {
    let text = text.trim_ascii().strip_prefix(b"@")?;
    let (seconds, zone) = text.split_once_str(" ")?;
    let (sign, digits) = zone.split_first()?;
    let are_digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    if !matches!(sign, b'+' | b'-')
        || digits.len() != 4
        || !are_digits(digits)
        || !are_digits(seconds)
        || seconds.is_empty()
    {
        return None;
    }
    // Whatever its hours and minutes, it is the zone.
    let offset = hours_and_minutes(value(digits))?;
    let offset = if *sign == b'-' { -offset } else { offset };
    // The greatest number is how Git says that there is none.
    let is_moment = |&seconds: &u64| seconds < u64::MAX;
    Some((unsigned(seconds).filter(is_moment)?, offset))
}

/// The parts of a date that were found so far.
#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    time: Option<(i64, i64, i64)>,
    // In seconds, east of Greenwich.
    offset: Option<i32>,
    // Whether seconds since 1970 came first: what follows changes the fields of that moment in UTC, and a zone is only
    // the one to show it in.
    is_utc: bool,
    // Whether a `T` before digits said that a time follows, be it an hour alone.
    begins_time: bool,
    // What the clock shows, in seconds since 1970.
    now: i64,
}

impl Fields {
    fn at(now: i64) -> Self {
        Fields {
            now,
            ..Fields::default()
        }
    }

    /// Reads part after part; what is no part of a date is left out.
    fn read(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some(&byte) = rest.first() {
            let len = match byte {
                byte if byte.is_ascii_alphabetic() => self.word(rest),
                byte if byte.is_ascii_digit() => self.number(rest),
                b'+' | b'-' => {
                    let (offset, len) = zone_offset(rest);
                    // A minute to the west is how Git says that it knows of no zone.
                    self.offset = offset.or(self.offset).filter(|&it| it != -60);
                    len
                }
                _ => 1,
            };
            rest = rest.get(len..).unwrap_or_default();
        }
    }

    fn finish(self, zone: &Zone) -> Option<(u64, i32)> {
        let (hour, minute, second) = self.time?;
        let civil = Civil {
            // Another year without its zone is none, whatever the zone makes of it.
            year: self.year.filter(|year| YEARS.contains(year))?,
            month: self.month?,
            // Git counts from the day that it has not found.
            day: self.day.unwrap_or(-1),
            hour,
            minute,
            second,
        };
        let seconds = match self.offset {
            _ if self.is_utc => civil.seconds(),
            Some(offset) => civil.seconds() - i64::from(offset),
            None => civil.seconds_in(zone),
        };
        // A zone leads out of the last year, but the 24th hour and the 60th second may.
        if seconds > EPOCH_MAX && civil.seconds() <= EPOCH_MAX {
            return None;
        }
        let offset = self.offset.unwrap_or_else(|| zone.offset(seconds));
        Some((u64::try_from(seconds).ok()?, offset))
    }

    /// Reads a word at the start of `text`: a month, a zone, or half of a day.
    fn word(&mut self, text: &[u8]) -> usize {
        let word = leading(text, |byte| byte.is_ascii_alphabetic());
        if text.get(word.len()).is_some_and(u8::is_ascii_digit) {
            self.begins_time |= word == b"T";
        } else if let Some(month) = month_of(word) {
            self.month = Some(month);
        } else if word.eq_ignore_ascii_case(b"PM") || word.eq_ignore_ascii_case(b"AM") {
            if let Some((hour, ..)) = &mut self.time {
                let half = if word.eq_ignore_ascii_case(b"PM") {
                    12
                } else {
                    0
                };
                *hour = *hour % 12 + half;
            }
        } else if self.offset.is_none()
            && let Some(hours) = zone_of(word)
        {
            self.offset = Some(hours * 3600);
        }
        word.len()
    }

    /// Reads a number at the start of `text`, and those that belong to it.
    fn number(&mut self, text: &[u8]) -> usize {
        let digits = leading(text, |byte| byte.is_ascii_digit());
        let number = value(digits);
        if number >= EPOCH_MIN && self.moment(digits) {
            return digits.len();
        }
        if let Some(len) = self.several(text) {
            return len;
        }
        match digits.len() {
            8 => {
                self.date(Some(number / 10_000), number / 100 % 100, number % 100);
            }
            6 => {
                self.clock(number / 10_000, number / 100 % 100, number % 100);
                let after = text.get(6..).unwrap_or_default();
                return 6 + fraction_len(after);
            }
            len => self.single(len, number),
        }
        digits.len()
    }

    /// Takes a number that stands alone, of so many digits: an hour, a zone, a year, a day or a month.
    fn single(&mut self, len: usize, number: i64) {
        let begins_time = std::mem::take(&mut self.begins_time) && self.time.is_none();
        let short_time = match len {
            2 if begins_time => Some((number, 0)),
            4 if begins_time => Some((number / 100, number % 100)),
            _ => None,
        };
        if let Some((hour, minute)) = short_time
            && self.clock(hour, minute, 0)
        {
            return;
        }
        match (len, number) {
            // A zone without its sign, anywhere, whatever its minutes.
            (4, ..=1400) if self.offset.is_none() => {
                self.offset = hours_and_minutes(number);
            }
            (4, 1901..2100) => self.year = Some(number),
            (1 | 2, 1..32) if self.day.is_none() => self.day = Some(number),
            (2, 70..100) if self.year.is_none() => self.year = Some(1900 + number),
            (2, 0..10) if self.year.is_none() && self.day.is_some() => {
                self.year = Some(2000 + number);
            }
            (1 | 2, 1..13) if self.month.is_none() => self.month = Some(number),
            _ => {}
        }
    }

    /// Takes digits for seconds since 1970, if nothing was found before them, and tells whether they are.
    fn moment(&mut self, digits: &[u8]) -> bool {
        let is_empty = self.year.is_none() && self.month.is_none() && self.day.is_none();
        if !is_empty || self.time.is_some() || self.begins_time {
            return false;
        }
        // Git hands them to the system as a number with a sign.
        let civil = Civil::from_seconds(unsigned(digits).unwrap_or(u64::MAX).cast_signed());
        self.time = Some((civil.hour, civil.minute, civil.second));
        // Of a year that the system cannot count it finds out only the time of day.
        self.is_utc = i32::try_from(civil.year - 1900).is_ok();
        if self.is_utc {
            (self.year, self.month, self.day) =
                (Some(civil.year), Some(civil.month), Some(civil.day));
        }
        self.is_utc
    }

    /// Reads numbers that a separator binds together: a time or a date, of which the year may be missing. A date that
    /// does not begin with its year, but comes behind its time, and more than ten days after now, is none. Returns the
    /// length of what was read.
    fn several(&mut self, text: &[u8]) -> Option<usize> {
        let first = leading(text, |byte| byte.is_ascii_digit());
        let separator = *text.get(first.len())?;
        let rest = text.get(first.len() + 1..)?;
        let second = leading(rest, |byte| byte.is_ascii_digit());
        if second.is_empty() || !matches!(separator, b':' | b'-' | b'/' | b'.') {
            return None;
        }
        let mut len = first.len() + 1 + second.len();
        let after = text.get(len..).unwrap_or_default();
        let third = match after.split_first() {
            Some((&byte, rest)) if byte == separator => leading(rest, |byte| byte.is_ascii_digit()),
            _ => b"",
        };
        let (a, b, c) = (value(first), value(second), value(third));
        if !third.is_empty() {
            len += 1 + third.len();
        }
        let year = (!third.is_empty()).then_some(c);
        let orders = match separator {
            b'.' => [(b, a), (a, b)],
            _ => [(a, b), (b, a)],
        };
        let is_read = match separator {
            b':' => self.clock(a, b, c),
            _ => {
                let may_begin = a > 70 && year.is_some();
                may_begin && (self.date(Some(a), b, c) || self.date(Some(a), c, b))
                    || orders
                        .iter()
                        .any(|&(month, day)| self.past_date(year, month, day))
            }
        };
        if !is_read {
            return None;
        }
        // Behind a time that comes before its date there may be a zone.
        let has_date = self.year.is_some() && self.month.is_some() && self.day.is_some();
        if separator == b':' && has_date {
            len += fraction_len(text.get(len..).unwrap_or_default());
        }
        Some(len)
    }

    fn clock(&mut self, hour: i64, minute: i64, second: i64) -> bool {
        let is_time = hour < 25 && minute < 60 && second <= 60;
        if is_time {
            self.time = Some((hour, minute, second));
        }
        is_time
    }

    /// Takes a date, if it is one. As in Git, month and day are kept of one whose year is none.
    fn date(&mut self, year: Option<i64>, month: i64, day: i64) -> bool {
        if !(1..13).contains(&month) || !(1..32).contains(&day) {
            return false;
        }
        (self.month, self.day) = (Some(month), Some(day));
        match year {
            Some(year @ 1970..2100) => self.year = Some(year),
            Some(year @ 71..100) => self.year = Some(1900 + year),
            Some(year @ 0..38) => self.year = Some(2000 + year),
            Some(_) => return false,
            None => {}
        }
        true
    }

    /// Takes a date that does not begin with its year, if it is one and not too late.
    fn past_date(&mut self, year: Option<i64>, month: i64, day: i64) -> bool {
        let mut found = Fields {
            year: None,
            ..*self
        };
        let is_date = found.date(year, month, day) && !found.is_later();
        if is_date {
            self.year = found.year.or(self.year);
            (self.month, self.day) = (found.month, found.day);
        }
        is_date
    }

    /// Returns whether a date with its time comes more than ten days after now; without a year it is one of this year.
    fn is_later(&self) -> bool {
        let (Some(month), Some(day), Some(time)) = (self.month, self.day, self.time) else {
            return false;
        };
        let (hour, minute, second) = time;
        // As in Git, whatever the zone is.
        let year = self
            .year
            .unwrap_or_else(|| Civil::from_seconds(self.now).year);
        let date = Civil {
            year,
            month,
            day,
            hour,
            minute,
            second,
        };
        self.now.saturating_add(10 * 86_400) < date.seconds()
    }
}

/// Reads `+HHMM`, `+HH:MM` or `+HH`; gives seconds east of Greenwich, if that is a zone, and the length.
/// What is none is no other part of a date either.
fn zone_offset(text: &[u8]) -> (Option<i32>, usize) {
    let after = |at| text.get(at..).unwrap_or_default();
    let digits = leading(after(1), u8::is_ascii_digit);
    let mut len = 1 + digits.len();
    let (hours, minutes) = match digits.len() {
        2 if text.get(len) == Some(&b':') => {
            let (minutes, width) = padded_number(after(len + 1));
            len += if width == 0 { 0 } else { 1 + width };
            // Of minutes that are missing the hours are none.
            (value(digits), minutes.filter(|_| width == 2))
        }
        2 => (value(digits), Some(0)),
        4 => (value(digits) / 100, Some(value(digits) % 100)),
        _ => (0, None),
    };
    let is_zone = |&minutes: &i64| hours < 24 && minutes < 60;
    let offset = minutes
        .filter(is_zone)
        .and_then(|minutes| i32::try_from((hours * 60 + minutes) * 60).ok());
    let is_west = text.starts_with(b"-");
    (offset.map(|it| if is_west { -it } else { it }), len)
}

/// Reads a number that may have space and a sign before it, which count as digits of it; gives the width as well, which
/// is 0 if there is none.
fn padded_number(text: &[u8]) -> (Option<i64>, usize) {
    let space = leading(text, |byte| matches!(byte, b' ' | b'\t'..=b'\r')).len();
    let rest = text.get(space..).unwrap_or_default();
    let (sign, rest) = match rest.split_first() {
        Some((b'+', rest)) => (Some(1), rest),
        Some((b'-', rest)) => (Some(-1), rest),
        _ => (None, rest),
    };
    match leading(rest, u8::is_ascii_digit) {
        b"" => (None, 0),
        digits => {
            let width = space + usize::from(sign.is_some()) + digits.len();
            (Some(sign.unwrap_or(1) * value(digits)), width)
        }
    }
}

/// Returns the seconds of hours and minutes that are written as one number, whatever the minutes.
fn hours_and_minutes(number: i64) -> Option<i32> {
    i32::try_from(number / 100 * 3600 + number % 100 * 60).ok()
}

/// Returns the length of a fraction of a second at the start of `text`.
fn fraction_len(text: &[u8]) -> usize {
    match text.strip_prefix(b".") {
        Some(rest) => match leading(rest, |byte| byte.is_ascii_digit()) {
            b"" => 0,
            digits => 1 + digits.len(),
        },
        None => 0,
    }
}

/// Returns the bytes at the start that are of a kind.
fn leading(text: &[u8], is: impl Fn(&u8) -> bool) -> &[u8] {
    let end = text.iter().position(|byte| !is(byte));
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// Returns the value of digits; the greatest one if it is too large.
fn value(digits: &[u8]) -> i64 {
    let value = unsigned(digits).and_then(|value| i64::try_from(value).ok());
    value.unwrap_or(i64::MAX)
}

/// Returns the value of digits, unless it is too large.
fn unsigned(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |value, &digit| {
        let digit = u64::from(digit.saturating_sub(b'0'));
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// The English names of the months, which Git reads and writes whatever the language is.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Returns the number of a month whose name, or the first letters of it, a word is.
fn month_of(word: &[u8]) -> Option<i64> {
    let index = MONTHS.iter().position(|name| is_short_for(word, name, 3))?;
    i64::try_from(index).ok().map(|index| index + 1)
}

/// Returns whether `word` is `name`, or at least its first `min` letters.
fn is_short_for(word: &[u8], name: &str, min: usize) -> bool {
    let start = name.as_bytes().get(..word.len());
    word.len() >= min && start.is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Returns the offset in hours of a zone that has a name.
fn zone_of(word: &[u8]) -> Option<i32> {
    const ZONES: [(&str, i32); 44] = [
        ("IDLW", -12),
        ("NT", -11),
        ("CAT", -10),
        ("HST", -10),
        ("HDT", -9),
        ("YST", -9),
        ("YDT", -8),
        ("PST", -8),
        ("PDT", -7),
        ("MST", -7),
        ("MDT", -6),
        ("CST", -6),
        ("CDT", -5),
        ("EST", -5),
        ("EDT", -4),
        ("AST", -3),
        ("ADT", -2),
        ("WAT", -1),
        ("GMT", 0),
        ("UTC", 0),
        ("Z", 0),
        ("WET", 0),
        ("BST", 1),
        ("CET", 1),
        ("FWT", 1),
        ("MET", 1),
        ("MEWT", 1),
        ("CEST", 2),
        ("EET", 2),
        ("FST", 2),
        ("MEST", 2),
        ("MESZ", 2),
        ("EEST", 3),
        ("WAST", 7),
        ("CCT", 8),
        ("WADT", 8),
        ("JST", 9),
        ("EAST", 10),
        ("GST", 10),
        ("EADT", 11),
        ("IDLE", 12),
        ("NZST", 12),
        ("NZT", 12),
        ("NZDT", 13),
    ];
    let is_named = |(name, _): &&(&str, i32)| word.eq_ignore_ascii_case(name.as_bytes());
    ZONES.iter().find(is_named).map(|&(_, hours)| hours)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Noon of the last day of November 2026.
    const NOW: i64 = 1_796_040_000;

    /// Checks what dates are read as: seconds since 1970, and the zone.
    fn assert_dates(dates: &[(&str, u64, i16)]) {
        for &(text, seconds, zone) in dates {
            assert_eq!(
                parse(text.as_bytes(), NOW, &Zone::utc()),
                Some((seconds, zone)),
                "{text}"
            );
        }
    }

    #[test]
    fn full_dates() {
        assert_dates(&[
            ("@1 +0000", 1, 0),
            ("@99999999999999 -0930", 99_999_999_999_999, -930),
            ("1700000000 +0230", 1_700_000_000, 230),
            ("100000000 -0530", 100_000_000, -530),
            ("4102444799 +0000", 4_102_444_799, 0),
            ("2022-08-18 12:45:06 +0800", 1_660_797_906, 800),
            ("2022-08-18T12:45:06.123+01:00", 1_660_823_106, 100),
            ("Thu, 18 Aug 2022 12:45:06 -0730", 1_660_853_706, -730),
            ("Thu Aug 18 12:45:06 2022 +0000", 1_660_826_706, 0),
            ("2022.08.18 10:00 Z", 1_660_816_800, 0),
            ("08/18/2022 10:00 GMT", 1_660_816_800, 0),
            ("18.08.2022 10:00 GMT", 1_660_816_800, 0),
            ("2022-08-18 12:45:06 EST", 1_660_844_706, -500),
            ("20220818T124506Z", 1_660_826_706, 0),
            ("2022-08-18 12:45:06 0800", 1_660_797_906, 800),
            ("2022-08-18 12:45:06 0199 EST", 1_660_817_166, 239),
            ("2022-08-18 12:45:06 EST 0800", 1_660_844_706, -500),
            ("2022-08-18 12:45:06 1401", 1_660_826_706, 0),
            ("12:45:06.0800 18 Aug 2022", 1_660_797_906, 800),
            ("1700000000 0230", 1_700_000_000, 230),
            ("-0700 Aug 18 2022 12:45", 1_660_851_900, -700),
            ("@1700000000 +0160", 1_700_000_000, 200),
            ("15 06 03 12:00", 1_142_424_000, 0),
            ("25 Jan 1975 12:00 +123", 159_883_200, 0),
            ("25 Jan 1975 12:00 +0160", 159_883_200, 0),
            ("25 Jan 1975 12:00 GMT+1", 159_883_200, 0),
            ("25 Jan 1975 12:00 +05:30", 159_863_400, 530),
            ("1 Jan 70 12:00", 43_200, 0),
            ("25 Jan 1975 12:00 +05:", 159_883_200, 0),
            ("2022-08-18 12:00 -0001", 1_660_824_000, 0),
            ("EST 8/18/2022 12:45", 1_660_844_700, -500),
            ("2022-08-18 12:45:06 NZDT", 1_660_779_906, 1300),
            ("2022-Aug-18 12:45", 1_659_249_900, -1800),
            ("Aug 2022 12:00", 1_659_182_400, 0),
            ("20220818T1245", 1_660_826_700, 0),
            ("18 Aug 2022 T12", 1_660_824_000, 0),
            ("2022-08-18 12:45:06 EST8", 1_660_826_706, 0),
        ]);
    }

    #[test]
    fn dates_of_odd_parts() {
        assert_dates(&[
            // Seconds since 1970 are all fields at once, in UTC whatever the zone is.
            ("1700000000 2022", 1_668_464_000, 0),
            ("1700000000 18 Aug 12:45 EST", 1_692_017_100, -500),
            ("1700000000 1600000000", 1_700_000_000, 0),
            ("@1700000000 AM", 1_699_956_800, 0),
            ("4102444800 2022-08-18", 1_660_780_800, 0),
            ("18446744073709551000 2022", 1_672_530_584, 0),
            ("67768036191676800 2022-08-18 EST", 1_660_798_800, -500),
            ("4102444799 24:59:60 -0100", 4_102_448_400, -100),
            ("@18446744073709551614 +0000", u64::MAX - 1, 0),
            // What comes behind a time and is still to come has its month elsewhere.
            ("1700000000 11/25", 1_700_950_400, 0),
            ("1700000000 12/11", 1_699_827_200, 0),
            ("1700000000 31.12", 1_700_000_000, 0),
            ("12:00 12/10/2026", 1_796_904_000, 0),
            ("23:00 12/10/2026", 1_791_846_000, 0),
            ("12/11/2026 12:00", 1_796_990_400, 0),
            ("2022-08-18 12:45:06 EST -0001", 1_660_826_706, 0),
            ("2022-08-18 12:45:06 -0100 -0001 EST", 1_660_844_706, -500),
            ("2022-08-18 12:45:06 +05: 3", 1_660_808_526, 503),
            ("2022-08-18 12:45:06 +05:-3", 1_660_808_886, 457),
            ("12:45:06 Aug 18 2022 +05: 1970-01-01", 1_660_830_306, -100),
            ("T2022-08-18 0700 0800", 1_660_777_200, 800),
            ("1245T20220818T- 0700", 1_660_760_100, 1245),
            ("2022-08-18 T2459", 1_660_870_740, 0),
            ("T123 1700000000", 1_700_000_000, 0),
            ("2099-12-31 22:59:59 -0100", 4_102_444_799, -100),
            ("2099-12-31 23:59:60 -0002", 4_102_444_920, -2),
        ]);
    }

    #[test]
    fn what_is_no_full_date() {
        for text in [
            "",
            "@1",
            "@1 junk",
            "@1 +1",
            "1 +0000",
            "99999999 +0000",
            "-1 +0000",
            "4102444800 +0000",
            "2022-08-18",
            "12:00",
            "yesterday",
            "now",
            "1969-12-31 23:59:59 -0100",
            "70-01-01 1:00",
            "01/01/70 1:00",
            "01 02 80 12:00",
            "15 Jun 12 12:00",
            "18-Aug-70 12:00",
            "18 Aug12:45",
            "1700000000 1969",
            "4102444800",
            "18446744073709551615",
            "@18446744073709551615 +0000",
            "@ +0000",
            "12:45 +05: 18.08.2022",
            "12:00 6/15/2030",
            "T1700000000",
            "T99 1700000000",
            "2022-08-18 T1 12",
            "2099-12-31 23:59:59 -0100",
            "00:00 Jan 1970",
        ] {
            assert_eq!(parse(text.as_bytes(), NOW, &Zone::utc()), None, "{text}");
        }
    }
}
