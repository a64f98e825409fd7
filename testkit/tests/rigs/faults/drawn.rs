//! Workloads that are drawn, on repositories that are: what nobody thought of.

use refdb_testkit::rng::Rng;

use super::*;

/// Names that can all be there at once.
const NAMES: [&str; 14] = [
    "refs/heads/both",
    "refs/heads/deep/er/packed",
    "refs/heads/dir/loose",
    "refs/heads/dir/other",
    "refs/heads/main",
    "refs/heads/new/er/one",
    "refs/heads/side",
    "refs/notes/commits",
    "refs/remotes/o/HEAD",
    "refs/remotes/o/main",
    "refs/stash",
    "refs/tags/v1",
    "refs/tags/v1.0",
    "refs/tags/v2/rc",
];

/// Names that each worktree has for itself.
const OWN_NAMES: [&str; 2] = ["refs/bisect/bad", "refs/worktree/mine"];

/// One edit, in words that both formats and every process understand.
#[derive(Clone, Debug)]
enum Step {
    Update(&'static str, u32),
    Delete(&'static str),
    Point(&'static str, &'static str),
}

/// What a process does at once.
#[derive(Clone, Debug)]
enum Work {
    Commit { linked: bool, steps: Vec<Step> },
    Optimize,
    RewriteLog(&'static str),
    RemoveLog(&'static str),
}

/// Draws a transaction in which no ref is changed twice: nothing is written through a symbolic ref,
/// and HEAD is changed alone, for its branch might be changed beside it.
fn steps(rng: &mut Rng) -> Vec<Step> {
    let target = |rng: &mut Rng| NAMES[rng.below(NAMES.len())];
    if rng.percent(5) {
        return vec![Step::Point("HEAD", target(rng))];
    }
    let mut names: Vec<&'static str> = NAMES.into_iter().chain(OWN_NAMES).collect();
    let count = if rng.percent(25) { 1 } else { 1 + rng.below(9) };
    let mut steps = Vec::with_capacity(count);
    for _ in 0..count {
        let name = names.swap_remove(rng.below(names.len()));
        steps.push(match rng.below(10) {
            0 | 1 => Step::Delete(name),
            2 => Step::Point(name, target(rng)),
            _ => Step::Update(name, 1 + u32::try_from(rng.below(200)).expect("small")),
        });
    }
    steps
}

impl Work {
    fn draw(rng: &mut Rng) -> Work {
        match rng.below(12) {
            0 => Work::Optimize,
            1 => Work::RewriteLog(NAMES[rng.below(NAMES.len())]),
            2 => Work::RemoveLog(NAMES[rng.below(NAMES.len())]),
            _ => Work::Commit {
                linked: rng.percent(30),
                steps: steps(rng),
            },
        }
    }

    fn scope(&self) -> Scope {
        match self {
            Work::Commit { steps, .. } if steps.len() > 1 => Scope::Several,
            Work::Commit { .. } | Work::Optimize => Scope::OneRef,
            Work::RewriteLog(_) | Work::RemoveLog(_) => Scope::OneLog,
        }
    }

    fn run(&self, process: &Process) -> Result<Acknowledged> {
        match self {
            Work::Commit { linked, steps } => {
                let store = match linked {
                    true => &process.linked,
                    false => &process.main,
                };
                let edit = |step: &Step| match *step {
                    Step::Update(text, number) => process.update(text, number).no_deref(),
                    Step::Delete(text) => delete(text).no_deref(),
                    Step::Point(text, target) => symbolic(text, target),
                };
                commit(store, steps.iter().map(edit).collect())
            }
            Work::Optimize => optimize(process),
            Work::RewriteLog(text) => {
                let mut is_oldest = true;
                let name = name(text);
                let outcome =
                    process
                        .main
                        .rewrite_log(name.as_name(), LogRewrite::default(), |_| {
                            Ok(!std::mem::replace(&mut is_oldest, false))
                        })?;
                Ok(outcome.is_none_or(|outcome| outcome.afterwards.is_empty()))
            }
            Work::RemoveLog(text) => {
                let outcome = process.main.delete_logs([name(text).as_name()])?;
                Ok(outcome.afterwards.is_empty())
            }
        }
    }
}

/// Draws a repository and what is done in it.
pub(super) fn case(format: Format, seed: u64) -> Case {
    let mut rng = Rng::new(seed);
    let base = repository(format);
    let process = Process::new(base.process(1200), format);
    for _ in 0..rng.below(6) {
        let before = Work::draw(&mut rng);
        before.run(&process).expect("no fault");
    }
    drop(process);
    base.sync_all();
    base.sleep(Duration::from_secs(10));
    let work = Work::draw(&mut rng);
    let name = format!("seed {seed}: {work:?}");
    let workload = Workload::new(name, work.scope(), move |process| work.run(process));
    let mut case = Case::new(base, format, workload);
    // What changes no value is left out of a transaction, and then there may be but one ref in it.
    let names: BTreeSet<&String> = case.old.refs.keys().chain(case.new.refs.keys()).collect();
    let changed = |view: &str| {
        let differ = |name: &&&String| case.old.refs.get(**name) != case.new.refs.get(**name);
        let of_view = names.iter().filter(|name| name.starts_with(view));
        of_view.filter(differ).count()
    };
    if case.workload.scope == Scope::Several && changed("main ").max(changed("linked ")) < 2 {
        case.workload.scope = Scope::OneRef;
    }
    case
}
