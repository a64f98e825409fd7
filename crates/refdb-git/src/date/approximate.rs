//! Dates that are meant roughly: `yesterday`, `last friday`, `3.weeks.ago`, `noon`.

use super::Civil;
use super::{EPOCH_MIN, Fields, Zone, is_short_for, leading, month_of, raw, value};

const DAY: i64 = 86_400;

/// No step leads further from 1970, however often it is asked for.
const SECONDS_MAX: i64 = 1 << 53;

/// Reads a date that is meant roughly, in seconds since 1970; `None` if nothing in it has to do
/// with dates. What it leaves open is as at `now` in `zone`.
pub fn approximate(text: &[u8], now: i64, zone: &Zone) -> Option<i64> {
    let mut fields = Fields::at(now);
    fields.read(text);
    if let Some((seconds, _)) = raw(text).or_else(|| fields.finish(zone)) {
        return Some(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
    let mut guess = Guess::new(now.clamp(-SECONDS_MAX, SECONDS_MAX), zone);
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        let len = if byte.is_ascii_digit() {
            guess.settle();
            guess.is_date = true;
            guess.number(rest)
        } else if byte.is_ascii_alphabetic() {
            let word = leading(rest, |byte| byte.is_ascii_alphabetic());
            // As in a full date, letters right before a number are no word.
            if !rest.get(word.len()).is_some_and(u8::is_ascii_digit) {
                guess.word(word);
            }
            word.len()
        } else {
            1
        };
        rest = rest.get(len..).unwrap_or_default();
    }
    guess.settle();
    guess.is_date.then(|| guess.move_back(0))
}

/// What is known of the date so far.
struct Guess<'z> {
    zone: &'z Zone,
    // The offset that the clock shows: winter's even if the date is one of summer, until a step
    // back has led there.
    offset: i32,
    // What the clock shows, in seconds since 1970 and in the zone.
    clock: i64,
    now: Civil,
    // The day of the week where the last step led, whatever date was named since then.
    weekday: i64,
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    // Whether the hour, if it is today's, is still to come, so that yesterday's is meant unless a step leads back anyway.
    is_ahead: bool,
    // A number that waits for the word that says what it counts; 0 for none.
    pending: i64,
    is_date: bool,
}

impl<'z> Guess<'z> {
    fn new(now: i64, zone: &'z Zone) -> Self {
        let offset = zone.offset(now);
        let clock = now;
        let now = Civil::at(clock, zone);
        Guess {
            zone,
            offset,
            clock,
            now,
            weekday: now.weekday(),
            year: None,
            month: None,
            day: None,
            hour: now.hour,
            minute: now.minute,
            second: now.second,
            is_ahead: false,
            pending: 0,
            is_date: false,
        }
    }

    /// Fills in what is open, goes so many seconds back, and returns where that leads.
    fn move_back(&mut self, seconds: i64) -> i64 {
        let month = self.month.unwrap_or(self.now.month);
        // A month that is still to come is last year's.
        let year = self
            .year
            .unwrap_or(self.now.year - i64::from(month > self.now.month));
        let civil = Civil {
            year,
            month,
            day: self.day.unwrap_or(self.now.day),
            hour: self.hour,
            minute: self.minute,
            second: self.second,
        };
        let is_yesterday = self.day.is_none() && self.is_ahead && seconds == 0;
        let back = if is_yesterday { DAY } else { seconds };
        let seconds = civil.seconds() - i64::from(self.offset) - back;
        let seconds = seconds.clamp(-SECONDS_MAX, SECONDS_MAX);
        self.offset = self.zone.offset(seconds);
        self.set(Civil::at(seconds, self.zone));
        seconds
    }

    fn set(&mut self, civil: Civil) {
        self.weekday = civil.weekday();
        self.year = Some(civil.year);
        self.month = Some(civil.month);
        self.day = Some(civil.day);
        self.hour = civil.hour;
        self.minute = civil.minute;
        self.second = civil.second;
    }

    /// Takes a number that no word claimed for a day, a month or a year.
    fn settle(&mut self) {
        match std::mem::take(&mut self.pending) {
            0 => {}
            day @ 1..32 if self.day.is_none() => self.day = Some(day),
            month @ 1..13 if self.month.is_none() => self.month = Some(month),
            year if self.year.is_none() => {
                self.year = match year {
                    1970..2100 => Some(year),
                    70..100 => Some(1900 + year),
                    1..38 => Some(2000 + year),
                    _ => None,
                };
            }
            _ => {}
        }
    }

    /// Reads a number at the start of `text`; returns the length of what was read.
    fn number(&mut self, text: &[u8]) -> usize {
        let mut fields = Fields {
            year: self.year,
            month: self.month,
            day: self.day,
            time: Some((self.hour, self.minute, self.second)),
            ..Fields::at(self.clock)
        };
        let found = fields.several(text);
        (self.year, self.month, self.day) = (fields.year, fields.month, fields.day);
        if let Some(len) = found {
            if let Some((hour, minute, second)) = fields.time {
                (self.hour, self.minute, self.second) = (hour, minute, second);
            }
            return len;
        }
        let digits = leading(text, |byte| byte.is_ascii_digit());
        // Only small numbers are padded with zeros.
        if !digits.starts_with(b"0") || digits.len() <= 2 {
            self.pending = value(digits).min(EPOCH_MIN);
        }
        digits.len()
    }

