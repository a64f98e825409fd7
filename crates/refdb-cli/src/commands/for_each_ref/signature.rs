//! `%(signature)`: what gpg, gpgsm or ssh-keygen say of the signature of a commit.
//!
//! The programs are called as Git calls them. What they answer is text of others: nothing in it is
//! taken for more than a value to show.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bstr::{BStr, ByteSlice};
use refdb::ObjectId;
use refdb::error::io_text;
use refdb_git::date::Civil;
use refdb_git::graph::commit_time;

use super::argument::unrecognised;
use crate::context::Context;
use crate::failure::{Failure, Result, say};

/// What is told of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignaturePart {
    Output,
    Grade,
    Signer,
    Key,
    Fingerprint,
    PrimaryKeyFingerprint,
    TrustLevel,
}

impl SignaturePart {
    /// Reads the argument of the atom.
    ///
    /// # Errors
    /// Fatal, for one that is not known.
    pub(super) fn parse(argument: Option<&str>) -> Result<Self> {
        Ok(match argument {
            None => SignaturePart::Output,
            Some("grade") => SignaturePart::Grade,
            Some("signer") => SignaturePart::Signer,
            Some("key") => SignaturePart::Key,
            Some("fingerprint") => SignaturePart::Fingerprint,
            Some("primarykeyfingerprint") => SignaturePart::PrimaryKeyFingerprint,
            Some("trustlevel") => SignaturePart::TrustLevel,
            Some(argument) => return Err(unrecognised("signature", argument)),
        })
    }
}

/// How far the key of a signature is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    #[default]
    Undefined,
    Never,
    Marginal,
    Fully,
    Ultimate,
}

impl Trust {
    const ALL: [(&'static str, Trust); 5] = [
        ("undefined", Trust::Undefined),
        ("never", Trust::Never),
        ("marginal", Trust::Marginal),
        ("fully", Trust::Fully),
        ("ultimate", Trust::Ultimate),
    ];

    fn name(self) -> &'static str {
        let found = Trust::ALL.iter().find(|(_, trust)| *trust == self);
        found.map_or("", |(name, _)| *name)
    }
}

/// What was found out about a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Checked {
    /// One letter; `N` where there is no signature.
    grade: u8,
    trust: Trust,
    output: Vec<u8>,
    signer: Vec<u8>,
    key: Vec<u8>,
    fingerprint: Vec<u8>,
    primary: Vec<u8>,
}

impl Default for Checked {
    fn default() -> Self {
        Checked {
            grade: b'N',
            trust: Trust::Undefined,
            output: Vec::new(),
            signer: Vec::new(),
            key: Vec::new(),
            fingerprint: Vec::new(),
            primary: Vec::new(),
        }
    }
}

/// Checks signatures; that of the last commit is kept for its other atoms.
pub(super) struct Signatures<'c> {
    context: &'c Context,
    last: Option<(ObjectId, Checked)>,
}

impl<'c> Signatures<'c> {
    pub(super) fn new(context: &'c Context) -> Self {
        Signatures {
            context,
            last: None,
        }
    }

    /// Appends what is told of the signature of a commit.
    ///
    /// # Errors
    /// Fatal, when the configuration cannot be read.
    pub(super) fn push(
        &mut self,
        part: SignaturePart,
        oid: ObjectId,
        commit: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let checked = match self.last.take() {
            Some((last, checked)) if last == oid => checked,
            _ => self.check(commit)?,
        };
        match part {
            SignaturePart::Output => out.extend_from_slice(&checked.output),
            SignaturePart::Grade => out.push(match (checked.grade, checked.trust) {
                (b'G', Trust::Undefined | Trust::Never) => b'U',
                (grade, _) => grade,
            }),
            SignaturePart::Signer => out.extend_from_slice(&checked.signer),
            SignaturePart::Key => out.extend_from_slice(&checked.key),
            SignaturePart::Fingerprint => out.extend_from_slice(&checked.fingerprint),
            SignaturePart::PrimaryKeyFingerprint => out.extend_from_slice(&checked.primary),
            SignaturePart::TrustLevel => out.extend_from_slice(checked.trust.name().as_bytes()),
        }
        self.last = Some((oid, checked));
        Ok(())
    }

