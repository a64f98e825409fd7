//! Whether what processes did and were told has one order.
//!
//! Every push moves each of its refs from a value that it names to one that nobody else ever writes. So what
//! happened to a ref is a path: from its last value back, by who wrote it and what was there before.
//!
//! 1. Whatever was told to be done is on its path; what was refused, or failed, is not.
//! 2. A push of several refs is on the paths of all of them, or on none.
//! 3. Paths respect time: what had ended before another began does not come after it.
//! 4. A read finds a value that was there at some moment of the read.
//! 5. Nobody is refused who expected what was there all the time.

use std::collections::BTreeMap;
use std::fmt;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) done: usize,
    pub(crate) refused: usize,
    pub(crate) unknown: usize,
    /// Their process ended before they were told.
    pub(crate) untold: usize,
    /// Not told to be done, and done.
    pub(crate) silently: usize,
    pub(crate) reads: usize,
    pub(crate) wrong: Vec<String>,
    pub(crate) said: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pushes done, {} refused, {} unknown, {} of processes that ended, {} of the last two done all the \
             same; {} reads; {} wrong",
            self.done,
            self.refused,
            self.unknown,
            self.untold,
            self.silently,
            self.reads,
            self.wrong.len()
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Done,
    Refused,
    Unknown,
    Nothing,
}

#[derive(Clone, Debug)]
struct Move {
    name: String,
    old: String,
    new: String,
}

#[derive(Clone, Debug)]
struct Call {
    begun: u128,
    ended: u128,
    told: Told,
    moves: Vec<Move>,
    line: String,
}

struct Seen {
    begun: u128,
    ended: u128,
    name: String,
    value: String,
}

const NOTHING: &str = "0000000000000000000000000000000000000000";

fn number(word: &str) -> u128 {
    word.parse().expect("a number")
}

/// Reads what one writer wrote down; the last line may be cut off.
fn parse(log: &str, calls: &mut Vec<Call>, reads: &mut Vec<Seen>) {
    let mut open: Option<(usize, &str)> = None;
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["read", begun, ended, name, value] => reads.push(Seen {
                begun: number(begun),
                ended: number(ended),
                name: (*name).to_owned(),
                value: if *value == "-" { NOTHING } else { value }.to_owned(),
            }),
            ["begin", begun, used, moves @ ..] => {
                let moves = moves.chunks_exact(3).map(|it| Move {
                    name: it[0].to_owned(),
                    old: it[1].to_owned(),
                    new: it[2].to_owned(),
                });
                open = Some((calls.len(), used));
                calls.push(Call {
                    begun: number(begun),
                    ended: u128::MAX,
                    told: Told::Nothing,
                    moves: moves.collect(),
                    line: line.to_owned(),
                });
            }
            ["end", ended, used, told, ..] => {
                let (at, begun_with) = open.take().expect("it had begun");
                assert_eq!(begun_with, *used);
                let call = &mut calls[at];
                call.told = match *told {
                    "done" => Told::Done,
                    "unknown" => Told::Unknown,
                    _ => Told::Refused,
                };
                if call.told != Told::Unknown {
                    call.ended = number(ended);
                }
                call.line.push_str(line);
            }
            _ => {}
        }
    }
}

/// Checks what all writers wrote down against what there is at the end.
pub(crate) fn check(logs: &[String], now: &BTreeMap<String, String>) -> Found {
    let (mut calls, mut reads) = (Vec::new(), Vec::new());
    for log in logs {
        parse(log, &mut calls, &mut reads);
    }
    let mut found = Found {
        reads: reads.len(),
        ..Found::default()
    };
    let mut by_new = BTreeMap::new();
    let mut names: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        for (of, step) in call.moves.iter().enumerate() {
            by_new.insert((step.name.as_str(), step.new.as_str()), (at, of));
            names.entry(&step.name).or_default();
        }
    }
    let mut times = vec![0; calls.len()];
    for (name, path) in &mut names {
        let mut value = now.get(*name).map_or(NOTHING, String::as_str);
        while value != NOTHING {
            let Some((at, of)) = by_new.get(&(*name, value)) else {
                found
                    .wrong
                    .push(format!("{name} is {value}, which nobody wrote"));
                break;
            };
            times[*at] += 1;
            path.push(*at);
            value = &calls[*at].moves[*of].old;
            if path.len() > calls.len() {
                found.wrong.push(format!("{name} goes in a circle"));
                break;
            }
        }
        path.reverse();
    }
    for name in now.keys().filter(|name| !names.contains_key(name.as_str())) {
        found.wrong.push(format!("{name} was never written"));
    }
    for (call, times) in calls.iter().zip(times) {
        found.note(call, times);
    }
    for (name, path) in &names {
        let path: Vec<&Call> = path.iter().map(|at| &calls[*at]).collect();
        found.in_time(name, &path);
    }
    found.explain(&calls, &reads, &names);
    found
}

