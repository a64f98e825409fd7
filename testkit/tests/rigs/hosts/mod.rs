//! Machines with many processes each, which commit to one store and are killed and stopped at every step.
//!
//! A machine is a folder with a bare repository of its own: its own followed state, and its own committer, which
//! its processes share. Each process makes some pushes and ends. Some are killed before or after a request, or
//! stopped there for a while, others whenever it happens. Meanwhile tables are merged, and collected without
//! grace. What every process did and was told is written down, and checked (`check.rs`).
//!
//! What includes this says where the place is ([`Scene::url`], `crate::open_place`).
#![expect(clippy::print_stdout, reason = "how much was tried")]

mod check;
mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use refdb::shared::{Register, Settings};
use refdb::system::OsSystem;
use refdb::{ObjectFormat, Store};
use refdb_testkit::Format;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;

pub(crate) use check::Found;

/// So many values each writer may use.
const VALUES_EACH: usize = 4000;

/// Refs that everybody changes.
const CONTESTED: usize = 4;

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long to go on at most until a push is cut off.
const MORE: Duration = Duration::from_secs(60);

/// What is done.
pub(crate) struct Plan<'p> {
    pub(crate) url: String,
    pub(crate) hosts: usize,
    pub(crate) processes: usize,
    pub(crate) lasts: Duration,
    /// What a process lies about to itself, see [`worker`].
    pub(crate) planted: &'static str,
    /// What comes before the program for processes of a machine: `ip netns exec` and its name, for example.
    pub(crate) prefix: &'p dyn Fn(usize) -> Vec<String>,
    /// What else happens, with each look.
    pub(crate) beside: &'p mut dyn FnMut(Duration),
}

/// The machines, and what they wrote down.
struct Scene {
    root: tempfile::TempDir,
    copies: Vec<Repo>,
}

impl Scene {
    fn new(plan: &Plan<'_>) -> Scene {
        let root = tempfile::tempdir().expect("a folder");
        let objects = Repo::init_bare(Format::REFTABLE_SHA1);
        let writers = plan.hosts * plan.processes;
        let values = make_values(&objects, writers * VALUES_EACH);
        fs::write(root.path().join("values"), values).expect("a file");
        let place = crate::open_place(&plan.url);
        Register::init(place.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1).expect("init");
        let mut copies: Vec<Repo> = (0..plan.hosts)
            .map(|_| {
                let copy = Repo::init_bare(Format::REFTABLE_SHA1);
                let borrowed = copy.git_dir().join("objects/info/alternates");
                fs::write(
                    borrowed,
                    format!("{}\n", objects.git_dir().join("objects").display()),
                )
                .expect("a file");
                copy.config("refdb.store", &plan.url);
                copy
            })
            .collect();
        // It has to stay.
        copies.push(objects);
        Scene { root, copies }
    }

    fn log(&self, writer: usize) -> PathBuf {
        self.root.path().join(format!("told.{writer}"))
    }

    /// Returns whether a process that ended was not told what became of its last push.
    fn ends_untold(&self, writer: usize) -> bool {
        let told = fs::read_to_string(self.log(writer)).unwrap_or_default();
        told.lines()
            .last()
            .is_some_and(|line| line.starts_with("begin"))
    }

    /// Starts a process of a writer.
    fn start(&self, plan: &Plan<'_>, writer: usize, random: u64, left: Duration) -> Child {
        let host = writer / plan.processes;
        let program = std::env::current_exe().expect("this program has a name");
        let mut words = (plan.prefix)(host);
        words.push(program.to_str().expect("a name in ASCII").to_owned());
        let args = [
            "--exact",
            "hosts::a_process",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ];
        words.extend(args.map(str::to_owned));
        let task = format!(
            "{} {} {writer} {random} {} {}",
            self.copies[host].git_dir().display(),
            self.root.path().display(),
            left.as_millis(),
            plan.planted
        );
        let path = self.root.path().join(format!("said.{writer}"));
        let said = fs::OpenOptions::new().create(true).append(true).open(path);
        let said = said.expect("a file");
        Command::new(&words[0])
            .args(&words[1..])
            .env("REFDB_HOSTS_TASK", task)
            .stdin(Stdio::null())
            .stdout(said.try_clone().expect("a file"))
            .stderr(said)
            .spawn()
            .expect("it starts")
    }
}

