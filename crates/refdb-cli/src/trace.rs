//! What operators read of a run, as Git writes it: `GIT_TRACE2`, `GIT_TRACE2_EVENT`, `GIT_TRACE2_PERF`.
//!
//! 1. Where it goes only the environment says, and the configuration of the user and the system: a
//!    repository names no place to write to.
//! 2. A run that nobody watches pays for three questions to the environment.
//! 3. A place that cannot be written to is told, and the run goes on.

mod event;
mod target;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use refdb::system::{OsSystem, System};
use refdb_git::Repository;
use refdb_git::date::{Civil, Zone};
use refdb_git::repository::Environment;
use refdb_git::repository::config::{Config, Scope, values};

use event::Event;
use target::Target;

/// The kinds of a trace: the variable, and the setting that counts where the variable does not.
const KINDS: [(Kind, &str, &str); 3] = [
    (Kind::Normal, "GIT_TRACE2", "normal"),
    (Kind::Event, "GIT_TRACE2_EVENT", "event"),
    (Kind::Perf, "GIT_TRACE2_PERF", "perf"),
];

/// The session of whoever started this process, and the commands that led to it.
const PARENT_SID: &str = "GIT_TRACE2_PARENT_SID";
const PARENT_NAME: &str = "GIT_TRACE2_PARENT_NAME";

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A line for people.
    Normal,
    /// An object of JSON.
    Event,
    /// A line of columns.
    Perf,
}

/// A run that is watched.
struct Trace {
    begun: Instant,
    /// What tells this run from all others, behind that of whoever started it.
    sid: String,
    /// How far from the first run of the session this one is.
    depth: usize,
    zone: Zone,
    targets: [OnceLock<Target>; 3],
}

static TRACE: OnceLock<Trace> = OnceLock::new();

/// The command, once it is known.
static COMMAND: OnceLock<&'static str> = OnceLock::new();

/// Begins to write where the environment says so.
pub(crate) fn begin() {
    for (index, (_, variable, _)) in KINDS.iter().enumerate() {
        if let Some(value) = std::env::var_os(variable)
            && !value.is_empty()
        {
            watch(index, value.as_bytes(), None);
        }
    }
}

/// Begins to write where the configuration of the user or the system says so, and tells which
/// repository it is.
pub(crate) fn opened(repository: &Repository) {
    let config = repository.config();
    let is_users = |scope| matches!(scope, Scope::System | Scope::Global);
    if config
        .entries()
        .iter()
        .any(|it| is_users(it.scope()) && it.key().starts_with(b"trace2."))
    {
        for (index, (_, variable, name)) in KINDS.iter().enumerate() {
            let is_said = std::env::var_os(variable).is_some_and(|value| !value.is_empty());
            if let (false, Some(value)) = (is_said, of_user(config, &format!("{name}target"))) {
                watch(index, value, Some(config));
            }
        }
    }
    if let (Some(trace), Some(top)) = (TRACE.get(), repository.work_tree()) {
        let top = top.to_string_lossy();
        let event = Event::new("def_repo", line!())
            .normal(format!("worktree {top}"))
            .perf(format!("worktree:{top}"))
            .with("repo", 1)
            .with("worktree", &*top);
        trace.write(&event.of_repository());
    }
}

/// Returns what the configuration of the user or the system says, which alone counts.
fn of_user<'c>(config: &'c Config, name: &str) -> Option<&'c [u8]> {
    let key = format!("trace2.{name}");
    let entries = config.entries().iter().rev();
    let mut entries = entries.filter(|it| matches!(it.scope(), Scope::System | Scope::Global));
    let found = entries.find(|entry| entry.key() == key.as_str())?;
    found.value().map(|value| -> &[u8] { value })
}

