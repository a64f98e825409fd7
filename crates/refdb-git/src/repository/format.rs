//! The format of a repository: its version, and the extensions that change how it must be read.

use std::io;
use std::path::{Path, PathBuf};

use bstr::{BStr, ByteSlice};
use refdb::error::io_text;
use refdb::internals::bytes_to_path;
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, ObjectFormat, RefFormat, Result};

use super::config::{Config, Entry, values};
use super::environment::Environment;
use super::paths::absolute;
use super::refused;

/// The newest version that is understood.
const VERSION_MAX: i32 = 1;

/// What a repository says of its own format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Which hash names objects.
    pub(super) objects: ObjectFormat,
    /// How refs are kept.
    pub(super) refs: RefFormat,
    /// Where refs are kept, when not in the repository's own directory.
    pub(super) refs_dir: Option<PathBuf>,
    /// What the repository says of refs, where the environment has a say.
    pub(super) configured: Option<(RefFormat, Option<PathBuf>)>,
    /// Whether each worktree has a configuration file of its own.
    pub(super) worktree_config: bool,
    /// Whether the repository says that it has no work tree.
    pub(super) bare: Option<bool>,
    /// Where the repository says that its work tree is.
    pub(super) work_tree: Option<PathBuf>,
}

/// Returns the work tree that the configuration names.
///
/// # Errors
/// `Repository` if the name is a relative one and there is none: Git goes there, on its way to where it was called.
pub(super) fn work_tree(system: &dyn System, git_dir: &Path, named: &Path) -> Result<PathBuf> {
    let top = absolute(git_dir, named);
    let found = system.stat(&top).and_then(|stat| match stat.kind {
        FileKind::Directory => Ok(()),
        _ => Err(io::ErrorKind::NotADirectory.into()),
    });
    match found {
        Err(error) if named.is_relative() => {
            let (named, why) = (named.display(), io_text(&error));
            Err(refused(format!("cannot chdir to '{named}': {why}")))
        }
        _ => Ok(top),
    }
}

impl Format {
    /// Reads the format from the values of the repository's own file.
    ///
    /// # Errors
    /// `Unsupported` for a version or an extension that is not understood, `Config` for a value
    /// that is none.
    pub(super) fn read(
        config: &Config,
        common_dir: &Path,
        environment: &Environment,
    ) -> Result<Format> {
        let version = config.small_integer("core.repositoryformatversion")?;
        let mut format = Format {
            objects: ObjectFormat::Sha1,
            refs: RefFormat::Files,
            refs_dir: None,
            configured: None,
            worktree_config: false,
            bare: config.boolean("core.bare")?,
            work_tree: config.path("core.worktree")?,
        };
        // A file without a version is not Git's own, and nothing in it counts.
        let Some(version) = version.filter(|&version| version >= 0) else {
            let plain = Format {
                bare: None,
                work_tree: None,
                ..format
            };
            return plain.overridden(common_dir, environment);
        };
        let mut unknown = Vec::new();
        let mut needing_version_1 = Vec::new();
        for entry in config.entries() {
            let Some(name) = entry.key().strip_prefix(b"extensions.") else {
                continue;
            };
            let name = name.as_bstr();
            let value = entry.value();
            match name.as_bytes() {
                b"noop" | b"preciousobjects" | b"partialclone" => {}
                b"worktreeconfig" => {
                    format.worktree_config = boolean(name, value)?;
                }
                b"noop-v1" | b"relativeworktrees" | b"submodulepathconfig" => {
                    needing_version_1.push(name);
                }
                // Objects have a second id, which refs never hold.
                b"compatobjectformat" => needing_version_1.push(name),
                b"objectformat" => {
                    let known =
                        value.and_then(|value| ObjectFormat::from_name(value.to_str().ok()?));
                    format.objects = known.ok_or_else(|| invalid(entry))?;
                    needing_version_1.push(name);
                }
                b"refstorage" => {
                    let parsed = value.and_then(|value| ref_storage(value, common_dir));
                    (format.refs, format.refs_dir) = parsed.ok_or_else(|| invalid(entry))?;
                    needing_version_1.push(name);
                }
                _ => unknown.push(name),
            }
        }
        check_version(version, &unknown, &needing_version_1)?;
        format.overridden(common_dir, environment)
    }

    /// Returns whether the environment says how refs are kept, and not the repository: what says the same overrides
    /// nothing.
    pub(super) fn is_overridden(&self, real: impl Fn(Option<&Path>) -> Option<PathBuf>) -> bool {
        self.configured.as_ref().is_some_and(|(refs, dir)| {
            *refs != self.refs || real(dir.as_deref()) != real(self.refs_dir.as_deref())
        })
    }

