//! How a command ends when it does not succeed: what is said, and the exit code.
//!
//! Words and codes are those of Git's commands, so that a script can take one for the other:
//! `fatal:` with 128, usage with 129, and the rest as the command decides.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use bstr::ByteSlice;
use refdb::ErrorKind;
use refdb::error::{Message, Remedy, Role};

use crate::{interrupt, progress, trace};

/// The result of a command or a part of one.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It cannot go on: exit code 128.
    Fatal(Words),
    /// The configuration makes no sense: exit code 128.
    Misconfigured {
        /// What is wrong.
        cause: Words,
        /// Where it stands.
        place: Words,
    },
    /// It cannot go on: exit code 128. People are told what they can do.
    Advised {
        /// Why it cannot go on.
        message: Words,
        /// What can be done; shown to people only, so that scripts read what Git says.
        hint: String,
    },
    /// It cannot go on, since the refs are in another format by now: exit code 128.
    Moved(Words),
    /// It failed, with the exit code of its kind.
    Error {
        /// What went wrong.
        message: Words,
        /// The exit code.
        code: u8,
    },
    /// It was called in a wrong way: exit code 129. Or asked for its usage text: exit code 0.
    Usage {
        /// What is wrong with the call.
        error: Option<String>,
        /// What was probably meant; shown to people only.
        hint: Option<String>,
        /// The usage text.
        text: String,
        /// Whether the text is what was asked for, and goes to standard output.
        is_answer: bool,
    },
    /// It was asked something else than its work, and this is the answer: exit code 0.
    Answered(String),
    /// Everything has been said.
    Exit(u8),
    /// Nobody reads standard output any more.
    OutputClosed,
}

impl Failure {
    /// Makes the failure of something that ends the command.
    pub(crate) fn fatal(message: impl Into<Words>) -> Self {
        Failure::Fatal(message.into())
    }

    /// Makes a failure with an exit code.
    pub(crate) fn error(message: impl Into<Words>, code: u8) -> Self {
        Failure::Error {
            message: message.into(),
            code,
        }
    }

    /// Says what went wrong, and to people what they can do; returns what is left of the failure.
    pub(crate) fn advised(self, hint: String) -> Self {
        let code = self.report();
        if std::io::stderr().is_terminal() {
            say("hint", hint.as_bytes());
        }
        Failure::Exit(code)
    }

    /// Says what is to be said, and returns the exit code.
    pub(crate) fn report(self) -> u8 {
        if interrupt::is_ending() {
            // Whoever sent the signal knows why.
            return 1;
        }
        match self {
            Failure::Fatal(message) | Failure::Moved(message) => {
                say("fatal", &message.text);
                128
            }
            Failure::Misconfigured { cause, place } => {
                say("error", &cause.text);
                say("fatal", &place.text);
                128
            }
            Failure::Advised { message, hint } => {
                say("fatal", &message.text);
                if std::io::stderr().is_terminal() {
                    say("hint", hint.as_bytes());
                }
                128
            }
            Failure::Error { message, code } => {
                say("error", &message.text);
                code
            }
            Failure::Usage {
                error,
                hint,
                text,
                is_answer,
            } => {
                if let Some(error) = error {
                    say("error", error.as_bytes());
                }
                if let (Some(hint), true) = (hint, std::io::stderr().is_terminal()) {
                    say("hint", hint.as_bytes());
                }
                // Whoever closed the stream does not want to read it.
                if is_answer {
                    let _ = std::io::stdout().write_all(text.as_bytes());
                    return 0;
                }
                complain(&text);
                129
            }
            Failure::Answered(text) => {
                // Whoever closed the stream does not want to read it.
                let _ = std::io::stdout().write_all(text.as_bytes());
                0
            }
            Failure::Exit(code) => code,
            // What a shell reports of a program that the closed pipe has ended.
            Failure::OutputClosed => 141,
        }
    }
}

impl Failure {
    /// Makes the fatal failure that shows scripts all of an error.
    pub(crate) fn whole(error: &refdb::Error) -> Self {
        match error.cause() {
            Some(cause) => Failure::Misconfigured {
                cause: cause.into(),
                place: Words::of(error.message()),
            },
            None => Failure::Fatal(Words::from(error)),
        }
    }

    /// Makes the failure of a transaction that `otherwise` speaks of, unless a hook or a setting
    /// ended it: then the command ends at once, whichever it is.
    pub(crate) fn of_transaction(
        error: refdb::Error,
        otherwise: impl FnOnce(&refdb::Error) -> Failure,
    ) -> Self {
        if ends_all(&error) {
            return Failure::from(error);
        }
        otherwise(&error)
    }
}

impl From<refdb::InvalidName> for Failure {
    fn from(error: refdb::InvalidName) -> Self {
        refdb::Error::from(error).into()
    }
}

impl From<refdb::Error> for Failure {
    fn from(error: refdb::Error) -> Self {
        let hint = match error.kind() {
            ErrorKind::Moved => return Failure::Moved(Words::from(&error)),
            ErrorKind::PackedRefs => match error.line() {
                Some(line) => format!("(line {line}); {MENDING}"),
                None => MENDING.to_owned(),
            },
            _ => return Failure::whole(&error),
        };
        Failure::Advised {
            message: Words::of(error.message()),
            hint,
        }
    }
}

