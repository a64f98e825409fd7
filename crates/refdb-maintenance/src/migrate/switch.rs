//! From the old format to the new one: locks, the new stores in their places, one rename.
//!
//! Invariants:
//! 1. Before the configuration is renamed, nothing that the old format needs is touched: what is put in
//!    place lies beside it.
//! 2. What is put in place is listed before, so that it can be told from what was there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::ByteSlice;
use refdb::internals::{
    Frozen, Holder, Home, LockFile, LockOptions, bytes_to_path, is_absent, is_frozen, maintained,
    remove_empty_tree,
};
use refdb::layout::{HEAD_OF_TABLES, HEADS_OF_TABLES};
use refdb::name::{is_path, is_root_ref};
use refdb::options::LockTimeout;
use refdb::system::{FileKind, Stat, System};
use refdb::{Error, ErrorKind, ObjectFormat, RefFormat, Result};
use refdb_git::internals::{format_and_path, ref_storage, set_config};
use refdb_git::repository::config::Config;

use super::folder::{self, Folder};
use super::links;
use super::moving;
use super::place::{self, Place};
use super::{Context, Migration};

/// How long the lock of the configuration is waited for.
const CONFIG_TIMEOUT: LockTimeout = LockTimeout::from_millis(1000);

/// Which format refs have, and where they are.
const REF_STORAGE: &str = "extensions.refstorage";

/// What the new configuration is called before it has its place, if the folder of the migration is
/// elsewhere.
const STAGED_CONFIG: &str = "config.refdb-migration";

/// Extensions that a repository of version 0 cannot have, besides those that are changed here.
const V1_EXTENSIONS: [&str; 4] = [
    "extensions.noop-v1",
    "extensions.compatobjectformat",
    "extensions.relativeworktrees",
    "extensions.submodulepathconfig",
];

/// Takes every lock of every store.
pub(super) fn freeze(
    migration: &Migration<'_>,
    context: &Context,
    places: &[Place],
) -> Result<Vec<Box<dyn Frozen>>> {
    let mut frozen = Vec::with_capacity(places.len());
    for place in places {
        // What is left of a worktree that was removed can be a folder without refs. It gets an empty
        // store: what is not there could neither be locked nor put away.
        let dir = place.dir.join(match migration.from {
            RefFormat::Files => "refs",
            RefFormat::Reftable => "reftable",
        });
        if !folder::exists(context.system.as_ref(), &dir)? {
            context.create_dir(&dir)?;
        }
        let store = context.store(&place.dir, migration.from)?;
        frozen.push(maintained(&store).freeze()?);
    }
    Ok(frozen)
}

/// The folders of the copies, as they were made: somebody may exchange one for another, in which not all refs are.
pub(super) struct Made(Vec<(PathBuf, u64)>);

impl Made {
    /// Begins with the folder of them all.
    pub(super) fn new(context: &Context, stage: &Path) -> Result<Made> {
        let mut made = Made(Vec::new());
        made.add_one(context, stage)?;
        Ok(made)
    }

    /// Adds those of copies that are written.
    pub(super) fn add(&mut self, context: &Context, copies: &[PathBuf]) -> Result<()> {
        for copy in copies {
            for name in ["", "reftable", "refs", "logs"] {
                self.add_one(context, &copy.join(name))?;
            }
        }
        Ok(())
    }

    fn add_one(&mut self, context: &Context, dir: &Path) -> Result<()> {
        self.0
            .extend(number(context, dir)?.map(|ino| (dir.to_owned(), ino)));
        Ok(())
    }

    /// Makes sure that they are still there.
    ///
    /// # Errors
    /// `Locked` if one is not.
    pub(super) fn check(&self, context: &Context) -> Result<()> {
        for (dir, ino) in &self.0 {
            if number(context, dir)? != Some(*ino) {
                let message = format!(
                    "'{}' was exchanged by somebody else: nothing was changed; try again",
                    dir.display()
                );
                return Err(Error::new(ErrorKind::Locked, message));
            }
        }
        Ok(())
    }
}

/// Returns the number of a folder, if it is there.
fn number(context: &Context, dir: &Path) -> Result<Option<u64>> {
    let found = context.system.find(dir);
    let found = found.map_err(|error| Error::io("unable to read", dir, error))?;
    let kept = found.filter(|stat| stat.kind == FileKind::Directory);
    Ok(kept.map(|stat| stat.ino))
}