    fn check(&self, commit: &[u8]) -> Result<Checked> {
        let key = match self.context.object_format()? {
            refdb::ObjectFormat::Sha1 => "gpgsig",
            refdb::ObjectFormat::Sha256 => "gpgsig-sha256",
        };
        let (payload, signature) = split(commit, key);
        if signature.is_empty() {
            return Ok(Checked::default());
        }
        let begins = |text: &str| signature.starts_with(text.as_bytes());
        if begins("-----BEGIN PGP SIGNATURE-----") || begins("-----BEGIN PGP MESSAGE-----") {
            let program = self.program(&["gpg.program", "gpg.openpgp.program"], "gpg")?;
            self.check_by_gpg(&program, &["--keyid-format=long"], &payload, &signature)
        } else if begins("-----BEGIN SIGNED MESSAGE-----") {
            let program = self.program(&["gpg.x509.program"], "gpgsm")?;
            self.check_by_gpg(&program, &[], &payload, &signature)
        } else if begins("-----BEGIN SSH SIGNATURE-----") {
            self.check_by_ssh(&payload, &signature, commit_time(commit))
        } else {
            let text = format!("bad/incompatible signature '{}'", signature.as_bstr());
            Err(Failure::fatal(text))
        }
    }

    /// Returns the program that the last of some keys in the configuration names.
    fn program(&self, keys: &[&str], usual: &str) -> Result<PathBuf> {
        let config = self.context.repository()?.config();
        let is_meant = |key: &BStr| keys.iter().any(|it| key == it.as_bytes());
        let entries = config.entries().iter().rev();
        let key = entries.map(|entry| entry.key()).find(|key| is_meant(key));
        let path = match key {
            Some(key) => config.path(&key.to_str_lossy())?,
            None => None,
        };
        Ok(path.unwrap_or_else(|| usual.into()))
    }

    fn check_by_gpg(
        &self,
        program: &Path,
        options: &[&str],
        payload: &[u8],
        signature: &[u8],
    ) -> Result<Checked> {
        let file = self.write(signature)?;
        let mut command = self.command(program)?;
        command.args(options);
        command.args(["--status-fd=1", "--verify"]);
        command.arg(&file.path).arg("-");
        let Some(said) = run(command, payload) else {
            return Ok(Checked::default());
        };
        let mut checked = parse_status(&said.stdout);
        checked.output = said.stderr;
        Ok(checked)
    }

    fn check_by_ssh(&self, payload: &[u8], signature: &[u8], time: u64) -> Result<Checked> {
        let config = self.context.repository()?.config();
        let Some(allowed) = config.path("gpg.ssh.allowedsignersfile")? else {
            let text = "gpg.ssh.allowedSignersFile needs to be configured and exist for ssh \
                        signature verification";
            say("error", text.as_bytes());
            return Ok(Checked::default());
        };
        let program = self.program(&["gpg.ssh.program"], "ssh-keygen")?;
        let file = self.write(signature)?;
        let when = format!("-Overify-time={}", self.local_time(time)?);
        let call = |action: &[&str]| -> Result<Command> {
            let mut command = self.command(&program)?;
            command.arg("-Y").args(action);
            Ok(command)
        };
        let mut find = call(&["find-principals", "-f"])?;
        find.arg(&allowed).arg("-s").arg(&file.path).arg(&when);
        let found = run(find, b"").unwrap_or_default();
        if !found.success && found.stderr.contains_str("usage:") {
            let text = "ssh-keygen -Y find-principals/verify is needed for ssh signature \
                        verification (available in openssh version 8.2p1+)";
            say("error", text.as_bytes());
            return Ok(Checked::default());
        }
        let mut said = Said::default();
        if !found.success || found.stdout.is_empty() {
            let mut check = call(&["check-novalidate", "-n", "git", "-s"])?;
            check.arg(&file.path).arg(&when);
            said = run(check, payload).unwrap_or_default();
        } else {
            let revoked = config.path("gpg.ssh.revocationfile")?;
            for principal in found.stdout.lines() {
                let mut verify = call(&["verify", "-n", "git", "-f"])?;
                verify.arg(&allowed).arg("-I");
                verify.arg(std::ffi::OsStr::from_bytes(principal));
                verify.arg("-s").arg(&file.path).arg(&when);
                if let Some(revoked) = &revoked {
                    if self.context.repository()?.system().stat(revoked).is_ok() {
                        verify.arg("-r").arg(revoked);
                    } else {
                        let text = "ssh signing revocation file configured but not found: ";
                        say(
                            "warning",
                            &[text.as_bytes(), revoked.as_os_str().as_bytes()].concat(),
                        );
                    }
                }
                said = run(verify, payload).unwrap_or_default();
                if said.success && said.stdout.starts_with(b"Good") {
                    break;
                }
            }
        }
        let mut output = strip_space(&said.stdout);
        output.extend_from_slice(&found.stderr);
        output.extend_from_slice(&strip_space(&said.stderr));
        Ok(parse_ssh(output))
    }

