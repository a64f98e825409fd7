//! File systems of a test's own: made, mounted, and taken down when they are dropped, where the
//! machine and the user allow it.
//!
//! ```no_run
//! use refdb_testkit::mount::Mounted;
//!
//! let dir = tempfile::tempdir().unwrap();
//! match Mounted::tmpfs("1m", dir.path()) {
//!     Ok(mounted) => println!("{}", mounted.path().display()),
//!     Err(reason) => println!("not here: {reason}"),
//! }
//! ```

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    dir: PathBuf,
}

/// Makes an ext4 in a new file of so many megabytes.
///
/// # Errors
///
/// The reason why that cannot be done here.
pub fn make_ext4(image: &Path, megabytes: u64) -> Result<(), String> {
    let file = File::create(image).map_err(|error| error.to_string())?;
    let sized = file.set_len(megabytes << 20);
    sized.map_err(|error| error.to_string())?;
    run("/usr/sbin/mkfs.ext4", &["-q".as_ref(), image.as_os_str()])
}

impl Mounted {
    /// Mounts the ext4 in the file `image` on the folder `dir`.
    ///
    /// # Errors
    ///
    /// The reason why that cannot be done here.
    pub fn ext4(image: &Path, dir: &Path) -> Result<Mounted, String> {
        let args = ["-o".as_ref(), "loop".as_ref(), image.as_os_str()];
        Mounted::mount(&args, dir)
    }

    /// Mounts a new file system in memory, of a size as `mount` takes it, on the folder `dir`.
    ///
    /// # Errors
    ///
    /// The reason why that cannot be done here.
    pub fn tmpfs(size: &str, dir: &Path) -> Result<Mounted, String> {
        let size = format!("size={size}");
        let args = ["-t", "tmpfs", "-o", &size, "none"];
        Mounted::mount(&args.map(OsStr::new), dir)
    }

    /// Mounts what is at `from`, a file or a folder, on `at`, which is one as well: the same file system once more.
    ///
    /// # Errors
    ///
    /// The reason why that cannot be done here.
    pub fn bind(from: &Path, at: &Path) -> Result<Mounted, String> {
        Mounted::mount(&["--bind".as_ref(), from.as_os_str()], at)
    }

    /// Lays the folder `upper` over the folder `lower`, and mounts what is seen then on `dir`. `work`
    /// is a folder beside `upper`.
    ///
    /// # Errors
    ///
    /// The reason why that cannot be done here.
    pub fn overlay(lower: &Path, upper: &Path, work: &Path, dir: &Path) -> Result<Mounted, String> {
        let (lower, upper, work) = (lower.display(), upper.display(), work.display());
        let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let args = ["-t", "overlay", "-o", &layers, "none"];
        Mounted::mount(&args.map(OsStr::new), dir)
    }

    /// Makes a vfat, which knows no links, in a new file of so many megabytes, and mounts it on the
    /// folder `dir`.
    ///
    /// # Errors
    ///
    /// The reason why that cannot be done here.
    pub fn vfat(image: &Path, megabytes: u64, dir: &Path) -> Result<Mounted, String> {
        Mounted::made("mkfs.vfat", "/usr/bin/mount", image, megabytes, dir)
    }

    /// Makes an exFAT, which knows no links, and mounts it by FUSE: of such file systems nobody knows
    /// whether machines share them.
    ///
    /// # Errors
    ///
    /// The reason why that cannot be done here.
    pub fn exfat_by_fuse(image: &Path, megabytes: u64, dir: &Path) -> Result<Mounted, String> {
        Mounted::made("mkfs.exfat", "mount.exfat-fuse", image, megabytes, dir)
    }

    fn made(
        make: &str,
        mount: &str,
        image: &Path,
        megabytes: u64,
        dir: &Path,
    ) -> Result<Mounted, String> {
        let made = File::create(image).and_then(|file| file.set_len(megabytes << 20));
        made.map_err(|error| error.to_string())?;
        run(make, &[image.as_os_str()])?;
        let device = loop_device(image)?;
        let mounted = run(mount, &[device.as_ref(), dir.as_os_str()]);
        // It goes when nobody has it mounted any more.
        let released = run("/usr/sbin/losetup", &["-d".as_ref(), device.as_ref()]);
        mounted?;
        let mounted = Mounted { dir: dir.into() };
        released.map(|()| mounted)
    }

    fn mount(args: &[&OsStr], dir: &Path) -> Result<Mounted, String> {
        run("/usr/bin/mount", &[args, &[dir.as_os_str()]].concat())?;
        Ok(Mounted { dir: dir.into() })
    }

    /// Lets nobody write from now on.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn make_read_only(&self) {
        let args = ["-o".as_ref(), "remount,ro".as_ref(), self.dir.as_os_str()];
        run("/usr/bin/mount", &args).expect("it can be mounted read-only");
    }

    /// Lets everybody write again.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn make_writable(&self) {
        let args = ["-o".as_ref(), "remount,rw".as_ref(), self.dir.as_os_str()];
        run("/usr/bin/mount", &args).expect("it can be mounted for writing");
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process that has just been killed may still have files there.
        let args = ["-l".as_ref(), self.dir.as_os_str()];
        let _ = run("/usr/bin/umount", &args);
    }
}

/// Makes a block device of a file.
fn loop_device(image: &Path) -> Result<String, String> {
    let program = "/usr/sbin/losetup";
    let args = ["-f".as_ref(), "--show".as_ref(), image.as_os_str()];
    let out = Command::new(program).args(args).output();
    let out = out.map_err(|error| format!("{program}: {error}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned()),
        false => Err(String::from_utf8_lossy(&out.stderr).trim_end().to_owned()),
    }
}

fn run(program: &str, args: &[&OsStr]) -> Result<(), String> {
    let out = Command::new(program).args(args).output();
    let out = out.map_err(|error| format!("{program}: {error}"))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("{program}: {}", said.trim_end()))
}
