//! One event, and how each kind of a trace writes it.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::Trace;

/// The columns in which what happened begins.
const NORMAL_COLUMN: usize = 50;
const PERF_COLUMN: usize = 28;

/// The file that events are said to come from.
const FILE: &str = "trace.rs";

/// Something that happened.
pub(super) struct Event {
    name: &'static str,
    line: u32,
    elapsed: Option<Duration>,
    category: &'static str,
    is_of_repository: bool,
    normal: String,
    perf: String,
    /// What JSON has behind what every event has.
    fields: Vec<(&'static str, Value)>,
}

impl Event {
    pub(super) fn new(name: &'static str, line: u32) -> Event {
        Event {
            name,
            line,
            elapsed: None,
            category: "",
            is_of_repository: false,
            normal: String::new(),
            perf: String::new(),
            fields: Vec::new(),
        }
    }

    pub(super) fn timed(mut self, elapsed: Duration) -> Event {
        self.elapsed = Some(elapsed);
        self
    }

    pub(super) fn about(mut self, category: &'static str) -> Event {
        self.category = category;
        self
    }

    pub(super) fn of_repository(mut self) -> Event {
        self.is_of_repository = true;
        self
    }

    pub(super) fn normal(mut self, text: impl Into<String>) -> Event {
        self.normal = text.into();
        self
    }

    pub(super) fn perf(mut self, text: impl Into<String>) -> Event {
        self.perf = text.into();
        self
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Event {
        self.fields.push((name, value.into()));
        self
    }

    /// Returns the line for people.
    pub(super) fn as_normal(&self, local: Option<&str>) -> String {
        let place = local.map(|local| format!("{local} {FILE}:{}", self.line));
        let place = place.map_or_else(String::new, |it| format!("{it:<NORMAL_COLUMN$}"));
        format!("{place}{}\n", self.normal)
    }

    /// Returns the line of columns.
    pub(super) fn as_perf(&self, trace: &Trace, local: Option<&str>) -> String {
        let place = local.map(|local| {
            let place = format!("{FILE}:{}", self.line);
            format!("{local} {place:<PERF_COLUMN$} | ")
        });
        let elapsed = self.elapsed.map(|it| format!("{:9.6}", it.as_secs_f64()));
        format!(
            "{}d{} | {:<24} | {:<12} | {:<3} | {:>9} | {:>9} | {:<12} | {}\n",
            place.unwrap_or_default(),
            trace.depth,
            "main",
            self.name,
            if self.is_of_repository { "r1" } else { "" },
            elapsed.unwrap_or_default(),
            "",
            self.category,
            self.perf
        )
    }

    /// Returns the object of JSON. In the brief form only the first and the last event say when.
    pub(super) fn as_json(&self, trace: &Trace, now: &str, is_brief: bool) -> String {
        let mut text = String::from("{");
        let mut put = |name: &str, value: Value| {
            let comma = if text.len() > 1 { "," } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}\"{name}\":{value}");
        };
        put("event", self.name.into());
        put("sid", trace.sid.as_str().into());
        put("thread", "main".into());
        if !is_brief || matches!(self.name, "version" | "atexit") {
            put("time", now.into());
        }
        if !is_brief {
            put("file", FILE.into());
            put("line", self.line.into());
        }
        if let Some(elapsed) = self.elapsed {
            put("t_abs", seconds(elapsed));
        }
        for (name, value) in &self.fields {
            put(name, value.clone());
        }
        text.push_str("}\n");
        text
    }
}

/// Returns a time in seconds, to the microsecond.
fn seconds(elapsed: Duration) -> Value {
    let micros = u32::try_from(elapsed.as_micros()).unwrap_or(u32::MAX);
    (f64::from(micros) / 1e6).into()
}

/// Returns an argument as a shell takes it, quoted only if it must be.
pub(super) fn quoted(arg: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+,-./:=@_^".contains(c);
    if !arg.is_empty() && arg.chars().all(is_plain) {
        return arg.to_owned();
    }
    let inner = arg.replace('\'', "'\\''").replace('!', "'\\!'");
    format!("'{inner}'")
}