    /// Returns the format with what the environment says about refs.
    fn overridden(mut self, common_dir: &Path, environment: &Environment) -> Result<Format> {
        if let Some(value) = environment.bytes("GIT_REFERENCE_BACKEND") {
            let parsed = ref_storage(value.as_bstr(), common_dir);
            let parsed = parsed.ok_or_else(|| {
                Error::new(
                    ErrorKind::Config,
                    format!(
                        "unknown ref storage format: '{}'",
                        format_and_path(value.as_bstr()).0
                    ),
                )
            })?;
            self.configured = Some((self.refs, self.refs_dir.take()));
            (self.refs, self.refs_dir) = parsed;
        }
        Ok(self)
    }
}

fn check_version(version: i32, unknown: &[&BStr], v1: &[&BStr]) -> Result<()> {
    let refuse = |message: String| Err(Error::new(ErrorKind::Unsupported, message));
    let list =
        |names: &[&BStr]| -> String { names.iter().map(|name| format!("\n\t{name}")).collect() };
    let plural = |names: &[&BStr]| if names.len() == 1 { "" } else { "s" };
    if version > VERSION_MAX {
        return refuse(format!(
            "Expected git repo version <= {VERSION_MAX}, found {version}"
        ));
    }
    if version >= 1 && !unknown.is_empty() {
        return refuse(format!(
            "unknown repository extension{} found:{}",
            plural(unknown),
            list(unknown)
        ));
    }
    if version == 0 && !v1.is_empty() {
        return refuse(format!(
            "repo version is 0, but v1-only extension{} found:{}",
            plural(v1),
            list(v1)
        ));
    }
    Ok(())
}

/// Reads `<format>` or `<format>://<path>`; `None` when the format is unknown.
pub fn ref_storage(value: &BStr, common_dir: &Path) -> Option<(RefFormat, Option<PathBuf>)> {
    let (name, path) = format_and_path(value);
    let format = RefFormat::from_name(name.to_str().ok()?)?;
    let path = path.filter(|path| !path.is_empty());
    Some((
        format,
        path.map(|path| absolute(common_dir, bytes_to_path(path))),
    ))
}

/// Takes `<format>` or `<format>://<path>` apart, as short as it is without a search that asks the
/// processor what it can do.
pub fn format_and_path(value: &BStr) -> (&BStr, Option<&[u8]>) {
    const BETWEEN: &[u8] = b"://";
    let at = value.windows(BETWEEN.len()).position(|it| it == BETWEEN);
    match at.and_then(|at| value.split_at_checked(at)) {
        Some((name, rest)) => (name.as_bstr(), rest.get(BETWEEN.len()..)),
        None => (value, None),
    }
}

fn boolean(name: &BStr, value: Option<&BStr>) -> Result<bool> {
    values::boolean(value.map(|value| value.as_bytes())).ok_or_else(|| {
        Error::new(
            ErrorKind::Config,
            format!(
                "bad boolean config value '{}' for 'extensions.{name}'",
                value.unwrap_or_default()
            ),
        )
    })
}

/// Refuses a value, and says behind what is wrong with it where it stands.
fn invalid(entry: &Entry) -> Error {
    let key = entry.key();
    let message = match entry.value() {
        Some(value) => format!("invalid value for '{key}': '{value}'"),
        None => format!("missing value for '{key}'"),
    };
    if let Some(file) = entry.file() {
        let place = format!(
            "bad config line {} in file {}",
            entry.line(),
            file.display()
        );
        return Error::misconfigured(message, place);
    }
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> Result<Format> {
        let config = Config::parse(content.as_bytes())?;
        let environment = Environment::from_pairs::<&str, &str>([]);
        Format::read(&config, Path::new("/r/.git"), &environment)
    }

    #[test]
    fn known_extensions() {
        let format = read(
            "[core]\nrepositoryformatversion=1\n[extensions]\nobjectFormat=sha256\n\
             refStorage=reftable://../refs\nworktreeConfig\n",
        )
        .unwrap();
        assert_eq!(format.objects, ObjectFormat::Sha256);
        assert_eq!(format.refs, RefFormat::Reftable);
        assert_eq!(format.refs_dir.unwrap(), Path::new("/r/.git/../refs"));
        assert!(format.worktree_config);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let message = |content: &str| read(content).unwrap_err().to_string();
        assert_eq!(
            message("[core]\nrepositoryformatversion = 2\n"),
            "Expected git repo version <= 1, found 2"
        );
        assert_eq!(
            message("[core]\nrepositoryformatversion=1\n[extensions]\nfoo=1\nBar=2\n"),
            "unknown repository extensions found:\n\tfoo\n\tbar"
        );
        assert_eq!(
            message("[core]\nrepositoryformatversion=0\n[extensions]\nrefstorage=files\n"),
            "repo version is 0, but v1-only extension found:\n\trefstorage"
        );
        assert_eq!(
            message("[core]\nrepositoryformatversion=1\n[extensions]\nrefstorage=x\n"),
            "invalid value for 'extensions.refstorage': 'x'"
        );
        assert!(read("[core]\nrepositoryformatversion=0\n[extensions]\nfoo=1\n").is_ok());
        let unversioned = read("[extensions]\nobjectformat=sha256\n").unwrap();
        assert_eq!(unversioned.objects, ObjectFormat::Sha1);
    }
}
