//! Opening a repository: the same one as Git finds, with the same settings, or the same refusal.

// Long: a repository is opened in one way, and each test is one rule of that.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use refdb::objects::{ObjectKind, Objects, Peeled};
use refdb::{ErrorKind, ObjectId};
use refdb_git::Repository;
use refdb_git::repository::{Environment, OpenOptions};
use refdb_testkit::oracle::{environment, git};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, ObjectFormat, for_every_format};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// What is said on the command line and in the environment.
#[derive(Clone, Copy, Default)]
struct Said<'a> {
    arguments: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
}

fn options(dir: &Path, said: Said<'_>) -> OpenOptions {
    let mut variables = environment();
    let more = said.variables.iter();
    variables.extend(more.map(|&(name, value)| (name.into(), value.into())));
    let mut options = OpenOptions::new()
        .environment(Environment::from_pairs(variables))
        .current_dir(dir);
    let mut arguments = said.arguments.iter();
    while let Some(&argument) = arguments.next() {
        if argument == "-c" {
            options = options.config(arguments.next().expect("a value"));
        } else if let Some(value) = argument.strip_prefix("--git-dir=") {
            options = options.git_dir(value);
        } else if let Some(value) = argument.strip_prefix("--work-tree=") {
            options = options.work_tree(value);
        } else {
            assert_eq!(argument, "--bare");
            options = options.bare(true);
        }
    }
    options
}

fn ask_git(dir: &Path, said: Said<'_>, question: &[&str]) -> refdb_testkit::oracle::Output {
    let mut run = git(dir).args(said.arguments);
    for (name, value) in said.variables {
        run = run.env(name, value);
    }
    run.args(question).run()
}

/// Opens the repository in `dir` with Git and with refdb and compares what they see.
#[track_caller]
fn same(dir: &Path, said: Said<'_>) -> Repository {
    let question = [
        "rev-parse",
        "--absolute-git-dir",
        "--path-format=absolute",
        "--git-common-dir",
        "--is-bare-repository",
        "--show-object-format",
        "--show-ref-format",
    ];
    let expected = ask_git(dir, said, &question).text();
    let repository = match options(dir, said).discover(dir) {
        Ok(repository) => repository,
        Err(error) => panic!("Git opens it: {expected}\n{error:?}"),
    };
    let real = |path: &Path| {
        let real = path.canonicalize().expect("the repository is there");
        real.to_str().expect("ASCII").to_owned()
    };
    let answer = [
        real(repository.git_dir()),
        real(repository.common_dir()),
        repository.is_bare().to_string(),
        repository.object_format().name().to_owned(),
        repository.ref_format().name().to_owned(),
    ];
    assert_eq!(answer.join("\n"), expected);
    let top = ask_git(dir, said, &["rev-parse", "--show-toplevel"]);
    let expected = (top.code() == 0).then(|| top.text());
    // Outside of its work tree, Git does not say where that is.
    if let Some(expected) = expected {
        assert_eq!(repository.work_tree().map(real), Some(expected));
    }
    repository
}

/// Has Git and refdb refuse to open what is in `dir`, and compares the reasons.
#[track_caller]
fn same_refusal(dir: &Path, said: Said<'_>) -> ErrorKind {
    let out = ask_git(dir, said, &["for-each-ref"]);
    assert_eq!(out.code(), 128);
    let message = String::from_utf8(out.stderr).expect("text");
    let start = message.find("fatal: ").expect("a fatal error") + "fatal: ".len();
    let error = match options(dir, said).discover(dir) {
        Err(error) => error,
        Ok(repository) => panic!("Git refuses: {message}\nrefdb opens {repository:?}"),
    };
    assert_eq!(error.to_string(), message[start..].trim_end());
    error.kind()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("it is there");
    (folder, path)
}

for_every_format! {
    fn a_repository_is_found_from_anywhere_in_it(format) {
        let repo = Repo::init(format);
        let deep = repo.path().join("a/b/c");
        fs::create_dir_all(&deep).expect("a folder");
        for dir in [repo.path(), &deep, &repo.git_dir(), &repo.git_dir().join("objects")] {
            same(dir, Said::default());
        }
        let bare = Repo::init_bare(format);
        same(bare.path(), Said::default());
        same(&bare.path().join("objects"), Said::default());
    }

    fn a_linked_worktree_shares_the_common_folder(format) {
        let repo = Repo::init(format);
        let worktree = repo.worktree("w");
        let found = same(&worktree.path, Said::default());
        assert_eq!(found.git_dir(), worktree.git_dir.canonicalize().expect("it is there"));
        same(&worktree.git_dir, Said::default());
        let worktrees = found.worktrees().expect("they can be listed");
        let listed = repo.git(["worktree", "list", "--porcelain"]).run().text();
        let paths: Vec<&str> = listed.lines().filter_map(|l| l.strip_prefix("worktree ")).collect();
        let ours: Vec<_> = worktrees.iter().map(|w| w.path.to_str().expect("ASCII")).collect();
        assert_eq!(ours, paths);
        assert_eq!(worktrees[1].id.as_ref().expect("it is linked"), "w");
    }
}

