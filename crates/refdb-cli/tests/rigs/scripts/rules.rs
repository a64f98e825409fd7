//! What the answers of Git and refdb may differ in. docs/compat.md has the reasons at length.

use bstr::{BString, ByteSlice};
use refdb_testkit::RefFormat;
use refdb_testkit::answer::Answer;
use refdb_testkit::repo::Repo;
use refdb_testkit::scripts::Call;
use refdb_testkit::state::ref_format;

/// What may differ by a rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allowed {
    /// What is said; what is stored afterwards is the same.
    Words,
    /// What is said, and what hooks are told.
    WordsAndHooks,
    /// What is done: the script is not followed further.
    Deeds,
}

/// A known difference.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) allowed: Allowed,
    applies: fn(&Case<'_>) -> bool,
}

/// A call and what came of it.
struct Case<'c> {
    call: &'c Call,
    git: &'c Answer,
    ours: &'c Answer,
    /// Whether refs are files.
    is_files: bool,
}

/// What Git says where `core.preferSymlinkRefs` is set, from its first line to its last.
const NOMINATED: [&str; 2] = [
    "warning: 'core.preferSymlinkRefs=true' is nominated for removal.\n",
    "hint: Git will then use the textual symref format instead.\n",
];

const RULES: &[Rule] = &[
    Rule {
        name: "Git crashes",
        allowed: Allowed::Deeds,
        applies: |case| case.git.code == -1,
    },
    Rule {
        name: "pack-refs in reftable says what keeps it from cleaning up",
        allowed: Allowed::Words,
        applies: |case| {
            let locked = "error: unable to compact stack: data is locked";
            let says = case.git.stderr.is_empty() && case.ours.stderr.contains(locked);
            says && (case.git.code, case.ours.code) == (251, 255)
        },
    },
    Rule {
        name: "a record that is cut off is no record",
        allowed: Allowed::Deeds,
        applies: |case| {
            let cut = case
                .call
                .stdin
                .concat()
                .last()
                .is_some_and(|last| *last != 0);
            let missing = [": missing ", "unterminated", "expected NUL but got"];
            cut && case.has("-z") && missing.iter().any(|it| case.ours.stderr.contains(it))
        },
    },
    Rule {
        name: "what is in the way of a change of a reflog is told",
        allowed: Allowed::Words,
        applies: |case| {
            let told = "error: cannot lock references\n";
            let without = case.ours.stderr.replace(told, "");
            case.is("reflog") && without == case.git.stderr && case.same_but_stderr()
        },
    },
    Rule {
        name: "a setting that makes no sense is refused sooner or later",
        allowed: Allowed::Deeds,
        applies: |case| is_setting(case.git) || is_setting(case.ours),
    },
    Rule {
        name: "how a command is called can be asked wherever and whatever the settings are",
        allowed: Allowed::Words,
        applies: |case| {
            let is_answer = case.ours.code == 0 && case.ours.stdout.starts_with("usage");
            let is_last = case.call.args.last().is_some_and(|last| last == "-h");
            is_last && is_answer && case.ours.stderr.is_empty() && case.git.code == 128
        },
    },
    Rule {
        name: "--start-after passes over no ref",
        allowed: Allowed::Words,
        applies: |case| {
            let starts = case.call.args.iter().any(|it| it.starts_with(b"--start"));
            let mut ours = case.ours.stdout.lines();
            let all = |line: &str| ours.any(|it| it == line);
            let told = (case.git.code, &case.git.stderr) == (case.ours.code, &case.ours.stderr);
            starts && case.is_files && told && case.git.stdout.lines().all(all)
        },
    },
    Rule {
        name: "objects are not looked at in passing",
        allowed: Allowed::Words,
        applies: |case| case.differs_by(|line| line.ends_with("does not point to a valid object!")),
    },
    Rule {
        name: "packed-refs is locked only if it changes",
        allowed: Allowed::Deeds,
        applies: |case| {
            let lock = "packed-refs.lock': File exists";
            case.git.stderr.contains(lock) && !case.ours.stderr.contains("packed-refs.lock")
        },
    },
    Rule {
        name: "a zero id in packed-refs is a broken ref",
        allowed: Allowed::Deeds,
        applies: |case| {
            let says = ["missing object 0000", "malformed object at 'refs/heads/p'"];
            says.iter().any(|it| case.git.stderr.contains(it))
        },
    },
    Rule {
        name: "refs migrate takes the lock of every ref",
        allowed: Allowed::Deeds,
        applies: |case| case.migrates() && case.ours.stderr.contains(".lock': File exists"),
    },
    Rule {
        name: "which of several updates of one ref is told",
        allowed: Allowed::Words,
        applies: |case| {
            let says = |answer: &Answer| answer.stderr.contains("multiple updates for '");
            case.git.code == case.ours.code && says(case.git) && says(case.ours)
        },
    },
    Rule {
        name: "who commits, and when, is asked where it is needed",
        allowed: Allowed::Deeds,
        applies: |case| {
            let says = |answer: &Answer| answer.stderr.contains("invalid date format");
            says(case.git) || says(case.ours)
        },
    },
    Rule {
        name: "refs verify goes through folders in no order",
        allowed: Allowed::Words,
        applies: |case| {
            let sorted = |answer: &Answer| {
                let mut lines: Vec<String> = answer.stderr.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            case.has("verify") && case.same_but_stderr() && sorted(case.git) == sorted(case.ours)
        },
    },
    Rule {
        name: "refs migrate tells which lines of reflogs are left behind",
        allowed: Allowed::Words,
        applies: |case| {
            let is_other = |line: &&str| !line.starts_with("warning: left behind: ");
            let ours: Vec<&str> = case.ours.stderr.lines().filter(is_other).collect();
            let git: Vec<&str> = case.git.stderr.lines().collect();
            case.has("migrate") && case.same_but_stderr() && git == ours
        },
    },
    Rule {
        name: "a reflog without a ref is in nobody's way",
        allowed: Allowed::Deeds,
        applies: |case| {
            let says = ["there are still logs under '", "unable to append to '"];
            let git = says.iter().any(|it| case.git.stderr.contains(it));
            git && !says.iter().any(|it| case.ours.stderr.contains(it))
        },
    },
    Rule {
        name: "a zero byte in a loose ref is damage",
        allowed: Allowed::Deeds,
        applies: |case| {
            let texts = [&case.git.stdout, &case.ours.stdout, &case.ours.stderr];
            texts.iter().any(|it| it.contains("refs/heads/nul"))
        },
    },
    Rule {
        name: "a rejected edit is done with",
        allowed: Allowed::WordsAndHooks,
        applies: |case| {
            let of = |answer: &Answer, rejected: bool| -> Vec<String> {
                let lines = answer.stdout.lines().map(str::to_owned);
                lines
                    .filter(|line| line.starts_with("rejected ") == rejected)
                    .collect()
            };
            let ours = of(case.ours, true);
            let also_by_git = ours.iter().all(|line| case.git.stdout.contains(line));
            let same = of(case.git, false) == of(case.ours, false);
            !ours.is_empty() && also_by_git && same && case.git.code == case.ours.code
        },
    },
    Rule {
        name: "a ref that is verified twice is no reason to die",
        allowed: Allowed::Deeds,
        applies: |case| {
            let rejected = case.ours.stdout.contains("rejected ");
            case.git.stderr.contains("has been racily updated") && rejected
        },
    },
    Rule {
        name: "whoever holds a lock is told, oneself too",
        allowed: Allowed::Words,
        applies: |case| {
            let other = "Another git process seems to be running in this repository, or the lock \
                         file may be stale";
            let [git, ours] = [case.git, case.ours].map(|answer| {
                let told = |line: &&str| !line.starts_with("It is held by ") && *line != other;
                let lines = answer.stderr.lines().filter(told);
                lines
                    .map(|line| line.replace("/./", "/"))
                    .collect::<Vec<_>>()
            });
            case.git.stderr.contains("HEAD.lock': File exists") && git == ours
        },
    },
    Rule {
        name: "no message says (null)",
        allowed: Allowed::Words,
        applies: |case| {
            let end = "not a git repository: (null)\n";
            case.git.stderr.ends_with(end) && case.ours.stderr.contains("not a git repository: ")
        },
    },
    Rule {
        name: "there is no index",
        allowed: Allowed::Deeds,
        applies: |case| {
            let index = "paths in the index cannot be resolved";
            case.ours.stderr.contains(index)
        },
    },
    Rule {
        name: "what has nothing to do with refs is not checked",
        allowed: Allowed::Deeds,
        applies: |case| case.git.stderr.contains("malformed value for push.default"),
    },
    Rule {
        name: "repositories with worktrees are migrated",
        allowed: Allowed::Deeds,
        applies: |case| {
            case.git
                .stderr
                .contains("migrating repositories with worktrees")
        },
    },
    Rule {
        name: "refs that cannot be migrated stay where they are",
        allowed: Allowed::Deeds,
        applies: |case| {
            let stay = "these refs cannot be migrated:";
            case.migrates() && case.ours.stderr.contains(stay)
        },
    },
    Rule {
        name: "refs migrate has more options, which can be ambiguous",
        allowed: Allowed::Words,
        applies: |case| {
            let ambiguous = "error: ambiguous option: ";
            let [git, ours] = [case.git, case.ours].map(|it| it.stderr.starts_with(ambiguous));
            case.migrates() && git && ours
        },
    },
    Rule {
        name: "what is wrong with packed-refs elsewhere is in nobody's way",
        allowed: Allowed::Deeds,
        applies: |case| case.git.stderr.contains("packed refname is dangerous"),
    },
    Rule {
        name: "packed-refs is read when it is needed, and then to its end",
        allowed: Allowed::Deeds,
        applies: |case| {
            let says = |answer: &Answer| {
                let places = ["unexpected line in ", "unterminated line in "];
                let place = places.iter().find_map(|it| answer.stderr.split_once(it));
                place.is_some_and(|it| it.1.contains("packed-refs: "))
            };
            says(case.ours) || says(case.git)
        },
    },
    Rule {
        name: "reflogs are not limited by paths",
        allowed: Allowed::Words,
        applies: |case| {
            let paths = "reflogs cannot be limited by paths";
            case.is("reflog") && case.ours.stderr.contains(paths)
        },
    },
    Rule {
        name: "a ref that cannot be read is an error",
        allowed: Allowed::Deeds,
        applies: |case| {
            let broken = "reference broken";
            case.ours.stderr.contains(broken) && !case.git.stderr.contains(broken)
        },
    },
    Rule {
        name: "a zero byte in a line is a byte",
        allowed: Allowed::Deeds,
        applies: |case| !case.has("-z") && case.call.stdin.iter().any(|it| it.contains(&0)),
    },
    Rule {
        name: "what is not listed may not have been read",
        allowed: Allowed::Words,
        applies: |case| {
            let chooses = case.call.args.len() > 1;
            case.differs_by(|line| {
                line.starts_with("warning: ignoring ref with broken name")
                    || (chooses && line.starts_with("warning: ignoring broken ref"))
            })
        },
    },
    Rule {
        name: "root refs are listed whatever is asked of history",
        allowed: Allowed::Words,
        applies: |case| {
            let asks = [
                "--merged",
                "--no-merged",
                "--contains",
                "--no-contains",
                "ahead-behind",
                "is-base",
            ];
            let asks = |it: &BString| asks.iter().any(|word| it.contains_str(word));
            let shows_root = case.call.args.iter().any(|it| it.starts_with(b"--inc"));
            shows_root && case.call.args.iter().any(asks) && case.git.code == case.ours.code
        },
    },
    Rule {
        name: "a listing that ends in an error has printed the lines before it",
        allowed: Allowed::Words,
        applies: |case| {
            let more = case.ours.stdout.starts_with(&case.git.stdout);
            case.git.code == 128 && more && case.git.stderr == case.ours.stderr
        },
    },
    Rule {
        name: "an option is not named twice where it is ambiguous",
        allowed: Allowed::Words,
        applies: |case| case.git.stderr.contains("ambiguous option: no- "),
    },
];

impl Case<'_> {
    fn is(&self, command: &str) -> bool {
        self.call.args[0] == command
    }

    fn migrates(&self) -> bool {
        self.is("refs") && self.has("migrate")
    }

    fn has(&self, arg: &str) -> bool {
        self.call.args.iter().any(|it| it == arg)
    }

    fn same_but_stderr(&self) -> bool {
        (self.git.code, &self.git.stdout) == (self.ours.code, &self.ours.stdout)
    }

    /// Returns whether nothing differs but lines on standard error that `leaves_out` speaks of.
    fn differs_by(&self, leaves_out: impl Fn(&str) -> bool) -> bool {
        let rest = |answer: &Answer| -> Vec<String> {
            let lines = answer.stderr.lines().filter(|line| !leaves_out(line));
            lines.map(str::to_owned).collect()
        };
        self.same_but_stderr() && rest(self.git) == rest(self.ours)
    }
}

