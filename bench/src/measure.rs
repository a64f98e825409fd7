//! One measurement after another: a fresh copy, the step, and a look at what came of it.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refdb::RefFormat;
use refdb::system::{OsSystem, System};

use crate::process::{Cost, Program};
use crate::repository;
use crate::shape::Shape;
use crate::workload::{Action, By, SMALL, State, Step, WRITERS, WRITES, Workload, small};

/// The result of a part of the benchmark; the text is for people.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// What a measurement came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// All of it.
    pub(crate) cost: Cost,
    /// What 99 of 100 processes stayed below, where there were several.
    pub(crate) p99: Option<Duration>,
}

/// The repositories of one format that measurements start from.
pub(crate) struct Stage<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) shape: &'a Shape,
    pub(crate) format: RefFormat,
    /// The value of `core.fsync`.
    pub(crate) fsync: &'a str,
    /// Makes the repositories that both programs start from.
    pub(crate) refdb: &'a Program,
    /// Says which refs there are afterwards, and leaves what Git has to leave: Git, if there is one.
    pub(crate) judge: &'a Program,
}

/// Returns a failure as a text for people.
pub(crate) fn told(error: std::io::Error) -> String {
    error.to_string()
}

impl Stage<'_> {
    /// Makes the states that both programs start from. `pack` is a folder with the objects.
    pub(crate) fn prepare(&self, pack: &Path) -> Result<()> {
        self.make_empty(&self.state(State::Empty), self.format, pack)?;
        let small_state = self.copy_to(State::Empty, &self.state(State::Small))?;
        for at in 0..SMALL {
            let value = self.shape.value(at, 0).to_string();
            let args = ["update-ref".to_owned(), small(at), value];
            self.refdb.run(&small_state, &args, None, None)?;
        }
        self.make_full(State::Full, Step::Create, pack)
    }

    /// Makes the state of refs that name objects of their own, which are in the folder `pack`.
    pub(crate) fn prepare_own(&self, pack: &Path) -> Result<()> {
        self.make_full(State::Own, Step::CreateOwn, pack)
    }

    /// Makes a state of all refs.
    fn make_full(&self, state: State, create: Step, pack: &Path) -> Result<()> {
        let dir = self.state(state);
        self.make_empty(&dir, RefFormat::Reftable, pack)?;
        self.step(self.refdb, &dir, create)?;
        if self.format == RefFormat::Files {
            // A file for each of millions of refs would take hours, and is packed away at once.
            let migrate = ["refs", "migrate", "--ref-format=files"].map(str::to_owned);
            self.refdb.run(&dir, &migrate, None, None)?;
        }
        self.step(self.refdb, &dir, Step::Pack)?;
        Ok(())
    }

    /// Makes a repository without refs.
    fn make_empty(&self, dir: &Path, format: RefFormat, pack: &Path) -> Result<()> {
        let (objects, alternate) = (self.shape.objects, self.shape.alternate.as_deref());
        repository::create(dir, format, objects, alternate).map_err(told)?;
        fs::remove_dir(dir.join("objects/pack")).map_err(told)?;
        repository::copy(pack, &dir.join("objects/pack")).map_err(told)?;
        let config = fs::read_to_string(dir.join("config")).map_err(told)?;
        let ours = format!(
            "[core]\n\tfsync = {}\n\tfilesRefLockTimeout = 60000\n\tpackedRefsTimeout = 60000\n\
             [reftable]\n\tlockTimeout = 60000\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n",
            self.fsync
        );
        fs::write(dir.join("config"), config + &ours).map_err(told)?;
        // In reftable it is a ref like others, without which a migration would leave none.
        let head = ["symbolic-ref", "HEAD", "refs/heads/main"].map(str::to_owned);
        self.refdb.run(dir, &head, None, None)?;
        Ok(())
    }

    fn state(&self, state: State) -> PathBuf {
        let name = format!("{}-{}-{state:?}", self.format.name(), self.fsync);
        self.folder.join(name)
    }

    fn copy_to(&self, state: State, to: &Path) -> Result<PathBuf> {
        repository::copy(&self.state(state), to).map_err(told)?;
        Ok(to.to_owned())
    }

    /// Measures a workload once; `None` if the program took longer than it may.
    ///
    /// # Errors
    /// When a program fails, or the refs afterwards are not those that there must be.
    pub(crate) fn measure(&self, program: &Program, workload: &Workload) -> Result<Option<Sample>> {
        let dir = self.folder.join("measured");
        let origin = match workload.state {
            State::Made | State::Deleted => State::Empty,
            State::Grown => State::Full,
            state => state,
        };
        self.copy_to(origin, &dir)?;
        if workload.logged {
            let mut config = fs::OpenOptions::new()
                .append(true)
                .open(dir.join("config"))
                .map_err(told)?;
            config
                .write_all(b"[core]\n\tlogAllRefUpdates = always\n")
                .map_err(told)?;
        }
        let history: &[Step] = match workload.state {
            State::Made => &[Step::Create],
            State::Deleted => &[Step::Create, Step::Delete],
            State::Grown => &[Step::CreateMore],
            _ => &[],
        };
        let maker = match workload.by {
            By::Itself => program,
            By::Git => self.judge,
        };
        for &step in history {
            if self.step(maker, &dir, step)?.is_none() {
                fs::remove_dir_all(&dir).map_err(told)?;
                return Ok(None);
            }
        }
        let sample = self.timed(program, workload, &dir)?;
        if sample.is_some() {
            self.confirm(workload, &dir)
                .map_err(|what| format!("after '{}' by {}: {what}", workload.name, program.name))?;
        }
        fs::remove_dir_all(&dir).map_err(told)?;
        Ok(sample)
    }

    /// Runs one step in one process.
    fn step(&self, program: &Program, dir: &Path, step: Step) -> Result<Option<Cost>> {
        let input = dir.with_extension("input");
        let mut out = BufWriter::new(File::create(&input).map_err(told)?);
        let reads = step.input(self.shape, &mut out).map_err(told)?;
        out.flush().map_err(told)?;
        let args = step.args(self.shape, self.format, 0);
        // What was written before must not be waited for in the measurement.
        OsSystem::new().sync_file_system(dir).map_err(told)?;
        program.run(dir, &args, reads.then_some(input.as_path()), None)
    }

    fn timed(&self, program: &Program, workload: &Workload, dir: &Path) -> Result<Option<Sample>> {
        match workload.action {
            Action::Once => {
                let cost = self.step(program, dir, workload.step())?;
                Ok(cost.map(|cost| Sample { cost, p99: None }))
            }
            Action::Row => {
                let unlimited = program.unlimited();
                let args: Vec<_> = (0..workload.processes())
                    .map(|at| workload.step().args(self.shape, self.format, at))
                    .collect();
                let costs = in_a_row(&unlimited, dir, &args)?;
                let time = costs.iter().map(|cost| cost.time).sum();
                Ok(Some(summary(time, costs)))
            }
            Action::Writers => self.writers(&program.unlimited(), dir).map(Some),
        }
    }

    /// Has several writers create refs, and packs or compacts until they are done.
    fn writers(&self, program: &Program, dir: &Path) -> Result<Sample> {
        let done = AtomicBool::new(false);
        let pack = Step::Pack.args(self.shape, self.format, 0);
        let start = Instant::now();
        let (costs, time) = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let args: Vec<_> = (writer * WRITES..(writer + 1) * WRITES)
                        .map(|at| Step::Write.args(self.shape, self.format, at))
                        .collect();
                    scope.spawn(move || in_a_row(program, dir, &args))
                })
                .collect();
            let packer = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Git's gives up when somebody else is at it: the writers are what counts.
                    let _ = program.run(dir, &pack, None, None);
                }
            });
            let costs: Result<Vec<Vec<Cost>>> = writers
                .into_iter()
                .map(|writer| writer.join().map_err(|_| "a writer died".to_owned())?)
                .collect();
            let time = start.elapsed();
            done.store(true, Ordering::Relaxed);
            // It has nothing to tell, and panics are told by the thread.
            let _ = packer.join();
            (costs, time)
        });
        Ok(summary(time, costs?.concat()))
    }

    /// Compares the refs that there are with those that there must be, in any order.
    fn confirm(&self, workload: &Workload, dir: &Path) -> Result<()> {
        let listing = dir.with_extension("listing");
        let args = ["for-each-ref", "--format=%(objectname) %(refname)"].map(str::to_owned);
        self.judge
            .unlimited()
            .run(dir, &args, None, Some(&listing))?;
        let (mut listed, mut expected) = (Sum::default(), Sum::default());
        let file = BufReader::new(File::open(&listing).map_err(told)?);
        for line in file.split(b'\n') {
            listed.add(&line.map_err(told)?);
        }
        let (state, processes) = (workload.state, workload.processes());
        let step = workload.step();
        let done: Result<()> = step.after(state, self.shape, processes, |name, value| {
            let mut line = Vec::new();
            value.push_hex(&mut line);
            line.push(b' ');
            line.extend(name);
            expected.add(&line);
            Ok(())
        });
        done?;
        if listed == expected {
            return Ok(());
        }
        let (listed, expected) = (listed.lines, expected.lines);
        Err(format!(
            "{} lists {listed} refs that are not the {expected} refs that there should be",
            self.judge.name
        ))
    }
}

/// A checksum of lines in any order, so that neither side has to be kept or sorted.
#[derive(Default, PartialEq, Eq)]
struct Sum {
    lines: usize,
    hash: u64,
}

impl Sum {
    fn add(&mut self, line: &[u8]) {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        self.lines += 1;
        self.hash = self.hash.wrapping_add(hasher.finish());
    }
}

fn in_a_row(program: &Program, dir: &Path, args: &[Vec<String>]) -> Result<Vec<Cost>> {
    let run = |args: &Vec<String>| program.run(dir, args, None, None).transpose();
    args.iter().filter_map(run).collect()
}

fn summary(time: Duration, costs: Vec<Cost>) -> Sample {
    let memory = costs.iter().map(|cost| cost.memory).max().unwrap_or(0);
    let mut times: Vec<Duration> = costs.into_iter().map(|cost| cost.time).collect();
    times.sort();
    let p99 = times.get((times.len() * 99 / 100).min(times.len().saturating_sub(1)));
    Sample {
        cost: Cost { time, memory },
        p99: p99.copied(),
    }
}
