//! The names of the files of a stack.

use crate::system::System;

/// Returns whether a file is named like a table: hexadecimal numbers and `.ref` or `.log`.
pub fn is_table_name(name: &str) -> bool {
    let stem = name
        .strip_suffix(".ref")
        .or_else(|| name.strip_suffix(".log"));
    stem.is_some_and(is_stem)
}

fn is_stem(stem: &str) -> bool {
    let is_number = |part: &str| {
        let digits = part.strip_prefix("0x").unwrap_or(part);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let parts: Vec<&str> = stem.split('-').collect();
    parts.len() == 3 && parts.into_iter().all(is_number)
}

/// Returns whether a list may name a table so, and the name become a path: it is that of a file in the
/// stack's own directory, and ends as those of tables do, so that it is no other file of a stack. What
/// stands before the end is not Git's to read, and any writer's choice.
pub fn may_be_listed(name: &str) -> bool {
    let is_plain = |byte: u8| byte != b'/' && !byte.is_ascii_control();
    let end = name.len().checked_sub(".ref".len());
    let end = end
        .and_then(|at| name.as_bytes().get(at..))
        .unwrap_or_default();
    let is_table = end.eq_ignore_ascii_case(b".ref") || end.eq_ignore_ascii_case(b".log");
    is_table && name.len() <= 255 && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// Returns whether a file is named like a table that is still being written, by refdb or by Git, which leaves the end
/// of a table's name out.
pub fn is_unfinished(name: &str) -> bool {
    name.split_once(".temp.")
        .is_some_and(|(table, _)| is_table_name(table) || is_stem(table))
}

/// Returns a name that a new table can have, which says its update indices and is nobody else's.
pub fn new_table_name(system: &dyn System, min: u64, max: u64) -> String {
    format!("0x{min:012x}-0x{max:012x}-{:08x}.ref", short_random(system))
}

/// Returns 32 random bits, as table names carry them.
pub fn short_random(system: &dyn System) -> u32 {
    u32::try_from(system.random() >> 32).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables() {
        assert!(is_table_name("0x000000000001-0x00000000000b-70a0facc.ref"));
        assert!(is_table_name("000000000001-00000000000b-70a0facc.log"));
        assert!(!is_table_name(
            "0x000000000001-0x00000000000b-70a0facc.ref.lock"
        ));
        assert!(!is_table_name("0x1-0x2-.ref"));
        assert!(!is_table_name("tables.list"));
    }

    #[test]
    fn names_of_unfinished_tables() {
        assert!(is_unfinished(
            "0x000000000001-0x000000000001-70a0facc.ref.temp.0badcafe"
        ));
        assert!(
            is_unfinished("0x000000000001-0x000000000001-70a0facc.temp.oj1GyR"),
            "of Git"
        );
        assert!(!is_unfinished("0x000000000001-0x000000000001-70a0facc.ref"));
        assert!(!is_unfinished("tables.list.temp.0badcafe"));
    }
}
