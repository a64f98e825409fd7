//! What a command line says about the repository to open, and opening it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bstr::{BString, ByteSlice};
use refdb::error::{Message, Role};
use refdb::internals::{self, bytes_to_path};
use refdb::layout::Layout;
use refdb::options::{Committer, Interrupt, Warn};
use refdb::system::{OsSystem, System};
use refdb::{Error, ErrorKind, Options, RefFormat, RefName, Result, Store, Target};

use super::config::{Conditions, GlobalFiles, LocalFile, Override, Sources};
use super::discover::{Found, Location, Search};
use super::environment::Environment;
use super::format::{self, Format};
use super::hooks::{Hooks, Notice, Programs};
use super::moved::Watched;
use super::paths::{self, absolute};
use super::view::Setting;
use super::{Repository, identity, ownership, refused, replace, settings, shared};
use crate::objects::{Odb, Replacements};

/// How to find and open a repository.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    system: Arc<dyn System>,
    environment: Environment,
    current_dir: Option<PathBuf>,
    git_dir: Option<PathBuf>,
    common_dir: Option<PathBuf>,
    work_tree: Option<PathBuf>,
    bare: bool,
    namespace: Option<BString>,
    overrides: Vec<Override>,
    programs: Option<Arc<dyn Programs>>,
    reads_originals: bool,
    damaged: bool,
    interrupt: Interrupt,
}

/// What it takes to open a repository once more.
#[derive(Debug)]
pub(super) struct Again {
    options: OpenOptions,
    /// Where relative paths begin, and the search.
    start: PathBuf,
    /// The repository that was named, if one was.
    named: Option<PathBuf>,
}

impl Again {
    /// Opens it.
    pub(super) fn open(&self) -> Result<Repository> {
        let options = self.options.clone();
        match &self.named {
            Some(named) => options.open_named(named, &self.start),
            None => options.discover(&self.start),
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is said: the process's environment and the repository decide.
    pub fn new() -> Self {
        OpenOptions {
            system: Arc::new(OsSystem::new()),
            environment: Environment::process(),
            current_dir: None,
            git_dir: None,
            common_dir: None,
            work_tree: None,
            bare: false,
            namespace: None,
            overrides: Vec::new(),
            programs: None,
            reads_originals: false,
            damaged: false,
            interrupt: Interrupt::default(),
        }
    }

    /// Reads files through another system.
    pub fn system(mut self, system: Arc<dyn System>) -> Self {
        self.system = system;
        self
    }

    /// Says who is asked whether a write is to stop ([`Options::interrupt`]).
    pub fn interrupt(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// Takes another environment than the process's.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Takes relative paths as seen from `dir`, not from the process's current directory.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(dir.into());
        self
    }

    /// Names the repository's directory (`--git-dir`), before `GIT_DIR`.
    pub fn git_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.git_dir = Some(dir.into());
        self
    }

    /// Names the directory that all worktrees share, before `GIT_COMMON_DIR`.
    pub fn common_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.common_dir = Some(dir.into());
        self
    }

    /// Names the work tree (`--work-tree`), before `GIT_WORK_TREE`.
    pub fn work_tree(mut self, dir: impl Into<PathBuf>) -> Self {
        self.work_tree = Some(dir.into());
        self
    }

    /// Takes the repository for bare (`--bare`): the current directory, unless one is named.
    pub fn bare(mut self, bare: bool) -> Self {
        self.bare = bare;
        self
    }

    /// Calls the hooks of the repository, by these means. Without them there are no hooks.
    pub fn programs(mut self, programs: Arc<dyn Programs>) -> Self {
        self.programs = Some(programs);
        self
    }

    /// Reads no object instead of another (`--no-replace-objects`).
    pub fn no_replace_objects(mut self, reads_originals: bool) -> Self {
        self.reads_originals = reads_originals;
        self
    }

