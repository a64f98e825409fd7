//! From the configuration to the settings of a store.

use bstr::{BStr, ByteSlice};
use refdb::internals::{invalid_locking, invalid_packing, invalid_tables};
use refdb::options::{LockTimeout, LogRefs, ReftableOptions, SharedRepository};
use refdb::{Error, ErrorKind, ObjectFormat, Options, RefFormat, Result};

use super::config::{Config, values};
use super::environment::Environment;

/// Returns the settings of a store, without the committer, and appends what is strange about them
/// to `warnings`.
///
/// # Errors
/// `Config` for a value that makes no sense.
pub(super) fn options(
    config: &Config,
    environment: &Environment,
    object_format: ObjectFormat,
    ref_format: RefFormat,
    bare: bool,
    warnings: &mut Vec<String>,
) -> Result<Options> {
    let mut options = Options::new(object_format);
    options.fsync = fsync(config, environment, warnings)?;
    let flag = |key| Ok::<_, Error>(config.boolean(key)?.unwrap_or(false));
    options.lockfile_pid = flag("core.lockfilepid")?;
    options.ignore_case = flag("core.ignorecase")?;
    config.boolean("core.bare")?;
    abbreviation(config, object_format)?;
    check_object_creation(config)?;
    // Whoever reads needs none of these, and a migration writes tables where there are files.
    let logged = log_refs(config, bare).map(|log_refs| options.log_refs = log_refs);
    let written = reftable(config, environment).map(|written| options.reftable = written);
    match ref_format {
        RefFormat::Files => {
            *invalid_packing(&mut options) = logged.clone().err();
            *invalid_locking(&mut options) =
                logged.and_then(|()| files(config, &mut options)).err();
            packing(config, &mut options);
            *invalid_tables(&mut options) = written.err();
        }
        RefFormat::Reftable => {
            let shared = shared_repository(config);
            let shared = shared.map(|shared| options.shared_repository = shared);
            *invalid_tables(&mut options) = shared.and(written).and(logged).err();
        }
    }
    options.quarantined = environment.get("GIT_QUARANTINE_PATH").is_some();
    Ok(options)
}

fn log_refs(config: &Config, bare: bool) -> Result<LogRefs> {
    const KEY: &str = "core.logallrefupdates";
    match config.get(KEY).map(|entry| entry.value()) {
        Some(Some(value)) if value.eq_ignore_ascii_case(b"always") => return Ok(LogRefs::Always),
        // As for any other setting that is true or false.
        _ => {}
    }
    Ok(if config.boolean(KEY)?.unwrap_or(!bare) {
        LogRefs::Normal
    } else {
        LogRefs::None
    })
}

/// Reads what the `files` format asks for when it takes a lock.
fn files(config: &Config, options: &mut Options) -> Result<()> {
    options.shared_repository = shared_repository(config)?;
    options.prefer_symlink_refs = config.boolean("core.prefersymlinkrefs")?.unwrap_or(false);
    if let Some(timeout) = timeout(config, "core.filesreflocktimeout")? {
        options.files_ref_lock_timeout = timeout;
    }
    if let Some(min) = config.unsigned_integer("refdb.directorylockmin")? {
        options.directory_lock_min = usize::try_from(min).unwrap_or(usize::MAX);
    }
    Ok(())
}

/// Reads what it asks for when it packs, and keeps what is wrong until then.
fn packing(config: &Config, options: &mut Options) {
    match timeout(config, "core.packedrefstimeout") {
        Ok(timeout) => {
            options.packed_refs_timeout = timeout.unwrap_or(options.packed_refs_timeout);
        }
        Err(error) => *invalid_packing(options) = Some(error),
    }
}

fn timeout(config: &Config, key: &str) -> Result<Option<LockTimeout>> {
    let number = config.small_integer(key)?;
    Ok(number.map(|number| lock_timeout(number.into())))
}

/// Refuses a way to create objects that is none. Refs are not created in such ways.
fn check_object_creation(config: &Config) -> Result<()> {
    match config.get("core.createobject").map(|entry| entry.value()) {
        None => Ok(()),
        Some(Some(mode)) if mode == "rename" || mode == "link" => Ok(()),
        Some(Some(mode)) => Err(Error::new(
            ErrorKind::Config,
            format!("invalid mode for object creation: {mode}"),
        )),
        Some(None) => Err(missing_value(config, "core.createobject")),
    }
}