/// Begins to write events of one kind, if `value` names a place, with those that came before.
fn watch(index: usize, value: &[u8], config: Option<&Config>) {
    let Some((kind, variable, name)) = KINDS.get(index) else {
        return;
    };
    let asked = |suffix: &str, setting: &str| -> Option<Vec<u8>> {
        let said = std::env::var_os(format!("{variable}{suffix}"));
        let said = said.map(|said| said.as_bytes().to_vec());
        said.or_else(|| of_user(config?, &format!("{name}{setting}")).map(<[u8]>::to_vec))
    };
    let is_brief = values::boolean(asked("_BRIEF", "brief").as_deref().or(Some(b"")));
    let files_max = std::env::var_os("GIT_TRACE2_MAX_FILES").map(|max| max.as_bytes().to_vec());
    let files_max = files_max.or_else(|| of_user(config?, "maxfiles").map(<[u8]>::to_vec));
    let files_max = files_max.and_then(|max| values::integer(&max).ok());
    let trace = || TRACE.get_or_init(Trace::new);
    let Some(target) = Target::open(*kind, variable, value, files_max, || trace().own_sid()) else {
        return;
    };
    let trace = trace();
    let target = target.brief(is_brief == Some(true));
    let Some(slot) = trace.targets.get(index) else {
        return;
    };
    if slot.set(target).is_ok()
        && let Some(target) = slot.get()
    {
        for event in trace.first() {
            target.write(trace, &event);
        }
    }
}

impl Trace {
    fn new() -> Trace {
        let system = OsSystem::new();
        let own = own_sid(&system);
        let parent = std::env::var(PARENT_SID).ok().filter(|sid| !sid.is_empty());
        let sid = match parent {
            Some(parent) => format!("{parent}/{own}"),
            None => own,
        };
        Trace {
            begun: Instant::now(),
            depth: sid.matches('/').count(),
            sid,
            zone: Environment::process().zone(&system),
            targets: Default::default(),
        }
    }

    /// Returns what tells this run from all others, without whoever started it.
    fn own_sid(&self) -> &str {
        self.sid.rsplit('/').next().unwrap_or(&self.sid)
    }

    /// Returns the events with which a trace begins.
    fn first(&self) -> Vec<Event> {
        let version = format!("refdb {}", env!("CARGO_PKG_VERSION"));
        let args: Vec<String> = std::env::args_os().map(redacted).collect();
        let quoted: Vec<String> = args.iter().map(|arg| event::quoted(arg)).collect();
        let quoted = quoted.join(" ");
        let mut events = vec![
            Event::new("version", line!())
                .normal(format!("version {version}"))
                .perf(version.clone())
                .with("evt", "4")
                .with("exe", version),
            Event::new("start", line!())
                .timed(self.begun.elapsed())
                .normal(format!("start {quoted}"))
                .perf(quoted)
                .with("argv", args),
        ];
        events.extend(COMMAND.get().map(|name| command_event(name)));
        events
    }

    fn write(&self, event: &Event) {
        for target in self.targets.iter().filter_map(OnceLock::get) {
            target.write(self, event);
        }
    }
}

/// Returns an argument without the password of an address.
fn redacted(arg: std::ffi::OsString) -> String {
    let arg = arg.to_string_lossy().into_owned();
    let keeps = std::env::var_os("GIT_TRACE2_REDACT");
    if keeps.is_some_and(|keeps| values::boolean(Some(keeps.as_bytes())) == Some(false)) {
        return arg;
    }
    let hidden = || {
        let (scheme, rest) = arg.split_once("://")?;
        let host = rest.split('/').next()?;
        let (user, host) = host.rsplit_once('@')?;
        let (name, _) = user.split_once(':')?;
        let rest = rest.get(user.len() + 1 + host.len()..)?;
        Some(format!("{scheme}://{name}:<REDACTED>@{host}{rest}"))
    };
    hidden().unwrap_or(arg)
}

/// Tells which command it is.
pub(crate) fn command(name: &'static str) {
    // A command that begins again is told once.
    if COMMAND.set(name).is_ok()
        && let Some(trace) = TRACE.get()
    {
        trace.write(&command_event(name));
    }
}

/// Returns the command, behind those that led to it.
fn hierarchy(name: &str) -> String {
    match std::env::var(PARENT_NAME) {
        Ok(parent) if !parent.is_empty() => format!("{parent}/{name}"),
        _ => name.to_owned(),
    }
}

fn command_event(name: &str) -> Event {
    let hierarchy = hierarchy(name);
    let text = format!("{name} ({hierarchy})");
    Event::new("cmd_name", line!())
        .normal(format!("cmd_name {text}"))
        .perf(text)
        .with("name", name)
        .with("hierarchy", hierarchy)
}

/// Tells of a message that somebody was given.
pub(crate) fn message(text: &[u8]) {
    if let Some(trace) = TRACE.get() {
        let text = String::from_utf8_lossy(text);
        let event = Event::new("error", line!())
            .normal(format!("error {text}"))
            .perf(text.clone())
            .with("msg", &*text)
            .with("fmt", &*text);
        trace.write(&event);
    }
}

