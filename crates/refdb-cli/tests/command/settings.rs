//! Every setting and every variable that concerns refs, beside Git: the table in docs/compat.md.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

use std::fs;
use std::path::Path;

use super::beside::{self, Twins};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format, oracle};

const LIST: [&str; 2] = ["for-each-ref", "--format=%(refname) %(objectname)"];
const UPDATE: [&str; 3] = ["update-ref", "refs/heads/x", "{c}"];

fn refdb(dir: &Path) -> oracle::GitRun {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir)
}

fn with<'a>(settings: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    let settings = settings.iter().flat_map(|setting| ["-c", *setting]);
    settings.chain(command.iter().copied()).collect()
}

/// Returns the program that runs another one on a terminal of its own, if it is there.
fn terminal_maker() -> Option<&'static Path> {
    let script = Path::new("/usr/bin/script");
    script.exists().then_some(script)
}

for_every_format! {
    fn nothing_is_migrated_with_a_setting_that_means_nothing(format) {
        let to = match format.refs {
            RefFormat::Files => "--ref-format=reftable",
            RefFormat::Reftable => "--ref-format=files",
        };
        for key in ["sharedRepository", "logAllRefUpdates"] {
            let repo = Repo::init(format);
            let config = repo.git_dir().join("config");
            let before = fs::read_to_string(&config).expect("it is there");
            let bad = format!("{before}[core]\n\t{key} = foo\n");
            fs::write(&config, &bad).expect("written");
            let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
            let out = run.args(["refs", "migrate", to]).run();
            assert_eq!(out.code(), 128, "{key}: {out:?}");
            assert_eq!(fs::read_to_string(&config).expect("it is there"), bad);
        }
    }

    fn no_colors_where_the_user_wants_none(format) {
        let Some(script) = terminal_maker() else {
            eprintln!("left out: there is no `script` that makes a terminal");
            return;
        };
        let twins = Twins::new(format);
        twins.ours.update_refs(format!("update refs/heads/main {}\n", twins.ours.objects().commits[1]));
        let is_painted = |said: &str, call: &str| {
            let call = format!("{} -P {call}", env!("CARGO_BIN_EXE_refdb"));
            let env = [("TERM", "xterm"), ("NO_COLOR", said)];
            let args = ["-qec", call.as_str(), "/dev/null"];
            let seen = beside::answer(script, &twins.ours, ".", &env, &args, "");
            assert_eq!(seen.code, Some(0), "{call}: {}", seen.stdout);
            assert!(!seen.stdout.is_empty(), "{call}");
            seen.stdout.contains("\u{1b}[")
        };
        let listing = "for-each-ref --format='%(color:red)%(refname)'";
        for call in [listing, "reflog main"] {
            assert!(is_painted("", call), "{call}");
            assert!(!is_painted("1", call), "{call}");
        }
        // What asks for colours on purpose gets them.
        assert!(is_painted("1", "-c color.ui=always reflog main"));
        assert!(is_painted("1", &format!("{listing} --color=always")));
        assert!(is_painted("1", "reflog main --color=always"));
    }

    fn nothing_is_written_in_quarantine(format) {
        let twins = Twins::new(format);
        for env in [[("GIT_QUARANTINE_PATH", "/x")], [("GIT_QUARANTINE_PATH", "")]] {
            for args in [
                &UPDATE[..],
                &["update-ref", "-d", "refs/heads/side"],
                &["symbolic-ref", "HEAD", "refs/heads/side"],
                &["symbolic-ref", "HEAD"],
                &["pack-refs", "--all"],
                &["show-ref"],
                &LIST,
            ] {
                twins.same(".", &env, args, "");
            }
            for input in [
                "",
                "update refs/heads/main {c}\n",
                "start\nupdate refs/heads/main {c}\nprepare\n",
                "start\nupdate refs/heads/main {c}\nabort\n",
                "create refs/heads/x {c}\ncreate refs/heads/x {c}\n",
            ] {
                twins.same(".", &env, &["update-ref", "--stdin"], input);
                twins.same(".", &env, &["update-ref", "--stdin", "--batch-updates"], input);
            }
        }
        twins.assert_same_state();
    }

    fn namespaces_and_hidden_refs_are_of_no_concern(format) {
        let twins = Twins::new(format);
        for name in ["a", "a/b", "", "/", "..", "a b", "a/", "x.lock"] {
            for args in [&UPDATE[..], &LIST, &["show-ref"], &["symbolic-ref", "HEAD"]] {
                twins.same(".", &[("GIT_NAMESPACE", name)], args, "");
                let option = format!("--namespace={name}");
                twins.same(".", &[], &[&[option.as_str()][..], args].concat(), "");
            }
        }
        for setting in [
            "transfer.hideRefs=refs/heads",
            "receive.hideRefs=refs",
            "uploadpack.hideRefs=!refs",
            "transfer.hideRefs",
        ] {
            for args in [&UPDATE[..], &LIST, &["show-ref"]] {
                twins.same(".", &[], &with(&[setting], args), "");
            }
        }
        twins.assert_same_state();
    }

    fn refs_to_missing_objects_are_shown_unless_told_otherwise(format) {
        let twins = Twins::new(format);
        for repo in twins.both() {
            repo.update_refs(format!("create refs/heads/missing {}\n", repo.objects().commits[2]));
            let id = &repo.objects().commits[2];
            let object = repo.git_dir().join("objects").join(&id[..2]).join(&id[2..]);
            if object.exists() {
                fs::remove_file(object).expect("a file of ours");
            } else {
                return;
            }
        }
        for value in ["0", "1", "no", "", "x"] {
            let env = [("GIT_REF_PARANOIA", value)];
            for args in [
                &["for-each-ref", "--format=%(refname)"][..],
                &["show-ref", "--tags"],
                &["show-ref", "--verify", "refs/heads/main"],
                &["update-ref", "refs/heads/y", "refs/heads/main"],
            ] {
                twins.same(".", &env, args, "");
            }
        }
        for args in [&["for-each-ref"][..], &["show-ref"]] {
            let seen = twins.same(".", &[("GIT_REF_PARANOIA", "0")], args, "");
            assert!(seen.stderr.contains("refs/heads/missing does not point to a valid object!"));
        }
    }

    fn which_refs_are_logged(format) {
        for (bare, value) in [false, true].into_iter().flat_map(|bare| {
            let values = ["", "=true", "=false", "=always", "=ALWAYS", "=never", "=0", "=7", "="];
            values.map(|value| (bare, value))
        }) {
            let twins = Twins::new(format);
            for repo in twins.both() {
                repo.config("core.bare", if bare { "true" } else { "false" });
            }
            let setting = format!("core.logAllRefUpdates{value}");
            let instead = match value {
                "" => "core.logAllRefUpdates=true",
                _ => &setting,
            };
            for name in [
                "refs/heads/l",
                "refs/remotes/o/l",
                "refs/notes/l",
                "refs/tags/l",
                "refs/x/l",
                "ROOT_HEAD",
                "HEAD",
            ] {
                let update = ["update-ref", "-m", "why", name, "{c}"];
                same_with(&twins, &setting, instead, &update);
            }
            let forced = ["update-ref", "--create-reflog", "refs/x/forced", "{c}"];
            same_with(&twins, &setting, instead, &forced);
            twins.assert_same_state();
        }
    }

    fn reflogs_that_are_there_go_on_where_none_is_made(format) {
        let none: &[&str] = &[];
        for gone in [none, &["HEAD"], &["refs/heads/main"], &["HEAD", "refs/heads/main"]] {
            let twins = Twins::new(format);
            for name in gone {
                twins.same(".", &[], &["reflog", "drop", name], "");
            }
            for (args, input) in [
                (&["update-ref", "-m", "of the branch", "refs/heads/main", "{c}"][..], ""),
                (&["update-ref", "-m", "of HEAD", "HEAD", "HEAD^"], ""),
                (&["update-ref", "--stdin"], "update refs/heads/main {c}\nupdate HEAD {c}\n"),
                (&["update-ref", "--stdin"], "update HEAD {c}\nupdate refs/heads/side {c}\n"),
                (&["update-ref", "-d", "refs/heads/main"], ""),
                (&["update-ref", "-m", "again", "refs/heads/main", "{c}"], ""),
                (&["update-ref", "--create-reflog", "-m", "made", "refs/heads/main", "HEAD^"], ""),
                (&["update-ref", "-m", "the last", "refs/heads/main", "{c}"], ""),
            ] {
                twins.same(".", &[], &with(&["core.logAllRefUpdates=false"], args), input);
                twins.assert_same_state();
            }
        }
    }

    fn who_writes_matters_where_an_entry_is_written(format) {
        let twins = Twins::new(format);
        let env = [("GIT_COMMITTER_DATE", "bogus")];
        let seen = twins.same(".", &env, &UPDATE, "");
        assert!(seen.stderr.contains("invalid date format"), "{seen:?}");
        if format.refs == RefFormat::Reftable {
            eprintln!("not tried: Git asks who writes in any case (docs/compat.md)");
            return;
        }
        for repo in twins.both() {
            fs::remove_dir_all(repo.git_dir().join("logs")).expect("reflogs");
        }
        let seen = twins.same(".", &env, &with(&["core.logAllRefUpdates=false"], &UPDATE), "");
        assert_eq!(seen.code, Some(0), "{seen:?}");
        twins.assert_same_state();
    }

    fn packing_tells_of_a_ref_whose_file_stays_since_it_is_locked(format) {
        let repo = Repo::init(format);
        let id = &repo.objects().commits[0];
        let files = format.refs == RefFormat::Files;
        if files {
            repo.update_refs(format!("create refs/heads/a {id}\ncreate refs/heads/b {id}\n"));
            fs::write(repo.git_dir().join("refs/heads/a.lock"), "").expect("a lock");
        }
        let pack = with(&["core.filesRefLockTimeout=1"], &["pack-refs", "--all"]);
        // Behind the first line each says in its own words whose lock that is.
        let said = |program: &Path| {
            let out = oracle::run_of(program, repo.path()).args(&pack).run();
            let first = out.stderr.split(|byte| *byte == b'\n').next();
            let first = String::from_utf8_lossy(first.unwrap_or_default()).into_owned();
            (out.code(), first.trim_end_matches('.').to_owned())
        };
        let expected = said(oracle::program());
        assert_eq!(expected.1.contains("cannot lock ref 'refs/heads/a'"), files, "{expected:?}");
        assert_eq!(said(Path::new(env!("CARGO_BIN_EXE_refdb"))), expected);
        assert_eq!(repo.git_dir().join("refs/heads/a").exists(), files);
    }

    fn values_that_make_no_sense(format) {
        let twins = Twins::new(format);
        for key in [
            "core.filesRefLockTimeout",
            "core.packedRefsTimeout",
            "reftable.blockSize",
            "reftable.restartInterval",
            "reftable.indexObjects",
            "reftable.geometricFactor",
            "reftable.lockTimeout",
            "core.sharedRepository",
            "core.fsync",
            "core.fsyncMethod",
            "core.lockfilePid",
            "core.ignoreCase",
            "core.bare",
            "core.createObject",
            "core.abbrev",
            "core.logAllRefUpdates",
            "core.preferSymlinkRefs",
            "core.repositoryFormatVersion",
            "extensions.refStorage",
            "extensions.worktreeConfig",
            "gc.packRefs",
        ] {
            for value in ["=x", "=-1", "=-2", "=0", "=1", "=99999999999", "=", "=true", ""] {
                let setting = format!("{key}{value}");
                if setting == "reftable.blockSize=1" {
                    // What does not fit into a block is told with its name here.
                    continue;
                }
                let delete = ["update-ref", "-d", "refs/heads/x"];
                if setting == "core.logAllRefUpdates" {
                    same_with(&twins, &setting, "core.logAllRefUpdates=true", &UPDATE);
                    same_with(&twins, &setting, "core.logAllRefUpdates=true", &delete);
                } else {
                    twins.same(".", &[], &with(&[&setting], &UPDATE), "");
                    twins.same(".", &[], &with(&[&setting], &delete), "");
                }
                if value == "=x" {
                    let expire = ["reflog", "expire", "--all"];
                    twins.same(".", &[], &with(&[&setting], &expire), "");
                    if format.refs == RefFormat::Reftable && is_for_writing(key, format) {
                        twins.same(".", &[], &with(&[&setting], &["pack-refs", "--all"]), "");
                    }
                }
                match is_for_writing(key, format) {
                    true => same_with(&twins, &setting, "some.thing=else", &LIST),
                    false => drop(twins.same(".", &[], &with(&[&setting], &LIST), "")),
                }
            }
        }
        twins.assert_same_state();
    }

    fn a_migration_writes_tables_as_is_configured(format) {
        if format.refs == RefFormat::Reftable {
            return;
        }
        let twins = Twins::new(format);
        let migrate = ["refs", "migrate", "--ref-format=reftable"];
        let seen = twins.same(".", &[], &with(&["reftable.blockSize=99999999999"], &migrate), "");
        assert_ne!(seen.code, Some(0), "{seen:?}");
        twins.same(".", &[], &with(&["reftable.blockSize=712"], &migrate), "");
        for repo in twins.both() {
            let dir = fs::read_dir(repo.git_dir().join("reftable")).expect("a stack");
            let tables = dir.flatten().filter(|entry| entry.path().extension().is_some_and(|it| it == "ref"));
            for table in tables {
                let content = fs::read(table.path()).expect("a table");
                assert_eq!(&content[5..8], &[0, 2, 200], "the size of a block");
            }
        }
        twins.assert_same_state();
    }

    fn settings_of_the_log(format) {
        let twins = Twins::new(format);
        for setting in [
            "format.pretty=bogus",
            "format.pretty=medium",
            "format.pretty=",
            "format.pretty",
            "log.showSignature=bogus",
            "log.showRoot=bogus",
            "log.showRoot=false",
            "log.follow=bogus",
            "log.diffMerges=bogus",
            "diff.renames=bogus",
            "diff.renames=true",
            "diff.context=bogus",
            "color.ui=bogus",
            "color.ui=auto",
            "color.ui=always",
            "color.diff=bogus",
            "color.diff.commit=bogus",
            "color.diff.commit=blue",
            "color.decorate.HEAD=bogus",
            "i18n.logOutputEncoding",
            "grep.patternType=bogus",
            "grep.extendedRegexp=true",
        ] {
            let grep = ["reflog", "--grep=in(i|x)t"];
            for command in [&["reflog"][..], &["reflog", "--format=%gd"], &grep] {
                twins.same(".", &[], &with(&[setting], command), "");
            }
        }
        let named = ["format.pretty=mine", "pretty.mine=bogus"];
        twins.same(".", &[], &with(&named, &["reflog"]), "");
    }

    fn somebody_looks(format) {
        let twins = Twins::new(format);
        let colored = ["for-each-ref", "--format=%(color:red)%(refname)"];
        for env in [
            [("GIT_PAGER_IN_USE", "1"), ("TERM", "xterm")],
            [("GIT_PAGER_IN_USE", "true"), ("TERM", "dumb")],
            [("GIT_PAGER_IN_USE", "0"), ("TERM", "xterm")],
        ] {
            twins.same(".", &env, &colored, "");
            twins.same(".", &env, &with(&["color.pager=false"], &colored), "");
            twins.same(".", &env, &["reflog"], "");
            let date = ["for-each-ref", "--format=%(creatordate:auto:unix)"];
            twins.same(".", &env, &date, "");
        }
        // On a real terminal, with a pager that says that it was there.
        let Some(script) = terminal_maker() else {
            eprintln!("half of it was left out: there is no `script` that makes a terminal");
            return;
        };
        let pager = "echo \"<$LESS $LV>\"; sed s/^/page:/";
        for (settings, command) in [
            (&[][..], "reflog"),
            (&[], "reflog main --date=iso"),
            (&[], "reflog list"),
            (&[], "reflog bogus"),
            (&[], "for-each-ref"),
            (&["-p"], "reflog list"),
            (&["-p"], "for-each-ref"),
            (&["--paginate"], "show-ref bogus"),
            (&["--paginate"], "show-ref --verify bogus"),
            (&["-p"], "for-each-ref --format='%(color:red)%(refname)'"),
            (&["-p", "-c color.pager=false"], "for-each-ref --format='%(color:red)%(refname)'"),
            (&["-p", "--no-pager"], "show-ref"),
            (&["-P", "-p"], "show-ref"),
            (&["-P"], "reflog"),
            (&["-p"], "check-ref-format --normalize a//b"),
            (&["-c pager.show-ref"], "show-ref"),
            (&["-c pager.show-ref=false"], "show-ref"),
            (&["-c pager.show-ref='tac; :'"], "show-ref"),
            (&["-c pager.refs=yes"], "refs list"),
            (&["-c pager.reflog=no"], "reflog"),
            (&["-c pager.log=no"], "reflog"),
            (&["-c pager.log=sort"], "reflog"),
            (&["-c pager.reflog=sort"], "reflog"),
            (&["-c pager.reflog"], "reflog list"),
            (&["-c color.ui=false"], "reflog"),
            (&["-c log.decorate=full"], "reflog"),
        ] {
            let call = format!("{} {command}", settings.join(" "));
            let git = refdb_testkit::oracle::program();
            let ours = Path::new(env!("CARGO_BIN_EXE_refdb"));
            for variable in ["GIT_PAGER", "PAGER"] {
                let env = [(variable, pager), ("TERM", "xterm")];
                let [expected, actual] = [(git, &twins.git), (ours, &twins.ours)].map(|(program, repo)| {
                    let line = format!("{} {call}", program.display());
                    beside::answer(script, repo, ".", &env, &["-qec", &line, "/dev/null"], "")
                });
                assert_eq!(actual, expected, "{call} with {variable}");
            }
        }
    }

    fn refs_that_are_kept_elsewhere(format) {
        let twins = Twins::new(format);
        let (own, other) = match format.refs.name() {
            "files" => ("files", "reftable"),
            _ => ("reftable", "files"),
        };
        for repo in twins.both() {
            let other = format!("--ref-format={other}");
            let object = format!("--object-format={}", format.objects.name());
            let init = ["init", "-q", "--bare", "-b", "main", &other, &object, "sub/alt"];
            repo.git(init).run().ok();
            repo.git(["worktree", "add", "-q", "--detach", "linked"]).run().ok();
        }
        let env = "GIT_REFERENCE_BACKEND";
        for value in ["", "x", "x://a", "://", own, other, "FILES"] {
            for args in [&LIST[..], &["symbolic-ref", "HEAD"]] {
                twins.same(".", &[(env, value)], args, "");
            }
        }
        for place in ["", "<repo>/sub/alt", "../sub/alt", "nowhere", "no/where", "<repo>/x://y"] {
            let value = format!("{other}://{place}");
            for (below, args) in [
                (".", &["for-each-ref", "--include-root-refs", "--format=%(refname)"][..]),
                ("sub", &["symbolic-ref", "HEAD"]),
                (".git", &["show-ref"]),
            ] {
                twins.same(below, &[(env, &value)], args, "");
            }
        }
        let value = format!("{other}://../sub/alt");
        for (below, args) in [
            (".", &["update-ref", "refs/heads/y", "{c}"][..]),
            ("sub", &["update-ref", "HEAD", "{c}"]),
            (".", &["pack-refs", "--all"]),
            (".", &["update-ref", "-d", "refs/heads/y"]),
            (".", &["update-ref", "refs/bisect/b", "{c}"]),
            ("linked", &LIST),
        ] {
            twins.same(below, &[(env, &value)], args, "");
        }
        if other == "files" {
            // Git makes no folder for the stack of a worktree that another backend knows nothing of.
            for args in [
                &["update-ref", "refs/bisect/a", "{c}"][..],
                &["symbolic-ref", "HEAD", "refs/heads/main"],
                &["update-ref", "HEAD", "{c}"],
                &["for-each-ref", "--include-root-refs"],
            ] {
                twins.same("linked", &[(env, &value)], args, "");
            }
        }
        twins.same(".", &[], &LIST, "");
        let configure = |repo: &Repo, key: &str, value: &str| {
            repo.git(["config", "-f", ".git/config", key, value]).run().ok();
        };
        for place in ["", "://", "://<repo>/sub/alt", "://../sub/alt"] {
            for repo in twins.both() {
                let place = place.replace("<repo>", repo.path().to_str().expect("UTF-8"));
                let format = if place.len() > 3 { other } else { own };
                configure(repo, "core.repositoryformatversion", "1");
                configure(repo, "extensions.refStorage", &format!("{format}{place}"));
            }
            for below in [".", "sub", ".git", "linked"] {
                twins.same(below, &[], &LIST, "");
            }
            twins.same(".", &[], &["update-ref", "refs/heads/z", "{c}"], "");
            twins.same(".", &[("GIT_DIR", ".git")], &LIST, "");
            twins.same(".", &[(env, own)], &LIST, "");
        }
        for repo in twins.both() {
            configure(repo, "core.repositoryformatversion", "0");
        }
        twins.same(".", &[], &LIST, "");
    }

    fn where_configuration_comes_from(format) {
        let twins = Twins::new(format);
        for repo in twins.both() {
            fs::write(repo.path().join("sub/more"), "[core]\nlogAllRefUpdates = always\n")
                .expect("a file");
        }
        let more = "<repo>/sub/more";
        let none = ("GIT_CONFIG_NOSYSTEM", "0");
        for (index, env) in [
            &[("GIT_CONFIG_GLOBAL", more)][..],
            &[("GIT_CONFIG_SYSTEM", more)],
            &[("GIT_CONFIG_SYSTEM", more), none],
            &[("GIT_CONFIG_COUNT", "0"), ("GIT_CONFIG_PARAMETERS", "'core.logAllRefUpdates'='x'")],
            &[("GIT_CONFIG_COUNT", "x")],
            &[("GIT_DISCOVERY_ACROSS_FILESYSTEM", "x")],
            &[("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1")],
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("refs/tags/{index}");
            twins.same(".", env, &["update-ref", "-m", "why", &name, "{c}"], "");
        }
        twins.assert_same_state();
    }
}