/// Refuses a key without `=` whose meaning is a text.
fn missing_value(config: &Config, key: &str) -> Error {
    unparsable(config, key, &format!("missing value for '{key}'"))
}

/// Refuses the value of `key`, and says behind `what` is wrong with it where it stands.
fn unparsable(config: &Config, key: &str, what: &str) -> Error {
    match config.get(key) {
        Some(entry) => entry.unparsable(what),
        None => Error::new(ErrorKind::Config, what),
    }
}

fn lock_timeout(milliseconds: i64) -> LockTimeout {
    u64::try_from(milliseconds).map_or(LockTimeout::FOREVER, LockTimeout::from_millis)
}

/// Returns whether refs are made durable: unless the configuration says otherwise, they are.
fn fsync(config: &Config, environment: &Environment, warnings: &mut Vec<String>) -> Result<bool> {
    if environment.boolean("GIT_TEST_FSYNC")? == Some(false) {
        return Ok(false);
    }
    for key in ["core.fsync", "core.fsyncmethod"] {
        if config.get(key).is_some_and(|entry| entry.value().is_none()) {
            return Err(missing_value(config, key));
        }
    }
    match config
        .string("core.fsyncmethod")
        .map(|method| method.as_bytes())
    {
        // It starts writing and waits for nothing.
        Some(b"writeout-only") => return Ok(false),
        None | Some(b"fsync" | b"batch") => {}
        Some(method) => warnings.push(format!(
            "ignoring unknown core.fsyncMethod value '{}'",
            method.as_bstr()
        )),
    }
    let components = config.string("core.fsync");
    Ok(components.is_none_or(|components| names_references(components, warnings)))
}

/// The components of `core.fsync` that refs are part of.
pub const FSYNC_OF_REFS: [&str; 4] = ["reference", "committed", "added", "all"];

/// The components of `core.fsync` that refs are no part of.
pub const FSYNC_OF_OTHERS: [&str; 7] = [
    "loose-object",
    "pack",
    "pack-metadata",
    "commit-graph",
    "index",
    "objects",
    "derived-metadata",
];

/// Returns whether a list of `core.fsync` asks for durable refs.
///
/// A name may be shortened, a name with `-` before it only takes away from Git's default (of which
/// refs are no part), and `none` takes the default itself away.
fn names_references(components: &BStr, warnings: &mut Vec<String>) -> bool {
    let mut asked = false;
    for component in components.split(|&byte| byte == b',') {
        let component = component.trim_ascii();
        if component == b"none" {
            continue;
        }
        let name = component.strip_prefix(b"-");
        let is_negative = name.is_some();
        let name = name.unwrap_or(component);
        if name.is_empty() {
            break;
        }
        let is_short_for = |full: &&str| full.as_bytes().starts_with(name);
        let has_references = FSYNC_OF_REFS.iter().any(is_short_for);
        if !has_references && !FSYNC_OF_OTHERS.iter().any(is_short_for) {
            warnings.push(format!(
                "ignoring unknown core.fsync component '{}'",
                name.as_bstr()
            ));
        }
        asked |= has_references && !is_negative;
    }
    asked
}

fn shared_repository(config: &Config) -> Result<SharedRepository> {
    const KEY: &str = "core.sharedrepository";
    const GROUP: SharedRepository = SharedRepository::Added(0o660);
    const EVERYBODY: SharedRepository = SharedRepository::Added(0o664);
    let Some(entry) = config.get(KEY) else {
        return Ok(SharedRepository::Umask);
    };
    let value = match entry.value().map(|value| value.as_bytes()) {
        None | Some(b"group") => return Ok(GROUP),
        Some(b"umask") => return Ok(SharedRepository::Umask),
        Some(b"all" | b"world" | b"everybody") => return Ok(EVERYBODY),
        Some(value) => value,
    };
    let octal = value
        .to_str()
        .ok()
        .and_then(|text| u32::from_str_radix(text, 8).ok());
    match octal {
        None => match config.boolean(KEY)? {
            Some(true) => Ok(GROUP),
            _ => Ok(SharedRepository::Umask),
        },
        Some(0) => Ok(SharedRepository::Umask),
        Some(1) => Ok(GROUP),
        Some(2) => Ok(EVERYBODY),
        Some(mode) if mode & 0o600 == 0o600 => Ok(SharedRepository::Exactly(mode & 0o666)),
        Some(mode) => Err(Error::new(
            ErrorKind::Config,
            format!(
                "problem with core.sharedRepository filemode value (0{mode:03o}).\nThe owner of \
                 files must always have read and write permissions."
            ),
        )),
    }
}

