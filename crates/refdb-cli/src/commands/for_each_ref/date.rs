//! Moments as commits and tags record them, and how they are shown.

use refdb::date::Civil;

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
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

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
        let local = Civil::from_seconds(self.seconds.saturating_add(minutes * 60));
        let Civil {
            year, month, day, ..
        } = local;
        let name = |names: &[&'static str], index: i64| {
            let index = usize::try_from(index).ok();
            index
                .and_then(|index| names.get(index).copied())
                .unwrap_or_default()
        };
        let weekday = name(&DAYS, local.weekday());
        let month_name = name(&MONTHS, month - 1);
        let time = format!("{:02}:{:02}:{:02}", local.hour, local.minute, local.second);
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
    fn no_number_is_too_large() {
        for line in [
            "> 9223372036854775807 +1400",
            "> -9223372036854775808 -2147483648",
        ] {
            let date = Date::parse(line).unwrap();
            for name in [
                "default",
                "iso",
                "iso-strict",
                "rfc",
                "short",
                "raw",
                "unix",
            ] {
                assert_ne!(date.show(DateFormat::parse(Some(name)).unwrap()), "");
            }
        }
    }
}
