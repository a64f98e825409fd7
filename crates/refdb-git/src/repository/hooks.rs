//! Git's hooks: which programs are to be called, from where, and with which environment.
//!
//! 1. Nothing is run here: that is left to the [`Programs`] that the caller brings. Without them a
//!    repository has no hooks.
//! 2. A program finds what it would find when Git calls it: the folder, the arguments, and the
//!    variables that say where the repository is.
//! 3. Which hooks there are is looked up when a transaction begins, and not before.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bstr::{BStr, BString, ByteSlice};
use refdb::error::Message;
use refdb::hook::{Hook, Step};
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};

use super::config::{Config, Override, values};
use super::environment::Environment;
use super::paths::path_to_bytes;
use super::view::{Setting, View};

/// The event that transactions are, and the name of the file.
const EVENT: &str = "reference-transaction";

/// Runs programs for a repository.
pub trait Programs: Send + Sync + fmt::Debug {
    /// Runs a program to its end, with `input` on its standard input and its standard output joined
    /// to standard error. A program need not read its input. What keeps it from running is told by
    /// the implementation.
    fn run(&self, program: &Program, input: &[u8]) -> Ending;

    /// Tells people of something that is no failure.
    fn tell(&self, notice: Notice, message: &Message);
}

/// How serious it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// What can be done about something.
    Hint,
    /// Something that was probably not meant.
    Warning,
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// A file, or what a shell reads if there is more than a name in it.
    pub command: BString,
    /// Whether the command is to be given to a shell unless it is a plain name or path.
    pub for_shell: bool,
    /// The arguments.
    pub args: Vec<BString>,
    /// The folder to run it in. A command that is a relative path is seen from there.
    pub dir: PathBuf,
    /// What is set in its environment beside all that is set in that of the caller.
    pub environment: Vec<(&'static str, BString)>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the exit code 0.
    Well,
    /// In any other way.
    Badly,
    /// It did not begin, and no further one shall.
    NotStarted,
}

/// What the hooks of a repository need to know.
#[derive(Debug)]
pub(super) struct Hooks {
    pub(super) system: Arc<dyn System>,
    pub(super) programs: Arc<dyn Programs>,
    pub(super) config: Arc<Config>,
    pub(super) environment: Environment,
    pub(super) overrides: Vec<Override>,
    pub(super) namespace: Option<BString>,
    pub(super) reads_originals: bool,
    /// How a program that Git starts sees the repository.
    pub(super) view: OnceLock<View>,
    pub(super) setting: Setting,
    pub(super) hinted: AtomicBool,
    pub(super) warned: AtomicBool,
}

impl Hook for Hooks {
    fn is_there(&self) -> Result<bool> {
        Ok(!self.configured(EVENT)?.is_empty() || self.file(EVENT)?.is_some())
    }

    fn call(&self, step: Step, lines: &[u8]) -> Result<bool> {
        self.run(EVENT, &[step.name().into()], lines)
    }
}

impl Hooks {
    /// Runs everything that is there for an event; returns whether all of it ended well.
    pub(super) fn run(&self, event: &str, args: &[BString], input: &[u8]) -> Result<bool> {
        let commands = self.configured(event)?.into_iter();
        let mut commands: Vec<(BString, bool)> = commands.map(|command| (command, true)).collect();
        commands.extend(self.file(event)?.map(|file| (file, false)));
        let mut well = true;
        for (command, for_shell) in commands {
            let program = Program {
                command,
                for_shell,
                args: args.to_vec(),
                dir: self.view().dir.clone(),
                environment: self.variables(),
            };
            match self.programs.run(&program, input) {
                Ending::Well => {}
                Ending::Badly => well = false,
                Ending::NotStarted => return Ok(false),
            }
        }
        Ok(well)
    }

    fn view(&self) -> &View {
        self.view.get_or_init(|| self.setting.view())
    }

    /// Returns the commands of `hook.<name>`, in the order in which they asked for the event last.
    fn configured(&self, event: &str) -> Result<Vec<BString>> {
        let mut names: Vec<&[u8]> = Vec::new();
        let is_hook = |entry: &&super::config::Entry| entry.key().starts_with(b"hook.");
        for entry in self.config.entries().iter().filter(is_hook) {
            let Some((name, variable)) = split(entry.key()) else {
                continue;
            };
            if matches!(variable, b"event" | b"command") && entry.value().is_none() {
                let what = format!("missing value for '{}'", entry.key());
                return Err(entry.unparsable(what));
            }
            if variable == b"event" {
                let named = entry.value().unwrap_or_default();
                // Naming an event again moves the hook behind all others; the empty one forgets all.
                if named.is_empty() || named == event {
                    names.retain(|known| *known != name);
                }
                if named == event {
                    names.push(name);
                }
            }
        }
        names.retain(|name| self.is_enabled(name) || self.warn_if_unfinished(name));
        if names.is_empty() || !self.is_enabled(event.as_bytes()) {
            return Ok(Vec::new());
        }
        names.into_iter().map(|name| self.command(name)).collect()
    }

