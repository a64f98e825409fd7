//! Moments as commits and tags record them, and how they are shown.

/// How a date is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateFormat {
    Default,
    Iso,
    IsoStrict,
    Rfc2822,
    Short,
    Raw,
    Unix,
}

/// A moment: seconds since 1970 and the zone as the decimal number `HHMM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) seconds: i64,
    pub(super) zone: i32,
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

impl DateFormat {
    /// Returns the format of that name.
    pub(super) fn parse(name: Option<&str>) -> Option<DateFormat> {
        Some(match name {
            None | Some("default") => DateFormat::Default,
            Some("iso" | "iso8601") => DateFormat::Iso,
            Some("iso-strict" | "iso8601-strict") => DateFormat::IsoStrict,
            Some("rfc" | "rfc2822") => DateFormat::Rfc2822,
            Some("short") => DateFormat::Short,
            Some("raw") => DateFormat::Raw,
            Some("unix") => DateFormat::Unix,
            Some(_) => return None,
        })
    }

    /// Returns whether Git has a format of that name, though this version has not.
    pub(super) fn is_later(name: Option<&str>) -> bool {
        let Some(name) = name else { return false };
        let (kind, local) = match name.strip_suffix("-local") {
            Some(kind) => (kind, true),
            None => (name, name == "local"),
        };
        let known = local && DateFormat::parse(Some(kind)).is_some();
        known
            || matches!(kind, "relative" | "human" | "local")
            || kind.starts_with("format:")
            || kind.starts_with("auto:")
    }
}

impl Date {
    /// Reads the end of a line such as `Name <address> 1700000000 +0200`.
    pub(super) fn parse(line: &str) -> Option<Date> {
        let (_, after) = line.split_once("> ")?;
        let (seconds, zone) = after.split_once(' ').unwrap_or((after, "+0000"));
        Some(Date {
            seconds: seconds.parse().ok()?,
            zone: zone.trim().parse().unwrap_or(0),
        })
    }

    /// Returns the date in the format.
    pub(super) fn show(self, format: DateFormat) -> String {
        let zone = format!("{:+05}", self.zone);
        match format {
            DateFormat::Unix => return self.seconds.to_string(),
            DateFormat::Raw => return format!("{} {zone}", self.seconds),
            _ => {}
        }
        let minutes = i64::from(self.zone / 100 * 60 + self.zone % 100);
        let local = self.seconds + minutes * 60;
        let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let name = |names: &[&'static str], index: i64| {
            usize::try_from(index)
                .ok()
                .and_then(|index| names.get(index).copied())
                .unwrap_or("")
        };
        let weekday = name(&DAYS, days.rem_euclid(7));
        let month_name = name(&MONTHS, month - 1);
        let time = format!(
            "{:02}:{:02}:{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        );
        match format {
            DateFormat::Short => format!("{year:04}-{month:02}-{day:02}"),
            DateFormat::Iso => format!("{year:04}-{month:02}-{day:02} {time} {zone}"),
            DateFormat::IsoStrict => {
                let (hours, minutes) = zone.split_at(3);
                let zone = match self.zone {
                    0 => "Z".to_owned(),
                    _ => format!("{hours}:{minutes}"),
                };
                format!("{year:04}-{month:02}-{day:02}T{time}{zone}")
            }
            DateFormat::Rfc2822 => format!("{weekday}, {day} {month_name} {year} {time} {zone}"),
            _ => format!("{weekday} {month_name} {day} {time} {year} {zone}"),
        }
    }
}

/// Returns year, month and day of the day that is so many days after 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the leap day is the last day of a year; the cycle of
    // 400 years then begins on 0000-03-01.
    let days = days + 719_468;
    let (cycle, day_of_cycle) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_cycle + cycle * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let date = Date::parse("A <a@b> 1700000000 -0530").unwrap();
        let show = |name: &str| date.show(DateFormat::parse(Some(name)).unwrap());
        assert_eq!(show("default"), "Tue Nov 14 16:43:20 2023 -0530");
        assert_eq!(show("iso"), "2023-11-14 16:43:20 -0530");
        assert_eq!(show("iso-strict"), "2023-11-14T16:43:20-05:30");
        assert_eq!(show("rfc"), "Tue, 14 Nov 2023 16:43:20 -0530");
        assert_eq!(show("short"), "2023-11-14");
        assert_eq!(show("raw"), "1700000000 -0530");
    }

    #[test]
    fn days_before_and_after_leap_days() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(-1), (1969, 12, 31));
    }
}
