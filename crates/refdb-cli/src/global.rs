//! Options before the command word: where the repository is, and what overrides its configuration.
//!
//! They take effect in their order, as `-C a -C b` shows: the second starts from the first.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::failure::{Failure, Result};

/// What the options before the command word say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Globals {
    /// `--git-dir`.
    pub(crate) git_dir: Option<PathBuf>,
    /// `--work-tree`.
    pub(crate) work_tree: Option<PathBuf>,
    /// `--namespace`.
    pub(crate) namespace: Option<Vec<u8>>,
    /// `--bare`.
    pub(crate) bare: bool,
    /// `--no-replace-objects`.
    pub(crate) no_replace_objects: bool,
    /// `--paginate` or `--no-pager`, whichever comes last.
    pub(crate) pager: Option<bool>,
    /// `-c`, each `key=value` or only `key`.
    pub(crate) config: Vec<Vec<u8>>,
    /// `--config-env`, each `key=variable`.
    pub(crate) config_env: Vec<Vec<u8>>,
}

/// What the first words of the command line ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A command, whose position in the arguments is given.
    Command(usize),
    /// The version; what is behind that begins there.
    Version(usize),
    /// An overview of the commands, or what the words that begin there ask for.
    Help(usize),
    /// Nothing was asked for.
    Nothing,
}

/// What the options before the command word do, for completions and pages: their names, those of
/// their arguments, and what they say.
const TEXTS: [(&str, &str); 7] = [
    ("path", "go there before anything else"),
    ("name>=<value", "set a value of the configuration"),
    ("path", "name the directory of the repository"),
    ("path", "name the top of the work tree"),
    ("name", "name the namespace"),
    (
        "name>=<variable",
        "set a value of the configuration from a variable",
    ),
    ("url", "use the refs of a store that many machines share"),
];

/// Returns the options before the command word: name, argument, and what each says.
pub(crate) fn describe() -> impl Iterator<Item = (&'static str, Option<&'static str>, &'static str)>
{
    let with_value = WITH_VALUE.iter().zip(TEXTS);
    let with_value =
        with_value.map(|((name, _, _), (argument, help))| (*name, Some(argument), help));
    with_value.chain(FLAGS.map(|(name, help)| (name, None, help)))
}

/// The same for options without a value, as far as they have an effect.
const FLAGS: [(&str, &str); 6] = [
    ("--bare", "take the repository for one without a work tree"),
    ("-p", "show what is printed page by page, on a terminal"),
    ("--paginate", "the same as -p"),
    ("-P", "start no pager"),
    ("--no-pager", "the same as -P"),
    (
        "--no-replace-objects",
        "read objects themselves, not their replacements",
    ),
];

/// Options that take a value: the name, whether it may follow a `=`, and what is missing if there
/// is none.
const WITH_VALUE: &[(&str, bool, &str)] = &[
    ("-C", false, "no directory given for '-C' option"),
    ("-c", false, "-c expects a configuration string"),
    (
        "--git-dir",
        true,
        "no directory given for '--git-dir' option",
    ),
    (
        "--work-tree",
        true,
        "no directory given for '--work-tree' option",
    ),
    ("--namespace", true, "no namespace given for --namespace"),
    ("--config-env", true, "no config key given for --config-env"),
    ("--store", true, "no URL given for --store"),
];

/// Options that speak of what this command never does: paths, locks of the index, advice.
const WITHOUT_EFFECT: &[&str] = &[
    "--literal-pathspecs",
    "--no-literal-pathspecs",
    "--glob-pathspecs",
    "--noglob-pathspecs",
    "--icase-pathspecs",
    "--no-icase-pathspecs",
    "--no-optional-locks",
    "--no-lazy-fetch",
    "--no-advice",
];

/// The same for options with a value: where Git's own programs are, attributes, shallow clones.
const WITHOUT_EFFECT_BUT_WITH_VALUE: &[(&str, &str)] = &[
    (
        "--attr-source",
        "no attribute source given for --attr-source",
    ),
    ("--shallow-file", "no shallow file given for --shallow-file"),
];

/// Reads the options before the command word.
///
/// # Errors
/// A usage failure for an unknown option; a fatal one for a directory that cannot be entered.
pub(crate) fn parse(args: &[Vec<u8>]) -> Result<(Globals, Request)> {
    let mut globals = Globals::default();
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let text = String::from_utf8_lossy(arg);
        match &*text {
            "-v" | "--version" => return Ok((globals, Request::Version(at + 1))),
            "-h" | "--help" => return Ok((globals, Request::Help(at + 1))),
            "-p" | "--paginate" => globals.pager = Some(true),
            "-P" | "--no-pager" => globals.pager = Some(false),
            "--no-replace-objects" => globals.no_replace_objects = true,
            "--bare" => {
                // Which directory that is does not depend on a `-C` behind it.
                globals.bare = true;
                if globals.git_dir.is_none() && std::env::var_os("GIT_DIR").is_none() {
                    globals.git_dir = std::env::current_dir().ok();
                }
            }
            known if WITHOUT_EFFECT_BUT_WITH_VALUE.iter().any(|it| it.0 == known) => {
                at += 1;
                let find = |it: &&(&str, &str)| it.0 == known;
                let missing = WITHOUT_EFFECT_BUT_WITH_VALUE.iter().find(find);
                if args.get(at).is_none() {
                    return Err(misuse(missing.map_or("", |it| it.1)));
                }
            }
            known if WITHOUT_EFFECT.contains(&known) => {}
            known if known.starts_with("--exec-path=") || known.starts_with("--attr-source=") => {}
            known if known.starts_with('-') => {
                let (name, value) = split(arg);
                let option = WITH_VALUE.iter().find(|(option, by_equals, _)| {
                    option.as_bytes() == name && (value.is_none() || *by_equals)
                });
                let Some((name, _, missing)) = option else {
                    return Err(misuse(&format!("unknown option: {text}")));
                };
                let value = match value {
                    Some(value) => value.to_vec(),
                    None => {
                        at += 1;
                        args.get(at).cloned().ok_or_else(|| misuse(missing))?
                    }
                };
                globals.set(name, value)?;
            }
            _ => return Ok((globals, Request::Command(at))),
        }
        at += 1;
    }
    Ok((globals, Request::Nothing))
}