#[test]
fn a_repository_is_named() {
    let repo = Repo::init(Format::REFTABLE_SHA256);
    let bare = Repo::init_bare(Format::FILES_SHA1);
    let git_dir = repo.git_dir();
    let git_dir = git_dir.to_str().expect("ASCII");
    let (_folder, elsewhere) = folder();
    let named = format!("--git-dir={git_dir}");
    for (dir, arguments) in [
        (elsewhere.as_path(), vec![named.as_str()]),
        (&elsewhere, vec![&named, "--work-tree=."]),
        (&elsewhere, vec!["--bare", &named]),
        (repo.path(), vec!["--git-dir=.git"]),
        (repo.path(), vec!["--git-dir=.git/.", "--work-tree=.git"]),
        (bare.path(), vec!["--bare"]),
        (bare.path(), vec!["--git-dir=."]),
        (bare.path(), vec!["--work-tree=refs"]),
    ] {
        let arguments = arguments.as_slice();
        same(
            dir,
            Said {
                arguments,
                ..Said::default()
            },
        );
    }
    for variables in [
        &[("GIT_DIR", git_dir)][..],
        &[("GIT_DIR", git_dir), ("GIT_IMPLICIT_WORK_TREE", "0")],
        &[("GIT_DIR", git_dir), ("GIT_WORK_TREE", "/")],
        &[("GIT_DIR", git_dir), ("GIT_COMMON_DIR", git_dir)],
    ] {
        same(
            &elsewhere,
            Said {
                variables,
                ..Said::default()
            },
        );
    }
}

#[test]
fn gitfiles_are_followed() {
    let repo = Repo::init(Format::FILES_SHA1);
    let git_dir = repo.git_dir();
    let (_folder, dir) = folder();
    fs::write(
        dir.join(".git"),
        format!("gitdir: {}\r\n", git_dir.display()),
    )
    .expect("a file");
    same(&dir, Said::default());
    same(
        &dir,
        Said {
            arguments: &["--git-dir=.git"],
            ..Said::default()
        },
    );
    fs::rename(&git_dir, repo.path().join("real")).expect("it is there");
    fs::write(&git_dir, "gitdir: ./real\n").expect("a file");
    same(repo.path(), Said::default());
    fs::remove_file(&git_dir).expect("a file");
    symlink("real", &git_dir).expect("a link");
    same(repo.path(), Said::default());
}

#[test]
fn what_is_no_repository_is_refused() {
    let (_folder, dir) = folder();
    let refused = |said| assert_eq!(same_refusal(&dir, said), ErrorKind::NoRepository);
    refused(Said::default());
    refused(Said {
        arguments: &["--git-dir=nowhere"],
        ..Said::default()
    });
    for content in ["", "junk", "gitdir:", "gitdir: ", "gitdir: \n"] {
        fs::write(dir.join(".git"), content).expect("a file");
        assert_eq!(same_refusal(&dir, Said::default()), ErrorKind::Repository);
    }
    fs::remove_file(dir.join(".git")).expect("a file");
    for head in ["", "ref: heads/main\n", "junk\n", "0123\n"] {
        for sub in ["refs", "objects"] {
            fs::create_dir_all(dir.join(".git").join(sub)).expect("a folder");
        }
        fs::write(dir.join(".git/HEAD"), head).expect("a file");
        refused(Said::default());
    }
    for head in [
        "ref:refs/x",
        "ref: \t refs/",
        "0123456789012345678901234567890123456789x",
    ] {
        fs::write(dir.join(".git/HEAD"), head).expect("a file");
        same(&dir, Said::default());
    }
    fs::remove_file(dir.join(".git/HEAD")).expect("a file");
    symlink("refs/heads/none", dir.join(".git/HEAD")).expect("a link");
    same(&dir, Said::default());
    // For which Git's reason is "Success".
    fs::write(dir.join(".git/commondir"), "").expect("a file");
    assert_eq!(
        ask_git(&dir, Said::default(), &["for-each-ref"]).code(),
        128
    );
    let opened = options(&dir, Said::default()).discover(&dir).map(drop);
    assert_eq!(
        opened.expect_err("it is empty").kind(),
        ErrorKind::Repository
    );
    fs::write(dir.join(".git/commondir"), ".\0").expect("a file");
    let opened = options(&dir, Said::default()).discover(&dir).map(drop);
    let error = opened.expect_err("no path has a zero");
    assert_eq!(error.kind(), ErrorKind::Repository);
    assert!(error.to_string().ends_with(".git/commondir"), "{error}");
    fs::remove_file(dir.join(".git/commondir")).expect("it is there");
    fs::remove_dir(dir.join(".git/objects")).expect("a folder");
    refused(Said::default());
    let objects = dir.to_str().expect("ASCII");
    same(
        &dir,
        Said {
            variables: &[("GIT_OBJECT_DIRECTORY", objects)],
            ..Said::default()
        },
    );
}

