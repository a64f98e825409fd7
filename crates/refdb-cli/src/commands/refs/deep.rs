//! `refdb refs verify --deep`: every byte, as text or as JSON.

use refdb_git::Repository;
use refdb_maintenance::verify::{Advice, Damage, Severity, deep_watched};
use serde_json::json;

use super::verify::shown;
use crate::failure::{Failure, Result, complain};
use crate::output::Output;
use crate::progress::{self, Meter};

/// The exit code when there is nothing worse than warnings.
const WARNINGS: u8 = 1;
/// The exit code when there is damage.
const DAMAGE: u8 = 2;

/// What the check does first, as the library calls it.
pub(super) const READING: &str = "Reading refs";

/// How the check is asked for.
#[derive(Default)]
pub(super) struct Wishes {
    /// An object for each finding.
    pub(super) json: bool,
    /// Warnings count as errors.
    pub(super) strict: bool,
    /// What was looked at is told.
    pub(super) verbose: bool,
    /// Whether it is shown how far it is.
    pub(super) progress: Option<bool>,
}

/// Runs the check. The exit code is 0 for a clean repository, 1 for warnings, 2 for damage.
pub(super) fn run(repository: &Repository, out: &mut Output, wishes: &Wishes) -> Result<()> {
    let json = wishes.json;
    let (mut worst, mut written) = (None, Ok(()));
    let mut tell = |damage: &Damage| {
        worst = worst.max(Some(damage.severity));
        if written.is_ok() {
            let line = match json {
                true => as_json(repository, damage),
                false => as_text(repository, damage),
            };
            written = out.put(line);
        }
    };
    let counts = {
        let count = progress::refs_of(repository.store());
        let meter = Meter::counted(wishes.progress, READING, count);
        deep_watched(repository, &mut tell, &|far| meter.show(far))?
    };
    written?;
    if wishes.verbose {
        complain(&format!(
            "Checked {} refs, {} reflog entries, {} tables\n",
            counts.refs, counts.log_entries, counts.tables
        ));
    }
    match worst {
        None => Ok(()),
        Some(Severity::Warning) if !wishes.strict => Err(Failure::Exit(WARNINGS)),
        Some(_) => Err(Failure::Exit(DAMAGE)),
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn as_text(repository: &Repository, damage: &Damage) -> String {
    let file = shown(repository, &damage.file);
    let file = file.display();
    let place = damage
        .offset
        .map_or(String::new(), |at| format!(" at {at}"));
    let (severity, what) = (word(damage.severity), &damage.what);
    let repair = damage.repair.describe();
    let advice = damage.advice.as_ref();
    let advice = advice.map_or(String::new(), |it| format!(": {}", advised(it)));
    let text = format!("{severity}: {file}{place}: {what}; a repair {repair}{advice}");
    // A name must not paint the terminal.
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).chain(['\n']).collect()
}

/// Returns what a person can do, with the commands for it.
pub(super) fn advised(advice: &Advice) -> String {
    match advice {
        Advice::DeleteOneOf([child, parent]) => format!(
            "delete the one that is not wanted, 'refdb update-ref --no-deref -d {child}' or \
             'refdb update-ref --no-deref -d {parent}', after its value was given to another name if \
             it is"
        ),
        Advice::PointElsewhere(name) => {
            let point =
                format!("point it to a ref, 'refdb symbolic-ref {name} refs/heads/<branch>'");
            // Without it there is no repository, or no worktree.
            if name == "HEAD" || name.ends_with(b"/HEAD") && name.starts_with(b"worktrees/") {
                return point;
            }
            format!("{point}, or delete it, 'refdb symbolic-ref --delete {name}'")
        }
        Advice::PutBack(words) => words.clone(),
        _ => "see what it is".to_owned(),
    }
}

fn as_json(repository: &Repository, damage: &Damage) -> String {
    let object = json!({
        "severity": word(damage.severity),
        "file": shown(repository, &damage.file).to_string_lossy(),
        "offset": damage.offset,
        "ref": damage.name.as_ref().map(|name| name.to_string()),
        "meaning": damage.what,
        "repair": damage.repair.name(),
        "repair_meaning": damage.repair.describe(),
        "advice": damage.advice.as_ref().map(advised),
    });
    format!("{object}\n")
}