/// Returns whether a command ended because of a setting.
fn is_setting(answer: &Answer) -> bool {
    let says = [
        "from command-line config",
        "bad numeric config value",
        "bad boolean config value",
        "invalid mode for object creation",
        "reftable geometric factor cannot exceed",
        "reftable block size cannot exceed",
        "unknown date format",
    ];
    says.iter().any(|it| answer.stderr.contains(it))
}

/// Returns an answer without the warning about `core.preferSymlinkRefs`.
fn without_nomination(answer: &Answer) -> Answer {
    let Some((before, rest)) = answer.stderr.split_once(NOMINATED[0]) else {
        return answer.clone();
    };
    let after = rest.split_once(NOMINATED[1]).map_or("", |it| it.1);
    Answer {
        stderr: format!("{before}{after}"),
        ..answer.clone()
    }
}

/// Returns an answer without what is said of `core.fsync`, which refdb's commands all obey.
fn without_fsync(answer: &Answer) -> Answer {
    let ignoring = "warning: ignoring unknown core.fsync component";
    let lines = answer.stderr.split_inclusive('\n');
    Answer {
        stderr: lines.filter(|line| !line.starts_with(ignoring)).collect(),
        ..answer.clone()
    }
}

/// Returns the rule by which the answers to a call may differ, if there is one.
pub(super) fn find(call: &Call, git: &Answer, ours: &Answer, refs: RefFormat) -> Option<Rule> {
    let [bare, other] = [git, ours].map(without_nomination);
    if bare != *git {
        return match bare == other {
            true => Some(Rule {
                name: "how often it is told to unset core.preferSymlinkRefs",
                allowed: Allowed::Words,
                applies: |_| true,
            }),
            false => find(call, &bare, &other, refs),
        };
    }
    let [bare, other] = [git, ours].map(without_fsync);
    if (&bare, &other) != (git, ours) {
        return match bare == other {
            true => Some(Rule {
                name: "core.fsync is obeyed by every command",
                allowed: Allowed::Words,
                applies: |_| true,
            }),
            false => find(call, &bare, &other, refs),
        };
    }
    let case = Case {
        call,
        git,
        ours,
        is_files: refs == RefFormat::Files,
    };
    RULES.iter().find(|rule| (rule.applies)(&case)).copied()
}

/// Returns whether a call writes refs of another worktree where Git has a way of its own: it makes
/// folders for worktrees that are not there, and in `reftable` stores names that nothing reads.
pub(super) fn writes_elsewhere(call: &Call, repo: &Repo) -> bool {
    let writes = ["update-ref", "symbolic-ref", "reflog"];
    if !writes.iter().any(|it| call.args[0] == *it) {
        return false;
    }
    let is_there = repo.git_dir().join("worktrees/w").is_dir();
    let is_other = |it: &BString| match ref_format(&repo.git_dir()) {
        RefFormat::Files => {
            it.contains_str("worktrees/none/") || !is_there && it.contains_str("worktrees/w/")
        }
        RefFormat::Reftable => it.contains_str("worktrees/") || it.contains_str("main-worktree/"),
    };
    call.args.iter().chain(&call.stdin).any(is_other)
}

/// Returns whether a call shows what is in reflogs, or goes by it.
pub(super) fn reads_logs(call: &Call) -> bool {
    call.args[0] == "reflog" || call.args.iter().any(|it| it.contains_str("@{"))
}
