//! The graph of commits on random histories, beside Git: what reaches what, best common ancestors,
//! how far commits are apart; with and without commit-graph files.

use std::collections::BTreeSet;

use refdb::ObjectId;
use refdb_git::Repository;
use refdb_git::describe::{Describer, Options};
use refdb_git::graph::{Containing, Graph, Node, Reachable};
use refdb_git::repository::{Environment, OpenOptions};
use refdb_testkit::history::History;
use refdb_testkit::oracle::environment;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{Format, for_every_format};

fn open(repo: &Repo) -> Repository {
    OpenOptions::new()
        .environment(Environment::from_pairs(environment()))
        .discover(repo.path())
        .expect("it is a repository")
}

fn nodes(graph: &mut Graph<'_>, history: &History) -> Vec<Node> {
    let oid = |hex: &String| ObjectId::from_hex(hex.as_bytes()).expect("an id");
    let commits = history.commits.iter().map(oid);
    commits
        .map(|oid| graph.commit(oid).expect("it is there"))
        .collect()
}

/// Returns what Git lists, in the order of the numbers of the commits.
fn listed(repo: &Repo, history: &History, args: &[&str]) -> Vec<String> {
    let list = repo.git(["for-each-ref"]).args(args).run().ok();
    let text = String::from_utf8(list).expect("text");
    let mut lines: Vec<Option<String>> = vec![None; history.commits.len()];
    for line in text.lines() {
        let (name, rest) = line.split_once(' ').expect("two fields");
        if let Some(number) = name.strip_prefix("refs/heads/c") {
            let number: usize = number.parse().expect("a number");
            lines[number] = Some(rest.to_owned());
        }
    }
    lines.into_iter().map(Option::unwrap_or_default).collect()
}

/// Returns the numbers of the commits that Git lists.
fn named(repo: &Repo, history: &History, option: &str, number: usize) -> BTreeSet<usize> {
    let option = format!("{option}={}", history.commits[number]);
    let lines = listed(repo, history, &[&option, "--format=%(refname) x"]);
    let found = lines.iter().enumerate().filter(|(_, line)| *line == "x");
    found.map(|(number, _)| number).collect()
}

fn numbers(found: impl Iterator<Item = bool>) -> BTreeSet<usize> {
    let found = found.enumerate().filter(|(_, is_found)| *is_found);
    found.map(|(number, _)| number).collect()
}

#[expect(clippy::too_many_lines, reason = "a list of questions")]
fn compare(repo: &Repo, history: &History, rng: &mut Rng) {
    let repository = open(repo);
    let mut fresh = repository.graph().expect("a graph");
    let all = nodes(&mut fresh, history);
    let bases: Vec<usize> = (0..3).map(|_| rng.below(all.len())).collect();
    let base_nodes: Vec<Node> = bases.iter().map(|base| all[*base]).collect();
    let counts = fresh.ahead_behind_all(&all, &base_nodes).expect("counts");
    for (index, &base) in bases.iter().enumerate() {
        let format = format!(
            "--format=%(refname) %(ahead-behind:{})",
            history.commits[base]
        );
        let expected = listed(repo, history, &[&format]);
        let ours: Vec<String> = counts
            .iter()
            .map(|of_tip| format!("{} {}", of_tip[index].ahead, of_tip[index].behind))
            .collect();
        assert_eq!(ours, expected, "ahead and behind of {base}");
        // Each question for itself, with nothing known from before.
        let mut graph = repository.graph().expect("a graph");
        let all = nodes(&mut graph, history);
        let mut containing = Containing::new(&mut graph, [all[base]]).expect("a walk");
        let ours = numbers(
            (0..all.len()).map(|i| containing.is_in(&mut graph, all[i]).expect("an answer")),
        );
        assert_eq!(ours, named(repo, history, "--contains", base), "of {base}");
        let ours = numbers(
            (0..all.len()).map(|i| graph.is_ancestor(all[base], all[i]).expect("an answer")),
        );
        assert_eq!(ours, named(repo, history, "--contains", base), "of {base}");
        let mut reachable = Reachable::new(&mut graph, [all[base]]).expect("a walk");
        let mut back = all.clone();
        back.reverse();
        let mut ours = numbers(
            back.iter()
                .map(|node| reachable.contains(&mut graph, *node).expect("an answer")),
        );
        ours = ours.iter().map(|number| all.len() - 1 - number).collect();
        assert_eq!(ours, named(repo, history, "--merged", base), "of {base}");
        let whole = reachable.walk_to(&mut graph, 0).expect("an answer");
        assert_eq!(whole.len(), ours.len());
        if !history.is_skewed {
            let pairs = |i: usize| graph.ahead_behind(all[i], all[base]).expect("an answer");
            let one_by_one: Vec<_> = (0..all.len()).map(pairs).collect();
            let together: Vec<_> = counts.iter().map(|of_tip| of_tip[index]).collect();
            assert_eq!(one_by_one, together);
        }
    }
    let expected: Vec<Vec<String>> = bases
        .iter()
        .map(|base| format!("--format=%(refname) %(is-base:{})", history.commits[*base]))
        .map(|format| listed(repo, history, &["--exclude=refs/tags", &format]))
        .collect();
    for (base, expected) in bases.iter().zip(expected) {
        // In the order of the names, where c10 comes before c2.
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|number| number.to_string());
        let heads: Vec<Node> = order.iter().map(|number| all[*number]).collect();
        let mut graph = repository.graph().expect("a graph");
        nodes(&mut graph, history);
        let found = graph.base_of(all[*base], &heads).expect("an answer");
        let theirs = expected.iter().position(|value| !value.is_empty());
        assert_eq!(found.map(|index| order[index]), theirs, "base of {base}");
    }
    for _ in 0..6 {
        let chosen: Vec<usize> = (0..2 + rng.below(2))
            .map(|_| rng.below(all.len()))
            .collect();
        let ids = chosen.iter().map(|number| &history.commits[*number]);
        let out = repo.git(["merge-base", "--all"]).args(ids).run();
        let expected: BTreeSet<String> = String::from_utf8_lossy(&out.stdout)
            .lines()
            .map(str::to_owned)
            .collect();
        let chosen: Vec<Node> = chosen.iter().map(|number| all[*number]).collect();
        let mut graph = repository.graph().expect("a graph");
        let known = nodes(&mut graph, history);
        assert_eq!(known, all, "the same questions give the same nodes");
        let bases = graph
            .merge_bases(chosen[0], &chosen[1..])
            .expect("an answer");
        let ours: BTreeSet<String> = bases.iter().map(|it| graph.oid(*it).to_string()).collect();
        assert_eq!(ours, expected, "merge bases of {chosen:?}");
    }
}