impl Found {
    fn note(&mut self, call: &Call, times: usize) {
        let count = match call.told {
            Told::Done => &mut self.done,
            Told::Refused => &mut self.refused,
            Told::Unknown => &mut self.unknown,
            Told::Nothing => &mut self.untold,
        };
        *count += 1;
        let is_whole = times == call.moves.len();
        match call.told {
            _ if times > 0 && !is_whole => self.wrong.push(format!("half of: {}", call.line)),
            Told::Done if times == 0 => self.wrong.push(format!("lost: {}", call.line)),
            Told::Refused if times > 0 => self.wrong.push(format!("not refused: {}", call.line)),
            Told::Unknown | Told::Nothing => self.silently += usize::from(times > 0),
            _ => {}
        }
    }

    fn in_time(&mut self, name: &str, path: &[&Call]) {
        let mut latest = 0;
        for call in path {
            latest = latest.max(call.begun);
            if call.ended < latest {
                self.wrong
                    .push(format!("{name}: too late on its path: {}", call.line));
            }
        }
    }

    fn explain(&mut self, calls: &[Call], reads: &[Seen], names: &BTreeMap<&str, Vec<usize>>) {
        // When a value was there: at the earliest from, certainly from, certainly until, at the latest until.
        let mut there: BTreeMap<(&str, &str), [u128; 4]> = BTreeMap::new();
        for (name, path) in names {
            let mut before = (NOTHING, 0, 0);
            for at in path {
                let call = &calls[*at];
                let (value, begun, ended) = before;
                there.insert((name, value), [begun, ended, call.begun, call.ended]);
                let new = call.moves.iter().find(|step| step.name == *name);
                before = (&new.expect("it is on the path").new, call.begun, call.ended);
            }
            let (value, begun, ended) = before;
            there.insert((name, value), [begun, ended, u128::MAX, u128::MAX]);
        }
        for read in reads {
            let times = there.get(&(read.name.as_str(), read.value.as_str()));
            let is_right = match times {
                Some([from, _, _, until]) => *from < read.ended && read.begun < *until,
                // Nobody ever wrote the ref.
                None => read.value == NOTHING && !names.contains_key(read.name.as_str()),
            };
            if !is_right {
                let Seen {
                    name,
                    value,
                    begun,
                    ended,
                } = read;
                self.wrong.push(format!(
                    "[{begun} {ended}] {name} was not {value}: {times:?}"
                ));
            }
        }
        for call in calls.iter().filter(|call| call.told == Told::Refused) {
            let has_reason = call.moves.iter().any(|step| {
                let times = there.get(&(step.name.as_str(), step.old.as_str()));
                times.is_none_or(|[_, from, until, _]| *from > call.begun || *until < call.ended)
            });
            if !has_reason {
                self.wrong
                    .push(format!("refused without a reason: {}", call.line));
            }
        }
    }
}

#[test]
fn what_has_no_order_is_noticed() {
    let value = |digit: char| digit.to_string().repeat(40);
    let (none, one, two) = (NOTHING.to_owned(), value('1'), value('2'));
    let log = |told: &str| {
        format!(
            "begin 10 1 a {none} {one}\nend 20 1 done\nread 21 22 a {one}\nbegin 30 2 a {one} {two}\nend 40 2 {told}\n"
        )
    };
    let now = |value: &str| BTreeMap::from([("a".to_owned(), value.to_owned())]);
    let wrong = |log: &str, value: &str| check(&[log.to_owned()], &now(value)).wrong.join("\n");
    assert_eq!(wrong(&log("done"), &two), "");
    assert!(wrong(&log("done"), &one).contains("lost: begin 30"));
    assert!(wrong(&log("refused"), &two).contains("not refused: begin 30"));
    assert!(wrong(&log("refused"), &one).contains("refused without a reason"));
    assert_eq!(wrong(&log("unknown"), &two), "");
    assert_eq!(wrong(&log("unknown"), &one), "");
    let stale = log("done") + &format!("read 50 51 a {one}\n");
    assert!(wrong(&stale, &two).contains("was not"));
    assert!(wrong(&log("done"), &value('3')).contains("nobody wrote"));
    let half = format!("begin 1 2 a {none} {one} b {none} {two}\nend 2 2 done\n");
    assert!(wrong(&half, &one).contains("half of"));
}