/// The repository around it is another one.
#[test]
fn what_is_neither_a_gitfile_nor_a_folder_is_not_passed_over() {
    let repo = Repo::init(Format::FILES_SHA1);
    let dir = repo.path().join("inner");
    let dot_git = dir.join(".git");
    fs::create_dir(&dir).expect("a folder");
    fs::write(dir.join("file"), "").expect("a file");
    for target in ["nothing", "file/x"] {
        symlink(target, &dot_git).expect("a link");
        let found = same(&dir, Said::default());
        assert_eq!(found.git_dir(), repo.git_dir());
        fs::remove_file(&dot_git).expect("a link");
    }
    let refused = || {
        let kind = same_refusal(&dir, Said::default());
        assert_eq!(kind, ErrorKind::Repository);
        let named = Said {
            arguments: &["--git-dir=.git"],
            ..Said::default()
        };
        let kind = same_refusal(&dir, named);
        assert!(matches!(
            kind,
            ErrorKind::Repository | ErrorKind::NoRepository
        ));
        fs::remove_file(&dot_git).expect("it is there");
    };
    for target in [".git", "/dev/null"] {
        symlink(target, &dot_git).expect("a link");
        refused();
    }
    drop(UnixListener::bind(&dot_git).expect("a socket"));
    refused();
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, &dot_git, FileType::Fifo, mode, 0).expect("a FIFO");
    refused();
}

for_every_format! {
    fn a_head_that_is_a_link_is_one(format) {
        let outer = Repo::init(format);
        let dir = outer.path().join("inner");
        let repo = outer.duplicate();
        fs::rename(repo.path(), &dir).expect("a folder");
        let head = dir.join(".git/HEAD");
        for target in ["refs/heads/main", "refs/heads/none/x", "refs/heads/../../../x"] {
            fs::remove_file(&head).expect("it is there");
            symlink(target, &head).expect("a link");
            let found = same(&dir, Said::default());
            assert_eq!(found.git_dir(), dir.join(".git"), "{target}");
        }
        fs::create_dir(repo.path()).expect("it was moved away");
    }
}

#[test]
fn the_search_stops_at_a_ceiling() {
    let repo = Repo::init(Format::FILES_SHA1);
    let top = repo.path().canonicalize().expect("it is there");
    let deep = top.join("a/b");
    fs::create_dir_all(&deep).expect("a folder");
    let link = top.join("link");
    symlink(&top, &link).expect("a link");
    let text = |path: &Path| path.to_str().expect("ASCII").to_owned();
    let parent = text(top.parent().expect("a folder"));
    for (list, found) in [
        (text(&top), false),
        (text(&top.join("a")), false),
        (text(&deep), true),
        (parent, true),
        (format!("relative:{}", text(&link)), false),
        (format!(":{}", text(&link)), true),
        (format!("/nowhere:{}:", text(&top)), false),
    ] {
        let variables = [("GIT_CEILING_DIRECTORIES", list.as_str())];
        let said = Said {
            variables: &variables,
            ..Said::default()
        };
        if found {
            same(&deep, said);
        } else {
            same_refusal(&deep, said);
        }
    }
}

#[test]
fn formats_that_are_not_understood_are_refused() {
    let repo = Repo::init(Format::FILES_SHA1);
    let refused = |config: &str| {
        fs::write(repo.git_dir().join("config"), config).expect("a file");
        same_refusal(repo.path(), Said::default())
    };
    for config in [
        "[core]\nrepositoryformatversion = 2\n",
        "[core]\nrepositoryformatversion = 1\n[extensions]\nfoo = 1\n",
        "[core]\nrepositoryformatversion = 1\n[extensions]\nfoo = 1\nBar = 1\nfoo = 2\n",
        "[core]\nrepositoryformatversion = 0\n[extensions]\nrefStorage = files\n",
        "[core]\nrepositoryformatversion = 0\n[extensions]\nobjectFormat = sha1\nnoop-v1 = 1\n",
    ] {
        assert_eq!(refused(config), ErrorKind::Unsupported);
    }
    for config in [
        "[core]\nrepositoryformatversion = x\n",
        "[core]\nbare = x\n",
        "[core]\nbare = false\n[core\n",
        "[core]\n\n\nbare = \"\n",
    ] {
        // Git names the file as seen from the work tree.
        fs::write(repo.git_dir().join("config"), config).expect("a file");
        let error = options(repo.path(), Said::default()).discover(repo.path());
        let error = error.expect_err("Git refuses it").to_string();
        let path = format!("{}/", repo.path().display());
        let out = repo.git(["for-each-ref"]).run();
        let expected = String::from_utf8(out.stderr).expect("text");
        assert_eq!(format!("fatal: {}\n", error.replace(&path, "")), expected);
    }
    for config in [
        "",
        "[extensions]\nobjectFormat = sha256\n",
        "[core]\nbare\n",
    ] {
        fs::write(repo.git_dir().join("config"), config).expect("a file");
        same(repo.path(), Said::default());
    }
}

#[test]
fn refs_may_be_kept_elsewhere() {
    let repo = Repo::init(Format::REFTABLE_SHA1);
    let elsewhere = repo.path().join("elsewhere");
    let value = format!("reftable://{}", elsewhere.display());
    let variables = [("GIT_REFERENCE_BACKEND", value.as_str())];
    let found = same(
        repo.path(),
        Said {
            variables: &variables,
            ..Said::default()
        },
    );
    assert_eq!(found.refs_dir(), Some(elsewhere.as_path()));
    for variables in [
        [("GIT_REFERENCE_BACKEND", "x://y")],
        [("GIT_REFERENCE_BACKEND", "")],
    ] {
        same_refusal(
            repo.path(),
            Said {
                variables: &variables,
                ..Said::default()
            },
        );
    }
}

