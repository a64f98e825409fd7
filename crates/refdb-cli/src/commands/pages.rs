//! What people read about each command, beside its options: what it is for, examples, exit codes,
//! and where to read on. Help texts and manual pages are made from it.
//!
//! 1. There is one page for each command and each subcommand, with two examples.
//! 2. Forms and options stand in the table of the command alone: a page adds to them.

// Long: it is one table of words.

/// What is said about one command or subcommand.
pub(super) struct Page {
    /// How it is called, such as `refs migrate`.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Calls, without the name of the program, and what each of them does.
    pub(super) examples: [(&'static str, &'static str); 2],
    /// What the exit code says, beside [`EXIT_CODES`].
    pub(super) exit_codes: &'static [(&'static str, &'static str)],
    /// Other pages, by the names of their commands.
    pub(super) see_also: &'static [&'static str],
}

/// What the exit code of every command says.
pub(super) const EXIT_CODES: [(&str, &str); 3] = [
    ("0", "all went well"),
    (
        "128",
        "it could not be done as it was asked; the message says why",
    ),
    ("129", "an option or a word of the call is wrong"),
];

/// The commands as the overview groups them: by what people want to do.
pub(super) const GROUPS: [(&str, &[&str]); 5] = [
    (
        "look at refs and find them",
        &["refs", "for-each-ref", "show-ref", "check-ref-format"],
    ),
    (
        "change refs",
        &["update-ref", "symbolic-ref", "pack-refs", "batch"],
    ),
    ("see where refs have been", &["reflog"]),
    (
        "share refs among machines",
        &[
            "store",
            "probe",
            "watch",
            "sync",
            "follow",
            "serve-hook",
            "receive",
        ],
    ),
    (
        "look inside, measure, set up",
        &[
            "inspect",
            "bench",
            "install-shim",
            "completions",
            "man",
            "version",
        ],
    ),
];

const NO_CODES: &[(&str, &str)] = &[];
/// Those of commands that change refs.
const CHANGES: &[(&str, &str)] = &[("1", "the change was refused, and no ref was changed")];

/// Those of commands that change reflogs: of which kind the failure is depends on the format.
const OF_REFLOGS: &[(&str, &str)] = &[(
    "251-255",
    "a reflog was left as it is; the message says why",
)];

/// Those of commands that make stores compact: which one it is depends on the format.
const OF_PACKING: &[(&str, &str)] = &[(
    "255",
    "in reftable: a lock keeps tables from being merged; nothing was changed",
)];

