//! The environment variables of a run: the process's own, or a set given by the caller.
//!
//! Invariant: no other module of the library reads the process environment.
//!
//! ```
//! use refdb_git::repository::Environment;
//! let environment = Environment::from_pairs([("GIT_DIR", "/repo.git")]);
//! assert_eq!(environment.get("GIT_DIR").unwrap(), "/repo.git");
//! assert!(environment.get("HOME").is_none());
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use bstr::BString;
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};

use super::config::values;
use crate::date::Zone;

/// How the names of Git's variables begin.
const GIT: &[u8] = b"GIT_";

/// Environment variables.
#[derive(Clone, Debug)]
pub struct Environment(Variables);

#[derive(Clone, Debug)]
enum Variables {
    /// The process's own. Most that are asked for are Git's, and few are set: those are looked through, and not all
    /// that there are, some thirty times in a process for one ref.
    Process(Vec<(OsString, OsString)>),
    Given(BTreeMap<OsString, OsString>),
}

impl Environment {
    /// Returns the environment of this process, as it is now.
    pub fn process() -> Self {
        let is_git = |name: &OsString| name.as_encoded_bytes().starts_with(GIT);
        let variables = std::env::vars_os();
        Environment(Variables::Process(
            variables.filter(|(name, _)| is_git(name)).collect(),
        ))
    }

    /// Returns an environment that has these variables and no others.
    pub fn from_pairs<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<OsString>,
        V: Into<OsString>,
    {
        let pairs = pairs.into_iter();
        Environment(Variables::Given(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        ))
    }

    /// Returns the value of a variable; `None` when it is not set.
    pub fn get(&self, name: &str) -> Option<OsString> {
        match &self.0 {
            Variables::Process(git) if name.as_bytes().starts_with(GIT) => {
                let found = git.iter().find(|(it, _)| it == name);
                found.map(|(_, value)| value.clone())
            }
            Variables::Process(_) => std::env::var_os(name),
            Variables::Given(variables) => variables.get(std::ffi::OsStr::new(name)).cloned(),
        }
    }

    /// Returns the value of a variable as bytes.
    pub fn bytes(&self, name: &str) -> Option<BString> {
        self.get(name).map(|value| value.into_vec().into())
    }

    /// Returns the value of a variable as a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// Returns the local time zone, which `TZ` may name.
    pub fn zone(&self, system: &dyn System) -> Zone {
        let tz = self.bytes("TZ");
        Zone::local(tz.as_ref().map(|tz| tz.as_slice()), system)
    }

    /// Returns the moment that dates are counted from, in seconds since 1970.
    pub(super) fn now(&self, system: &dyn System) -> u64 {
        match self.bytes("GIT_TEST_DATE_NOW") {
            Some(text) => leading_number(&text),
            None => system.now().as_secs(),
        }
    }

    /// Returns the value of a variable that is read like a boolean of the configuration.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is set to something else.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.bytes(name) else {
            return Ok(None);
        };
        match values::boolean(Some(value.as_slice())) {
            Some(answer) => Ok(Some(answer)),
            None => Err(Error::new(
                ErrorKind::Config,
                format!("bad boolean environment value '{value}' for '{name}'"),
            )),
        }
    }
}

/// Returns the number that a text begins with, as C reads it: 0 if there is none, the largest where it is too large.
fn leading_number(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.split_first() {
        Some((sign @ (b'+' | b'-'), digits)) => (*sign == b'-', digits),
        _ => (false, text),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0_u64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    if negative && number != u64::MAX {
        number.wrapping_neg()
    } else {
        number
    }
}

/// Returns the process's current directory.
pub(super) fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().map_err(|error| {
        let why = refdb::error::io_text(&error);
        let message = format!("Unable to read current working directory: {why}");
        Error::new(ErrorKind::Io, message).with_source(error)
    })
}
