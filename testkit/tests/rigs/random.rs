//! Random transactions by the library, against the model and against Git on a twin repository: the
//! same verdict, the same refs, the same reflogs; and each program reads what the other wrote.
//!
//! `REFDB_SEEDS=first..last` runs other seeds than the usual ones.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use refdb::ErrorKind;
use refdb_testkit::generate::Generator;
use refdb_testkit::model::{GitSays, Mistake, Model, Reason, Rules, Verdict, git_says};
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::trust::Tally;
use refdb_testkit::{Format, for_every_format, ours};

/// Seeds for each of the four formats.
const SEEDS: Range<u64> = 0..2000;

/// Seeds that found something among hundreds of thousands: names that Git lets stand in each other's
/// way.
const FOUND: [u64; 1] = [125_984];

/// Transactions for a seed.
const STEPS: usize = 4;

for_every_format! {
    fn model_git_and_refdb_agree(format) {
        let seeds = seeds();
        let twins = AtomicUsize::new(0);
        let mut tally = Tally::begin("random transactions against model and Git", seeds.start);
        for seed in seeds.clone().chain(FOUND) {
            run(seed, format, &twins);
            tally.add(STEPS as u64);
        }
        let count = usize::try_from(seeds.end - seeds.start).expect("a number of seeds");
        let count = count + FOUND.len();
        let compared = twins.load(Ordering::SeqCst);
        let all = count * STEPS;
        // Of a few seeds all may end early.
        assert!(compared * 2 >= all || count < 10, "only {compared} of {all} were compared with Git");
    }
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("REFDB_SEEDS") else {
        return SEEDS;
    };
    let (first, last) = text.split_once("..").expect("REFDB_SEEDS=first..last");
    first.parse().expect("a number")..last.parse().expect("a number")
}

fn run(seed: u64, format: Format, twins: &AtomicUsize) {
    let (repo, mut twin) = (Repo::init(format), Repo::init(format));
    let repository = ours::open(&repo.git_dir());
    let mut model = Model::new(Rules::new(format));
    let mut generator = Generator::new(seed, format);
    let mut rng = Rng::new(seed ^ 0xffff);
    let mut history = format!("seed {seed}, {format}\n");
    for _ in 0..STEPS {
        if rng.percent(20) {
            let ours = repository.store().optimize(&refdb::Optimize::default());
            ours.unwrap_or_else(|error| panic!("{error}\n{history}optimize"));
            history.push_str("--- optimize\n");
        }
        let transaction = generator.next(&model);
        history.push_str(&format!(
            "--- {}\n{}",
            transaction.arguments().join(" "),
            transaction.script()
        ));
        let mistakes = model.mistakes(&transaction);
        let before = model.state().clone();
        let expected = model.apply(&transaction);
        let said = ours::apply(repository.store(), &transaction);
        if !agree(&said, &expected) {
            // The model tells where it is not sure: what Git says is right there, and what it has
            // stored is beyond the model.
            let git = git_says(&twin, &transaction).0;
            let uncertain = mistakes.iter().any(Mistake::is_about_verdict);
            assert!(
                uncertain && is_as_git(&said, &git),
                "refdb: {said:?}\nGit: {git:?}\nmodel: {expected:?}\n{history}before:\n{before:?}"
            );
            return;
        }
        let difference = model.state().difference(&ours::state(repository.store()));
        assert!(
            difference.is_empty(),
            "- model, + refdb:\n{difference}\n{history}{said:?}"
        );
        if !mistakes.is_empty() {
            // Git would do something else, which the model foretells: it goes on from here.
            twin = repo.duplicate();
            continue;
        }
        // What Git answers is compared with the model in the model's own test.
        twin.git(transaction.arguments())
            .stdin(transaction.script())
            .run();
        let git = ours::state(ours::open(&twin.git_dir()).store());
        let difference = git.difference(model.state());
        assert!(
            difference.is_empty(),
            "- Git, + refdb:\n{difference}\n{history}"
        );
        twins.fetch_add(1, Ordering::SeqCst);
    }
    let difference = model.state().difference(&repo.state());
    assert!(
        difference.is_empty(),
        "- model, + Git's reading of refdb:\n{difference}\n{history}"
    );
}

/// Of several things that are wrong, one is told.
fn agree(said: &refdb::Result<Vec<(usize, Reason)>>, expected: &Verdict) -> bool {
    match (said, expected) {
        (Ok(rejected), Verdict::Done { rejections }) => {
            let mut expected: Vec<_> = rejections
                .iter()
                .map(|told| (told.index, told.reason))
                .collect();
            expected.sort_unstable();
            *rejected == expected
        }
        (Err(error), Verdict::Refused { reasons }) => {
            let reason = Reason::of_message(error.to_string().as_bytes());
            let is_refusal = matches!(error.kind(), ErrorKind::Rejected | ErrorKind::InvalidName);
            is_refusal && reason.is_some_and(|reason| reasons.contains(&reason))
        }
        _ => false,
    }
}

/// Whether the verdict is Git's. What Git names is where a symref leads, so that reasons are compared.
fn is_as_git(said: &refdb::Result<Vec<(usize, Reason)>>, git: &GitSays) -> bool {
    match (said, git) {
        (Ok(rejected), GitSays::Done(told)) => {
            let mut reasons: Vec<Reason> = rejected.iter().map(|(_, reason)| *reason).collect();
            let mut told: Vec<Reason> = told.iter().map(|(_, reason)| *reason).collect();
            reasons.sort_unstable();
            told.sort_unstable();
            reasons == told
        }
        (Err(error), GitSays::Refused(reason)) => {
            Reason::of_message(error.to_string().as_bytes()) == Some(*reason)
        }
        _ => false,
    }
}

#[test]
fn a_wrong_answer_is_noticed() {
    // The comparison itself must be able to fail.
    let refused = Verdict::Refused {
        reasons: vec![Reason::CreateExists],
    };
    assert!(!agree(&Ok(Vec::new()), &refused));
    let done = Verdict::Done {
        rejections: Vec::new(),
    };
    let rejected = Ok(vec![(0, Reason::NameConflict)]);
    assert!(!agree(&rejected, &done));
    let git = GitSays::Done(vec![("refs/heads/a".into(), Reason::NonexistentRef)]);
    assert!(!is_as_git(&rejected, &git));
    assert!(!is_as_git(&rejected, &GitSays::Done(Vec::new())));
}
