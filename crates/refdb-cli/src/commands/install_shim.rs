//! `refdb install-shim`: a `git` that is this program, in a directory of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use refdb::system::{OsSystem, System};

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::shim;

const NO_OPTIONS: &[Opt<()>] = &[];

pub(super) const SPEC: Spec<()> = Spec {
    name: "install-shim",
    forms: &["<directory>"],
    options: NO_OPTIONS,
};

/// What the program is called where it is no `git`.
const NAMES: [&str; 2] = ["refdb", "git-refdb"];

/// Runs `install-shim`: puts the link in place, and says how it is used.
pub(super) fn run(_context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let operands = SPEC.parse(args, |(), _| Ok(()))?;
    let [dir] = operands.as_slice() else {
        return Err(SPEC.misuse());
    };
    let system = OsSystem::new();
    let program = this_program()?;
    let dir = Path::new(OsStr::from_bytes(dir));
    let cannot = |what: &str, error: &std::io::Error| {
        let why = refdb::error::io_text(error);
        Failure::fatal(format!("cannot {what} '{}': {why}", dir.display()))
    };
    match system.create_dir(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(cannot("create the directory", &error));
        }
        _ => {}
    }
    let link = dir.join("git");
    if system.lstat(&link).is_ok() && !is_shim(&system, &link) {
        let text = format!(
            "'{}' is there already and is no shim of refdb: name another directory",
            link.display()
        );
        return Err(Failure::fatal(text));
    }
    // Whoever looks for `git` meanwhile finds the old one or the new one.
    let new = dir.join(format!("git.{}.new", system.process_id()));
    system
        .symlink(&program, &new)
        .and_then(|()| system.rename(&new, &link))
        .map_err(|error| {
            // What was not made needs not be taken away.
            let _ = system.remove_file(&new);
            cannot("make a link in", &error)
        })?;
    let shown = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let (dir, program) = (shown.display(), program.display());
    out.put(format!(
        "'{dir}/git' is now\n\
         {program}:\n\
         it answers commands about refs, and runs the Git behind it in PATH for all else.\n\
         For a shell or a service:  PATH={dir}:$PATH\n\
         To be rid of it:           rm {dir}/git\n"
    ))
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| {
        let why = refdb::error::io_text(&error);
        Failure::fatal(format!("cannot find out where this program is: {why}"))
    })
}

/// Returns whether a file is this program, or a link to one of its name that may be gone.
fn is_shim(system: &dyn System, link: &Path) -> bool {
    let found = shim::identity(link);
    let is_this = found.is_some() && found == shim::this_program();
    let target = system.read_link(link);
    let names = |target: PathBuf| {
        let name = target.file_name();
        NAMES.iter().any(|it| name == Some(OsStr::new(it)))
    };
    is_this || target.is_ok_and(names)
}
