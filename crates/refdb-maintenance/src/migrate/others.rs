//! Processes that may have read the old configuration before the switch: until they have ended, the
//! places of the old format are kept from being made anew.
//!
//! They are found in `/proc`; where there is none, nobody is found. Only programs are waited for that
//! are called git or refdb and work in this repository: a shell in one of its folders never ends.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use refdb::RefFormat;
use refdb::internals::bytes_to_path;
use refdb::system::both;
use refdb::system::{DirEntry, ProcessState, System};

use super::context::Context;
use super::place::Place;

/// How often they are looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// Commands that write no ref, and may well be there for hours: behind a pager, or as servers.
const READERS: [&[u8]; 14] = [
    b"archive",
    b"blame",
    b"cat-file",
    b"credential-cache--daemon",
    b"daemon",
    b"diff",
    b"fsmonitor--daemon",
    b"grep",
    b"log",
    b"pack-objects",
    b"rev-list",
    b"shortlog",
    b"show",
    b"upload-pack",
];

/// How much is read of a file in `/proc`.
const PROC_MAX: usize = 64 << 10;

/// The processes that were there at one moment.
#[derive(Debug)]
pub(super) struct Others {
    /// Each with the tick at which it started.
    running: Vec<(u32, u64)>,
}

impl Others {
    /// Finds the processes that work in the repository now, but for this one and those that wait for
    /// it; meanwhile, does `work`. Where refs were tables nobody is waited for, and so nobody is looked for.
    pub(super) fn beside<T>(
        context: &Context,
        places: &[Place],
        from: RefFormat,
        work: impl FnOnce() -> T,
    ) -> (T, Others) {
        let system = context.followed.as_ref();
        let there = match from {
            RefFormat::Files => processes(system),
            RefFormat::Reftable => Vec::new(),
        };
        // A simulated system has none, and does one thing after the other.
        if there.is_empty() {
            let running = Vec::new();
            return (work(), Others { running });
        }
        both(work, || {
            Others::among(&there, system, &context.common_dir, places)
        })
    }

    /// Finds those of the processes that work in the repository.
    fn among(there: &[u32], system: &dyn System, common_dir: &Path, places: &[Place]) -> Others {
        let folders = folders(system, common_dir, places);
        let waiting = ancestors(system);
        let mut running = Vec::new();
        for &pid in there {
            if waiting.contains(&pid) || !is_ours(system, pid, &folders) {
                continue;
            }
            if let ProcessState::Since(started) = system.process_state(pid) {
                running.push((pid, started));
            }
        }
        Others { running }
    }

    /// Waits until they have ended, but for no longer than that; returns those that still run.
    pub(super) fn wait(mut self, system: &dyn System, longest: Duration) -> Vec<u32> {
        let mut waited = Duration::ZERO;
        loop {
            self.running.retain(|&(pid, started)| {
                system.process_state(pid) == ProcessState::Since(started)
            });
            if self.running.is_empty() || waited >= longest {
                return self.running.into_iter().map(|(pid, _)| pid).collect();
            }
            system.sleep(PAUSE);
            waited += PAUSE;
        }
    }
}

/// Returns every process that there is.
fn processes(system: &dyn System) -> Vec<u32> {
    // Nothing is renamed there: one reading misses nobody who is there all the time.
    let there = system.scan_dir(Path::new("/proc"));
    let names = there.map_or_else(|_| Vec::new(), |scan| scan.entries);
    let pid = |entry: &DirEntry| std::str::from_utf8(&entry.name).ok()?.parse().ok();
    names.iter().filter_map(pid).collect()
}

/// Returns the folders of the repository and of its work trees.
fn folders(system: &dyn System, common_dir: &Path, places: &[Place]) -> Vec<PathBuf> {
    let mut folders = vec![common_dir.to_owned()];
    if common_dir.file_name().is_some_and(|name| name == ".git") {
        folders.extend(common_dir.parent().map(Path::to_owned));
    }
    for place in places.iter().filter(|place| !place.is_common()) {
        // `gitdir` names the file `.git` at the top of the work tree.
        let git_dir = common_dir.join(&place.below);
        let Ok(named) = system.read_at_most(&git_dir.join("gitdir"), PROC_MAX) else {
            continue;
        };
        let dir = git_dir.join(bytes_to_path(named.trim_ascii_end()));
        folders.extend(dir.parent().map(Path::to_owned));
    }
    let real = |dir: PathBuf| refdb_git::internals::real_path(system, &dir).unwrap_or(dir);
    folders.into_iter().map(real).collect()
}

/// Returns this process, its parent, and so on.
fn ancestors(system: &dyn System) -> Vec<u32> {
    let mut found = vec![system.process_id()];
    while let Some(parent) = found.last().and_then(|&pid| parent(system, pid)) {
        if parent == 0 || found.contains(&parent) {
            break;
        }
        found.push(parent);
    }
    found
}

fn of_proc(system: &dyn System, pid: u32, file: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(format!("/proc/{pid}/{file}"));
    system.read_at_most(&path, PROC_MAX).ok()
}