    /// Returns a time as `ssh-keygen` takes it, in the local time zone.
    fn local_time(&self, time: u64) -> Result<String> {
        let seconds = i64::try_from(time).unwrap_or(i64::MAX);
        let offset = self.context.repository()?.zone().offset(seconds);
        let civil = Civil::from_seconds(seconds.saturating_add(i64::from(offset)));
        Ok(format!(
            "{:04}{:02}{:02}{:02}{:02}{:02}",
            civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
        ))
    }

    /// Prepares to run a program at the top of the work tree.
    fn command(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new(program);
        if let Some(top) = self.context.repository()?.work_tree() {
            command.current_dir(top);
        }
        Ok(command)
    }

    /// Writes a signature to a file that is removed when it is dropped.
    fn write(&self, signature: &[u8]) -> Result<SignatureFile> {
        let repository = self.context.repository()?;
        let system = repository.system();
        let folder = repository.environment().path("TMPDIR");
        let folder = folder.unwrap_or_else(|| "/tmp".into());
        let path = folder.join(format!(".git_vtag_tmp{:016x}", system.random()));
        let written = system
            .create_new(&path, 0o600)
            .and_then(|mut file| file.write_all(signature));
        let file = SignatureFile {
            system: std::sync::Arc::clone(system),
            path,
        };
        written.map_err(|error| {
            let path = file.path.display();
            Failure::fatal(format!("could not create temporary file '{path}': {error}"))
        })?;
        Ok(file)
    }
}

/// A file with a signature.
struct SignatureFile {
    system: std::sync::Arc<dyn refdb::system::System>,
    path: PathBuf,
}

impl Drop for SignatureFile {
    fn drop(&mut self) {
        // What cannot be removed is in nobody's way.
        let _ = self.system.remove_file(&self.path);
    }
}

/// What a program said.
#[derive(Default)]
struct Said {
    success: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Runs a program; `None` if it cannot be started, which is said.
fn run(mut command: Command, input: &[u8]) -> Option<Said> {
    let piped = command.stdin(Stdio::piped());
    let piped = piped.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match piped.spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = command.get_program().to_string_lossy();
            let error = io_text(&error);
            if program.contains('/') {
                say(
                    "fatal",
                    format!("cannot exec '{program}': {error}").as_bytes(),
                );
            } else {
                say("error", format!("cannot run {program}: {error}").as_bytes());
            }
            return None;
        }
    };
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that does not read to the end has seen enough.
            let _ = stdin.map(|mut stdin| stdin.write_all(input));
        });
        child.wait_with_output()
    });
    output.ok().map(|output| Said {
        success: output.status.success(),
        stdout: output.stdout,
        stderr: output.stderr,
    })
}

/// Splits a commit into what was signed and the signature that the header `key` holds.
fn split(commit: &[u8], key: &str) -> (Vec<u8>, Vec<u8>) {
    let head = commit.find("\n\n").map_or(commit.len(), |at| at + 1);
    let (head, message) = commit.split_at(head);
    let (mut payload, mut signature) = (Vec::with_capacity(commit.len()), Vec::new());
    // Whether the lines that go on belong to a signature, and to the one that is asked for.
    let mut within = (false, false);
    for line in head.lines_with_terminator() {
        if let Some(rest) = line.strip_prefix(b" ") {
            if within.1 {
                signature.extend_from_slice(rest);
            }
        } else {
            let (name, value) = line.split_once_str(" ").unwrap_or((line, b""));
            within.0 = matches!(name, b"gpgsig" | b"gpgsig-sha256");
            within.1 = name == key.as_bytes();
            if within.1 {
                signature.extend_from_slice(value);
            }
        }
        if !within.0 {
            payload.extend_from_slice(line);
        }
    }
    payload.extend_from_slice(message);
    (payload, signature)
}

/// Reads the lines that gpg writes for programs.
fn parse_status(status: &[u8]) -> Checked {
    const GRADES: [(&str, u8); 6] = [
        ("GOODSIG", b'G'),
        ("BADSIG", b'B'),
        ("ERRSIG", b'E'),
        ("EXPSIG", b'X'),
        ("EXPKEYSIG", b'Y'),
        ("REVKEYSIG", b'R'),
    ];
    let mut checked = Checked::default();
    let mut graded = false;
    let unclear = || Checked {
        grade: b'E',
        ..Checked::default()
    };
    for line in status.lines() {
        let Some(line) = line.strip_prefix(b"[GNUPG:] ") else {
            continue;
        };
        let (word, rest) = line.split_once_str(" ").unwrap_or((line, b""));
        if let Some((_, grade)) = GRADES.iter().find(|(name, _)| word == name.as_bytes()) {
            // Of several signatures, none can be told of.
            if std::mem::replace(&mut graded, true) {
                return unclear();
            }
            checked.grade = *grade;
            let (key, signer) = rest.split_once_str(" ").unwrap_or((rest, b""));
            checked.key = key.to_vec();
            if *grade != b'E' {
                checked.signer = signer.to_vec();
            }
        } else if word == b"VALIDSIG" {
            let mut fields = rest.split_str(" ");
            checked.fingerprint = fields.next().unwrap_or_default().to_vec();
            checked.primary = fields.nth(8).unwrap_or_default().to_vec();
        } else if let Some(level) = word.strip_prefix(b"TRUST_") {
            let level = level.to_ascii_lowercase();
            let known = Trust::ALL.iter().find(|(name, _)| level == name.as_bytes());
            match known {
                Some((_, trust)) => checked.trust = *trust,
                None => return unclear(),
            }
        }
    }
    checked
}