    /// Opens a repository whose `HEAD` is damaged or missing, too: to check and repair it. Git takes
    /// it for none.
    pub fn damaged(mut self, damaged: bool) -> Self {
        self.damaged = damaged;
        self
    }

    /// Names the namespace (`--namespace`), before `GIT_NAMESPACE`.
    pub fn namespace(mut self, namespace: impl Into<BString>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Adds a configuration value, as `-c` does: `section.key=value`, or `section.key` for true.
    pub fn config(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.overrides
            .push(Override::from_argument(argument.as_ref()));
        self
    }

    /// Adds a configuration value from the environment, as `--config-env` does: `section.key=NAME`.
    ///
    /// # Errors
    /// `Config` when there is no such variable, or nothing like a variable's name.
    pub fn config_env(mut self, argument: impl AsRef<[u8]>) -> Result<Self> {
        let argument = argument.as_ref();
        let refuse = |message: String| Error::new(ErrorKind::Config, message);
        let Some((key, variable)) = argument.rsplit_once_str("=") else {
            return Err(refuse(format!(
                "invalid config format: {}",
                argument.as_bstr()
            )));
        };
        if variable.is_empty() {
            let key = key.as_bstr();
            return Err(refuse(format!(
                "missing environment variable name for configuration '{key}'"
            )));
        }
        let name = variable.to_str_lossy();
        let value = self.environment.bytes(&name).ok_or_else(|| {
            let key = key.as_bstr();
            refuse(format!(
                "missing environment variable '{name}' for configuration '{key}'"
            ))
        })?;
        self.overrides.push(Override {
            key: key.into(),
            value: Some(value),
        });
        Ok(self)
    }

    /// Opens the repository that is named, by [`OpenOptions::git_dir`] or by `GIT_DIR`, else finds
    /// the one that `start` is in.
    ///
    /// # Errors
    /// As for [`Repository::discover`].
    pub fn discover(self, start: &Path) -> Result<Repository> {
        let start = self.absolute(start)?;
        let named = self.git_dir.clone();
        let mut named = named.or_else(|| self.environment.path("GIT_DIR"));
        if named.is_none() && self.bare {
            named = Some(start.clone());
        }
        if let Some(git_dir) = named {
            return self.open_named(&git_dir, &start);
        }
        let common_dir = self.named_common_dir(&start);
        let location = self.search(common_dir.as_deref()).walk_up(&start)?;
        let global = GlobalFiles::default();
        ownership::check(
            self.system.as_ref(),
            &self.environment,
            &global,
            &self.overrides,
            &location,
        )?;
        let again = Again {
            options: self.clone(),
            start: start.clone(),
            named: None,
        };
        self.finish(location, &global, again)
    }

    /// Opens the repository whose directory (or gitfile) is `git_dir`, whatever else is named.
    ///
    /// # Errors
    /// As for [`Repository::discover`].
    pub fn open(self, git_dir: &Path) -> Result<Repository> {
        let start = self.absolute(Path::new(""))?;
        self.open_named(git_dir, &start)
    }

    fn open_named(self, git_dir: &Path, start: &Path) -> Result<Repository> {
        let common_dir = self.named_common_dir(start);
        let search = self.search(common_dir.as_deref());
        let location = search.explicit(git_dir, start)?;
        let again = Again {
            options: self.clone(),
            start: start.to_owned(),
            named: Some(git_dir.to_owned()),
        };
        self.finish(location, &GlobalFiles::default(), again)
    }

    fn search<'a>(&'a self, common_dir: Option<&'a Path>) -> Search<'a> {
        Search {
            system: self.system.as_ref(),
            environment: &self.environment,
            common_dir,
            damaged: self.damaged,
        }
    }

    fn named_common_dir(&self, start: &Path) -> Option<PathBuf> {
        let named = self.common_dir.clone();
        let named = named.or_else(|| self.environment.path("GIT_COMMON_DIR"));
        named.map(|dir| absolute(start, &dir))
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let base = match &self.current_dir {
            Some(dir) => dir.clone(),
            None => super::environment::current_dir()?,
        };
        Ok(absolute(&base, path))
    }

    /// Reads format and configuration of the repository at `location`.
    #[expect(
        clippy::too_many_lines,
        reason = "each setting is read with what those before it say"
    )]
    fn finish(self, location: Location, global: &GlobalFiles, again: Again) -> Result<Repository> {
        let system = self.system.as_ref();
        let (start, named) = (again.start.as_path(), again.named.as_deref());
        let Location {
            git_dir,
            common_dir,
            found,
        } = location;
        let config_stat = Watched::stat(system, &common_dir);
        let local = LocalFile::read(system, &common_dir.join("config"))?;
        let mut format = Format::read(&local.own_values(), &common_dir, &self.environment)?;
        let worktree_file = format
            .worktree_config
            .then(|| git_dir.join("config.worktree"));
        if let Some(dir) = &mut format.refs_dir {
            *dir = real_refs_dir(system, dir)?;
        }
        let claims_bare = format.bare;
        if git_dir != common_dir {
            // What the shared file says of bareness and work tree is about the main worktree.
            (format.bare, format.work_tree) = (None, None);
        }
        if let Some(path) = &worktree_file {
            let own = LocalFile::read(system, path)?.own_values();
            format.bare = own.boolean("core.bare")?.or(format.bare);
            format.work_tree = own.path("core.worktree")?.or(format.work_tree);
        }
        let work_tree = self.work_tree_of(&git_dir, &found, &format, start)?;
        let bare = work_tree.is_none() && format.bare.or(claims_bare) != Some(false);

        let objects_dir = self.environment.path("GIT_OBJECT_DIRECTORY");
        let objects_dir =
            objects_dir.map_or_else(|| common_dir.join("objects"), |dir| absolute(start, &dir));
        let odb = Arc::new(Odb::new(
            &objects_dir,
            self.alternates(start),
            format.objects,
        ));
        let refs_common_dir = match self.named_common_dir(start) {
            // As for Git, the refs are where the repository itself says.
            Some(_) => self.search(None).common_dir_of(&git_dir)?,
            None => common_dir.clone(),
        };
        let has_other_refs = paths::are_apart(system, &refs_common_dir, &common_dir);
        let layout = layout(&git_dir, &refs_common_dir, format.refs_dir.as_deref())?;
        let layout = layout.with_objects(&objects_dir);
        let is_overridden = format.is_overridden(|dir| {
            let dir = dir.unwrap_or(&common_dir);
            paths::real(system, dir).ok()
        });
        let layout = match is_overridden {
            true => layout.unclaimed(),
            false => layout,
        };
        let open_store = |options: Options| {
            let system = Arc::clone(&self.system);
            let odb = Arc::clone(&odb);
            Store::open(system, layout.clone(), format.refs, odb, options)
        };

        let recovers = found != Found::Bare || !ownership::is_in_work_tree(system, &git_dir);
        let branch = || {
            let mut options = Options::new(format.objects);
            options.recovers = recovers;
            branch_of_head(&open_store(options).ok()?)
        };
        let typed = || {
            let pwd = self.environment.path("PWD")?;
            let top = work_tree.as_deref();
            let top = top.and_then(|top| paths::real(system, top).ok());
            let dir = as_typed(&found, &git_dir, start, named, top.as_deref())?;
            let file = |path: &Path| system.stat(path).ok().map(|stat| (stat.dev, stat.ino));
            (file(&pwd)? == file(start)?).then(|| pwd.join(dir))
        };
        let config = Sources {
            system,
            environment: &self.environment,
            global,
            overrides: &self.overrides,
            local: Some(&local),
            worktree: worktree_file,
            conditions: Conditions {
                git_dir: Some(&git_dir),
                typed: &typed,
                branch: &branch,
            },
        };
        let config = config.read()?;
        let base = replace::base(&self.environment, &config)?;
        let mut warnings = Vec::new();
        let register = shared::register(&config, &self.system, recovers)?;
        let mut options = settings::options(
            &config,
            &self.environment,
            format.objects,
            match register {
                Some(_) => RefFormat::Reftable,
                None => format.refs,
            },
            bare,
            &mut warnings,
        )?;
        options.recovers = recovers;
        options.interrupt = self.interrupt.clone();
        // What only the environment says does not change.
        if !is_overridden && register.is_none() {
            let watched = Watched {
                system: Arc::clone(&self.system),
                environment: self.environment.clone(),
                common_dir: common_dir.clone(),
                stat: config_stat,
                refs: format.refs,
                refs_dir: format.refs_dir.clone(),
            };
            internals::set_still_there(&mut options, Some(Arc::new(watched.still_there())));
        }
        let config = Arc::new(config);
        options.committer = {
            let (system, config) = (Arc::clone(&self.system), Arc::clone(&config));
            let environment = self.environment.clone();
            // Reading refs needs no name, and a date that is none only stands in a writer's way.
            Committer::lazy(move || identity::committer(system.as_ref(), &environment, &config))
        };
        let mut hooks = None;
        if let Some(programs) = &self.programs {
            let told = Arc::clone(programs);
            options.warn = Some(Warn(Arc::new(move |error| {
                told.tell(Notice::Warning, error.message());
            })));
            let setting = Setting {
                system: Arc::clone(&self.system),
                start: start.to_owned(),
                named: named.map(Path::to_owned),
                found,
                git_dir: git_dir.clone(),
                common_dir: common_dir.clone(),
                work_tree: work_tree.clone(),
                named_work_tree: self.named_work_tree(),
                configured_work_tree: format.work_tree.is_some(),
                claims_bare: format.bare == Some(true),
                asked_bare: self.bare,
            };
            let found = Arc::new(Hooks {
                system: Arc::clone(&self.system),
                programs: Arc::clone(programs),
                config: Arc::clone(&config),
                environment: self.environment.clone(),
                overrides: self.overrides.clone(),
                namespace: self.namespace.clone(),
                reads_originals: self.reads_originals,
                setting,
                view: OnceLock::new(),
                hinted: AtomicBool::new(false),
                warned: AtomicBool::new(false),
            });
            options.hook = Some(Arc::clone(&found) as Arc<_>);
            hooks = Some(found);
        }
        let store = match &register {
            Some(register) => {
                let (register, odb) = (Arc::clone(register), Arc::clone(&odb));
                Store::open_shared_beside(&layout, register, odb, options)?
            }
            None => open_store(options)?,
        };
        if let Some(base) = base.filter(|_| !self.reads_originals) {
            // The objects themselves are of no interest here, and would go in a circle.
            let none = Arc::new(Odb::new("", [], format.objects));
            let store = internals::with_objects(&store, none);
            let is_mended = self.damaged;
            odb.replace_by(Box::new(move || match replace::read(&store, &base) {
                // Whoever checks or mends the refs tells what is wrong with them.
                Err(_) if is_mended => Ok(Replacements::new()),
                found => found,
            }));
        }
        let namespace = self.namespace.clone();
        let namespace = namespace.or_else(|| self.environment.bytes("GIT_NAMESPACE"));
        let namespace = namespace.unwrap_or_default();
        Ok(Repository {
            store,
            odb,
            config,
            register,
            hooks,
            system: self.system,
            environment: self.environment,
            git_dir,
            common_dir,
            refs_dir: format.refs_dir,
            has_other_refs,
            work_tree,
            bare,
            zone: OnceLock::new(),
            namespace,
            warnings,
            again: Arc::new(again),
        })
    }

    /// Returns the top of the work tree, if there is one.
    fn work_tree_of(
        &self,
        git_dir: &Path,
        found: &Found,
        format: &Format,
        start: &Path,
    ) -> Result<Option<PathBuf>> {
        if let Some(named) = self.named_work_tree() {
            if named.as_os_str().is_empty() {
                return Err(refused("The empty string is not a valid path"));
            }
            return Ok(Some(absolute(start, &named)));
        }
        if let Some(configured) = &format.work_tree {
            if format.bare == Some(true) {
                return Err(refused("core.bare and core.worktree do not make sense"));
            }
            return format::work_tree(self.system.as_ref(), git_dir, configured).map(Some);
        }
        if format.bare == Some(true) {
            return Ok(None);
        }
        let implicit = self.environment.boolean("GIT_IMPLICIT_WORK_TREE")?;
        let implicit = !self.bare && implicit != Some(false);
        Ok(match found {
            Found::DotGit { parent, .. } => Some(parent.clone()),
            Found::Explicit if implicit => Some(start.to_owned()),
            Found::Explicit | Found::Bare => None,
        })
    }

    fn named_work_tree(&self) -> Option<PathBuf> {
        let named = self.work_tree.clone();
        named.or_else(|| self.environment.path("GIT_WORK_TREE"))
    }

    /// Returns the directories of `GIT_ALTERNATE_OBJECT_DIRECTORIES`.
    fn alternates(&self, start: &Path) -> Vec<PathBuf> {
        let list = self.environment.bytes("GIT_ALTERNATE_OBJECT_DIRECTORIES");
        let list = list.unwrap_or_default();
        let dirs = list.split_str(":").filter(|dir| !dir.is_empty());
        dirs.map(|dir| absolute(start, bytes_to_path(dir)))
            .collect()
    }
}

