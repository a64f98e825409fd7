//! Moments as commits and tags record them, and how they are shown.
//!
//! Numbers are taken as they stand, however large: what no calendar holds is refused or shown as the
//! first moment there is, as Git does it.

use bstr::ByteSlice;
use refdb_git::date::{Civil, MONTHS, Zone};

use super::strftime;

/// How a date is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DateFormat {
    style: Style,
    /// Whether the zone is the local one, and not that of the date.
    local: bool,
    specified: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Style {
    Default,
    Relative,
    Human,
    Iso,
    IsoStrict,
    Rfc2822,
    Short,
    Raw,
    Unix,
    /// By a template.
    Template(Vec<u8>),
}

/// Where and when dates are shown.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The local zone.
    pub(crate) zone: Zone,
    /// Seconds since 1970.
    pub(crate) now: u64,
}

/// A moment: seconds since 1970 and the zone as the decimal number `HHMM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) seconds: u64,
    pub(crate) zone: i32,
}

/// A moment in a calendar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) civil: Civil,
    pub(crate) zone: i32,
}

pub(crate) const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

impl DateFormat {
    /// Returns the format of that name.
    ///
    /// # Errors
    /// With what is wrong with the name.
    pub(crate) fn parse(name: Option<&str>) -> Result<DateFormat, String> {
        let Some(mut name) = name else {
            return Ok(DateFormat {
                style: Style::Default,
                local: false,
                specified: false,
            });
        };
        if let Some(rest) = name.strip_prefix("auto:") {
            let on_terminal = crate::pager::somebody_looks();
            name = if on_terminal { rest } else { "default" };
        }
        if name == "local" {
            name = "default-local";
        }
        let unknown = || format!("unknown date format {name}");
        let (style, rest) = [
            ("relative", Style::Relative),
            ("iso8601-strict", Style::IsoStrict),
            ("iso-strict", Style::IsoStrict),
            ("iso8601", Style::Iso),
            ("iso", Style::Iso),
            ("rfc2822", Style::Rfc2822),
            ("rfc", Style::Rfc2822),
            ("short", Style::Short),
            ("default", Style::Default),
            ("human", Style::Human),
            ("raw", Style::Raw),
            ("unix", Style::Unix),
            ("format", Style::Template(Vec::new())),
        ]
        .into_iter()
        .find_map(|(word, style)| Some((style, name.strip_prefix(word)?)))
        .ok_or_else(unknown)?;
        let (local, rest) = match rest.strip_prefix("-local") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let style = match (style, rest) {
            (Style::Template(_), rest) => match rest.strip_prefix(':') {
                Some(template) => Style::Template(template.into()),
                None => return Err(format!("date format missing colon separator: {name}")),
            },
            (style, "") => style,
            _ => return Err(unknown()),
        };
        Ok(DateFormat {
            style,
            local,
            specified: true,
        })
    }

    /// Returns whether nothing was said of how to show a date.
    pub(crate) fn is_unspecified(&self) -> bool {
        !self.specified
    }
}

impl Date {
    /// Reads what follows `> ` in a line such as `Name <address> 1700000000 +0200`; what is no
    /// number counts as 0.
    pub(crate) fn parse(line: &[u8]) -> Option<Date> {
        let (_, after) = line.split_once_str("> ")?;
        let (negative, digits, rest) = number(after);
        let mut seconds: u64 = match digits {
            b"" => 0,
            digits => digits.to_str().ok()?.parse().ok()?,
        };
        if negative {
            seconds = seconds.wrapping_neg();
        }
        let (negative, digits, _) = number(rest);
        let zone: i64 = match digits {
            b"" => 0,
            digits => digits.to_str().ok()?.parse().ok()?,
        };
        let zone = i32::try_from(if negative { -zone } else { zone }).unwrap_or(0);
        (seconds != u64::MAX).then_some(Date { seconds, zone })
    }

    /// Checks that the date can be shown in its own zone.
    ///
    /// # Errors
    /// With the reason why it cannot.
    pub(super) fn check(self) -> Result<(), String> {
        in_zone(self.seconds, self.zone).map(drop)
    }