fn reftable(config: &Config, environment: &Environment) -> Result<ReftableOptions> {
    let refuse = |message: &str| Error::new(ErrorKind::Config, message);
    let mut options = ReftableOptions::default();
    if let Some(size) = config.unsigned_integer("reftable.blocksize")? {
        options.block_size = u32::try_from(size)
            .ok()
            .filter(|&size| size <= 0xff_ffff)
            .ok_or_else(|| refuse("reftable block size cannot exceed 16MB"))?;
        if options.block_size == 0 {
            options.block_size = ReftableOptions::default().block_size;
        }
    }
    if let Some(interval) = config.unsigned_integer("reftable.restartinterval")? {
        options.restart_interval = u16::try_from(interval)
            .map_err(|_| refuse("reftable block size cannot exceed 65535"))?;
        if options.restart_interval == 0 {
            options.restart_interval = ReftableOptions::default().restart_interval;
        }
    }
    if let Some(index) = config.boolean("reftable.indexobjects")? {
        options.index_objects = index;
    }
    if let Some(factor) = config.unsigned_integer("reftable.geometricfactor")? {
        options.geometric_factor = u8::try_from(factor)
            .map_err(|_| refuse("reftable geometric factor cannot exceed 255"))?;
        if options.geometric_factor == 0 {
            options.geometric_factor = ReftableOptions::default().geometric_factor;
        }
    }
    if let Some(timeout) = config.integer("reftable.locktimeout")? {
        if timeout < -1 {
            return Err(refuse(
                "reftable lock timeout does not support negative values other than -1",
            ));
        }
        options.lock_timeout = lock_timeout(timeout);
    }
    if let Some(compaction) = environment.boolean("GIT_TEST_REFTABLE_AUTOCOMPACTION")? {
        options.auto_compaction = compaction;
    }
    Ok(options)
}

/// Returns how many digits `core.abbrev` asks for: `None` for as many as the number of objects
/// calls for.
///
/// # Errors
/// `Config` when it is out of range.
pub(super) fn abbreviation(config: &Config, format: ObjectFormat) -> Result<Option<usize>> {
    const KEY: &str = "core.abbrev";
    let Some(entry) = config.get(KEY) else {
        return Ok(None);
    };
    let Some(value) = entry.value().map(|value| value.as_bytes()) else {
        return Err(missing_value(config, KEY));
    };
    if value.eq_ignore_ascii_case(b"auto") {
        return Ok(None);
    }
    if is_word_for_false(value) {
        return Ok(Some(format.hex_len()));
    }
    let number = config.small_integer(KEY)?.unwrap_or_default();
    match usize::try_from(number) {
        Ok(number) if number >= 4 => Ok(Some(number.min(format.hex_len()))),
        _ => {
            let what = format!("abbrev length out of range: {number}");
            Err(unparsable(config, KEY, &what))
        }
    }
}