/// Returns by what name Git comes to the repository from the directory `start`; `None` if that is an absolute path:
/// it begins with what the system calls the directory then, or Git has gone to the top of the work tree before.
fn as_typed<'p>(
    found: &Found,
    git_dir: &Path,
    start: &Path,
    named: Option<&'p Path>,
    work_tree: Option<&Path>,
) -> Option<&'p Path> {
    let is_below = work_tree.is_some_and(|top| start != top && start.starts_with(top));
    let dir = match found {
        Found::Explicit => named?,
        Found::DotGit {
            parent,
            gitfile: None,
        } if parent == start => Path::new(".git"),
        Found::Bare if git_dir == start => Path::new("."),
        Found::DotGit { .. } | Found::Bare => return None,
    };
    (dir.is_relative() && !is_below).then_some(dir)
}

/// Returns the directory for refs that is meant, which need not be there yet.
pub(super) fn real_refs_dir(system: &dyn System, dir: &Path) -> Result<PathBuf> {
    paths::real(system, dir).map_err(|error| {
        let mut parents: Vec<&Path> = dir.ancestors().collect();
        parents.reverse();
        let missing = parents.into_iter().find(|path| system.stat(path).is_err());
        let missing = missing.unwrap_or(dir);
        let text = format!(
            "Invalid path '{}': {}",
            missing.display(),
            refdb::error::io_text(&error)
        );
        refused(Message::from(text).of(missing, Role::InTheWay))
    })
}

/// Returns where the refs of the worktree at `git_dir` are.
pub(super) fn layout(git_dir: &Path, common_dir: &Path, refs_dir: Option<&Path>) -> Result<Layout> {
    let base = refs_dir.unwrap_or(common_dir);
    if git_dir == common_dir {
        return Ok(Layout::main(base));
    }
    match refs_dir {
        None => Ok(Layout::linked(git_dir, common_dir)),
        Some(refs_dir) => {
            let id = git_dir.file_name().ok_or_else(|| {
                let text = format!("not a git repository: '{}'", git_dir.display());
                Error::new(ErrorKind::NoRepository, text)
            })?;
            Ok(Layout::linked(
                refs_dir.join("worktrees").join(id),
                refs_dir,
            ))
        }
    }
}

fn branch_of_head(store: &Store) -> Option<BString> {
    match store.read(RefName::HEAD).ok()??.target {
        Target::Symbolic(name) => Some(name.as_bytes().strip_prefix(b"refs/heads/")?.into()),
        Target::Direct(_) => None,
    }
}