/// The configuration with the new format.
pub(super) struct NewConfig {
    /// The file itself, should `config` be a link.
    path: PathBuf,
    /// Reaches the file: without links, like all else, unless it is one.
    context: Context,
    /// Where the new one is written, on the file system of the old one.
    staged: PathBuf,
    /// Reaches that.
    beneath: Arc<dyn System>,
    from: RefFormat,
    to: RefFormat,
}

impl NewConfig {
    /// Makes sure that the configuration can be changed, and is that of the old format still.
    ///
    /// # Errors
    /// `Config` when it cannot; `Locked` when the format is another one by now.
    pub(super) fn prepare(
        context: &Context,
        folder: &Folder,
        from: RefFormat,
        to: RefFormat,
    ) -> Result<NewConfig> {
        let path = context.common_dir.join("config");
        let beneath = context.beneath_repository()?;
        let is_link = links::is_link(beneath.as_ref(), &path)?;
        let system = if is_link { &context.followed } else { &beneath };
        let context_of_file = context.on(Arc::clone(system));
        let path = match is_link {
            true => refdb_git::internals::real_path(system.as_ref(), &path)
                .map_err(|error| Error::io("unable to read", &path, error))?,
            false => path,
        };
        let config = NewConfig {
            path,
            context: context_of_file,
            staged: staged_config(context, folder),
            beneath: Arc::clone(&beneath),
            from,
            to,
        };
        // It is written once more under its lock.
        config.write(&context.synced_later())?;
        Ok(config)
    }

    /// Writes the new configuration beside the present one, which it returns.
    fn write(&self, context: &Context) -> Result<Vec<u8>> {
        let system = self.beneath.as_ref();
        let io = |error| Error::io("unable to read", &self.path, error);
        let old = self.context.system.read(&self.path).map_err(io)?;
        if check_said(context, &old)? != self.from {
            return Err(Error::new(
                ErrorKind::Locked,
                "the format of the refs was changed by another process; try again",
            ));
        }
        let new = changed(&old, context.options.object_format, self.to)?;
        let path = &self.staged;
        folder::remove_if_there(system, path)?;
        let writer = context.on(Arc::clone(&self.beneath));
        writer.write(path, &new)?;
        let mode = self.context.system.stat(&self.path).map_err(io)?.mode;
        system
            .set_mode(path, mode)
            .map_err(|error| Error::io("unable to write", path, error))?;
        Ok(old)
    }

    /// Takes the lock of the configuration, and writes the new one as it is to be by now.
    fn lock(&self, context: &Context) -> Result<LockFile> {
        let Context {
            system,
            common_dir,
            options,
            ..
        } = &self.context;
        let holder = Holder::migrating(&Home::new(system, common_dir, options));
        let options = LockOptions {
            timeout: CONFIG_TIMEOUT,
            ..LockOptions::AT_ONCE
        };
        let lock = LockFile::take(&holder, &self.path, options).map_err(|error| {
            let path = self.path.display();
            error.context(format_args!("could not lock config file {path}"))
        })?;
        self.write(context)?;
        Ok(lock)
    }

    /// Puts the new configuration in place.
    fn publish(&self, lock: LockFile) -> Result<()> {
        lock.check()?;
        self.context.rename(&self.staged, &self.path)?;
        // What is removed next must not be gone while the old configuration may come back.
        let dir = self.path.parent().unwrap_or(&self.context.common_dir);
        self.context.sync_dir(dir)?;
        let released = lock.release();
        released.map_err(|error| Error::io("unable to unlock", &self.path, error))
    }
}

/// Returns where the new configuration is written before it replaces the old one: in the folder, unless
/// that is outside the repository and so may be on another file system.
pub(super) fn staged_config(context: &Context, folder: &Folder) -> PathBuf {
    match context.is_elsewhere() {
        true => context.common_dir.join(STAGED_CONFIG),
        false => folder.path.join("config"),
    }
}