/// Makes objects, and returns their ids, a line each.
fn make_values(repo: &Repo, count: usize) -> String {
    let mut input = String::new();
    for at in 0..count {
        let text = format!("value {at}");
        input.push_str(&format!(
            "blob\nmark :{}\ndata {}\n{text}\n",
            at + 1,
            text.len()
        ));
    }
    let marks = repo.git_dir().join("marks");
    let export = format!("--export-marks={}", marks.display());
    repo.git(["fast-import", "--quiet", &export])
        .stdin(input)
        .run()
        .ok();
    let text = fs::read_to_string(&marks).expect("marks");
    let mut ids: Vec<(usize, &str)> = text
        .lines()
        .filter_map(|line| line.strip_prefix(':')?.split_once(' '))
        .map(|(mark, id)| (mark.parse().expect("a number"), id))
        .collect();
    ids.sort_unstable();
    ids.iter().map(|(_, id)| format!("{id}\n")).collect()
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args([name, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    sent.expect("kill runs");
}

/// Returns whether a process is stopped.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|it| it.1.starts_with('T'))
}

/// Lets the machines work, and returns what was found.
pub(crate) fn run(plan: Plan<'_>) -> Found {
    let scene = Scene::new(&plan);
    let writers = plan.hosts * plan.processes;
    let begun = Instant::now();
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut running: BTreeMap<usize, Child> = BTreeMap::new();
    let mut stopped: BTreeMap<usize, Instant> = BTreeMap::new();
    let (mut processes, mut killed, mut paused) = (0, 0, 0);
    let mut untold = 0;
    loop {
        // A short run may not have met what it is about, a push that nobody was told about.
        let more = if untold > 0 { Duration::ZERO } else { MORE };
        let lasts = plan.lasts + more;
        let is_over = begun.elapsed() >= lasts;
        for writer in 0..writers {
            if let Some(child) = running.get_mut(&writer) {
                let pid = child.id();
                match child.try_wait().expect("it can be asked") {
                    Some(status) => {
                        if status.code().is_none() {
                            killed += 1;
                            untold += usize::from(scene.ends_untold(writer));
                        }
                        running.remove(&writer);
                        stopped.remove(&writer);
                    }
                    None if is_stopped(pid) => {
                        let since = *stopped.entry(writer).or_insert_with(Instant::now);
                        let long = Duration::from_millis(300 + 97 * (u64::from(pid) % 20));
                        if since.elapsed() > long {
                            signal(pid, "-CONT");
                            stopped.remove(&writer);
                            paused += 1;
                        }
                    }
                    // Whenever it happens.
                    None if rng.below(2000) == 0 => signal(pid, "-KILL"),
                    None => {}
                }
            }
            if !is_over && !running.contains_key(&writer) {
                let left = lasts.saturating_sub(begun.elapsed());
                let child = scene.start(&plan, writer, rng.next_u64(), left);
                running.insert(writer, child);
                processes += 1;
            }
        }
        (plan.beside)(begun.elapsed());
        if is_over && running.is_empty() {
            break;
        }
        assert!(
            begun.elapsed() < lasts + Duration::from_secs(120),
            "{running:?}"
        );
        thread::sleep(LOOK);
    }
    (plan.beside)(Duration::MAX);
    let mut found = finish(&scene, &plan.url, writers);
    let took = begun.elapsed().as_secs();
    println!(
        "{processes} processes in {took} s, {killed} killed, {paused} stopped and woken; {found}"
    );
    if !found.wrong.is_empty() {
        for writer in 0..writers {
            let said = fs::read_to_string(scene.root.path().join(format!("said.{writer}")));
            found.said.push_str(&said.unwrap_or_default());
        }
    }
    found
}

/// Reads what there is at the end, and compares it with what was told.
fn finish(scene: &Scene, url: &str, writers: usize) -> Found {
    let place = crate::open_place(url);
    let register = Register::open(
        place,
        std::sync::Arc::new(OsSystem::new()),
        Settings::default(),
    );
    let register = std::sync::Arc::new(register.expect("nothing is read yet"));
    let options = refdb::Options::new(ObjectFormat::Sha1);
    let objects = std::sync::Arc::new(refdb::objects::NoObjects);
    let store = Store::open_shared(std::sync::Arc::clone(&register), objects, options);
    let store = store.expect("a store");
    let mut now = BTreeMap::new();
    let mut refs = store.refs().expect("refs");
    while let Some(found) = refs.next().expect("every ref") {
        let id = found.target.oid().expect("no symref").to_string();
        now.insert(found.name.to_string(), id);
    }
    let problems = refdb_maintenance::shared::verify(&register, &|_| ()).expect("it can be read");
    let logs = (0..writers).map(|writer| fs::read_to_string(scene.log(writer)).unwrap_or_default());
    let logs: Vec<String> = logs.collect();
    keep(url, &logs, &now);
    let mut found = check::check(&logs, &now);
    found.wrong.extend(problems);
    found
}

/// Keeps what was written down in the folder that `REFDB_HOSTS_KEEP` names, for others to check
/// (`testkit/porcupine`).
fn keep(url: &str, logs: &[String], now: &BTreeMap<String, String>) {
    let Some(folder) = std::env::var_os("REFDB_HOSTS_KEEP") else {
        return;
    };
    let path = url.split('?').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let folder = Path::new(&folder).join(name);
    fs::create_dir_all(&folder).expect("a folder");
    for (writer, log) in logs.iter().enumerate() {
        fs::write(folder.join(format!("told.{writer}")), log).expect("a file");
    }
    let now: String = now
        .iter()
        .map(|(name, id)| format!("{name} {id}\n"))
        .collect();
    fs::write(folder.join("now"), now).expect("a file");
}

/// A process of one of the machines, started by [`run`].
#[test]
#[ignore = "a process of the others"]
fn a_process() {
    let task = std::env::var("REFDB_HOSTS_TASK").expect("somebody says what is to be done");
    worker::work(&task);
}

/// Adds a line to what a process was told.
fn note(path: &Path, line: &str) {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("it is written down");
}