    fn word(&mut self, word: &[u8]) {
        if let Some(month) = month_of(word) {
            self.month = Some(month);
            self.is_date = true;
        } else if self.special(word) {
            self.is_date = true;
        } else if self.pending == 0 {
            const NUMBERS: [&str; 10] = [
                "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            ];
            let numbers = NUMBERS.iter().zip(1..).chain([(&"last", 1)]);
            let mut numbers =
                numbers.filter(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
            if let Some((_, number)) = numbers.next() {
                self.pending = number;
                self.is_date = true;
            }
        } else {
            self.unit(word);
        }
    }

    /// Reads a word that stands for a moment of its own.
    fn special(&mut self, word: &[u8]) -> bool {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("yesterday") {
            self.pending = 0;
            self.day = None;
            self.move_back(DAY);
        } else if is("today") {
            self.pending = 0;
            self.day = Some(self.now.day);
            // A time that was named stays, and so does one that differs from now's for another reason.
            let (now, time) = (&self.now, (self.hour, self.minute, self.second));
            if time == (now.hour, now.minute, now.second) {
                (self.hour, self.minute, self.second) = (0, 0, 0);
            }
            self.move_back(0);
        } else if is("midnight") {
            self.at_hour(0);
        } else if is("noon") {
            self.at_hour(12);
        } else if is("tea") {
            self.at_hour(17);
        } else if is("am") {
            self.half(0);
        } else if is("pm") {
            self.half(12);
        } else if is("never") {
            self.pending = 0;
            self.offset = self.zone.offset(0);
            self.set(Civil::at(0, self.zone));
        } else if is("now") {
            self.pending = 0;
            self.move_back(0);
        } else {
            return false;
        }
        true
    }

    /// Sets the time to an hour: of today, or of yesterday if today's is still to come.
    fn at_hour(&mut self, hour: i64) {
        self.settle();
        self.is_ahead |= self.hour < hour && self.day.is_none();
        (self.hour, self.minute, self.second) = (hour, 0, 0);
    }

    /// Takes the hour for one of the morning (0) or the afternoon (12).
    fn half(&mut self, half: i64) {
        if self.pending != 0 {
            self.hour = std::mem::take(&mut self.pending);
            (self.minute, self.second) = (0, 0);
        }
        self.hour = self.hour % 12 + half;
    }

    /// Reads a word that says what the pending number counts.
    fn unit(&mut self, word: &[u8]) {
        const UNITS: [(&str, i64); 5] = [
            ("seconds", 1),
            ("minutes", 60),
            ("hours", 3600),
            ("days", DAY),
            ("weeks", 7 * DAY),
        ];
        let stem = |name: &str| name.len() - 1;
        for (name, seconds) in UNITS {
            if is_short_for(word, name, stem(name)) {
                let count = std::mem::take(&mut self.pending);
                self.move_back(count * seconds);
                self.is_date = true;
                return;
            }
        }
        if is_short_for(word, "months", 5) || is_short_for(word, "years", 4) {
            let count = std::mem::take(&mut self.pending);
            self.move_back(0);
            let months = if word.len() > 5 || word.to_ascii_lowercase().starts_with(b"m") {
                count
            } else {
                count * 12
            };
            let all = self.year.unwrap_or(1970) * 12 + self.month.unwrap_or(1) - 1 - months;
            self.year = Some(all.div_euclid(12));
            self.month = Some(all.rem_euclid(12) + 1);
            self.is_date = true;
            return;
        }
        self.weekday(word);
    }

    /// Goes back to a day of the week, as many weeks as the pending number says.
    fn weekday(&mut self, word: &[u8]) {
        const DAYS: [&str; 7] = [
            "Sundays",
            "Mondays",
            "Tuesdays",
            "Wednesdays",
            "Thursdays",
            "Fridays",
            "Saturdays",
        ];
        let index = DAYS.iter().position(|name| is_short_for(word, name, 3));
        let Some(wanted) = index.and_then(|index| i64::try_from(index).ok()) else {
            return;
        };
        let weeks = std::mem::take(&mut self.pending) - 1;
        let mut back = self.weekday - wanted;
        let weeks = if back <= 0 { weeks + 1 } else { weeks };
        back += 7 * weeks;
        self.move_back(back * DAY);
        self.is_date = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Noon of a Tuesday.
    const NOW: i64 = 1_699_963_200;

    #[test]
    fn nothing_of_a_date() {
        for text in ["", "garbage", "friday", "ago", "week"] {
            assert_eq!(
                approximate(text.as_bytes(), NOW, &Zone::utc()),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn however_far_one_goes_there_is_an_answer() {
        for step in [
            "99999999.years.ago.",
            "99999999.weeks.ago.",
            "99999999 months 99999999 fridays ",
        ] {
            let text = step.repeat(10_000);
            assert!(
                approximate(text.as_bytes(), NOW, &Zone::utc()).is_some(),
                "{step}"
            );
        }
        for now in [i64::MIN, i64::MAX] {
            assert!(approximate(b"2 years ago", now, &Zone::utc()).is_some());
        }
    }

    #[test]
    fn times_ago() {
        for (text, ago) in [
            ("now", 0),
            ("2.weeks.ago", 14 * DAY),
            ("one day", DAY),
            ("yesterday", DAY),
            ("3 hours 2 minutes 1 second ago", 3 * 3600 + 2 * 60 + 1),
        ] {
            assert_eq!(
                approximate(text.as_bytes(), NOW, &Zone::utc()),
                Some(NOW - ago),
                "{text}"
            );
        }
        assert_eq!(approximate(b"@0 +0000", NOW, &Zone::utc()), Some(0));
        assert_eq!(
            approximate(b"1234567890", NOW, &Zone::utc()),
            Some(1_234_567_890)
        );
    }
}
