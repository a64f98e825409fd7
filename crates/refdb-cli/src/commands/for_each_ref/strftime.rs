//! Dates by a template, with the conversions of the C library.

use refdb_git::date::{Civil, MONTHS};

use super::date::{DAYS, Shown};

/// How a conversion is padded and cased.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    /// `0`, `_` or `-` for zeros, blanks or nothing.
    padding: Option<u8>,
    upper: bool,
    swap: bool,
    width: usize,
}

/// All fields of a date are padded to no more than this together.
const WIDTH_MAX: usize = 64 << 10;

/// Appends a date by a template; `zone_name` is what `%Z` stands for.
///
/// # Errors
/// If the fields are too wide.
pub(super) fn push(
    template: &[u8],
    shown: Shown,
    zone_name: &str,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let mut rest = template;
    let mut left = WIDTH_MAX;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before);
        let (flags, len) = flags(from);
        left = left
            .checked_sub(flags.width)
            .ok_or_else(|| format!("the fields of a date are wider than {WIDTH_MAX} characters"))?;
        let whole = from.get(..=len).unwrap_or(from);
        match from.get(len) {
            Some(&letter) if conversion(letter, flags, shown, zone_name, out) => {}
            _ => out.extend_from_slice(whole),
        }
        rest = from.get(whole.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Reads the flags behind a percent sign; returns where the letter is.
fn flags(from: &[u8]) -> (Flags, usize) {
    let mut flags = Flags::default();
    let mut len = 1;
    while let Some(&byte) = from.get(len) {
        match byte {
            b'0' | b'_' | b'-' | b'+' => flags.padding = Some(byte),
            b'^' => flags.upper = true,
            b'#' => flags.swap = true,
            _ => break,
        }
        len += 1;
    }
    while let Some(digit) = from.get(len).filter(|byte| byte.is_ascii_digit()) {
        let width = flags.width.saturating_mul(10);
        flags.width = width.saturating_add(usize::from(digit - b'0'));
        len += 1;
    }
    if matches!(from.get(len), Some(b'E' | b'O')) {
        len += 1;
    }
    (flags, len)
}

/// Appends what a letter stands for; `false` if it stands for nothing.
#[expect(clippy::too_many_lines, reason = "one line for each letter")]
fn conversion(letter: u8, flags: Flags, shown: Shown, zone_name: &str, out: &mut Vec<u8>) -> bool {
    let civil = shown.civil;
    let hour12 = (civil.hour + 11) % 12 + 1;
    let mut number = |value: i64, digits: usize, padding: u8| {
        push_number(value, digits, padding, flags, out);
        true
    };
    match letter {
        b'C' => return number(civil.year.div_euclid(100), 2, b'0'),
        b'd' => return number(civil.day, 2, b'0'),
        b'e' => return number(civil.day, 2, b'_'),
        b'G' => return number(iso_week(civil).0, 1, b'0'),
        b'g' => return number(iso_week(civil).0.rem_euclid(100), 2, b'0'),
        b'H' => return number(civil.hour, 2, b'0'),
        b'I' => return number(hour12, 2, b'0'),
        b'j' => return number(year_day(civil) + 1, 3, b'0'),
        b'k' => return number(civil.hour, 2, b'_'),
        b'l' => return number(hour12, 2, b'_'),
        b'M' => return number(civil.minute, 2, b'0'),
        b'm' => return number(civil.month, 2, b'0'),
        b'S' => return number(civil.second, 2, b'0'),
        b'U' => return number((year_day(civil) - civil.weekday() + 7) / 7, 2, b'0'),
        b'u' => return number((civil.weekday() + 6) % 7 + 1, 1, b'0'),
        b'V' => return number(iso_week(civil).1, 2, b'0'),
        b'W' => {
            let monday = (civil.weekday() + 6) % 7;
            return number((year_day(civil) - monday + 7) / 7, 2, b'0');
        }
        b'w' => return number(civil.weekday(), 1, b'0'),
        b'Y' => return number(civil.year, 1, b'0'),
        b'y' => return number(civil.year.rem_euclid(100), 2, b'0'),
        _ => {}
    }
    let of = |names: &'static [&'static str], index: i64| {
        let index = usize::try_from(index).ok();
        index
            .and_then(|index| names.get(index).copied())
            .unwrap_or_default()
    };
    let half = if civil.hour < 12 { "AM" } else { "PM" };
    let text = match letter {
        b'a' => of(&DAYS, civil.weekday())
            .get(..3)
            .unwrap_or_default()
            .to_owned(),
        b'A' => of(&DAYS, civil.weekday()).to_owned(),
        b'b' | b'h' => of(&MONTHS, civil.month - 1)
            .get(..3)
            .unwrap_or_default()
            .to_owned(),
        b'B' => of(&MONTHS, civil.month - 1).to_owned(),
        b'p' if flags.swap => half.to_ascii_lowercase(),
        b'p' => half.to_owned(),
        b'P' => half.to_ascii_lowercase(),
        b'Z' if flags.swap => zone_name.to_ascii_lowercase(),
        b'Z' => zone_name.to_owned(),
        b's' => epoch(shown).cast_unsigned().to_string(),
        b'z' => format!("{:+05}", shown.zone),
        b'n' => "\n".to_owned(),
        b't' => "\t".to_owned(),
        b'%' => "%".to_owned(),
        _ => match template_of(letter) {
            Some(template) => {
                let mut text = Vec::new();
                push(template, shown, zone_name, &mut text).expect("they have no width");
                String::from_utf8(text).unwrap_or_default()
            }
            None => return false,
        },
    };
    push_text(text, letter, flags, out);
    true
}