/// Returns the format that a configuration speaks of.
///
/// # Errors
/// `Unsupported` when the refs that it speaks of are not those that are migrated.
pub(super) fn check_said(context: &Context, content: &[u8]) -> Result<RefFormat> {
    let config = Config::parse(content)?;
    let Some(said) = config.string(REF_STORAGE) else {
        return match context.is_elsewhere() {
            true => Err(not_said(context, None)),
            false => Ok(RefFormat::Files),
        };
    };
    let Some((format, dir)) = ref_storage(said, &context.common_dir) else {
        let message = format!("unknown ref storage format '{said}'");
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    let real = |dir: &Path| {
        refdb_git::internals::real_path(context.followed.as_ref(), dir)
            .map_err(|error| Error::io("unable to follow the links of", dir, error))
    };
    let is_said = match &dir {
        Some(dir) => real(dir)? == real(&context.base)?,
        None => !context.is_elsewhere(),
    };
    match is_said {
        true => Ok(format),
        false => Err(not_said(context, dir.as_deref())),
    }
}

/// Makes sure that the configuration speaks of the refs that are to be migrated: where only a variable
/// does, nothing that is written there would tell of their new format.
///
/// # Errors
/// `Unsupported` when it does not.
pub(super) fn check_place(context: &Context) -> Result<()> {
    let path = context.common_dir.join("config");
    match context.followed.read(&path) {
        Ok(content) => check_said(context, &content).map(|_| ()),
        Err(error) if is_absent(&error) => check_said(context, b"").map(|_| ()),
        Err(error) => Err(Error::io("unable to read", &path, error)),
    }
}

fn not_said(context: &Context, said: Option<&Path>) -> Error {
    let base = context.base.display();
    let other = said.unwrap_or(&context.common_dir).display();
    let message = format!(
        "the refs in '{base}' are not migrated, since the configuration speaks of those in '{other}'; name \
         the place there as 'extensions.refStorage' first, and not only in GIT_REFERENCE_BACKEND"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns a configuration with another format of refs, as Git would change it.
fn changed(content: &[u8], objects: ObjectFormat, to: RefFormat) -> Result<Vec<u8>> {
    let config = Config::parse(content)?;
    let is_sha1 = objects == ObjectFormat::Sha1;
    let needs_v1 = !is_sha1
        || to != RefFormat::Files
        || V1_EXTENSIONS.iter().any(|key| config.string(key).is_some());
    let objects = (!is_sha1).then_some(objects.name().as_bytes());
    let place = config.string(REF_STORAGE).and_then(|said| {
        let path = format_and_path(said).1.filter(|path| !path.is_empty())?;
        Some([to.name().as_bytes(), b"://", path].concat())
    });
    let needs_v1 = needs_v1 || place.is_some();
    let refs = match &place {
        Some(place) => Some(place.as_slice()),
        None => (to != RefFormat::Files).then_some(to.name().as_bytes()),
    };
    let version: &[u8] = if needs_v1 { b"1" } else { b"0" };
    let content = set_config(content, "extensions", "objectformat", objects)?;
    let content = set_config(&content, "extensions", "refstorage", refs)?;
    set_config(&content, "core", "repositoryformatversion", Some(version))
}

/// Puts the new stores in place and renames the configuration. What a failure leaves is for
/// [`recover`](super::recover) to clean up, as after the death of a process.
pub(super) fn switch(
    context: &Context,
    folder: &Folder,
    places: &[Place],
    copies: &[PathBuf],
    frozen: &[Box<dyn Frozen>],
    config: NewConfig,
    to: RefFormat,
) -> Result<()> {
    let items = items(context, folder, copies, to)?;
    check_free(context, places, &items, to)?;
    let text = items.iter().flat_map(|item| {
        let item = std::os::unix::ffi::OsStrExt::as_bytes(item.as_os_str());
        item.iter().copied().chain([b'\0'])
    });
    let list = folder.path.join("items");
    let later = context.synced_later();
    later.write(&list, &text.collect::<Vec<u8>>())?;
    let lock = config.lock(context)?;
    // The copies, too, and the list of what is locked: nothing of them is relied on before.
    context.sync_file_system(&folder.path)?;
    put(context, folder, &items)?;
    if to == RefFormat::Files {
        places.iter().try_for_each(|it| remove_stub(context, it))?;
    }
    context.sync_file_system(&context.base)?;
    // Syncing can take long, and nothing keeps anybody from adding a worktree meanwhile.
    place::check(context.system.as_ref(), &context.base, places)?;
    // Nor from removing locks; what was written then is not in the copies.
    frozen.iter().try_for_each(|frozen| frozen.check())?;
    config.publish(lock)
}

/// Removes what stands in the place of branches in a linked worktree of tables: Git's checks take it for a broken ref
/// as soon as refs are files, and nothing needs it before.
pub(super) fn remove_stub(context: &Context, place: &Place) -> Result<()> {
    let system = context.system.as_ref();
    let heads = place.dir.join("refs/heads");
    let is_file = |stat: Stat| stat.kind == FileKind::File;
    match !place.is_common() && system.lstat(&heads).is_ok_and(is_file) {
        true => folder::remove_if_there(system, &heads),
        false => Ok(()),
    }
}

/// Returns what is put in place, as paths below the common directory.
fn items(
    context: &Context,
    folder: &Folder,
    copies: &[PathBuf],
    to: RefFormat,
) -> Result<Vec<PathBuf>> {
    let stage = folder.stage();
    let mut items = Vec::new();
    for copy in copies {
        let below = copy.strip_prefix(&stage).unwrap_or(Path::new(""));
        if to == RefFormat::Reftable {
            items.push(below.join("reftable"));
            continue;
        }
        if below.as_os_str().is_empty() {
            for dir in ["refs", "refs/heads", "refs/tags"] {
                let dir = copy.join(dir);
                if !folder::exists(context.system.as_ref(), &dir)? {
                    context.create_dir(&dir)?;
                }
            }
        }
        for entry in folder::list(context.system.as_ref(), copy)? {
            let name = Path::new(bytes_to_path(&entry.name));
            match entry.name.as_slice() {
                b"worktrees" => {}
                b"refs" => {
                    for entry in folder::list(context.system.as_ref(), &copy.join("refs"))? {
                        items.push(below.join("refs").join(bytes_to_path(&entry.name)));
                    }
                }
                _ => items.push(below.join(name)),
            }
        }
    }
    Ok(items)
}

/// Returns whether a migration puts something of that name in place: what holds refs or reflogs, in the
/// common directory or in that of a worktree.
fn is_item(item: &[u8]) -> bool {
    let own = item
        .strip_prefix(b"worktrees/")
        .and_then(|rest| rest.split_once_str("/"));
    let name = own.map_or(item, |(_, name)| name);
    let is_store = matches!(name, b"reftable" | b"logs" | b"packed-refs") || is_root_ref(name);
    let of_refs = name.strip_prefix(b"refs/");
    is_path(item) && (is_store || of_refs.is_some_and(|name| !name.contains(&b'/')))
}

/// Makes sure that nothing is in the way of the new stores but what belongs there: it could be the
/// only copy of something.
fn check_free(context: &Context, places: &[Place], items: &[PathBuf], to: RefFormat) -> Result<()> {
    let system = context.system.as_ref();
    for item in items {
        let path = context.base.join(item);
        let name = item.file_name().unwrap_or_default();
        let is_stub = name == "heads"
            && system
                .lstat(&path)
                .is_ok_and(|stat| stat.kind == FileKind::File);
        let is_root_ref = item.parent().is_some_and(|dir| !dir.ends_with("refs"))
            && !matches!(name.to_str(), Some("logs" | "packed-refs" | "reftable"));
        if is_stub || is_root_ref || !folder::exists(system, &path)? {
            continue;
        }
        if is_frozen(system, &path) {
            folder::remove_if_there(system, &path)?;
            continue;
        }
        // Folders in which nothing is are left by writers that were too late.
        if remove_empty_tree(system, &path) {
            continue;
        }
        return Err(Error::new(
            ErrorKind::Misuse,
            format!(
                "'{}' is in the way of the migrated refs; see what it is, and move it away",
                path.display()
            ),
        ));
    }
    if to == RefFormat::Files {
        for place in places {
            context.have_refs_dir(&place.dir.join("refs"))?;
        }
    }
    Ok(())
}

fn put(context: &Context, folder: &Folder, items: &[PathBuf]) -> Result<()> {
    let system = context.system.as_ref();
    let stage = folder.stage();
    for item in items {
        let to = context.base.join(item);
        let is_dir = system
            .lstat(&stage.join(item))
            .is_ok_and(|stat| stat.kind == FileKind::Directory);
        if is_dir
            && system
                .lstat(&to)
                .is_ok_and(|stat| stat.kind == FileKind::File)
        {
            // The stub in the place of branches.
            folder::remove_if_there(system, &to)?;
        }
        context.rename(&stage.join(item), &to)?;
    }
    Ok(())
}

/// Returns what was to be put in place; `None` before that is written down, and when the folder is cleared.
pub(super) fn listed(context: &Context, folder: &Folder) -> Result<Option<Vec<PathBuf>>> {
    let list = folder.path.join("items");
    let content = match context.system.read(&list) {
        Err(error) if is_absent(&error) => return Ok(None),
        content => content.map_err(|error| Error::io("unable to read", &list, error))?,
    };
    let items = content.split(|&byte| byte == 0);
    let items: Vec<&[u8]> = items.filter(|item| !item.is_empty()).collect();
    // Nothing is moved for the sake of a list that no migration wrote.
    if let Some(item) = items.iter().find(|item| !is_item(item)) {
        let what = format!(
            "'{}' is nothing that a migration puts in place",
            item.as_bstr()
        );
        return Err(Error::corrupt(&list, what));
    }
    let items = items.into_iter();
    Ok(Some(
        items.map(|item| bytes_to_path(item).to_owned()).collect(),
    ))
}

/// Takes back what was put in place, and restores what the old format needs there. Also after a
/// crash, and as often as need be.
pub(super) fn take_back(
    context: &Context,
    folder: &Folder,
    places: &[Place],
    to: RefFormat,
) -> Result<()> {
    let system = context.system.as_ref();
    let stage = folder.stage();
    let Some(items) = listed(context, folder)? else {
        return Ok(());
    };
    for item in &items {
        let (there, staged) = (context.base.join(item), stage.join(item));
        if folder::exists(system, &staged)? || !folder::exists(system, &there)? {
            continue;
        }
        let is_head = item.file_name().is_some_and(|name| name == "HEAD");
        if is_head && to == RefFormat::Files && !context.is_elsewhere() {
            write_head_stub(context, &there, &staged)?;
            continue;
        }
        match context.rename(&there, &staged) {
            // Not to where it was staged: what is there now is what was put in place.
            Err(error) if moving::is_needed(&error) => {
                moving::move_all(context, &there, &folder.path.join("back").join(item))?;
            }
            renamed => renamed?,
        }
    }
    if to == RefFormat::Files && context.is_elsewhere() {
        remove_empty_tree(system, &context.base.join("refs"));
    } else if to == RefFormat::Files {
        for place in places {
            let refs = place.dir.join("refs");
            let heads = refs.join("heads");
            if folder::exists(system, &refs)? && !folder::exists(system, &heads)? {
                context.write(&heads, HEADS_OF_TABLES)?;
            }
        }
    }
    Ok(())
}

/// Replaces HEAD by the stub, through a file that does not exist yet.
fn write_head_stub(context: &Context, head: &Path, through: &Path) -> Result<()> {
    context.write(through, HEAD_OF_TABLES)?;
    context.rename(through, head)
}

/// Writes what makes a directory look like a repository whose refs are tables.
pub(super) fn write_stubs(context: &Context, dir: &Path) -> Result<()> {
    context.write(&dir.join("HEAD"), HEAD_OF_TABLES)?;
    context.create_dir(&dir.join("refs"))?;
    context.write(&dir.join("refs/heads"), HEADS_OF_TABLES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stores_of_refs_are_put_in_place() {
        for item in [
            "HEAD",
            "ORIG_HEAD",
            "logs",
            "packed-refs",
            "reftable",
            "refs/heads",
            "worktrees/w/HEAD",
            "worktrees/w/reftable",
            "worktrees/w/refs/bisect",
        ] {
            assert!(is_item(item.as_bytes()), "{item}");
        }
        for item in [
            "",
            "/etc/passwd",
            "../x",
            "refs/..",
            "refs/../config",
            "refs/heads/main",
            "config",
            "objects",
            "worktrees/w",
            "worktrees/../HEAD",
            "worktrees/w/gitdir",
            "worktrees/w/../../logs",
        ] {
            assert!(!is_item(item.as_bytes()), "{item}");
        }
    }
}