/// Puts some tags on the commits: with and without an object, several on one commit.
fn tag(repo: &Repo, history: &History, rng: &mut Rng) {
    for number in 0..1 + rng.below(16) {
        let commit = rng.pick(&history.commits);
        let name = format!("t{}", rng.below(20));
        let time = refdb_testkit::oracle::TIME + rng.next_u64() % 9000;
        let args: &[&str] = match rng.percent(60) {
            true => &["tag", "-f", "-a", "-m", "x"],
            false => &["tag", "-f"],
        };
        let run = repo.git(args).arg(&name).arg(commit).at(time, "+0000");
        run.run().ok();
        if number == 7 {
            // A tag under another name than its own.
            let copy = ["update-ref", "refs/tags/copy", &format!("refs/tags/{name}")];
            repo.git(copy).run().ok();
        }
    }
}

fn compare_descriptions(repo: &Repo, history: &History) {
    let repository = open(repo);
    let patterns = |list: &[&str]| list.iter().map(|it| (*it).into()).collect();
    for (text, options) in [
        ("", Options::default()),
        (
            "tags",
            Options {
                tags: true,
                ..Options::default()
            },
        ),
        (
            "tags,abbrev=0",
            Options {
                tags: true,
                abbrev: Some(0),
                ..Options::default()
            },
        ),
        (
            "abbrev=5",
            Options {
                abbrev: Some(5),
                ..Options::default()
            },
        ),
        (
            "tags,match=t1*,match=c*,exclude=*2",
            Options {
                tags: true,
                include: patterns(&["t1*", "c*"]),
                exclude: patterns(&["*2"]),
                ..Options::default()
            },
        ),
    ] {
        let format = format!("--format=%(refname) %(describe:{text})");
        let expected = listed(repo, history, &[&format, "refs/heads"]);
        let mut graph = repository.graph().expect("a graph");
        let describer = Describer::new(&repository, options).expect("tags");
        let mut ours = Vec::new();
        for hex in &history.commits {
            let oid = ObjectId::from_hex(hex.as_bytes()).expect("an id");
            let text = describer.describe(&mut graph, oid).expect("an answer");
            ours.push(text.unwrap_or_default().to_string());
        }
        assert_eq!(ours, expected, "{text}");
    }
}

/// How many histories are tried, unless `REFDB_HISTORIES` says another number.
fn rounds() -> u64 {
    let set = std::env::var("REFDB_HISTORIES");
    set.map_or(4, |count| count.parse().expect("a number"))
}

