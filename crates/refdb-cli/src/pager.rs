//! The pager: a program that shows page by page what a command prints, where somebody looks.
//!
//! Standard output, and standard error if that is a terminal as well, lead into the pager from the
//! moment when it is started. It is waited for when all has been said.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use bstr::ByteSlice;
use refdb_git::repository::config::values::boolean;

use crate::context::Context;
use crate::failure::{Failure, Result, say};
use crate::output::Output;
use crate::programs::SHELL_CHARACTERS;

/// What a pager is told by its variable where the environment does not say it: to show colours as
/// they are, and not to wait where everything fits on the screen.
const ENVIRONMENT: [(&str, &str); 2] = [("LESS", "FRX"), ("LV", "-c")];

/// The pager that was started.
static RUNNING: Mutex<Option<Child>> = Mutex::new(None);

/// What is said about the pager of a command: by options before the command word, or else by
/// `pager.<command>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paging {
    /// Whether there is to be one; `None` where nothing is said.
    pub(crate) wanted: Option<bool>,
    /// The program, if one is named.
    pub(crate) program: Option<Vec<u8>>,
}

impl Paging {
    /// Returns the option before the command word that says whether there is to be a pager.
    pub(crate) fn option(wanted: Option<bool>) -> Option<&'static str> {
        wanted.map(|wanted| if wanted { "--paginate" } else { "--no-pager" })
    }

    /// Finds what is said about the pager of `command`.
    ///
    /// # Errors
    /// As for [`Context::repository`].
    pub(crate) fn of(context: &Context, command: &str) -> Result<Paging> {
        if context.globals().pager.is_some() {
            return Ok(Paging {
                wanted: context.globals().pager,
                program: None,
            });
        }
        let config = context.repository()?.config();
        let key = format!("pager.{command}");
        if config.get(&key).is_none() {
            return Ok(Paging::default());
        }
        Ok(match config.boolean(&key) {
            Ok(wanted) => Paging {
                wanted,
                program: None,
            },
            // What is no word for yes or no is the program.
            Err(_) => Paging {
                wanted: Some(true),
                program: config.string(&key).map(|program| program.to_vec()),
            },
        })
    }

    /// Starts the pager, if standard output is a terminal.
    ///
    /// # Errors
    /// If `core.pager` has no value, or the pager cannot be started.
    pub(crate) fn start(&self, context: &Context, out: &mut Output) -> Result<()> {
        if !std::io::stdout().is_terminal() {
            return Ok(());
        }
        let variable = |name: &str| std::env::var_os(name).map(|value| value.as_bytes().to_vec());
        let configured = || -> Result<Option<Vec<u8>>> {
            if self.program.is_some() {
                return Ok(self.program.clone());
            }
            let Some(repository) = context.repository_if_any()? else {
                return Ok(None);
            };
            let text = repository.config().text_of_line("core.pager")?;
            Ok(text.map(|text| text.to_vec()))
        };
        let program = match variable("GIT_PAGER") {
            Some(program) => Some(program),
            None => configured()?,
        };
        let program = program.or_else(|| variable("PAGER"));
        let program = program.unwrap_or_else(|| b"less".to_vec());
        if program.is_empty() || program == b"cat" {
            return Ok(());
        }
        out.flush()?;
        let mut child = spawn(&program).map_err(|error| {
            let why = refdb::error::io_text(&error);
            let program = program.as_bstr();
            say("error", format!("cannot run {program}: {why}").as_bytes());
            Failure::fatal(format!("unable to execute pager '{program}'"))
        })?;
        if let Some(pipe) = child.stdin.take() {
            let too = std::io::stderr().is_terminal();
            let redirected = rustix::stdio::dup2_stdout(&pipe);
            if redirected.is_ok() && too {
                // Messages stay on the terminal if they cannot go into the pager.
                let _ = rustix::stdio::dup2_stderr(&pipe);
            }
        }
        if let Ok(mut running) = RUNNING.lock() {
            *running = Some(child);
        }
        Ok(())
    }
}

fn spawn(program: &[u8]) -> std::io::Result<Child> {
    let name = OsStr::from_bytes(program);
    let mut command = match program.find_byteset(SHELL_CHARACTERS) {
        Some(_) => {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(name);
            command
        }
        None => Command::new(name),
    };
    for (name, value) in ENVIRONMENT {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    crate::trace::pass_on(&mut command);
    command.stdin(Stdio::piped()).spawn()
}

/// Returns whether this process started a pager, and has to wait for it.
pub(crate) fn is_running() -> bool {
    RUNNING.lock().is_ok_and(|running| running.is_some())
}

/// Returns whether a pager was started, by this process or by the one that started it.
fn is_in_use() -> bool {
    is_running() || inherited()
}

/// Returns whether the environment says that a pager reads what is printed.
fn inherited() -> bool {
    let said = std::env::var_os("GIT_PAGER_IN_USE");
    said.is_some_and(|said| boolean(Some(said.as_bytes())).unwrap_or(true))
}

/// Returns whether somebody looks at what is printed, page by page or as it comes.
pub(crate) fn somebody_looks() -> bool {
    std::io::stdout().is_terminal() || is_in_use()
}

/// Returns whether the user wants no colours where nothing else asks for them (`NO_COLOR`).
pub(crate) fn wants_no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|said| !said.is_empty())
}

/// Returns whether what is printed may have colours of its own accord.
///
/// # Errors
/// As for [`Context::repository`].
pub(crate) fn may_color(context: &Context) -> Result<bool> {
    let repository = context.repository()?;
    if wants_no_color() {
        return Ok(false);
    }
    if !std::io::stdout().is_terminal() {
        let is_painted = repository.config().boolean("color.pager")?.unwrap_or(true);
        if !is_in_use() || !is_painted {
            return Ok(false);
        }
    }
    let terminal = repository.environment().bytes("TERM");
    Ok(terminal.is_some_and(|terminal| terminal != "dumb"))
}

/// Lets the pager know that nothing more comes, and waits until it has shown everything.
pub(crate) fn finish() {
    let child = RUNNING.lock().ok().and_then(|mut running| running.take());
    let Some(mut child) = child else { return };
    // The pager waits for the end of its input, which comes when nothing leads into the pipe any
    // more. Nothing is printed from here on, so that any other file will do.
    let elsewhere = std::io::stdin();
    let _ = rustix::stdio::dup2_stdout(&elsewhere);
    let _ = rustix::stdio::dup2_stderr(&elsewhere);
    let _ = child.wait();
}