#[test]
fn the_repository_of_another_user_is_refused_unless_declared_safe() {
    let repo = Repo::init(Format::FILES_SHA1);
    let bare = Repo::init_bare(Format::FILES_SHA1);
    let (_folder, home) = folder();
    let global = home.join("config");
    let global = global.to_str().expect("ASCII");
    let home_text = home.to_str().expect("ASCII");
    let other = [
        ("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1"),
        ("GIT_CONFIG_GLOBAL", global),
        ("HOME", home_text),
    ];
    let said = Said {
        variables: &other,
        ..Said::default()
    };
    let top = repo.path().canonicalize().expect("it is there");
    let top = top.to_str().expect("ASCII");
    let parent = Path::new(top)
        .parent()
        .expect("a folder")
        .to_str()
        .expect("ASCII");
    fs::write(global, "").expect("a file");
    assert_eq!(same_refusal(repo.path(), said), ErrorKind::Repository);
    same_refusal(bare.path(), said);
    repo.config("safe.directory", "*");
    same_refusal(repo.path(), said);
    for (values, safe) in [
        (vec![top], true),
        (vec!["*"], true),
        (vec!["*", ""], false),
        (vec!["", top], true),
        (vec![&format!("{parent}/*")], true),
        (vec![parent], false),
        (vec![&format!("{top}/.git")], false),
        (vec![&format!("{top}/*")], false),
        (vec![&format!("{top}/")], true),
        (vec!["~"], false),
        (vec!["relative"], false),
    ] {
        let lines: String = values
            .iter()
            .map(|v| format!("directory = {v}\n"))
            .collect();
        fs::write(global, format!("[safe]\n{lines}")).expect("a file");
        if safe {
            same(repo.path(), said);
        } else {
            same_refusal(repo.path(), said);
        }
    }
    fs::write(global, "").expect("a file");
    let arguments = ["-c", "safe.directory=*"];
    same(
        repo.path(),
        Said {
            arguments: &arguments,
            variables: &other,
        },
    );
    let git_dir = repo.git_dir();
    let git_dir = format!("--git-dir={}", git_dir.display());
    let arguments = [git_dir.as_str()];
    same(
        repo.path(),
        Said {
            arguments: &arguments,
            variables: &other,
        },
    );
}

#[test]
fn bare_repositories_can_be_forbidden() {
    let bare = Repo::init_bare(Format::FILES_SHA1);
    let repo = Repo::init(Format::FILES_SHA1);
    let arguments = ["-c", "safe.bareRepository=explicit"];
    let said = Said {
        arguments: &arguments,
        ..Said::default()
    };
    same_refusal(bare.path(), said);
    same(repo.path(), said);
    same(&repo.git_dir(), said);
    let arguments = ["-c", "safe.bareRepository=explicit", "--git-dir=."];
    same(
        bare.path(),
        Said {
            arguments: &arguments,
            ..Said::default()
        },
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of settings")]
fn configuration_is_read_as_git_reads_it() {
    let repo = Repo::init(Format::REFTABLE_SHA1);
    repo.git(["symbolic-ref", "HEAD", "refs/heads/topic/x"])
        .run()
        .ok();
    let (_folder, home) = folder();
    let top = repo.path().canonicalize().expect("it is there");
    let write = |path: PathBuf, content: &str| {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    };
    write(
        home.join(".gitconfig"),
        "[a]\nhome = 1\n[include]\npath = more\n[a]\nafter = 1\n",
    );
    write(
        home.join("more"),
        "[a]\nmore = 1\n[include]\npath = ~/deep/er\n",
    );
    write(home.join("deep/er"), "[a]\ndeeper = 1\n");
    write(
        home.join(".config/git/config"),
        "[a \"Sub\"]\n\tX = xdg ; no\n",
    );
    write(home.join("yes"), "[cond]\nyes = 1\n");
    let conditions = format!(
        "[core]\nrepositoryformatversion = 1\n[extensions]\nrefStorage = reftable\n[z]\ny = \"a  b\" # c\n\timplicit\n\
         [include]\npath = ../one\nother = 1\n[includeIf \"gitdir:{0}/\"]\npath = ../two\n\
         [includeIf \"gitdir:{0}/no\"]\npath = ../not\n\
         [includeIf \"gitdir/i:{1}/\"]\npath = ../three\n\
         [includeIf \"gitdir:.git\"]\npath = ../four\n\
         [includeIf \"gitdir:~/\"]\npath = ../not\n\
         [includeIf \"gitdir:./\"]\npath = ../five\n\
         [includeIf \"onbranch:topic/\"]\npath = ../six\n\
         [includeIf \"onbranch:topic\"]\npath = ../not\n\
         [includeIf \"hasconfig:remote.*.url:https://x/**\"]\npath = ../seven\n\
         [includeIf \"hasconfig:remote.*.url:https://y/**\"]\npath = ../not\n\
         [includeIf \"unknown:x\"]\npath = ../not\n[include]\npath = ../missing\n\
         [remote \"o\"]\nurl = https://x/y/z\n",
        top.display(),
        top.display().to_string().to_uppercase(),
    );
    write(top.join(".git/config"), &conditions);
    for name in ["one", "two", "three", "four", "five", "six", "seven", "not"] {
        write(top.join(name), &format!("[inc]\n{name} = 1\n"));
    }
    // Below the folder of the file, and not below that of the file that a link leads to.
    let here = "[inc]\nhere = 1\n[includeIf \"gitdir:./\"]\npath = five\n";
    write(top.join("one"), here);
    fs::create_dir(top.join("sub")).expect("a folder");
    write(top.join("sub/two"), &here.replace("five", "six"));
    fs::remove_file(top.join("two")).expect("it is there");
    symlink("sub/two", top.join("two")).expect("a link");
    let home_text = home.to_str().expect("ASCII");
    let variables = [
        ("HOME", home_text),
        ("XDG_CONFIG_HOME", ""),
        ("GIT_CONFIG_PARAMETERS", "'p.q=r' 'p.Q.s'='t u' 'p.v'"),
    ];
    let mut run = repo.git(["-c", "c.D=e=f", "-c", "g.h", "config", "--list", "-z"]);
    let mut given = environment();
    given.retain(|(name, _)| name != "GIT_CONFIG_GLOBAL");
    given.extend(
        variables
            .iter()
            .map(|&(name, value)| (name.into(), value.into())),
    );
    for (name, value) in variables {
        run = run.env(name, value);
    }
    let expected = run.unset("GIT_CONFIG_GLOBAL").run().text();
    let repository = OpenOptions::new()
        .environment(Environment::from_pairs(given))
        .config("c.D=e=f")
        .config("g.h")
        .discover(&top)
        .expect("Git reads it");
    let ours: String = repository
        .config()
        .entries()
        .iter()
        .map(|entry| match entry.value() {
            Some(value) => format!("{}\n{value}\0", entry.key()),
            None => format!("{}\0", entry.key()),
        })
        .collect();
    let lines = |text: &str| text.split('\0').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&ours), lines(&expected));
    assert!(ours.contains("inc.seven\n1") && !ours.contains("inc.not"));
}