    /// Appends the date in the format.
    ///
    /// # Errors
    /// With the reason, for a moment that cannot be shown.
    pub(crate) fn push(
        self,
        format: &DateFormat,
        clock: &Clock,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        if format.style == Style::Unix {
            out.extend_from_slice(self.seconds.to_string().as_bytes());
            return Ok(());
        }
        let local = format.local;
        let zone = match local {
            true => local_zone(&clock.zone, signed(self.seconds)?),
            false => self.zone,
        };
        match &format.style {
            Style::Raw => {
                out.extend_from_slice(format!("{} {zone:+05}", self.seconds).as_bytes());
                return Ok(());
            }
            Style::Relative => {
                push_relative(self.seconds, clock.now, out);
                return Ok(());
            }
            _ => {}
        }
        let shown = if local {
            let seconds = signed(self.seconds)?;
            Shown::new(
                seconds.saturating_add(clock.zone.offset(seconds).into()),
                zone,
            )
        } else {
            Shown::new(in_zone(self.seconds, zone)?, zone)
        };
        let mut text = String::new();
        match &format.style {
            Style::Human => return self.push_human(shown, local, clock, out),
            Style::Template(template) => {
                let name = match local {
                    true => clock.zone.name(signed(self.seconds)?),
                    false => String::new(),
                };
                strftime::push(template, shown, &name, out)?;
            }
            style => shown.push(style, local, &mut text),
        }
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn push_human(
        self,
        shown: Shown,
        local: bool,
        clock: &Clock,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let now = signed(clock.now)?;
        let offset = clock.zone.offset(now);
        let here = local_zone(&clock.zone, now);
        let today = Civil::from_seconds(now.saturating_add(offset.into()));
        let civil = shown.civil;
        let this_year = civil.year == today.year;
        let this_month = this_year && civil.month == today.month;
        if this_month && civil.day == today.day {
            push_relative(self.seconds, clock.now, out);
            return Ok(());
        }
        // Only the day of the week, if it was a few days ago.
        let recent = this_month && civil.day < today.day && civil.day + 5 > today.day;
        let mut text = String::new();
        if this_year {
            text.push_str(short_name(&DAYS, civil.weekday()));
            text.push(' ');
        }
        if !recent {
            let month = short_name(&MONTHS, civil.month - 1);
            text.push_str(&format!("{month} {} ", civil.day));
        }
        if this_year {
            text.push_str(&format!("{:02}:{:02}", civil.hour, civil.minute));
        } else {
            text.truncate(text.trim_end().len());
            text.push_str(&format!(" {}", civil.year));
        }
        if recent && !local && shown.zone != here {
            text.push_str(&format!(" {:+05}", shown.zone));
        }
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Shown {
    fn new(seconds: i64, zone: i32) -> Shown {
        let civil = Civil::from_seconds(seconds);
        // A calendar has no more years than this.
        match i32::try_from(civil.year - 1900) {
            Ok(_) => Shown { civil, zone },
            Err(_) => Shown {
                civil: Civil::from_seconds(0),
                zone: 0,
            },
        }
    }

    fn push(self, style: &Style, local: bool, out: &mut String) {
        let Civil {
            year, month, day, ..
        } = self.civil;
        let zone = self.zone;
        let weekday = short_name(&DAYS, self.civil.weekday());
        let month_name = short_name(&MONTHS, month - 1);
        let time = format!(
            "{:02}:{:02}:{:02}",
            self.civil.hour, self.civil.minute, self.civil.second
        );
        out.push_str(&match style {
            Style::Short => format!("{year:04}-{month:02}-{day:02}"),
            Style::Iso => format!("{year:04}-{month:02}-{day:02} {time} {zone:+05}"),
            Style::IsoStrict if zone == 0 => format!("{year:04}-{month:02}-{day:02}T{time}Z"),
            Style::IsoStrict => {
                let sign = if zone < 0 { '-' } else { '+' };
                let (hours, minutes) = (zone.unsigned_abs() / 100, zone.unsigned_abs() % 100);
                format!("{year:04}-{month:02}-{day:02}T{time}{sign}{hours:02}:{minutes:02}")
            }
            Style::Rfc2822 => format!("{weekday}, {day} {month_name} {year} {time} {zone:+05}"),
            _ => format!("{weekday} {month_name} {day} {time} {year}"),
        });
        // Minus one minute is what Git takes for no zone at all.
        if *style == Style::Default && !local && zone != -1 {
            out.push_str(&format!(" {zone:+05}"));
        }
    }
}

/// Splits a number with its sign off the start of a text, after blanks.
fn number(text: &[u8]) -> (bool, &[u8], &[u8]) {
    let trimmed = text.trim_ascii_start();
    let (negative, rest) = match trimmed.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, trimmed),
    };
    let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest.split_at(len) {
        (b"", _) => (false, b"", text),
        (digits, rest) => (negative, digits, rest),
    }
}

fn signed(seconds: u64) -> Result<i64, String> {
    let too_large = |_| format!("Timestamp too large for this system: {seconds}");
    i64::try_from(seconds).map_err(too_large)
}

/// Returns the seconds since 1970 that a clock of the zone shows.
fn in_zone(seconds: u64, zone: i32) -> Result<i64, String> {
    // In 32 bits, as Git counts: a zone that is no zone can come out on the other side.
    let minutes = zone / 100 * 60 + zone % 100;
    let offset = i64::from(minutes.wrapping_mul(60));
    let shifted = if minutes > 0 {
        let too_large = || format!("Timestamp+tz too large: {seconds} +{zone:04}");
        let added = seconds.checked_add(offset.cast_unsigned());
        added.ok_or_else(too_large)?
    } else {
        let too_early = || format!("Timestamp before Unix epoch: {seconds} {zone:04}");
        seconds.checked_add_signed(offset).ok_or_else(too_early)?
    };
    signed(shifted)
}

/// Returns the local zone at a moment: none in a year that Git does not count in.
fn local_zone(zone: &Zone, seconds: i64) -> i32 {
    let offset = zone.offset(seconds);
    match Civil::from_seconds(seconds.saturating_add(offset.into())).year {
        1970..2100 => decimal(offset),
        _ => 0,
    }
}

/// Returns an offset in seconds as the decimal number `HHMM`.
fn decimal(offset: i32) -> i32 {
    let minutes = offset / 60;
    minutes / 60 * 100 + minutes % 60
}

fn short_name(names: &[&'static str], index: i64) -> &'static str {
    let name = usize::try_from(index)
        .ok()
        .and_then(|index| names.get(index));
    name.and_then(|name| name.get(..3)).unwrap_or_default()
}

fn counted(count: u64, unit: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

/// Appends how long ago a moment was, in the largest unit that still says something.
fn push_relative(seconds: u64, now: u64, out: &mut Vec<u8>) {
    let Some(seconds) = now.checked_sub(seconds) else {
        out.extend_from_slice(b"in the future");
        return;
    };
    let minutes = seconds.saturating_add(30) / 60;
    let hours = (minutes + 30) / 60;
    let days = (hours + 12) / 24;
    let text = if seconds < 90 {
        counted(seconds, "second")
    } else if minutes < 90 {
        counted(minutes, "minute")
    } else if hours < 36 {
        counted(hours, "hour")
    } else if days < 14 {
        counted(days, "day")
    } else if days < 70 {
        counted((days + 3) / 7, "week")
    } else if days < 365 {
        counted((days + 15) / 30, "month")
    } else if days < 1825 {
        let months = (days * 12 * 2 + 365) / (365 * 2);
        match (counted(months / 12, "year"), months % 12) {
            (years, 0) => years,
            (years, months) => format!("{years}, {}", counted(months, "month")),
        }
    } else {
        counted((days + 183) / 365, "year")
    };
    out.extend_from_slice(format!("{text} ago").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(now: u64) -> Clock {
        Clock {
            zone: Zone::utc(),
            now,
        }
    }

    fn show(line: &str, format: &str, now: u64) -> Result<String, String> {
        let mut out = Vec::new();
        let format = DateFormat::parse(Some(format))?;
        let date = Date::parse(line.as_bytes()).ok_or("no date")?;
        date.push(&format, &clock(now), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn formats() {
        for (format, expected) in [
            ("default", "Tue Nov 14 16:43:20 2023 -0530"),
            ("local", "Tue Nov 14 22:13:20 2023"),
            ("iso", "2023-11-14 16:43:20 -0530"),
            ("iso-local", "2023-11-14 22:13:20 +0000"),
            ("iso-strict", "2023-11-14T16:43:20-05:30"),
            ("iso-strict-local", "2023-11-14T22:13:20Z"),
            ("rfc", "Tue, 14 Nov 2023 16:43:20 -0530"),
            ("short", "2023-11-14"),
            ("raw", "1700000000 -0530"),
            ("raw-local", "1700000000 +0000"),
            ("unix", "1700000000"),
            ("format:%Y|%z|%s|%Z", "2023|-0530|1700000000|"),
            ("format-local:%H|%Z", "22|UTC"),
            ("auto:iso", "Tue Nov 14 16:43:20 2023 -0530"),
        ] {
            let shown = show("A <a@b> 1700000000 -0530", format, 0);
            assert_eq!(shown.as_deref(), Ok(expected), "{format}");
        }
    }

    #[test]
    fn how_long_ago() {
        let day = 86_400;
        for (ago, expected) in [
            (0, "0 seconds ago"),
            (1, "1 second ago"),
            (100, "2 minutes ago"),
            (7200, "2 hours ago"),
            (3 * day, "3 days ago"),
            (20 * day, "3 weeks ago"),
            (100 * day, "3 months ago"),
            (400 * day, "1 year, 1 month ago"),
            (730 * day, "2 years ago"),
            (3000 * day, "8 years ago"),
        ] {
            let shown = show("> 1000000000 +0000", "relative", 1_000_000_000 + ago);
            assert_eq!(shown.as_deref(), Ok(expected));
        }
        assert_eq!(
            show("> 2 +0000", "relative", 1).as_deref(),
            Ok("in the future")
        );
    }

    #[test]
    fn for_humans() {
        // Tue Nov 14 22:13:20 2023
        let now = 1_700_000_000;
        for (seconds, expected) in [
            (now - 3600, "60 minutes ago"),
            (now - 86_400, "Mon 22:13"),
            (now - 10 * 86_400, "Sat Nov 4 22:13"),
            (now - 400 * 86_400, "Oct 10 2022"),
        ] {
            let shown = show(&format!("> {seconds} +0000"), "human", now);
            assert_eq!(shown.as_deref(), Ok(expected));
        }
    }

    #[test]
    fn no_number_is_too_large() {
        for line in [
            "> 9223372036854775807 +1400",
            "> -9223372036854775808 -2147483648",
            "> 18446744073709551614 +99999999",
            "> 1 -99999999",
            "> 99999999999999999 +0000",
        ] {
            for name in [
                "default",
                "human",
                "relative",
                "raw",
                "unix",
                "format:%c",
                "local",
            ] {
                let shown = show(line, name, u64::MAX);
                assert_ne!(shown.unwrap_or_else(|reason| reason), "");
            }
        }
        assert_eq!(Date::parse(b"> 99999999999999999999 +0000"), None);
        let epoch = Date {
            seconds: 0,
            zone: 0,
        };
        assert_eq!(Date::parse(b"a <b> x"), Some(epoch));
    }

    #[test]
    fn names_that_are_wrong() {
        let mistake = |name: &str| DateFormat::parse(Some(name)).unwrap_err();
        assert_eq!(mistake("foo"), "unknown date format foo");
        assert_eq!(mistake("shortx"), "unknown date format shortx");
        assert_eq!(
            mistake("format"),
            "date format missing colon separator: format"
        );
    }
}