fn parent(system: &dyn System, pid: u32) -> Option<u32> {
    let stat = of_proc(system, pid, "stat")?;
    // Behind the name, which may hold anything: the state, then the parent.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns whether a process is one of Git or refdb that works in one of the folders, as far as that
/// can be found out.
fn is_ours(system: &dyn System, pid: u32, folders: &[PathBuf]) -> bool {
    // Most are threads of the kernel, which have a folder and no program: two thirds of the calls find that out. A
    // program whose first thread has ended has neither.
    let is_absent = |link: &str| {
        let link = system.read_link(Path::new(&format!("/proc/{pid}/{link}")));
        link.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    if is_absent("exe") && !is_absent("cwd") {
        return false;
    }
    let Some(name) = of_proc(system, pid, "comm") else {
        return false;
    };
    if !name.starts_with(b"git") && !name.starts_with(b"refdb") {
        return false;
    }
    let said = of_proc(system, pid, "cmdline").unwrap_or_default();
    let words = said.split(|&byte| byte == 0);
    if command_of(words).is_some_and(|word| READERS.contains(&word)) {
        return false;
    }
    let Ok(dir) = system.read_link(Path::new(&format!("/proc/{pid}/cwd"))) else {
        // Another user's: it may be anywhere.
        return true;
    };
    if folders.iter().any(|folder| dir.starts_with(folder)) {
        return true;
    }
    // Else the repository was named: as an option, or in the environment.
    ["cmdline", "environ"].iter().any(|file| {
        let said = of_proc(system, pid, file).unwrap_or_default();
        let mut words = said.split(|&byte| byte == 0 || byte == b'=');
        words.any(|word| {
            let path = dir.join(bytes_to_path(word));
            // However it is written: by another way, or through links.
            let is_one = |path| folders.contains(&path);
            path.is_absolute()
                && !word.is_empty()
                && refdb_git::internals::real_path(system, &path).is_ok_and(is_one)
        })
    })
}

/// Returns the name of the command in the words of a call of Git: the first one behind the options, of which some have
/// their value in the next word. Any other word may be the name of whatever there is.
fn command_of<'w>(mut words: impl Iterator<Item = &'w [u8]>) -> Option<&'w [u8]> {
    const WITH_VALUE: [&[u8]; 7] = [
        b"-C",
        b"-c",
        b"--git-dir",
        b"--work-tree",
        b"--namespace",
        b"--config-env",
        b"--super-prefix",
    ];
    let program = words.next()?;
    let name = program.rsplit(|&byte| byte == b'/').next()?;
    if let Some(command) = name.strip_prefix(b"git-") {
        return Some(command);
    }
    while let Some(word) = words.next() {
        match word {
            _ if WITH_VALUE.contains(&word) => drop(words.next()),
            _ if word.starts_with(b"-") => {}
            _ => return Some(word),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb::system::OsSystem;
    use std::process::{Command, Stdio};

    #[test]
    fn only_the_name_of_the_command_says_what_it_does() {
        let command = |words: &str| {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            command_of(words.into_iter()).map(|word| String::from_utf8_lossy(word).into_owned())
        };
        for (words, named) in [
            ("git log -5", Some("log")),
            (
                "/usr/bin/git -C show -c a.b=c --no-pager --git-dir x fetch archive",
                Some("fetch"),
            ),
            ("git update-ref -m show --stdin", Some("update-ref")),
            ("git-upload-pack .", Some("upload-pack")),
            ("/usr/lib/git-core/git-cat-file --batch", Some("cat-file")),
            ("refdb --git-dir=log refs list", Some("refs")),
            ("git", None),
        ] {
            assert_eq!(command(words).as_deref(), named, "{words}");
        }
    }

    #[test]
    fn programs_of_git_in_the_repository_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let git_dir = dir.path().join(".git");
        std::fs::create_dir(&git_dir).unwrap();
        // Not Git, but it is called so: and waits for its input to end.
        let program = dir.path().join("git-waits");
        // A link and no copy: a program that was just written cannot be started while another thread
        // starts one, and so has it open.
        std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
        let start = |here: &Path, variable: Option<&Path>| {
            let mut command = Command::new(&program);
            command.current_dir(here).stdin(Stdio::piped());
            if let Some(value) = variable {
                command.env("GIT_DIR", value);
            }
            let child = command.spawn().unwrap();
            // It has its name a moment after it was started, and its environment a moment after that.
            let told = |file| of_proc(&OsSystem::new(), child.id(), file).unwrap_or_default();
            while !told("comm").starts_with(b"git") || told("environ").is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            child
        };
        let system = OsSystem::new();
        let elsewhere = tempfile::tempdir().unwrap();
        let unrelated = start(elsewhere.path(), None);
        let inside = start(dir.path(), None);
        let named = start(elsewhere.path(), Some(&git_dir));
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let by_link = start(elsewhere.path(), Some(Path::new("./link/.git")));
        let mut others = Others::among(&processes(&system), &system, &git_dir, &[]);
        let pids: Vec<u32> = others.running.iter().map(|(pid, _)| *pid).collect();
        assert!(pids.contains(&inside.id()) && pids.contains(&named.id()));
        assert!(pids.contains(&by_link.id()));
        assert!(!pids.contains(&unrelated.id()) && !pids.contains(&std::process::id()));
        others.running.retain(|(pid, _)| *pid == inside.id());
        let waits = std::thread::scope(|scope| {
            let waits = scope.spawn(|| others.wait(&system, Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(60));
            assert!(!waits.is_finished());
            for mut child in [unrelated, inside, named, by_link] {
                drop(child.stdin.take());
                child.wait().unwrap();
            }
            waits.join().unwrap()
        });
        assert_eq!(waits, [0; 0]);
    }
}