/// Git knows by what name the user came to the directory, until it goes to another one.
#[test]
fn conditions_are_asked_of_the_directory_as_it_was_typed_too() {
    let (_folder, dir) = folder();
    fs::create_dir(dir.join("real")).expect("a folder");
    git(&dir).args(["init", "-q", "real/R"]).run().ok();
    fs::create_dir(dir.join("real/R/sub")).expect("a folder");
    symlink("real", dir.join("ln")).expect("a link");
    let top = dir.to_str().expect("ASCII");
    let (mut asked, mut matched) = (0, 0);
    for pattern in [
        "{}/ln/",
        "{}/real/",
        "ln/",
        "**/ln/**",
        "{}/ln/R/.git",
        "{}/ln/R/",
        "{}/ln/R/.git/",
    ] {
        let pattern = pattern.replace("{}", top);
        fs::write(dir.join("more"), "[inc]\nluded = 1\n").expect("a file");
        let global = format!("[includeIf \"gitdir:{pattern}\"]\npath = more\n");
        fs::write(dir.join("global"), global).expect("a file");
        for (from, pwd, more) in [
            ("ln/R", "ln/R", &[][..]),
            ("ln/R/sub", "ln/R/sub", &[]),
            ("ln/R/.git", "ln/R/.git", &[]),
            ("ln/R/.git/refs", "ln/R/.git/refs", &[]),
            ("real/R", "real/R", &[]),
            ("ln/R", "ln", &[]),
            ("ln/R", "ln/../ln/R", &[]),
            ("ln/R", "ln/R/", &[]),
            ("ln/R", "ln/R", &[("GIT_DIR", ".git")]),
            ("ln/R", "ln/R", &[("GIT_WORK_TREE", ".")]),
            ("ln/R/sub", "ln/R/sub", &[("GIT_DIR", "../.git")]),
            (
                "ln/R/sub",
                "ln/R/sub",
                &[("GIT_DIR", "../.git"), ("GIT_WORK_TREE", "..")],
            ),
            ("ln", "ln", &[("GIT_DIR", "R/.git")]),
            ("ln", "ln", &[("GIT_DIR", "./R/.git")]),
        ] {
            let (global, pwd) = (format!("{top}/global"), format!("{top}/{pwd}"));
            let variables: Vec<(&str, &str)> = [("GIT_CONFIG_GLOBAL", &*global), ("PWD", &*pwd)]
                .into_iter()
                .chain(more.iter().copied())
                .collect();
            let said = Said {
                variables: &variables,
                ..Said::default()
            };
            // As the system calls the directory.
            let from = dir.join(from).canonicalize().expect("a folder");
            let theirs = ask_git(&from, said, &["config", "inc.luded"]).code() == 0;
            let repository = options(&from, said).discover(&from).expect("Git opens it");
            let ours = repository.config().string("inc.luded").is_some();
            assert_eq!(ours, theirs, "{pattern}, {variables:?} in {from:?}");
            asked += 1;
            matched += usize::from(theirs);
        }
    }
    assert!(asked - matched > 10 && matched > 10, "{matched} of {asked}");
}