for_every_format! {
    fn random_histories(format) {
        for seed in 0..rounds() {
            let mut rng = Rng::new(seed);
            let repo = Repo::init(format);
            let commits = 5 + rng.below(60);
            let history = History::import(&repo, &mut rng, commits);
            compare(&repo, &history, &mut rng);
            // A part of the history in one file, then another part in a second one.
            let some = format!("refs/heads/c{}", rng.below(commits));
            let write = ["commit-graph", "write", "--stdin-commits", "--split"];
            repo.git(write).stdin(repo.git(["rev-parse", &some]).run().stdout).run().ok();
            compare(&repo, &history, &mut rng);
            let write = ["commit-graph", "write", "--reachable", "--split=no-merge"];
            repo.git(write).run().ok();
            compare(&repo, &history, &mut rng);
        }
    }

    fn descriptions(format) {
        for seed in 0..rounds() {
            let mut rng = Rng::new(2000 + seed);
            let repo = Repo::init(format);
            let commits = 5 + rng.below(30);
            let history = History::import(&repo, &mut rng, commits);
            tag(&repo, &history, &mut rng);
            compare_descriptions(&repo, &history);
        }
    }

    fn grafted_and_shallow_histories(format) {
        for seed in 0..rounds() {
            let mut rng = Rng::new(1000 + seed);
            let repo = Repo::init(format);
            let history = History::import(&repo, &mut rng, 30);
            let write = ["commit-graph", "write", "--reachable"];
            repo.git(write).run().ok();
            let mut grafts = String::from("# a comment\n");
            for number in [12, 20] {
                let parents = [rng.below(number), rng.below(number)];
                let ids = [number, parents[0], parents[1]].map(|it| history.commits[it].as_str());
                grafts.push_str(&format!("{}\n", ids.join(" ")));
            }
            let info = repo.git_dir().join("info");
            std::fs::create_dir_all(&info).expect("an answer");
            std::fs::write(info.join("grafts"), grafts).expect("an answer");
            compare(&repo, &history, &mut rng);
            let shallow = format!("{}\n", history.commits[15]);
            std::fs::write(repo.git_dir().join("shallow"), shallow).expect("an answer");
            compare(&repo, &history, &mut rng);
        }
    }
}

#[test]
fn a_damaged_commit_graph_file_is_not_believed() {
    let repo = Repo::init(Format::FILES_SHA1);
    let mut rng = Rng::new(7);
    let history = History::import(&repo, &mut rng, 40);
    repo.git(["commit-graph", "write", "--reachable"])
        .run()
        .ok();
    let path = repo.git_dir().join("objects/info/commit-graph");
    let sound = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let ask = |what: &str| {
        let repository = open(&repo);
        let mut graph = repository.graph().expect("a graph");
        let all = nodes(&mut graph, &history);
        graph.ahead_behind_all(&all, &all[39..]).expect(what)
    };
    let expected = ask("without a file");
    for end in (0..sound.len()).step_by(37) {
        std::fs::write(&path, &sound[..end]).unwrap();
        assert_eq!(ask("cut off"), expected, "cut off at {end}");
    }
    // A fan-out that is in no order, in whatever way: nothing may panic.
    for at in 0..sound.len().min(1100) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0xff;
        std::fs::write(&path, &damaged).unwrap();
        let repository = open(&repo);
        let mut graph = repository.graph().expect("a graph");
        for hex in &history.commits {
            let oid = ObjectId::from_hex(hex.as_bytes()).unwrap();
            let _ = graph
                .commit(oid)
                .and_then(|node| graph.parents(node).map(<[_]>::len));
        }
    }
}

#[test]
fn a_missing_commit_is_named() {
    let repo = Repo::init(Format::FILES_SHA1);
    let objects = repo.objects();
    let parent = &objects.missing;
    let text = format!(
        "tree {}\nparent {parent}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n",
        objects.tree
    );
    let write = ["hash-object", "-w", "-t", "commit", "--stdin"];
    let child = repo.git(write).stdin(text).run().text();
    let repository = open(&repo);
    let child = ObjectId::from_hex(child.as_bytes()).unwrap();
    let mut graph = repository.graph().unwrap();
    let node = graph.commit(child).unwrap();
    let mut reachable = Reachable::new(&mut graph, [node]).unwrap();
    let error = reachable.walk_to(&mut graph, 0).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("unable to parse commit {parent}: it is missing; ")),
        "{error}"
    );
    let mut graph = repository.graph().unwrap().missing_ends_history();
    let node = graph.commit(child).unwrap();
    let mut reachable = Reachable::new(&mut graph, [node]).unwrap();
    assert_eq!(reachable.walk_to(&mut graph, 0).unwrap().len(), 2);
    let tree = ObjectId::from_hex(objects.tree.as_bytes()).unwrap();
    let error = graph.commit(tree).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("object {tree} is a tree, not a commit; ")),
        "{error}"
    );
}