/// Every page.
pub(super) const PAGES: &[Page] = &[
    Page {
        name: "update-ref",
        summary: "Create, move and delete refs, one or a hundred thousand",
        examples: [
            (
                "update-ref refs/heads/topic 1f2e3d4c",
                "Set a branch, from whatever it was",
            ),
            (
                "update-ref --stdin <commands",
                "All changes of a file, or none of them",
            ),
        ],
        exit_codes: &[("1", "with -d: the ref was not deleted")],
        see_also: &["refs update", "symbolic-ref", "reflog"],
    },
    Page {
        name: "batch",
        summary: "Answer many questions, and change refs, in one process",
        examples: [
            (
                "batch <questions",
                "Answer every line of a file: resolve HEAD, list prefix=refs/tags/, ...",
            ),
            ("batch -z", "Questions and answers end with NUL"),
        ],
        exit_codes: NO_CODES,
        see_also: &["update-ref", "show-ref", "for-each-ref"],
    },
    Page {
        name: "symbolic-ref",
        summary: "Read, set and delete symrefs such as HEAD",
        examples: [
            (
                "symbolic-ref --short HEAD",
                "Print the branch that is checked out",
            ),
            (
                "symbolic-ref HEAD refs/heads/main",
                "Make HEAD lead to another branch",
            ),
        ],
        exit_codes: &[(
            "1",
            "with --quiet: the ref is no symref; with two names: it was not set",
        )],
        see_also: &["update-ref", "refs update"],
    },
    Page {
        name: "show-ref",
        summary: "List refs with their object ids, or check that one exists",
        examples: [
            (
                "show-ref --tags --dereference",
                "Tags, and what they point at",
            ),
            (
                "show-ref --verify refs/heads/main",
                "One ref by its full name",
            ),
        ],
        exit_codes: &[
            (
                "1",
                "no ref was found; with --verify so only beside --quiet, else 128",
            ),
            ("2", "with --exists: there is no such ref"),
        ],
        see_also: &["for-each-ref", "refs exists"],
    },
    Page {
        name: "for-each-ref",
        summary: "List refs in any form and order",
        examples: [
            (
                "for-each-ref --sort=-creatordate --count=5",
                "The five newest refs",
            ),
            (
                "for-each-ref --format='%(refname:short)' refs/heads/",
                "Names of branches",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["refs list", "show-ref"],
    },
    Page {
        name: "pack-refs",
        summary: "Store refs compactly",
        examples: [
            (
                "pack-refs --all",
                "Pack every ref, and take away what it replaces",
            ),
            (
                "pack-refs --all --auto",
                "The same, only where it is worth it",
            ),
        ],
        exit_codes: OF_PACKING,
        see_also: &["refs optimize", "inspect"],
    },
    Page {
        name: "check-ref-format",
        summary: "Tell whether a ref or a branch may have a name",
        examples: [
            (
                "check-ref-format refs/heads/topic",
                "Say nothing; the exit code tells",
            ),
            (
                "check-ref-format --branch @{-1}",
                "Print the branch that was left last",
            ),
        ],
        exit_codes: &[("1", "the name is not one that a ref may have")],
        see_also: &["refs exists"],
    },
    Page {
        name: "inspect",
        summary: "Show what the refs are kept in, and how much of it",
        examples: [
            ("inspect", "Sizes and counts, and what compaction would do"),
            ("inspect --json", "The same for a script"),
        ],
        exit_codes: NO_CODES,
        see_also: &["refs verify", "refs optimize"],
    },
    Page {
        name: "reflog",
        summary: "Show where refs have been, and forget what is too old",
        examples: [
            ("reflog", "Where HEAD has been"),
            (
                "reflog main --date=iso",
                "Where a branch has been, and when",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["refs", "update-ref", "watch"],
    },
    Page {
        name: "reflog show",
        summary: "Show where a ref has been, newest first",
        examples: [
            ("reflog show -5 main", "The last five places of a branch"),
            ("reflog show --json HEAD", "An object for each entry"),
        ],
        exit_codes: NO_CODES,
        see_also: &["reflog list", "reflog exists"],
    },
    Page {
        name: "reflog list",
        summary: "List the refs that have a reflog",
        examples: [
            ("reflog list", "Names, in their order"),
            ("-C other reflog list", "Those of another repository"),
        ],
        exit_codes: &[("255", "it was called with arguments, and takes none")],
        see_also: &["reflog show", "reflog exists"],
    },
    Page {
        name: "reflog exists",
        summary: "Tell whether a ref has a reflog",
        examples: [
            ("reflog exists HEAD", "Say nothing; the exit code tells"),
            (
                "reflog exists refs/heads/main",
                "A branch, by its full name",
            ),
        ],
        exit_codes: &[("1", "the ref has no reflog")],
        see_also: &["reflog list"],
    },
    Page {
        name: "reflog write",
        summary: "Add an entry to a reflog, without changing the ref",
        examples: [
            (
                "reflog write refs/heads/main $(git rev-parse main~ main) mended",
                "Note that a branch moved on by a commit",
            ),
            (
                "reflog write HEAD $(git rev-parse HEAD~ HEAD) mended",
                "The same for HEAD",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["reflog show", "update-ref"],
    },
    Page {
        name: "reflog delete",
        summary: "Take single entries out of a reflog",
        examples: [
            (
                "reflog delete --dry-run --verbose main@{2}",
                "Tell what would be taken out",
            ),
            (
                "reflog delete --rewrite main@{2}",
                "Take it out, and close the gap",
            ),
        ],
        exit_codes: OF_REFLOGS,
        see_also: &["reflog expire", "reflog drop"],
    },
    Page {
        name: "reflog drop",
        summary: "Delete whole reflogs",
        examples: [
            (
                "reflog drop refs/heads/topic",
                "Forget where one branch has been",
            ),
            ("reflog drop --all", "Forget where every ref has been"),
        ],
        exit_codes: OF_REFLOGS,
        see_also: &["reflog delete", "reflog expire"],
    },
    Page {
        name: "reflog expire",
        summary: "Forget what is too old, or leads nowhere any more",
        examples: [
            ("reflog expire --all", "As gc.reflogExpire says"),
            (
                "reflog expire --expire=1.month --dry-run --verbose main",
                "Tell what would go",
            ),
        ],
        exit_codes: OF_REFLOGS,
        see_also: &["reflog delete", "reflog drop"],
    },
    Page {
        name: "bench",
        summary: "Measure refdb and Git side by side",
        examples: [
            (
                "bench --refs=1000 --runs=3",
                "Every workload, on small repositories",
            ),
            (
                "bench --repo . --only list,lookup,update",
                "On a copy of your own refs",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["inspect"],
    },
    Page {
        name: "refs",
        summary: "All about refs under one name: list, create, migrate, ...",
        examples: [
            ("refs list refs/tags/", "List tags"),
            (
                "refs migrate --ref-format=reftable",
                "Move into the other format",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["for-each-ref", "update-ref", "inspect"],
    },
    Page {
        name: "refs migrate",
        summary: "Move all refs and reflogs into the other format, or back",
        examples: [
            ("refs migrate --ref-format=reftable", "Move to reftable"),
            (
                "refs migrate --undo",
                "Move the refs of now back, after --keep",
            ),
        ],
        exit_codes: &[("255", "it was not done; the repository is as it was")],
        see_also: &["refs verify", "refs repair", "inspect"],
    },
    Page {
        name: "refs list",
        summary: "List refs in any form and order",
        examples: [
            (
                "refs list --contains HEAD refs/heads/",
                "Branches that have a commit",
            ),
            (
                "refs list --no-merged main refs/heads/",
                "Branches with work left",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["for-each-ref", "refs exists"],
    },
    Page {
        name: "refs exists",
        summary: "Tell whether a ref exists, whatever it points at",
        examples: [
            (
                "refs exists refs/heads/main",
                "Say nothing; the exit code tells",
            ),
            ("refs exists HEAD", "The same for HEAD"),
        ],
        exit_codes: &[
            ("1", "it could not be looked up"),
            ("2", "there is no such ref"),
        ],
        see_also: &["refs list", "show-ref"],
    },
    Page {
        name: "refs create",
        summary: "Create a ref that does not exist yet",
        examples: [
            (
                "refs create refs/heads/topic HEAD",
                "A branch where HEAD is",
            ),
            (
                "refs create --message=begin refs/heads/topic HEAD",
                "With a reason for the reflog",
            ),
        ],
        exit_codes: CHANGES,
        see_also: &["refs update", "refs delete", "update-ref"],
    },
    Page {
        name: "refs update",
        summary: "Move a ref, from an old value if one is named",
        examples: [
            ("refs update refs/heads/topic HEAD", "Whatever it was"),
            (
                "refs update refs/heads/topic HEAD HEAD~",
                "Only if it was HEAD~",
            ),
        ],
        exit_codes: CHANGES,
        see_also: &["refs create", "refs delete", "update-ref"],
    },
    Page {
        name: "refs delete",
        summary: "Delete a ref and its reflog",
        examples: [
            ("refs delete refs/heads/topic", "Whatever it was"),
            (
                "refs delete refs/heads/topic HEAD",
                "Only if it is where HEAD is",
            ),
        ],
        exit_codes: CHANGES,
        see_also: &["refs create", "update-ref"],
    },
    Page {
        name: "refs rename",
        summary: "Rename a ref, together with its reflog",
        examples: [
            (
                "refs rename refs/heads/old refs/heads/new",
                "Rename a branch",
            ),
            (
                "refs rename --message=tidy refs/tags/v1 refs/tags/v1.0",
                "With a reason for the reflog",
            ),
        ],
        exit_codes: CHANGES,
        see_also: &["refs create", "refs delete"],
    },
    Page {
        name: "refs optimize",
        summary: "Store refs compactly",
        examples: [
            ("refs optimize --auto", "Only where it is worth it"),
            ("refs optimize --all", "Every ref"),
        ],
        exit_codes: OF_PACKING,
        see_also: &["pack-refs", "inspect"],
    },
    Page {
        name: "refs verify",
        summary: "Check what is stored; with --deep every byte and every object",
        examples: [
            ("refs verify", "What Git checks"),
            ("refs verify --deep --json", "All, for a script"),
        ],
        exit_codes: &[
            ("1", "with --deep: there are only warnings"),
            ("2", "with --deep: there is damage"),
            ("255", "without --deep: there is damage"),
        ],
        see_also: &["refs repair", "inspect"],
    },
    Page {
        name: "refs repair",
        summary: "Mend what can be mended without a loss, and tell what cannot",
        examples: [
            ("refs repair --dry-run", "Tell what would be done"),
            ("refs repair --no-dry-run", "Do it"),
        ],
        exit_codes: &[
            (
                "1",
                "with --dry-run: there is something to mend, or to see to by hand; else: something is lost, or there are \
                 warnings still",
            ),
            ("2", "there is damage still"),
        ],
        see_also: &["refs verify", "inspect"],
    },
    Page {
        name: "store",
        summary: "Keep the refs in a place that many machines share",
        examples: [
            ("store init file:///srv/refs", "Make a store in a folder"),
            (
                "store import file:///srv/refs",
                "Take the refs of this repository in",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["probe", "watch", "sync"],
    },
    Page {
        name: "store init",
        summary: "Make a store in an empty place",
        examples: [
            ("store init file:///srv/refs", "In a folder"),
            ("store init --slots=64 file:///srv/refs", "For many writers"),
        ],
        exit_codes: NO_CODES,
        see_also: &["probe", "store import"],
    },
    Page {
        name: "store status",
        summary: "Tell what a store holds, and whether it is frozen",
        examples: [
            ("store status file:///srv/refs", "In words"),
            ("store status --json file:///srv/refs", "For a script"),
        ],
        exit_codes: NO_CODES,
        see_also: &["store verify", "watch"],
    },
    Page {
        name: "store import",
        summary: "Copy the refs of this repository into a store",
        examples: [
            ("store import file:///srv/refs", "From where you are"),
            (
                "-C repo.git store import file:///srv/refs",
                "From another place",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["store init", "store export"],
    },
    Page {
        name: "store export",
        summary: "Copy the refs of a store into this repository",
        examples: [
            ("store export file:///srv/refs", "To where you are"),
            (
                "-C repo.git store export file:///srv/refs",
                "To another place",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["store import"],
    },
    Page {
        name: "store verify",
        summary: "Check every byte of a store",
        examples: [
            ("store verify file:///srv/refs", "The store of that address"),
            ("store verify", "The store of this repository"),
        ],
        exit_codes: &[("255", "there is damage")],
        see_also: &["store status", "refs verify"],
    },
    Page {
        name: "store repair",
        summary: "Rebuild what can be rebuilt of a store",
        examples: [
            ("store repair --dry-run", "Only tell what would be done"),
            (
                "store repair --no-dry-run --head=0.bak file:///srv/refs",
                "With a copy of its head",
            ),
        ],
        exit_codes: &[
            (
                "1",
                "with --dry-run: there is something to do; else: something is lost, or may be",
            ),
            ("255", "there is damage left"),
        ],
        see_also: &["store verify", "refs repair"],
    },
    Page {
        name: "store freeze",
        summary: "Let nobody change a store, until it is thawed",
        examples: [
            (
                "store freeze --reason=backup file:///srv/refs",
                "Refuse changes",
            ),
            ("store freeze --thaw file:///srv/refs", "Take them again"),
        ],
        exit_codes: NO_CODES,
        see_also: &["store status", "store maintain"],
    },
    Page {
        name: "store maintain",
        summary: "Merge tables, and take away what nobody reads any more",
        examples: [
            (
                "store maintain file:///srv/refs",
                "With the usual time of grace",
            ),
            (
                "store maintain --grace=3600 file:///srv/refs",
                "With an hour",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["store status", "store verify"],
    },
    Page {
        name: "probe",
        summary: "Try whether a place can keep a store for many machines",
        examples: [
            ("probe file:///srv/refs", "A folder"),
            ("help store init", "What comes next"),
        ],
        exit_codes: NO_CODES,
        see_also: &["store init"],
    },
    Page {
        name: "watch",
        summary: "Tell what changes in the refs, here or in a shared store",
        examples: [
            (
                "watch --follow",
                "Each change, until stopped; what was told is kept in .git/refdb-watch/",
            ),
            ("watch --follow --json", "For a script"),
        ],
        exit_codes: NO_CODES,
        see_also: &["store status", "reflog show"],
    },
    Page {
        name: "sync",
        summary: "Bring the copy of a store that Git reads up to date",
        examples: [
            (
                "sync",
                "Bring objects, then switch the refs (of refdb.store, or --store before it)",
            ),
            (
                "sync --set-aside",
                "Keep what somebody wrote here elsewhere, and follow again",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["follow", "store import"],
    },
    Page {
        name: "follow",
        summary: "Keep the copy of a store up to date, until it is stopped",
        examples: [
            ("follow", "Look every second, until it is stopped"),
            ("follow --interval=0.1", "Look ten times a second"),
        ],
        exit_codes: NO_CODES,
        see_also: &["sync", "watch"],
    },
    Page {
        name: "receive",
        summary: "Take a push from Git, as its hook proc-receive",
        examples: [
            ("serve-hook install", "Have Git call it"),
            ("help serve-hook", "What else there is"),
        ],
        exit_codes: NO_CODES,
        see_also: &["serve-hook", "sync"],
    },
    Page {
        name: "serve-hook",
        summary: "Let pushes to a copy of a store go to the store",
        examples: [
            ("serve-hook install", "From now on"),
            ("serve-hook uninstall", "No longer"),
        ],
        exit_codes: NO_CODES,
        see_also: &["receive", "follow"],
    },
    Page {
        name: "serve-hook install",
        summary: "Write the hook proc-receive, and set receive.procReceiveRefs",
        examples: [
            ("serve-hook install", "Where you are"),
            (
                "-C repo.git serve-hook install",
                "In another place; again after refdb has moved",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["serve-hook uninstall", "receive"],
    },
    Page {
        name: "serve-hook uninstall",
        summary: "Take back what serve-hook install did",
        examples: [
            ("serve-hook uninstall", "Where you are"),
            ("-C repo.git serve-hook uninstall", "In another place"),
        ],
        exit_codes: NO_CODES,
        see_also: &["serve-hook install"],
    },
    Page {
        name: "install-shim",
        summary: "Put a `git` into a directory that answers for refs itself",
        examples: [
            (
                "install-shim /opt/refdb",
                "Then PATH=/opt/refdb:$PATH, for a shell or a service",
            ),
            (
                "install-shim ~/.local/lib/refdb",
                "For you; call it again after refdb has moved",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["batch", "completions"],
    },
    Page {
        name: "completions",
        summary: "Print completions for a shell: bash, zsh or fish",
        examples: [
            (
                "completions bash >/etc/bash_completion.d/refdb",
                "For everybody, bash",
            ),
            (
                "completions fish >~/.config/fish/completions/refdb.fish",
                "For you, fish",
            ),
        ],
        exit_codes: NO_CODES,
        see_also: &["man"],
    },
    Page {
        name: "man",
        summary: "Print the manual page, or write all pages into a directory",
        examples: [
            ("man | man -l -", "Read the page of the whole"),
            ("man /usr/local/share/man/man1", "Install all pages"),
        ],
        exit_codes: NO_CODES,
        see_also: &["completions"],
    },
    Page {
        name: "version",
        summary: "Print the version of refdb",
        examples: [
            ("version", "As --version does"),
            ("-v", "The same in two letters"),
        ],
        exit_codes: NO_CODES,
        see_also: &["man"],
    },
];

/// Returns the page of a command or subcommand.
pub(super) fn find(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

impl Page {
    /// Returns what the exit code says, in the order of the codes.
    pub(super) fn all_exit_codes(&self) -> impl Iterator<Item = &(&'static str, &'static str)> {
        let (well, badly) = EXIT_CODES.split_at(1);
        let is_high = |code: &&(&str, &str)| code.0.len() > 2;
        let low = self.exit_codes.iter().filter(move |code| !is_high(code));
        let high = self.exit_codes.iter().filter(is_high);
        well.iter().chain(low).chain(badly).chain(high)
    }
}

#[cfg(test)]
mod tests {
    use super::super::COMMANDS;
    use super::*;

    fn names() -> Vec<String> {
        let of = |command: &super::super::Command| {
            let name = command.name;
            let subs = command.subcommands.iter();
            let subs = subs.map(move |sub| format!("{name} {}", sub.name));
            std::iter::once(name.to_owned())
                .chain(subs)
                .collect::<Vec<_>>()
        };
        COMMANDS.iter().flat_map(of).collect()
    }

    #[test]
    fn there_is_one_page_for_each_command() {
        let (mut names, mut pages) = (names(), PAGES.iter().map(|it| it.name).collect::<Vec<_>>());
        names.sort_unstable();
        pages.sort_unstable();
        assert_eq!(names, pages);
    }

    #[test]
    fn pages_lead_to_pages() {
        for page in PAGES {
            assert!(!page.see_also.is_empty(), "{}", page.name);
            for name in page.see_also {
                assert!(
                    find(name).is_some() && *name != page.name,
                    "{}: {name}",
                    page.name
                );
            }
        }
    }

    #[test]
    fn every_command_stands_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let mut commands: Vec<&str> = COMMANDS.iter().map(|it| it.name).collect();
        grouped.sort_unstable();
        commands.sort_unstable();
        assert_eq!(grouped, commands);
    }
}