#[test]
fn what_names_nothing_is_refused_as_by_git() {
    let (_folder, dir) = folder();
    git(&dir)
        .args(["init", "-q", "--separate-git-dir=real", "here"])
        .run()
        .ok();
    let gitfile = dir.join("here/.git");
    let plain = fs::read(&gitfile).expect("a file");
    for named in ["here/.git/", "here/.git//", "here/.git/."] {
        for variables in [&[("GIT_DIR", named)][..], &[]] {
            let argument = format!("--git-dir={named}");
            let arguments = [argument.as_str()];
            let said = Said {
                arguments: if variables.is_empty() {
                    &arguments
                } else {
                    &[]
                },
                variables,
            };
            same_refusal(&dir, said);
        }
    }
    let here = dir.join("here");
    let empty = Said {
        variables: &[("GIT_WORK_TREE", "")],
        ..Said::default()
    };
    same_refusal(&here, empty);
    let arguments = ["--work-tree="];
    same_refusal(
        &here,
        Said {
            arguments: &arguments,
            ..Said::default()
        },
    );
    // Outside of any repository that is the reason.
    same_refusal(Path::new("/"), empty);
    // A zero byte ends the path.
    let line = plain.strip_suffix(b"\n").expect("a line");
    for end in [&b"\0"[..], b"\0/other", b"\0\n\0"] {
        fs::write(&gitfile, [line, end, b"\n"].concat()).expect("a file");
        same(&here, Said::default());
        same(
            &dir,
            Said {
                variables: &[("GIT_DIR", "here/.git")],
                ..Said::default()
            },
        );
    }
    for content in [
        [b"gitdir: \0", &line[8..]].concat(),
        [line, b"\n\0\n"].concat(),
    ] {
        fs::write(&gitfile, content).expect("a file");
        assert_eq!(
            ask_git(&here, Said::default(), &["for-each-ref"]).code(),
            128
        );
        let opened = options(&here, Said::default()).discover(&here).map(drop);
        opened.expect_err("Git finds none");
    }
}

#[test]
fn includes_without_end_are_refused() {
    let repo = Repo::init(Format::FILES_SHA1);
    repo.config("include.path", "config");
    let out = repo.git(["config", "a.b"]).run();
    assert_eq!(out.code(), 128);
    let error = options(repo.path(), Said::default()).discover(repo.path());
    let error = error.expect_err("Git refuses it").to_string();
    assert!(error.starts_with("exceeded maximum include depth (10) while including"));
}

#[test]
fn the_committer_is_who_git_says() {
    let repo = Repo::init(Format::FILES_SHA1);
    for variables in [
        &[][..],
        &[
            ("GIT_COMMITTER_NAME", " .A <B>, "),
            ("GIT_COMMITTER_EMAIL", "<x@y.z>"),
        ],
        &[("GIT_COMMITTER_DATE", "@1234567890 -0530")],
        &[("GIT_COMMITTER_DATE", "1234567890 +0000")],
        &[("GIT_COMMITTER_DATE", "1234567890 -0930")],
        &[("GIT_COMMITTER_DATE", "2022-08-18 12:45:06 +0800")],
        &[("GIT_COMMITTER_DATE", "2022-08-18T12:45:06Z")],
        &[("GIT_COMMITTER_DATE", "2022-08-18T12:45:06")],
        &[("GIT_COMMITTER_DATE", "Thu, 18 Aug 2022 12:45:06 +0800")],
        &[("GIT_COMMITTER_DATE", "Thu Aug 18 12:45:06 2022 +0200")],
        &[("GIT_COMMITTER_DATE", "2022-08-18 12:45:06")],
    ] {
        let said = Said {
            variables,
            ..Said::default()
        };
        let expected = ask_git(repo.path(), said, &["var", "GIT_COMMITTER_IDENT"]).text();
        let repository = same(repo.path(), said);
        let found = &repository.store().options().committer;
        let found = found.get().expect("Git finds one");
        let (time, zone) = found.date.expect("it is given");
        let ours = format!("{} <{}> {time} {zone:+05}", found.name, found.email);
        assert_eq!(ours, expected);
    }
}

/// For a reflog Git takes a name of which nothing is left; it refuses it for commits alone.
#[test]
fn a_name_of_nothing_but_punctuation_is_empty() {
    let repo = Repo::init(Format::FILES_SHA1);
    let commit = &repo.objects().commits[0];
    for (at, name) in ["<>", " ", ",;", "", ".", "<a>"].iter().enumerate() {
        for email in ["<>", "x@y"] {
            let variables = [
                ("GIT_COMMITTER_NAME", *name),
                ("GIT_COMMITTER_EMAIL", email),
            ];
            let said = Said {
                variables: &variables,
                ..Said::default()
            };
            let new = format!("refs/heads/{at}/{}", email.len());
            let update = ["update-ref", "--create-reflog", "-m", "x", &new, commit];
            ask_git(repo.path(), said, &update).ok();
            let log = fs::read_to_string(repo.git_dir().join("logs").join(new)).expect("a reflog");
            let repository = same(repo.path(), said);
            let found = repository
                .store()
                .options()
                .committer
                .get()
                .expect("it is given");
            let ours = format!(" {commit} {} <{}> ", found.name, found.email);
            assert!(log.contains(&ours), "{log}: {ours}");
        }
    }
}