/// Returns the template that a letter is short for.
fn template_of(letter: u8) -> Option<&'static [u8]> {
    Some(match letter {
        b'c' => b"%a %b %e %H:%M:%S %Y",
        b'D' | b'x' => b"%m/%d/%y",
        b'F' => b"%Y-%m-%d",
        b'R' => b"%H:%M",
        b'r' => b"%I:%M:%S %p",
        b'T' | b'X' => b"%H:%M:%S",
        _ => return None,
    })
}

fn push_number(value: i64, digits: usize, padding: u8, flags: Flags, out: &mut Vec<u8>) {
    let padding = match flags.padding {
        Some(b'+') | None => padding,
        Some(given) => given,
    };
    let width = digits.max(flags.width);
    let text = match padding {
        b'-' => format!("{value:>0$}", flags.width),
        b'_' => format!("{value:>width$}"),
        _ => format!("{value:0width$}"),
    };
    out.extend_from_slice(text.as_bytes());
}

fn push_text(mut text: String, letter: u8, flags: Flags, out: &mut Vec<u8>) {
    let swapped = flags.swap && matches!(letter, b'a' | b'A' | b'b' | b'B' | b'h');
    if flags.upper || swapped {
        text.make_ascii_uppercase();
    }
    let filler = if flags.padding == Some(b'0') {
        b'0'
    } else {
        b' '
    };
    out.resize(out.len() + flags.width.saturating_sub(text.len()), filler);
    out.extend_from_slice(text.as_bytes());
}

/// Returns the day of the year, from 0.
fn year_day(civil: Civil) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let index = usize::try_from(civil.month - 1).unwrap_or(0);
    let before = BEFORE.get(index).copied().unwrap_or(0);
    let leap_day = i64::from(civil.month > 2 && is_leap(civil.year));
    before + leap_day + civil.day - 1
}

fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

/// Returns the year and the number of the week by ISO 8601.
fn iso_week(civil: Civil) -> (i64, i64) {
    // The week belongs to the year of its Thursday.
    let thursday = year_day(civil) + 3 - (civil.weekday() + 6) % 7;
    let length = |year: i64| 365 + i64::from(is_leap(year));
    if thursday < 0 {
        (civil.year - 1, (thursday + length(civil.year - 1)) / 7 + 1)
    } else if thursday >= length(civil.year) {
        (civil.year + 1, (thursday - length(civil.year)) / 7 + 1)
    } else {
        (civil.year, thursday / 7 + 1)
    }
}

/// Returns the seconds since 1970; of a year that Git does not count, as of the second before.
fn epoch(shown: Shown) -> i64 {
    let civil = shown.civil;
    let zone = i64::from(shown.zone);
    let local = match civil.year {
        1970..2100 => {
            let past = civil.year - 1970;
            // 1972 was the first leap year.
            let days = past * 365 + (past + 1) / 4 + year_day(civil);
            days * 86_400 + civil.hour * 3600 + civil.minute * 60 + civil.second
        }
        _ => -1,
    };
    local - 3600 * (zone / 100) - 60 * (zone % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(template: &str, seconds: i64) -> String {
        let shown = Shown {
            civil: Civil::from_seconds(seconds),
            zone: -530,
        };
        let mut out = Vec::new();
        push(template.as_bytes(), shown, "X", &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn conversions() {
        // Tue Nov 14 22:13:20 2023
        for (template, expected) in [
            ("%a %A %b %B %h", "Tue Tuesday Nov November Nov"),
            (
                "%c|%D|%F|%R|%r|%T",
                "Tue Nov 14 22:13:20 2023|11/14/23|2023-11-14|22:13|10:13:20 PM|22:13:20",
            ),
            ("%C %d %e %G %g %H %I %j", "20 14 14 2023 23 22 10 318"),
            ("%k %l %M %m %p %P %S %u %w", "22 10 13 11 PM pm 20 2 2"),
            ("%U %V %W %X %x %Y %y", "46 46 46 22:13:20 11/14/23 2023 23"),
            ("%z %Z %% %n%t|", "-0530 X % \n\t|"),
            ("%s", "1700019800"),
            (
                "%-m %_m %05d %^a %#b %#p %10a|",
                "11 11 00014 TUE NOV pm        Tue|",
            ),
            ("%Q %", "%Q %"),
        ] {
            assert_eq!(show(template, 1_700_000_000), expected, "{template}");
        }
    }

    #[test]
    fn wide_fields_have_an_end() {
        let shown = Shown {
            civil: Civil::from_seconds(0),
            zone: 0,
        };
        let push = |template: &str| push(template.as_bytes(), shown, "X", &mut Vec::new());
        assert_eq!(push("%60000d%5536a"), Ok(()));
        for template in ["%65537d", "%60000d%5537a", "%99999999999999999999Z"] {
            assert!(push(template).is_err(), "{template}");
        }
    }

    #[test]
    fn weeks_at_the_turn_of_a_year() {
        // The first of January in 2021 (a Friday), 2024 (a Monday); the last day of 2024.
        assert_eq!(show("%G-%V %U %W", 1_609_459_200), "2020-53 00 00");
        assert_eq!(show("%G-%V %U %W", 1_704_067_200), "2024-01 00 01");
        assert_eq!(show("%G-%V %j", 1_735_603_200), "2025-01 366");
    }
}
