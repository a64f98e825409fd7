//! The model against real Git: the same transactions, the same verdicts, refs and reflogs.
//!
//! `REFDB_SEEDS=first..last` runs other seeds than the usual ones.

use std::ops::Range;

use bstr::{BStr, ByteSlice};
use refdb_testkit::generate::Generator;
use refdb_testkit::model::{GitSays, Mistake, Model, Rules, Verdict, git_says};
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::state::State;
use refdb_testkit::{Format, for_every_format};

/// Transactions per repository.
const STEPS: usize = 12;

for_every_format! {
    fn the_model_does_what_git_does(format) {
        let seeds = seeds();
        let complete = seeds.clone().filter(|seed| run(*seed, format)).count();
        let all = seeds.count();
        assert!(complete * 10 >= all * 7, "only {complete} of {all} seeds came to their end");
    }
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("REFDB_SEEDS") else {
        return 0..150;
    };
    let (first, last) = text.split_once("..").expect("REFDB_SEEDS=first..last");
    first.parse().expect("a number")..last.parse().expect("a number")
}

/// Returns false if it ended early, since Git did what the model foretold as uncertain.
fn run(seed: u64, format: Format) -> bool {
    let repo = Repo::init(format);
    let mut model = Model::new(Rules::new(format));
    let mut generator = Generator::new(seed, format);
    let mut rng = Rng::new(seed ^ 0xffff);
    let mut history = String::new();
    for step in 0..STEPS {
        if rng.percent(20) {
            // Through a symref a branch can be set to what is no commit, and then packing fails.
            let out = repo.git(["pack-refs", "--all"]).run();
            assert!(out.code() == 0 || out.stderr.contains_str("non-commit object"));
            history.push_str("--- pack-refs\n");
        }
        if rng.percent(10) {
            history.push_str(&write_log(&repo, &mut model, &mut rng));
        }
        let transaction = generator.next(&model);
        let before = model.state().clone();
        let case = || {
            format!(
                "seed {seed}, {format}, transaction {step}: git {}\n{}before:\n{before:?}\n{history}",
                transaction.arguments().join(" "),
                transaction.script()
            )
        };
        let mistakes = model.mistakes(&transaction);
        let (said, text) = git_says(&repo, &transaction);
        let expected = model.apply(&transaction);
        let uncertain = mistakes.iter().any(Mistake::is_about_verdict);
        let refused = matches!(
            (&said, &expected),
            (GitSays::Refused(_), Verdict::Refused { .. })
        );
        let may_do_more = transaction.batch || mistakes.contains(&Mistake::ConflictUnseen);
        if uncertain && may_do_more && !agree(&said, &expected) {
            // What Git has stored now is beyond the model.
            return false;
        }
        assert!(
            agree(&said, &expected) || (uncertain && refused),
            "Git: {said:?}\nmodel: {expected:?}\n{text}\n{}",
            case()
        );
        let state = repo.state();
        let mut mended = model.state().clone();
        take_over(&mistakes, &state, &mut mended);
        model = Model::with_state(model.rules(), mended);
        let difference = model.state().difference(&state);
        assert!(
            difference.is_empty(),
            "- model, + Git:\n{difference}\nGit: {said:?} {text}\n{}",
            case()
        );
        history.push_str(&format!(
            "--- {}\n{}",
            transaction.arguments().join(" "),
            transaction.script()
        ));
    }
    true
}

/// Adds a reflog entry through Git and in the model, for a ref that may not be there.
fn write_log(repo: &Repo, model: &mut Model, rng: &mut Rng) -> String {
    let name = *rng.pick(&["HEAD", "refs/heads/main", "refs/heads/side", "refs/notes/n"]);
    let commits = &repo.objects().commits;
    let zero = repo.format().zero();
    let old = if rng.percent(50) { &zero } else { &commits[7] };
    let new = &commits[8];
    let message = *rng.pick(&["written", " by  hand "]);
    if model.write_log(name.into(), old, new, message).is_err() {
        // Git refuses it in one ref format only.
        return String::new();
    }
    repo.git(["reflog", "write", name, old, new, message])
        .run()
        .ok();
    format!("--- reflog write {name} {old} {new} '{message}'\n")
}

/// Takes over from Git what it may have done wrong.
fn take_over(mistakes: &[Mistake], state: &State, mended: &mut State) {
    for mistake in mistakes {
        match mistake {
            Mistake::LogOfRejected(name)
            | Mistake::LogOfVerified(name)
            | Mistake::LogOfDeletedSymref(name)
            | Mistake::LogOfLongWay(name) => {
                take_over_log(name.as_ref(), state, mended);
            }
            Mistake::OldValueInLogOfHead => take_over_old_value(state, mended),
            Mistake::ReachedTwice
            | Mistake::LongWay
            | Mistake::FollowedThoughRejected
            | Mistake::ConflictInBatch
            | Mistake::ConflictUnseen => (),
        }
    }
}

/// Accepts what Git has written too much into a reflog: all that should be there is there in the
/// same order.
fn take_over_log(name: &BStr, git: &State, model: &mut State) {
    let Some(found) = git.logs.get(name) else {
        return;
    };
    let mut rest = found.iter();
    if model
        .log(name)
        .iter()
        .all(|entry| rest.any(|other| other == entry))
    {
        model.logs.insert(name.to_owned(), found.clone());
    }
}

/// Accepts another old value in the last entry of the reflog of HEAD.
fn take_over_old_value(git: &State, model: &mut State) {
    let found = git.log("HEAD").last();
    let last = model
        .logs
        .get_mut("HEAD".as_bytes())
        .and_then(|entries| entries.last_mut());
    if let (Some(found), Some(last)) = (found, last) {
        last.old.clone_from(&found.old);
    }
}

/// Of several things that are wrong Git reports one.
fn agree(git: &GitSays, model: &Verdict) -> bool {
    match (git, model) {
        (GitSays::Refused(reason), Verdict::Refused { reasons }) => reasons.contains(reason),
        (GitSays::Done(told), Verdict::Done { rejections }) => {
            let mut expected: Vec<_> = rejections
                .iter()
                .map(|r| (r.name.clone(), r.reason))
                .collect();
            expected.sort_unstable();
            *told == expected
        }
        _ => false,
    }
}