    /// Tells once of a hook that was switched off and is none. It will not be called.
    fn warn_if_unfinished(&self, name: &[u8]) -> bool {
        if self.configured_command(name).is_none() && !self.warned.swap(true, Ordering::Relaxed) {
            let text = format!(
                "disabled hook '{}' has no command configured",
                name.as_bstr()
            );
            self.programs.tell(Notice::Warning, &text.into());
        }
        false
    }

    fn configured_command(&self, name: &[u8]) -> Option<&BStr> {
        let key = [b"hook.", name, b".command"].concat();
        let mut entries = self.config.entries().iter().rev();
        entries.find(|entry| entry.key() == key.as_bstr())?.value()
    }

    /// Returns the command of a configured hook.
    fn command(&self, name: &[u8]) -> Result<BString> {
        match self.configured_command(name) {
            Some(command) => Ok(command.to_owned()),
            None => {
                let name = name.as_bstr();
                Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "'hook.{name}.command' must be configured or 'hook.{name}.event' must be \
                         removed; aborting."
                    ),
                ))
            }
        }
    }

    /// Returns whether `hook.<name>.enabled` says nothing else; what is no boolean says nothing.
    fn is_enabled(&self, name: &[u8]) -> bool {
        let key = [b"hook.", name, b".enabled"].concat();
        let entries = self.config.entries().iter().rev();
        let mut said = entries
            .filter(|entry| entry.key() == key.as_bstr())
            .filter_map(|entry| values::boolean(entry.value().map(|value| value.as_bytes())));
        said.next() != Some(false)
    }

    /// Returns the hook of the repository's folder of hooks, or of `core.hooksPath`, as it is to be
    /// called.
    fn file(&self, event: &str) -> Result<Option<BString>> {
        let folder = match self.config.path("core.hookspath")? {
            // As in Git: no folder is not the present one.
            Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("/"),
            Some(folder) => folder,
            None => self.view().common_dir.join("hooks"),
        };
        let file = folder.join(event);
        let (exists, runs) = match self.system.stat(&self.view().dir.join(&file)) {
            Ok(stat) => (true, stat.mode & 0o111 != 0),
            Err(error) => (error.kind() == io::ErrorKind::PermissionDenied, false),
        };
        if exists && !runs {
            self.hint_at(&file)?;
        }
        Ok(runs.then(|| path_to_bytes(&file).into()))
    }

    /// Tells once that a hook is there and will not be called.
    fn hint_at(&self, file: &Path) -> Result<()> {
        let wanted = self.environment.boolean("GIT_ADVICE")?.unwrap_or(true)
            && self.config.boolean("advice.ignoredhook")?.unwrap_or(true);
        if wanted && !self.hinted.swap(true, Ordering::Relaxed) {
            let text = format!(
                "The '{}' hook was ignored because it's not set as executable.\nYou can disable \
                 this warning with `git config set advice.ignoredHook false`.",
                file.display()
            );
            self.programs.tell(Notice::Hint, &text.into());
        }
        Ok(())
    }

    /// Returns the variables that Git sets for the programs that it calls.
    fn variables(&self) -> Vec<(&'static str, BString)> {
        let mut variables = vec![("GIT_PREFIX", self.view().prefix.clone())];
        if let Some(git_dir) = &self.view().exported {
            variables.push(("GIT_DIR", path_to_bytes(git_dir).into()));
        }
        if self.view().no_implicit_work_tree {
            variables.push(("GIT_IMPLICIT_WORK_TREE", "0".into()));
        }
        if let Some(work_tree) = &self.view().named_work_tree {
            variables.push(("GIT_WORK_TREE", path_to_bytes(work_tree).into()));
        }
        if let Some(namespace) = &self.namespace {
            variables.push(("GIT_NAMESPACE", namespace.clone()));
        }
        if self.reads_originals {
            variables.push(("GIT_NO_REPLACE_OBJECTS", "1".into()));
        }
        if !self.overrides.is_empty() {
            let mut parameters = self
                .environment
                .bytes("GIT_CONFIG_PARAMETERS")
                .unwrap_or_default();
            for value in &self.overrides {
                if !parameters.is_empty() {
                    parameters.push(b' ');
                }
                value.push_quoted(&mut parameters);
            }
            variables.push(("GIT_CONFIG_PARAMETERS", parameters));
        }
        variables
    }
}

/// Splits `hook.<name>.<variable>`.
fn split(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = key.strip_prefix(b"hook.")?;
    rest.rsplit_once_str(".")
}