/// Returns whether this is a word for false, not a number.
fn is_word_for_false(value: &[u8]) -> bool {
    values::boolean(Some(value)) == Some(false) && values::integer(value).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str, environment: &[(&str, &str)], bare: bool) -> Result<Options> {
        read_as(RefFormat::Reftable, content, environment, bare)
    }

    fn read_as(
        format: RefFormat,
        content: &str,
        environment: &[(&str, &str)],
        bare: bool,
    ) -> Result<Options> {
        let config = Config::parse(content.as_bytes())?;
        let environment = Environment::from_pairs(environment.iter().copied());
        options(
            &config,
            &environment,
            ObjectFormat::Sha1,
            format,
            bare,
            &mut Vec::new(),
        )
    }

    #[test]
    fn the_default_is_durable_and_logs_in_repositories_with_a_work_tree() {
        let options = read("", &[], false).unwrap();
        assert!(options.fsync && options.log_refs == LogRefs::Normal);
        assert_eq!(read("", &[], true).unwrap().log_refs, LogRefs::None);
        assert!(!read("", &[("GIT_TEST_FSYNC", "0")], true).unwrap().fsync);
    }

    #[test]
    fn components_of_fsync() {
        for (value, durable) in [
            ("reference", true),
            ("none", false),
            ("none,reference", true),
            ("all,-reference", true),
            ("-reference", false),
            ("committed", true),
            ("objects", false),
            ("loose-object , ref", true),
            ("", false),
        ] {
            let options = read(&format!("[core]\nfsync = \"{value}\"\n"), &[], false);
            assert_eq!(options.unwrap().fsync, durable, "{value}");
        }
        let mut warnings = Vec::new();
        assert!(!names_references(b"wrong".as_bstr(), &mut warnings));
        assert_eq!(warnings, ["ignoring unknown core.fsync component 'wrong'"]);
    }

    #[test]
    fn values_out_of_range_are_refused_when_something_is_written() {
        for (line, message) in [
            (
                "[core]\nlogallrefupdates=maybe",
                "bad boolean config value 'maybe' for 'core.logallrefupdates'",
            ),
            (
                "[reftable]\nblocksize=16777216",
                "reftable block size cannot exceed 16MB",
            ),
            (
                "[reftable]\nrestartinterval=65536",
                "reftable block size cannot exceed 65535",
            ),
            (
                "[reftable]\ngeometricfactor=256",
                "reftable geometric factor cannot exceed 255",
            ),
            (
                "[reftable]\nlocktimeout=-2",
                "reftable lock timeout does not support negative values other than -1",
            ),
        ] {
            let mut options = read(line, &[], false).unwrap();
            let told = invalid_tables(&mut options).take().unwrap();
            assert_eq!(told.to_string(), message);
        }
    }

    #[test]
    fn what_is_not_asked_for_may_say_anything() {
        let files = |content| read_as(RefFormat::Files, content, &[], false).unwrap();
        let mut options = files("[reftable]\nblocksize=x");
        assert!(invalid_locking(&mut options).is_none());
        assert!(invalid_tables(&mut options).is_some());
        let mut options = files("[core]\nlogallrefupdates=maybe");
        assert!(invalid_locking(&mut options).is_some() && invalid_packing(&mut options).is_some());
        assert_eq!(files("[core]\nlogallrefupdates").log_refs, LogRefs::Normal);
        assert_eq!(
            files("[refdb]\ndirectoryLockMin=2k").directory_lock_min,
            2048
        );
        let mut options = files("[core]\nfilesreflocktimeout=1x\npackedrefstimeout=y");
        assert_eq!(
            invalid_locking(&mut options).take().unwrap().to_string(),
            "bad numeric config value '1x' for 'core.filesreflocktimeout': invalid unit"
        );
        assert_eq!(
            invalid_packing(&mut options).take().unwrap().to_string(),
            "bad numeric config value 'y' for 'core.packedrefstimeout': invalid unit"
        );
        let mut options = files("[core]\nsharedRepository=x");
        assert!(invalid_locking(&mut options).is_some());
        assert!(read("[core]\npackedrefstimeout=y", &[], false).is_ok());
    }

    #[test]
    fn modes_of_shared_repositories() {
        for (value, shared) in [
            ("group", SharedRepository::Added(0o660)),
            ("true", SharedRepository::Added(0o660)),
            ("world", SharedRepository::Added(0o664)),
            ("0640", SharedRepository::Exactly(0o640)),
            ("1", SharedRepository::Added(0o660)),
            ("false", SharedRepository::Umask),
        ] {
            let options = read(&format!("[core]\nsharedRepository = {value}\n"), &[], false);
            assert_eq!(options.unwrap().shared_repository, shared, "{value}");
        }
        let mut options = read("[core]\nsharedRepository = 0440\n", &[], false).unwrap();
        assert!(invalid_tables(&mut options).is_some());
    }
}