/// Reads what ssh-keygen writes for people.
fn parse_ssh(output: Vec<u8>) -> Checked {
    let mut checked = Checked {
        grade: b'B',
        trust: Trust::Never,
        ..Checked::default()
    };
    let line = output.lines().next().unwrap_or_default();
    let rest = if let Some(rest) = line.strip_prefix(b"Good \"git\" signature for ") {
        // The name of the principal may hold the word as well.
        rest.rfind(" with ").map(|at| {
            checked.signer = rest.get(..at).unwrap_or_default().to_vec();
            (rest.get(at..).unwrap_or_default(), Trust::Fully)
        })
    } else {
        line.strip_prefix(b"Good \"git\" signature with ")
            .map(|rest| (rest, Trust::Undefined))
    };
    if let Some((rest, trust)) = rest {
        checked.trust = trust;
        if let Some((_, key)) = rest.split_once_str("key ") {
            checked.grade = b'G';
            checked.fingerprint = key.to_vec();
            checked.key = key.to_vec();
        }
    }
    checked.output = output;
    checked
}

/// Takes blanks at the ends of lines away, and empty lines at both ends and beside each other.
fn strip_space(text: &[u8]) -> Vec<u8> {
    let mut stripped = Vec::with_capacity(text.len());
    let mut gap = false;
    for line in text.lines() {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            gap = !stripped.is_empty();
            continue;
        }
        if std::mem::replace(&mut gap, false) {
            stripped.push(b'\n');
        }
        stripped.extend_from_slice(line);
        stripped.push(b'\n');
    }
    stripped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_taken_out_of_a_commit() {
        let commit = b"tree 1\ngpgsig A\n B\n\x20\n C\nencoding x\ngpgsig-sha256 D\n E\n\n F\n";
        let (payload, signature) = split(commit, "gpgsig");
        assert_eq!(payload.as_bstr(), "tree 1\nencoding x\n\n F\n");
        assert_eq!(signature.as_bstr(), "A\nB\n\nC\n");
        assert_eq!(split(commit, "gpgsig-sha256").1.as_bstr(), "D\nE\n");
    }

    #[test]
    fn the_status_of_gpg_is_read() {
        let status = b"[GNUPG:] NEWSIG\n[GNUPG:] GOODSIG 12AB A U Thor <a@b>\n\
            [GNUPG:] VALIDSIG F1 2 3 4 5 6 7 8 9 P1\n[GNUPG:] TRUST_ULTIMATE 0 pgp\n";
        let checked = parse_status(status);
        assert_eq!((checked.grade, checked.trust), (b'G', Trust::Ultimate));
        assert_eq!(checked.signer.as_bstr(), "A U Thor <a@b>");
        assert_eq!(checked.key.as_bstr(), "12AB");
        assert_eq!(checked.fingerprint.as_bstr(), "F1");
        assert_eq!(checked.primary.as_bstr(), "P1");
        let twice = b"[GNUPG:] GOODSIG 1 a\n[GNUPG:] GOODSIG 2 b\n";
        let unclear = parse_status(twice);
        assert_eq!((unclear.grade, unclear.key.len()), (b'E', 0));
    }

    #[test]
    fn what_ssh_keygen_says_is_read() {
        let text = "Good \"git\" signature for a with b with ED25519 key SHA256:x\n";
        let checked = parse_ssh(text.into());
        assert_eq!((checked.grade, checked.trust), (b'G', Trust::Fully));
        assert_eq!(checked.signer.as_bstr(), "a with b");
        assert_eq!(checked.key.as_bstr(), "SHA256:x");
        let unknown = parse_ssh(b"Good \"git\" signature with RSA key SHA256:y\n".to_vec());
        assert_eq!((unknown.grade, unknown.trust), (b'G', Trust::Undefined));
        assert_eq!(parse_ssh(b"no\n".to_vec()).grade, b'B');
    }
}