/// Tells that another program takes the place of this one.
pub(crate) fn exec(program: &Command) {
    if let Some(trace) = TRACE.get() {
        let exe = program.get_program().to_string_lossy().into_owned();
        let args = program.get_args().map(OsStr::to_owned).map(redacted);
        let args: Vec<String> = std::iter::once(exe.clone()).chain(args).collect();
        let quoted: Vec<String> = args.iter().map(|arg| event::quoted(arg)).collect();
        let quoted = quoted.join(" ");
        let event = Event::new("exec", line!())
            .timed(trace.begun.elapsed())
            .normal(format!("exec[0] {quoted}"))
            .perf(format!("id:0 argv:[{quoted}]"))
            .with("exec_id", 0)
            .with("exe", exe)
            .with("argv", args);
        trace.write(&event);
    }
}

/// Lets a program that this one starts know what session it belongs to.
pub(crate) fn pass_on(program: &mut Command) {
    if let Some(trace) = TRACE.get() {
        program.env(PARENT_SID, &trace.sid);
        if let Some(name) = COMMAND.get() {
            program.env(PARENT_NAME, hierarchy(name));
        }
    }
}

/// Tells how the run ends, by an exit code or a signal, and how often it waited for the disk.
pub(crate) fn end(code: u8, signal: Option<i32>) {
    let Some(trace) = TRACE.get() else {
        return;
    };
    let elapsed = trace.begun.elapsed();
    if let Some(signal) = signal {
        let event = Event::new("signal", line!())
            .timed(elapsed)
            .normal(format!(
                "signal elapsed:{:.6} code:{signal}",
                elapsed.as_secs_f64()
            ))
            .perf(format!("signo:{signal}"))
            .with("signo", signal);
        trace.write(&event);
        return;
    }
    let ends = |name, line, elapsed: Duration| {
        Event::new(name, line)
            .timed(elapsed)
            .normal(format!(
                "{name} elapsed:{:.6} code:{code}",
                elapsed.as_secs_f64()
            ))
            .perf(format!("code:{code}"))
            .with("code", code)
    };
    trace.write(&ends("exit", line!(), elapsed));
    let syncs = refdb::system::syncs();
    if syncs > 0 {
        let event = Event::new("counter", line!())
            .about("fsync")
            .normal(format!("counter fsync/hardware-flush value:{syncs}"))
            .perf(format!("name:hardware-flush value:{syncs}"))
            .with("category", "fsync")
            .with("name", "hardware-flush")
            .with("count", syncs);
        trace.write(&event);
    }
    trace.write(&ends("atexit", line!(), trace.begun.elapsed()));
}

/// Returns what tells this run from all others: when it began, where, and as which process.
fn own_sid(system: &OsSystem) -> String {
    let now = system.now();
    let stamp = stamp(now, "");
    let host = system.machine().host;
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(host.as_bytes());
    let host = match hasher.try_finalize() {
        Ok(id) if !host.is_empty() => format!("H{}", id.to_hex_with_len(8)),
        _ => "Localhost".to_owned(),
    };
    format!("{stamp}-{host}-P{:08x}", std::process::id())
}

/// Returns a moment in UTC, with or without marks between its parts.
fn stamp(now: Duration, mark: &str) -> String {
    let it = Civil::from_seconds(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let (dash, colon) = if mark.is_empty() {
        ("", "")
    } else {
        ("-", ":")
    };
    format!(
        "{:04}{dash}{:02}{dash}{:02}T{:02}{colon}{:02}{colon}{:02}.{:06}Z",
        it.year,
        it.month,
        it.day,
        it.hour,
        it.minute,
        it.second,
        now.subsec_micros()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_left_out() {
        let shown = |arg: &str| redacted(arg.into());
        assert_eq!(shown("https://u:p@h/x"), "https://u:<REDACTED>@h/x");
        assert_eq!(shown("--store=s3://u:p@w@h"), "--store=s3://u:<REDACTED>@h");
        for plain in ["https://h/x", "a:b@c", "https://u@h/a:b@c", "x"] {
            assert_eq!(shown(plain), plain);
        }
    }

    #[test]
    fn moments_are_written_as_git_writes_them() {
        let moment = Duration::from_micros(1_700_000_000_000_123);
        assert_eq!(stamp(moment, ""), "20231114T221320.000123Z");
        assert_eq!(stamp(moment, "-"), "2023-11-14T22:13:20.000123Z");
    }
}
