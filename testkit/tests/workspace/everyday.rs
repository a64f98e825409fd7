//! docs/everyday.md shows the tasks of `examples` as they are compiled. `REFDB_WRITE=1` writes it anew.

use std::fmt::Write;
use std::fs;

use refdb_testkit::oracle::workspace_root;

const PAGE: &str = "docs/everyday.md";
const MODULES: [(&str, &str); 3] = [
    ("refdb", "refdb_tasks"),
    ("gix-ref", "gix_ref_tasks"),
    ("git2", "git2_tasks"),
];
/// What stands above the first task.
const END: &str = "<!-- written from examples/src by the tests of testkit -->\n";

/// A task: its name, what it is, and its function.
struct Task {
    name: String,
    what: String,
    code: String,
}

/// Returns the tasks of a module: its public functions that say what they are for.
fn tasks(module: &str) -> Vec<Task> {
    let path = workspace_root().join(format!("examples/src/{module}.rs"));
    let text = fs::read_to_string(path).expect("a module of the examples");
    let functions = text.split("\n/// ").skip(1);
    let functions = functions.filter_map(|part| {
        let (what, rest) = part.split_once('\n')?;
        let code = rest
            .split_once("\n}\n")
            .map(|(code, _)| format!("{code}\n}}\n"))?;
        let name = code.strip_prefix("pub fn ")?.split_once('(')?.0.to_owned();
        let what = what.to_owned();
        Some(Task { name, what, code })
    });
    functions.collect()
}

#[test]
fn the_page_shows_what_is_compiled() {
    let [first, others @ ..] = MODULES.map(|(library, module)| (library, tasks(module)));
    // The one that is no task is how each opens a repository.
    assert_eq!(first.1.len(), 11, "ten tasks");
    let mut shown = String::new();
    for (at, task) in first.1.iter().enumerate() {
        let _ = write!(shown, "\n## {}\n", task.what.trim_end_matches('.'));
        for (library, tasks) in [&first].into_iter().chain(&others) {
            let other = &tasks[at];
            assert_eq!(other.name, task.name, "{library}");
            let but = match other.what == task.what {
                true => String::new(),
                false => format!(": {}", other.what.trim_end_matches('.')),
            };
            let _ = write!(
                shown,
                "\n**{library}**{but}\n\n```rust,ignore\n{}```\n",
                other.code
            );
        }
    }
    let path = workspace_root().join(PAGE);
    let page = fs::read_to_string(&path).expect("there is a page");
    let (above, _) = page
        .split_once(END)
        .expect("the page has a place for the tasks");
    let wanted = format!("{above}{END}{shown}");
    if std::env::var_os("REFDB_WRITE").is_some() {
        fs::write(&path, &wanted).expect("the page can be written");
        return;
    }
    assert!(
        page == wanted,
        "{PAGE} shows something else: REFDB_WRITE=1 cargo test -p refdb-testkit --test workspace everyday"
    );
}