for_every_format! {
    fn objects_are_what_git_says(format) {
        let repo = Repo::init(format);
        let objects = repo.objects();
        let repository = same(repo.path(), Said::default());
        let odb = repository.odb();
        let id = |hex: &str| ObjectId::from_hex(hex.as_bytes()).expect("an id");
        let kind = |hex: &str| odb.kind(id(hex)).expect("the packs can be read");
        let peel = |hex: &str| odb.peel(id(hex)).expect("the packs can be read");
        assert_eq!(kind(&objects.commits[7]), Some(ObjectKind::Commit));
        assert_eq!(kind(&objects.tree), Some(ObjectKind::Tree));
        assert_eq!(kind(&objects.blob), Some(ObjectKind::Blob));
        assert_eq!(kind(&objects.lying_tag), Some(ObjectKind::Tag));
        assert_eq!(kind(&objects.missing), None);
        assert_eq!(peel(&objects.commits[7]), Peeled::Itself);
        assert_eq!(peel(&objects.missing), Peeled::Missing);
        assert_eq!(peel(&objects.lying_tag), Peeled::Nowhere);
        let tags = objects.tags.iter().chain(&objects.nested_tags);
        for tag in tags.chain([&objects.tree_tag, &objects.blob_tag]) {
            assert_eq!(peel(&tag.id), Peeled::To(id(&tag.peeled)));
        }
        let content = odb.read(id(&objects.blob)).expect("it can be read").expect("it is there");
        assert_eq!(content.data, b"content 0\n");
        // What another process writes meanwhile is found.
        let hash = ["hash-object", "-w", "--stdin"];
        let new = repo.git(hash).stdin("new").run().text();
        assert_eq!(kind(&new), Some(ObjectKind::Blob));
        repo.git(["update-ref", "refs/heads/new", &new]).run();
        repo.git(["update-ref", "refs/blobs/new", &new]).run().ok();
        repo.git(["repack", "-q", "-a", "-d"]).run().ok();
        assert_eq!(kind(&new), Some(ObjectKind::Blob));
    }

    fn ids_are_abbreviated_as_git_does(format) {
        let repo = Repo::init(format);
        let repository = same(repo.path(), Said::default());
        let objects = repo.objects();
        let all = objects.commits.iter().chain(objects.tags.iter().map(|tag| &tag.id));
        // Some are in a pack, and some have files of their own.
        let paths: Vec<String> = (0..400).map(|number| format!("blob-{number}")).collect();
        for path in &paths {
            fs::write(repo.path().join(path), path).expect("room");
        }
        let hash = repo.git(["hash-object", "-w", "--stdin-paths"]);
        let loose = hash.stdin(paths.join("\n")).run().text();
        let all = all.map(String::as_str).chain(loose.lines());
        let all: Vec<&str> = all.chain([objects.missing.as_str()]).collect();
        let abbreviations = repository.odb().abbreviations().expect("packs");
        for (argument, len) in [("--short", None), ("--short=4", Some(4)), ("--short=9", Some(9))] {
            for few in all.chunks(100) {
                // Git takes one object at a time here.
                for hex in few.iter().step_by(7) {
                    let id = ObjectId::from_hex(hex.as_bytes()).expect("an id");
                    let len = abbreviations.len(id, len).expect("packs");
                    let arguments = ["-c", "core.abbrev=auto", "rev-parse", argument, hex];
                    assert_eq!(hex[..len], repo.git(arguments).run().text());
                }
            }
        }
        for hex in &all[..all.len() - 1] {
            let found = abbreviations.with_prefix(&hex.as_bytes()[..5]).expect("packs");
            assert!(found.contains(&ObjectId::from_hex(hex.as_bytes()).expect("an id")));
        }
    }

    fn ids_and_sizes_are_right_however_objects_are_packed(format) {
        let repo = Repo::init(format);
        let paths: Vec<String> = (0..1500).map(|number| format!("blob-{number}")).collect();
        for path in &paths {
            fs::write(repo.path().join(path), path).expect("room");
        }
        let hash = repo.git(["hash-object", "-w", "--stdin-paths"]);
        hash.stdin(paths.join("\n")).run().ok();
        let list = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"];
        let all = repo.git(list).run().text();
        let all: Vec<&str> = all.lines().collect();
        let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
        let expected = |hex: &str| {
            let others = all.iter().filter(|other| **other != hex);
            others.map(|other| shared(hex, other) + 1).max().expect("there are others").max(4)
        };
        let folder = repo.git_dir().join("objects/pack");
        let pack = |version: &str, ids: &[&str]| {
            let version = format!("pack.indexVersion={version}");
            let place = folder.join("pack").display().to_string();
            repo.git(["-c", &version, "pack-objects", "-q", &place]).stdin(ids.join("\n")).run().ok();
        };
        let check = |layout: &str| {
            let repository = same(repo.path(), Said::default());
            let abbreviations = repository.odb().abbreviations().expect("packs");
            let mut longer = 0;
            for hex in &all {
                let id = ObjectId::from_hex(hex.as_bytes()).expect("an id");
                let len = abbreviations.len(id, Some(4)).expect("packs");
                assert_eq!(len, expected(hex), "{layout}: {hex}");
                assert_eq!(abbreviations.len(id, Some(hex.len() + 1)).expect("packs"), hex.len());
                longer += usize::from(len > 4);
            }
            assert!(longer > 4, "no two of these begin alike");
            let batch = repo.git(["cat-file", "--batch-check=%(objectsize:disk)"]);
            let sizes = batch.stdin(all.join("\n")).run().text();
            for (hex, size) in all.iter().zip(sizes.lines()) {
                let id = ObjectId::from_hex(hex.as_bytes()).expect("an id");
                let storage = repository.odb().storage(id).expect("packs").expect("it is there");
                assert_eq!(storage.size.to_string(), size, "{layout}: {hex}");
            }
        };
        check("files of their own");
        let (first, last) = all.split_at(700);
        pack("2", first);
        repo.git(["prune-packed", "-q"]).run().ok();
        check("one pack, and files");
        pack("2", &[&first[600..], last].concat());
        repo.git(["prune-packed", "-q"]).run().ok();
        check("two packs");
        repo.git(["multi-pack-index", "write"]).run().ok();
        check("an index of two packs");
        if format.objects == ObjectFormat::Sha1 {
            fs::remove_file(folder.join("multi-pack-index")).expect("it is there");
            let old: Vec<_> = fs::read_dir(&folder).expect("packs").collect();
            pack("1", &all);
            for entry in old {
                fs::remove_file(entry.expect("a name").path()).expect("it is there");
            }
            check("an index of the first version");
        }
    }
}

