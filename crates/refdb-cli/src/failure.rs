//! How a command ends when it does not succeed: what is said, and the exit code.
//!
//! Words and codes are those of Git's commands, so that a script can take one for the other:
//! `fatal:` with 128, usage with 129, and the rest as the command decides.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use bstr::ByteSlice;
use refdb::ErrorKind;

use crate::interrupt;

/// The result of a command or a part of one.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It cannot go on: exit code 128.
    Fatal(Vec<u8>),
    /// It cannot go on: exit code 128. People are told what they can do.
    Advised {
        /// Why it cannot go on.
        message: Vec<u8>,
        /// What can be done; shown to people only, so that scripts read what Git says.
        hint: String,
    },
    /// It cannot go on, since the refs are in another format by now: exit code 128.
    Moved(Vec<u8>),
    /// It failed, with the exit code of its kind.
    Error {
        /// What went wrong.
        message: Vec<u8>,
        /// The exit code.
        code: u8,
    },
    /// It was called in a wrong way, or asked for its usage text: exit code 129.
    Usage {
        /// What is wrong with the call.
        error: Option<String>,
        /// What was probably meant; shown to people only.
        hint: Option<String>,
        /// The usage text.
        text: String,
        /// Whether the text goes to standard output.
        on_stdout: bool,
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
    pub(crate) fn fatal(message: impl Into<Vec<u8>>) -> Self {
        Failure::Fatal(message.into())
    }

    /// Makes a failure with an exit code.
    pub(crate) fn error(message: impl Into<Vec<u8>>, code: u8) -> Self {
        Failure::Error {
            message: message.into(),
            code,
        }
    }

    /// Says what is to be said, and returns the exit code.
    pub(crate) fn report(self) -> u8 {
        if interrupt::is_ending() {
            // Whoever sent the signal knows why.
            return 1;
        }
        match self {
            Failure::Fatal(message) => {
                let (what, place) = split_place(&message);
                if let Some(what) = what {
                    say("error", what);
                }
                say("fatal", place);
                128
            }
            Failure::Moved(message) => {
                say("fatal", &message);
                128
            }
            Failure::Advised { message, hint } => {
                say("fatal", &message);
                if std::io::stderr().is_terminal() {
                    say("hint", hint.as_bytes());
                }
                128
            }
            Failure::Error { message, code } => {
                say("error", &message);
                code
            }
            Failure::Usage {
                error,
                hint,
                text,
                on_stdout,
            } => {
                if let Some(error) = error {
                    say("error", error.as_bytes());
                }
                if let (Some(hint), true) = (hint, std::io::stderr().is_terminal()) {
                    say("hint", hint.as_bytes());
                }
                // Whoever closed the stream does not want to read it.
                let _ = if on_stdout {
                    std::io::stdout().write_all(text.as_bytes())
                } else {
                    std::io::stderr().write_all(text.as_bytes())
                };
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
    /// Makes the failure of a transaction that `otherwise` speaks of, unless a hook or a setting
    /// ended it: then the command ends at once, whichever it is.
    pub(crate) fn of_transaction(
        error: refdb::Error,
        otherwise: impl FnOnce(&refdb::Error) -> Failure,
    ) -> Self {
        if matches!(error.kind(), ErrorKind::Hook | ErrorKind::Config) || is_packed(&error) {
            return Failure::from(error);
        }
        otherwise(&error)
    }
}

impl From<refdb::Error> for Failure {
    fn from(error: refdb::Error) -> Self {
        if error.kind() == ErrorKind::Moved {
            return Failure::Moved(error.to_string().into_bytes());
        }
        let (words, aside) = error.parts();
        match aside.trim_start_matches([';', ' ']) {
            "" => Failure::fatal(words),
            hint => Failure::Advised {
                message: words.into(),
                hint: hint.to_owned(),
            },
        }
    }
}

/// Splits the message about a value of the configuration into what is wrong and where it stands,
/// which Git tells apart.
fn split_place(message: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match message.rsplit_once_str("\n") {
        Some((what, place))
            if [
                "bad config ",
                "unable to parse '",
                "unable to parse command-line config",
            ]
            .iter()
            .any(|start| place.starts_with(start.as_bytes())) =>
        {
            (Some(what), place)
        }
        _ => (None, message),
    }
}

/// Returns whether an error is that packed-refs cannot be read, which ends every command of Git.
pub(crate) fn is_packed(error: &refdb::Error) -> bool {
    let text = error.to_string();
    let starts = ["unexpected line in ", "unterminated line in "];
    error.kind() == ErrorKind::Corrupt && starts.iter().any(|it| text.starts_with(it))
}

/// Writes `text` to standard error as it is.
pub(crate) fn complain(text: &str) {
    // Where standard error is closed there is nobody to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The repository's folder and how it is shown, once there is one.
static FOLDER: OnceLock<[Vec<u8>; 2]> = OnceLock::new();

/// Messages in which Git shows a path as it is seen from the top, and which do not end the command
/// by themselves; those that do are seen to where it ends.
const SEEN_FROM_TOP: [&str; 7] = [
    "there are still logs under '",
    "there is a non-empty directory '",
    "unable to append to '",
    "unable to create directory for '",
    "unable to create directory for ",
    "unable to create lock file ",
    "unable to unlink '",
];

/// Sets how messages show the repository's folder where Git does not show its whole path.
pub(crate) fn show_folder(path: Vec<u8>, shown: Vec<u8>) {
    // The first repository is the one that the command is about.
    let _ = FOLDER.set([path, shown]);
}

/// Replaces the whole path of the repository's folder in messages where Git does not show it.
fn seen_from_top(message: &[u8]) -> Vec<u8> {
    let Some([path, shown]) = FOLDER.get() else {
        return message.to_vec();
    };
    let found = SEEN_FROM_TOP.iter().find_map(|before| {
        let start = message.find(before)? + before.len();
        let (before, rest) = message.split_at(start);
        let inner = rest.strip_prefix(path.as_slice())?;
        Some([before, shown, inner].concat())
    });
    found.unwrap_or_else(|| message.to_vec())
}

/// Writes a line to standard error, with a word before it that says how bad it is.
///
/// Control characters are replaced, so that a name cannot paint the terminal.
pub(crate) fn say(severity: &str, message: &[u8]) {
    let mut line = format!("{severity}: ").into_bytes();
    line.extend(seen_from_top(message).iter().map(|&byte| match byte {
        b'\t' | b'\n' => byte,
        byte if byte.is_ascii_control() => b'?',
        byte => byte,
    }));
    line.push(b'\n');
    // Where standard error is closed there is nobody to tell.
    let _ = std::io::stderr().write_all(&line);
}
