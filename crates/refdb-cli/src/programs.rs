//! Running programs: the hooks of a repository.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use bstr::ByteSlice;
use refdb::error::Message;
use refdb_git::repository::{Ending, Notice, Program, Programs};

use crate::failure::{say, shown};
use crate::{interrupt, platform, trace};

/// What makes a command one for a shell.
pub(crate) const SHELL_CHARACTERS: &[u8] = b"|&;<>()$`\\\"' \t\n*?[#~=%";

/// The error of a file that is executable and in no format that the system knows: a script without
/// a first line that names its interpreter.
const NO_EXECUTABLE_FORMAT: i32 = 8;

/// Runs programs as processes of the operating system.
#[derive(Debug)]
pub(crate) struct Processes;

impl Programs for Processes {
    fn run(&self, program: &Program, input: &[u8]) -> Ending {
        let mut child = match start(program) {
            Ok(child) => child,
            Err(error) => {
                say_not_started(program, &error);
                return Ending::NotStarted;
            }
        };
        if let Some(mut pipe) = child.stdin.take() {
            // A hook that reads nothing, or not everything, is as good as any.
            let _ = pipe.write_all(input);
        }
        match platform::wait(&mut child) {
            Ok(status) => {
                say_signal(program, status);
                if status.success() {
                    Ending::Well
                } else {
                    Ending::Badly
                }
            }
            Err(_) if interrupt::is_ending() => Ending::Badly,
            Err(error) => {
                let message = format!("waitpid for {} failed: {error}", program.command);
                say("error", message.as_bytes());
                Ending::Badly
            }
        }
    }

    fn tell(&self, notice: Notice, message: &Message) {
        let severity = match notice {
            Notice::Hint => "hint",
            Notice::Warning => "warning",
        };
        for line in shown(message).lines() {
            say(severity, line);
        }
    }
}

fn start(program: &Program) -> io::Result<Child> {
    let file = OsStr::from_bytes(&program.command);
    if program.for_shell && program.command.find_byteset(SHELL_CHARACTERS).is_some() {
        let mut script = program.command.clone();
        script.extend_from_slice(b" \"$@\"");
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(OsStr::from_bytes(&script)).arg(file);
        return spawn(command, program);
    }
    match spawn(Command::new(file), program) {
        Err(error) if error.raw_os_error() == Some(NO_EXECUTABLE_FORMAT) => {
            let mut command = Command::new("/bin/sh");
            command.arg(file);
            spawn(command, program)
        }
        started => started,
    }
}

fn spawn(mut command: Command, program: &Program) -> io::Result<Child> {
    command
        .args(program.args.iter().map(|arg| OsStr::from_bytes(arg)))
        .envs(
            program
                .environment
                .iter()
                .map(|(name, value)| (name, OsStr::from_bytes(value))),
        )
        .current_dir(&program.dir)
        .stdin(Stdio::piped())
        // Standard output belongs to the command's own answers.
        .stdout(io::stderr());
    trace::pass_on(&mut command);
    command.spawn()
}

fn say_not_started(program: &Program, error: &io::Error) {
    let why = refdb::error::io_text(error);
    let name = &program.command;
    // Names without a slash are looked for before anything is started.
    if name.contains(&b'/') {
        say("fatal", format!("cannot exec '{name}': {why}").as_bytes());
    } else {
        say("error", format!("cannot run {name}: {why}").as_bytes());
    }
}

fn say_signal(program: &Program, status: ExitStatus) {
    /// What the user did, or a reader that went away, needs no telling.
    const QUIET: [i32; 3] = [2, 3, 13];
    if let Some(signal) = status.signal().filter(|signal| !QUIET.contains(signal)) {
        let message = format!("{} died of signal {signal}", program.command);
        say("error", message.as_bytes());
    }
}