#[test]
fn objects_are_looked_for_in_alternates() {
    let format = Format::FILES_SHA1;
    let (first, second, third) = (Repo::init(format), Repo::init(format), Repo::init(format));
    let add = |repo: &Repo, content: &str| {
        let hash = ["hash-object", "-w", "--stdin"];
        let hex = repo.git(hash).stdin(content).run().text();
        ObjectId::from_hex(hex.as_bytes()).expect("an id")
    };
    let (a, b, c) = (add(&first, "a"), add(&second, "b"), add(&third, "c"));
    let objects = |repo: &Repo| repo.git_dir().join("objects");
    let list = format!("{}\n", objects(&second).display());
    fs::write(objects(&first).join("info/alternates"), list).expect("a file");
    let more = format!("/nowhere:{}", objects(&third).display());
    let variables = [("GIT_ALTERNATE_OBJECT_DIRECTORIES", more.as_str())];
    let repository = same(
        first.path(),
        Said {
            variables: &variables,
            ..Said::default()
        },
    );
    for id in [a, b, c] {
        let kind = repository.odb().kind(id).expect("it can be read");
        assert_eq!(kind, Some(ObjectKind::Blob));
    }
    let repository = same(first.path(), Said::default());
    assert_eq!(repository.odb().kind(c).expect("it can be read"), None);
}

#[test]
fn a_damaged_object_counts_as_missing() {
    let repo = Repo::init(Format::FILES_SHA1);
    let hex = repo
        .git(["hash-object", "-w", "--stdin"])
        .stdin("content")
        .run()
        .text();
    let path = repo
        .git_dir()
        .join("objects")
        .join(&hex[..2])
        .join(&hex[2..]);
    fs::remove_file(&path).expect("it is there");
    let id = ObjectId::from_hex(hex.as_bytes()).expect("an id");
    for content in [&b""[..], b"junk", b"\x78\x01\x4b\xca\xc9\x4f"] {
        fs::write(&path, content).expect("a file");
        let repository = same(repo.path(), Said::default());
        assert_eq!(
            repository.odb().kind(id).expect("it counts as missing"),
            None
        );
        let out = repo.git(["update-ref", "refs/heads/x", &hex]).run();
        assert_eq!(out.code(), 128);
    }
}

#[test]
fn a_date_that_is_none_stands_only_in_a_writers_way() {
    let repo = Repo::init(Format::FILES_SHA1);
    let variables = [("GIT_COMMITTER_DATE", "junk")];
    let said = Said {
        variables: &variables,
        ..Said::default()
    };
    let committer = same(repo.path(), said).store().options().committer.clone();
    let error = committer.get().expect_err("it is none");
    assert_eq!(error.to_string(), "invalid date format: junk");
    let out = ask_git(repo.path(), said, &["update-ref", "-d", "refs/heads/main"]);
    assert_eq!(out.stderr, b"fatal: invalid date format: junk\n");
}

#[test]
fn a_namespace_is_a_prefix() {
    let repo = Repo::init_bare(Format::FILES_SHA1);
    let open = |namespace: &str| {
        let variables = [("GIT_NAMESPACE", namespace)];
        let said = Said {
            variables: &variables,
            ..Said::default()
        };
        options(repo.path(), said)
            .discover(repo.path())
            .expect("it is there")
    };
    let prefix = |namespace: &str| open(namespace).namespace().expect("it is one");
    assert_eq!(prefix(""), "");
    assert_eq!(prefix("a/b/"), "refs/namespaces/a/refs/namespaces/b/");
    let error = open("a..b").namespace().expect_err("it is none");
    assert_eq!(error.to_string(), "bad git namespace path \"a..b\"");
}