/// Returns whether Git 2.56 asks for a setting only where it writes, and Git 2.55 always.
fn is_for_writing(key: &str, format: Format) -> bool {
    let of_tables = key.starts_with("reftable.") || key == "core.sharedRepository";
    let of_files = key == "core.preferSymlinkRefs";
    key == "core.logAllRefUpdates"
        || of_tables && format.refs == RefFormat::Reftable
        || of_files && format.refs == RefFormat::Files
}

/// As [`Twins::same`]; a Git that refuses `setting` is given `instead`.
#[track_caller]
fn same_with(twins: &Twins, setting: &str, instead: &str, args: &[&str]) {
    if oracle::is_newest() {
        twins.same(".", &[], &with(&[setting], args), "");
        return;
    }
    let ours = Path::new(env!("CARGO_BIN_EXE_refdb"));
    let actual = beside::answer(ours, &twins.ours, ".", &[], &with(&[setting], args), "");
    let args = with(&[instead], args);
    let expected = beside::answer(oracle::program(), &twins.git, ".", &[], &args, "");
    assert_eq!(actual, expected, "{setting} {args:?}");
}

for_every_format! {
    /// A condition about remotes has all read twice.
    fn a_condition_about_remotes_leaves_room_for_as_many_includes(format) {
        let repo = Repo::init(format);
        let many = "\tpath = not-there\n".repeat(600);
        let condition = "[includeIf \"hasconfig:remote.*.url:x\"]\n\tpath = not-there\n";
        let path = repo.git_dir().join("config");
        let config = fs::read_to_string(&path).expect("a configuration");
        fs::write(&path, format!("{config}[include]\n{many}{condition}")).expect("it is ours");
        let out = refdb(repo.path()).args(["for-each-ref"]).run();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        fs::write(&path, format!("{config}[include]\n{many}{many}")).expect("it is ours");
        assert_eq!(refdb(repo.path()).args(["for-each-ref"]).run().code(), 128);
    }

    /// Whatever was found out of the chain before.
    fn an_object_that_is_missing_in_a_chain_of_tags_is_told(format) {
        let repo = Repo::init(format);
        let mut tags = vec![repo.objects().commits[0].clone()];
        for number in 0..40 {
            let name = format!("made{number}");
            let last = tags.last().expect("there is one").clone();
            repo.git(["tag", "-a", "-m", "x", &name, &last]).run().ok();
            tags.push(repo.git(["rev-parse", &name]).run().text().trim().to_owned());
            repo.git(["update-ref", "-d", &format!("refs/tags/{name}")]).run().ok();
        }
        for missing in [24, 25] {
            let (first, rest) = tags[missing].split_at(2);
            let path = repo.git_dir().join("objects").join(first).join(rest);
            let content = fs::read(&path).expect("it is loose");
            let lines = format!("update refs/tags/a {}\nupdate refs/tags/m {}\n", tags[40], tags[missing]);
            repo.update_refs(lines);
            fs::remove_file(&path).expect("it is there");
            let args = ["for-each-ref", &format!("--points-at={}", tags[0])];
            let out = refdb(repo.path()).args(args).run();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.code(), 128, "{missing}: {said}");
            assert!(said.contains("refs/tags/m"), "{missing}: {said}");
            fs::write(&path, content).expect("room");
        }
    }
}