/// Returns whether an error ends every command of Git at once: a hook or a setting that says so, or
/// packed-refs that cannot be read.
pub(crate) fn ends_all(error: &refdb::Error) -> bool {
    use ErrorKind::{Config, Date, Hook, PackedRefs};
    matches!(error.kind(), Config | Date | Hook | PackedRefs)
        || error.message().role() == Role::PackedRefs
}

/// What is said of a failure.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// The text, with whole paths.
    pub(crate) text: Vec<u8>,
    /// Whether the paths are to stay whole, since people may have to go there.
    pub(crate) are_whole: bool,
}

impl Words {
    /// Returns the text of a message without what can be done.
    fn of(message: &Message) -> Self {
        Words {
            text: message.as_bytes().to_vec(),
            are_whole: message.role() == Role::InTheWay,
        }
    }

    /// Puts other words before these.
    pub(crate) fn after(mut self, words: impl AsRef<[u8]>) -> Self {
        self.text.splice(..0, words.as_ref().iter().copied());
        self
    }
}

impl From<Vec<u8>> for Words {
    fn from(text: Vec<u8>) -> Self {
        Words {
            text,
            are_whole: false,
        }
    }
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Words::from(text.into_bytes())
    }
}

impl From<&str> for Words {
    fn from(text: &str) -> Self {
        Words::from(text.as_bytes().to_vec())
    }
}

impl From<&refdb::Error> for Words {
    /// The whole of it: what went wrong, and what can be done.
    fn from(error: &refdb::Error) -> Self {
        let text = format!("{error}{}", way_out(error.message()));
        Words {
            text: text.into_bytes(),
            ..Words::of(error.message())
        }
    }
}

/// What can be done about damage.
const MENDING: &str = "'refdb refs verify --deep' tells all, 'refdb refs repair' mends what can be";

/// The same where they are in a store that machines share.
const MENDING_STORE: &str =
    "'refdb store verify' tells all, 'refdb store repair' mends what can be";

/// Returns a message with what can be done.
pub(crate) fn full_text(message: &Message) -> String {
    format!("{message}{}", way_out(message))
}

/// Returns what can be done, as it stands behind a message.
fn way_out(message: &Message) -> String {
    match message.remedy() {
        Some(Remedy::Repair) => format!("; {MENDING}"),
        Some(Remedy::RepairStore) => format!("; {MENDING_STORE}"),
        Some(Remedy::RemoveLocks) => ": if it does not, 'refdb refs repair --remove-locks' \
                                      finishes what it began"
            .to_owned(),
        Some(Remedy::GiveUp) => {
            "; remove what is in the way, or let 'refdb refs repair --give-up' do \
                                 what can be done and tell the rest"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// Writes `text` to standard error as it is.
pub(crate) fn complain(text: &str) {
    // Where standard error is closed there is nobody to tell.
    progress::aside(|| drop(std::io::stderr().write_all(text.as_bytes())));
}

/// The repository's folder and how it is shown, once there is one.
static FOLDER: OnceLock<[Vec<u8>; 2]> = OnceLock::new();

/// Sets how messages show the repository's folder where Git does not show its whole path.
pub(crate) fn show_folder(path: Vec<u8>, shown: Vec<u8>) {
    // The first repository is the one that the command is about.
    let _ = FOLDER.set([path, shown]);
}

/// Says a message of the library, after which the command goes on.
pub(crate) fn say_message(severity: &str, message: &Message) {
    say(severity, &shown(message));
}

/// Returns how a message of the library is shown where the command goes on.
pub(crate) fn shown(message: &Message) -> Vec<u8> {
    seen_from_top(full_text(message).into_bytes(), message)
}

/// Says an error of the library, after which the command goes on.
pub(crate) fn say_error(severity: &str, error: &refdb::Error) {
    let text = Words::from(error).text;
    say(severity, &seen_from_top(text, error.message()));
}

/// Shows the place of a ref or a reflog as it is seen from the top, as Git does.
fn seen_from_top(text: Vec<u8>, message: &Message) -> Vec<u8> {
    let (Some([folder, shown]), Some(path)) = (FOLDER.get(), message.path()) else {
        return text;
    };
    let whole = path.display().to_string();
    match whole.as_bytes().strip_prefix(folder.as_slice()) {
        Some(inner) if message.role() == Role::Place => {
            text.replacen(&whole, [shown.as_slice(), inner].concat(), 1)
        }
        _ => text,
    }
}

/// Writes a line to standard error, with a word before it that says how bad it is.
///
/// Control characters are replaced, so that a name cannot paint the terminal.
pub(crate) fn say(severity: &str, message: &[u8]) {
    if severity != "hint" {
        trace::message(message);
    }
    let mut line = format!("{severity}: ").into_bytes();
    line.extend(message.iter().map(|&byte| match byte {
        b'\t' | b'\n' => byte,
        byte if byte.is_ascii_control() => b'?',
        byte => byte,
    }));
    line.push(b'\n');
    // Where standard error is closed there is nobody to tell.
    progress::aside(|| drop(std::io::stderr().write_all(&line)));
}