fn split(arg: &[u8]) -> (&[u8], Option<&[u8]>) {
    match arg.iter().position(|&byte| byte == b'=') {
        Some(at) => (arg.get(..at).unwrap_or(arg), arg.get(at + 1..)),
        None => (arg, None),
    }
}

fn misuse(what: &str) -> Failure {
    Failure::Usage {
        error: None,
        hint: None,
        text: format!("{what}\n{}", crate::commands::usage()),
        is_answer: false,
    }
}

impl Globals {
    /// Returns the options that say the same to another program, which is started where this one
    /// has gone.
    pub(crate) fn as_arguments(&self) -> Vec<Vec<u8>> {
        let mut args = Vec::new();
        for (name, path) in [
            ("--git-dir=", &self.git_dir),
            ("--work-tree=", &self.work_tree),
        ] {
            if let Some(path) = path {
                args.push([name.as_bytes(), path.as_os_str().as_bytes()].concat());
            }
        }
        if let Some(namespace) = &self.namespace {
            args.push([b"--namespace=", namespace.as_slice()].concat());
        }
        for (is_set, name) in [
            (self.bare, "--bare"),
            (self.no_replace_objects, "--no-replace-objects"),
        ] {
            if is_set {
                args.push(name.into());
            }
        }
        for value in &self.config {
            args.extend([b"-c".to_vec(), value.clone()]);
        }
        for value in &self.config_env {
            args.push([b"--config-env=", value.as_slice()].concat());
        }
        args
    }

    fn set(&mut self, name: &str, value: Vec<u8>) -> Result<()> {
        let path = || PathBuf::from(std::ffi::OsString::from_vec(value.clone()));
        match name {
            "-C" if value.is_empty() => {}
            "-C" => std::env::set_current_dir(path()).map_err(|error| {
                Failure::fatal(format!(
                    "cannot change to '{}': {}",
                    path().display(),
                    refdb::error::io_text(&error)
                ))
            })?,
            "-c" => self.config.push(value),
            "--git-dir" => self.git_dir = Some(path()),
            "--work-tree" => self.work_tree = Some(path()),
            "--namespace" => self.namespace = Some(value),
            // As a value it would say that the refs are here.
            "--store" if value.is_empty() => return Err(misuse("no URL given for --store")),
            "--store" => self
                .config
                .push([b"refdb.store=", value.as_slice()].concat()),
            _ => self.config_env.push(value),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Vec<Vec<u8>> {
        args.iter().map(|arg| arg.as_bytes().to_vec()).collect()
    }

    #[test]
    fn values_follow_an_equals_sign_or_stand_alone() {
        let args = args(&[
            "--git-dir=a",
            "-c",
            "x.y=1",
            "--work-tree",
            "b",
            "refs",
            "-c",
        ]);
        let (globals, request) = parse(&args).unwrap();
        assert_eq!(globals.git_dir.unwrap(), PathBuf::from("a"));
        assert_eq!(globals.work_tree.unwrap(), PathBuf::from("b"));
        assert_eq!(globals.config, [b"x.y=1"]);
        assert_eq!(request, Request::Command(5));
    }

    #[test]
    fn an_unknown_option_is_a_mistake() {
        assert!(matches!(
            parse(&args(&["--gitdir"])),
            Err(Failure::Usage { .. })
        ));
    }
}
