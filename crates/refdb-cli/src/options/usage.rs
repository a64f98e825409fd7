//! The usage text of a command, made from its table.

use super::{Opt, Spec, Takes};

/// The column in which the explanations begin.
const HELP_COLUMN: usize = 26;

/// Which options a usage text has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Those that the usage text of Git's command has, for `-h`.
    Git,
    /// Those that a person is told of, for `help`: no old names, and all that refdb alone has.
    People,
    /// All of them, for `--help-all`.
    Everything,
}

impl<Id: Copy> Spec<Id> {
    /// Returns the usage text.
    pub(crate) fn usage(&self, of: Of) -> String {
        let mut out = self.synopsis();
        out.push('\n');
        let is_told = |option: &&Opt<Id>| match of {
            Of::Git => !option.hidden,
            Of::People => option.is_for_people(),
            Of::Everything => true,
        };
        for option in self.options.iter().filter(is_told) {
            if option.group {
                out.push('\n');
            }
            line(&mut out, &names(option), option.help);
            if let (true, Some(opposite)) = (option.negatable, option.long.strip_prefix("no-")) {
                let help = format!("opposite of --{}", option.long);
                line(&mut out, &format!("--{opposite}"), &help);
            }
        }
        if !self.options.is_empty() {
            out.push('\n');
        }
        out
    }

    /// Returns the forms of a call, which are the beginning of the usage text.
    pub(crate) fn synopsis(&self) -> String {
        let mut out = String::new();
        for (index, form) in self.forms.iter().enumerate() {
            let lead = if index == 0 { "usage: " } else { "   or: " };
            let lead = format!("{lead}{} {} ", crate::shim::called(), self.name);
            let broken = format!("\n{}", " ".repeat(lead.len()));
            out.push_str(&lead);
            out.push_str(&form.replace('\n', &broken));
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        out
    }
}

fn line(out: &mut String, names: &str, help: &str) {
    let start = out.len();
    out.push_str("    ");
    out.push_str(names);
    if out.len() - start >= HELP_COLUMN {
        out.push('\n');
        out.push_str(&" ".repeat(HELP_COLUMN));
    } else {
        out.push_str(&" ".repeat(HELP_COLUMN - (out.len() - start)));
    }
    out.push_str(help);
    out.push('\n');
}

/// Returns how an option is spelled, with all of its names and its argument.
fn names<Id>(option: &Opt<Id>) -> String {
    let mut names = String::new();
    if let Some(short) = option.short {
        names.push('-');
        names.push(char::from(short));
        if !option.long.is_empty() {
            names.push_str(", ");
        }
    }
    if !option.long.is_empty() {
        names.push_str("--");
        if option.negatable && !option.long.starts_with("no-") {
            names.push_str("[no-]");
        }
        names.push_str(option.long);
    }
    let argument = option.argument;
    match option.takes {
        Takes::Nothing => {}
        Takes::Text | Takes::Number | Takes::LastDefault => {
            names.push_str(&format!(" <{argument}>"));
        }
        Takes::OptionalText | Takes::OptionalNumber if option.long.is_empty() => {
            names.push_str(&format!("[<{argument}>]"));
        }
        Takes::OptionalText | Takes::OptionalNumber if argument.is_empty() => {
            names.push_str("[=...]");
        }
        Takes::OptionalText | Takes::OptionalNumber => names.push_str(&format!("[=<{argument}>]")),
    }
    names
}
