//! Scripts: cases made of steps, as plain text.
//!
//! ```text
//! # the title of a case, which begins with the fixture's repository
//! ! args      Git prepares both repositories
//! > path text a file is written into Git's folder, in the format `files` only
//! $ args      Git and the command do the same, each in its repository
//! < text      a line on standard input of the step above
//! <\ text     the same without a line feed, and with \0 \n \r \t
//! = name      what the preparation above printed is {name} from here on
//! ~ reason    the step above is known to differ, in every format
//! ~files x    ... in one format
//! ~state x    what the case leaves behind is known to differ
//! ~state-files x  ... in one format
//! ```

/// A case: steps in one pair of repositories.
pub(crate) struct Case {
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
    /// Where what the case leaves behind is known to differ.
    pub(crate) state_differs: Vec<String>,
}

/// One command line.
pub(crate) struct Step {
    pub(crate) args: String,
    pub(crate) stdin: String,
    /// Whether Git alone does it, in both repositories.
    pub(crate) prepares: bool,
    /// Whether this is no command, but a file to be written: its path and what it holds.
    pub(crate) writes: bool,
    /// Where the answers are known to differ: the format, or everywhere if it is empty.
    pub(crate) differs: Vec<String>,
    /// The name that its output has from then on.
    pub(crate) names: Option<String>,
}

/// Reads cases.
///
/// # Panics
///
/// If a line is none of the known ones.
pub(crate) fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            cases.push(Case {
                title: title.to_owned(),
                steps: Vec::new(),
                state_differs: Vec::new(),
            });
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let case = cases.last_mut().expect("a title comes first");
        if let Some(reason) = line.strip_prefix("~state") {
            let format = reason.split_once(' ').expect("a reason").0;
            case.state_differs
                .push(format.trim_start_matches('-').to_owned());
            continue;
        }
        let steps = &mut case.steps;
        let (mark, rest) = line.split_at(1);
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        if matches!(mark, "!" | "$" | ">") {
            steps.push(Step {
                args: rest.to_owned(),
                stdin: String::new(),
                prepares: mark == "!",
                writes: mark == ">",
                differs: Vec::new(),
                names: None,
            });
            continue;
        }
        let step = steps.last_mut().expect("a step comes first");
        match mark {
            "<" => match rest.strip_prefix("\\ ") {
                Some(raw) => step.stdin.push_str(&unescape(raw)),
                None => step.stdin.push_str(&format!("{rest}\n")),
            },
            "=" => step.names = Some(rest.to_owned()),
            "~" => {
                let format = match line.as_bytes().get(1) {
                    Some(b' ') => "",
                    _ => rest.split_once(' ').expect("a format and a reason").0,
                };
                step.differs.push(format.to_owned());
            }
            _ => panic!("no line of a script: {line}"),
        }
    }
    cases
}

pub(crate) fn unescape(text: &str) -> String {
    text.replace("\\0", "\0")
        .replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\r", "\r")
}

/// Splits a command line at spaces; single quotes keep them.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
