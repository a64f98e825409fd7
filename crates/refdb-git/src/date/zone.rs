//! Time zones: how far local time is from Greenwich at any moment.

use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use refdb::internals::bytes_to_path;
use refdb::system::System;

/// A time zone.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// Returns the zone of Greenwich.
    pub fn utc() -> Zone {
        Zone(TimeZone::UTC)
    }

    /// Returns the local zone: what the variable `TZ` says, or the system's own when that is not
    /// set. A zone that cannot be found is Greenwich's.
    pub fn local(tz: Option<&[u8]>, system: &dyn System) -> Zone {
        let Some(tz) = tz else {
            return Zone::from_file(system, Path::new("/etc/localtime")).unwrap_or_else(Zone::utc);
        };
        let tz = tz.strip_prefix(b":").unwrap_or(tz);
        if tz.is_empty() {
            return Zone::utc();
        }
        let name = bytes_to_path(tz);
        let leads_out = tz.split_str("/").any(|part| part == b"..");
        let file = match name.is_absolute() {
            true => name.to_owned(),
            false => PathBuf::from("/usr/share/zoneinfo").join(name),
        };
        let zone = if leads_out {
            None
        } else {
            Zone::from_file(system, &file)
        };
        zone.or_else(|| Zone::described(tz.to_str().ok()?))
            .unwrap_or_else(Zone::utc)
    }

    /// Returns a zone that is described instead of named. Summer time without dates has those of the USA, as for the
    /// GNU library; a name that means nothing is another one of Greenwich.
    fn described(tz: &str) -> Option<Zone> {
        let letters = tz.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
        let name = tz.strip_suffix(letters).unwrap_or_default();
        [
            tz.to_owned(),
            format!("{tz},M3.2.0,M11.1.0"),
            format!("{name}0"),
        ]
        .iter()
        .find_map(|text| TimeZone::posix(text).ok().map(Zone))
    }

    fn from_file(system: &dyn System, path: &Path) -> Option<Zone> {
        let content = system.read(path).ok()?;
        TimeZone::tzif("local", &content).ok().map(Zone)
    }

    /// Returns the offset at a moment, in seconds east of Greenwich.
    pub fn offset(&self, seconds: i64) -> i32 {
        match Timestamp::from_second(seconds) {
            Ok(time) => self.0.to_offset(time).seconds(),
            Err(_) => 0,
        }
    }

    /// Returns how the zone is called at a moment.
    pub fn name(&self, seconds: i64) -> String {
        let time = Timestamp::from_second(seconds).unwrap_or_default();
        self.0.to_offset_info(time).abbreviation().to_owned()
    }

    /// Returns the offset at a moment as the decimal number `HHMM` with its sign.
    pub fn decimal(&self, seconds: u64) -> i16 {
        decimal(self.offset(i64::try_from(seconds).unwrap_or(i64::MAX)))
    }
}

/// Returns an offset in seconds as the decimal number `HHMM` with its sign.
pub(super) fn decimal(offset: i32) -> i16 {
    let minutes = offset / 60;
    i16::try_from(minutes / 60 * 100 + minutes % 60).unwrap_or(0)
}

/// Returns a moment as the header of a mail shows it, with the zone as a decimal number.
pub(crate) fn mail_date(seconds: u64, zone: i16) -> String {
    let zone = i32::from(zone);
    let offset = (zone / 100 * 60 + zone % 100) * 60;
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    match (time, Offset::from_seconds(offset)) {
        (Some(time), Ok(offset)) => {
            let local = time.to_zoned(TimeZone::fixed(offset));
            local.strftime("%a, %-d %b %Y %H:%M:%S %z").to_string()
        }
        _ => seconds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb::system::OsSystem;

    #[test]
    fn what_tz_can_say() {
        let zone = |tz: &str| Zone::local(Some(tz.as_bytes()), &OsSystem::new());
        assert_eq!(zone("").decimal(0), 0);
        assert_eq!(zone("UTC").decimal(0), 0);
        assert_eq!(zone("<+0330>-3:30").decimal(0), 330);
        assert_eq!(
            zone("CET-1CEST,M3.5.0,M10.5.0/3").decimal(1_657_000_000),
            200
        );
        assert_eq!(
            zone("CET-1CEST,M3.5.0,M10.5.0/3").decimal(1_642_000_000),
            100
        );
        assert_eq!(zone("../../etc/passwd").decimal(0), 0);
        assert_eq!(zone("No/Such").decimal(0), 0);
        assert_eq!(zone("Foo/Bar").name(0), "Foo");
        assert_eq!(zone("CET-1CEST").decimal(1_657_000_000), 200);
        assert_eq!(zone("CET-1CEST").decimal(1_642_000_000), 100);
        assert_eq!(zone("NST3:30NDT").decimal(1_657_000_000), -230);
        assert_eq!(zone("EST5EDT4").name(1_657_000_000), "EDT");
    }

    #[test]
    fn dates_of_mails() {
        assert_eq!(
            mail_date(1_700_000_000, 230),
            "Wed, 15 Nov 2023 00:43:20 +0230"
        );
        assert_eq!(mail_date(0, -530), "Wed, 31 Dec 1969 18:30:00 -0530");
    }
}
