//! What `/proc` tells of a process.

/// What `/proc/<pid>/stat` says of a process.
pub(super) struct ProcessStat {
    pub(super) started: u64,
    pub(super) ended: bool,
}

/// Reads the line: a number, a name in brackets that may hold anything, a letter, and numbers.
pub(super) fn parse_stat(line: &[u8]) -> Option<ProcessStat> {
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // The 20th field of the line is the number of threads, the 22nd the start.
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    // The first thread can end before the others do.
    let ended = matches!(state, "Z" | "X" | "x") && threads <= 1;
    Some(ProcessStat { started, ended })
}
