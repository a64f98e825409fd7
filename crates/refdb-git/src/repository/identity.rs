//! Who writes a reflog entry: environment, configuration, or what the system knows of the user.

use std::path::Path;

use bstr::{BStr, BString, ByteSlice, ByteVec};
use refdb::options::Identity;
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};

use super::config::Config;
use super::environment::Environment;
use crate::date;

/// Finds out who is committing.
///
/// # Errors
/// `Date` when `GIT_COMMITTER_DATE` is no date; `Config` when a setting of a name or an address has no value, or
/// `user.useConfigOnly` is no boolean, whether they are needed or not.
pub(super) fn committer(
    system: &dyn System,
    environment: &Environment,
    config: &Config,
) -> Result<Identity> {
    let configured = |what: &str| -> Result<Option<BString>> {
        let [author, own, of_user] =
            ["author", "committer", "user"].map(|who| config.text(&format!("{who}.{what}")));
        let (_, own, of_user) = (author?, own?, of_user?);
        // An own name that is empty is the user's, if there is one.
        let named = own.filter(|text| !text.is_empty());
        Ok(named.or(of_user).or(own).map(BStr::to_owned))
    };
    // It changes nothing for a reflog: Git writes down what it guesses.
    config.boolean("user.useconfigonly")?;
    let (name, email) = (configured("name")?, configured("email")?);
    let name = environment.bytes("GIT_COMMITTER_NAME").or(name);
    let email = environment
        .bytes("GIT_COMMITTER_EMAIL")
        .or(email)
        .or_else(|| environment.bytes("EMAIL").filter(|email| !email.is_empty()));
    let local = environment.zone(system);
    let date = match environment.bytes("GIT_COMMITTER_DATE") {
        Some(text) if !text.is_empty() => {
            let now = i64::try_from(system.now().as_secs()).unwrap_or(i64::MAX);
            Some(date::parse(&text, now, &local).ok_or_else(|| {
                Error::new(ErrorKind::Date, format!("invalid date format: {text}"))
            })?)
        }
        _ => None,
    };
    let zone = match date {
        Some((_, zone)) => zone,
        None => local.decimal(system.now().as_secs()),
    };
    let name = match name {
        // One of nothing but punctuation is empty then.
        Some(name) if !name.is_empty() => clean(&name),
        // An empty name is replaced by the login name, a missing one by the full name.
        Some(_) => clean(&User::current(system).login),
        None => match clean(&User::current(system).full_name) {
            name if name.is_empty() => clean(&User::current(system).login),
            name => name,
        },
    };
    let email = match email {
        Some(email) => email,
        None => default_email(system),
    };
    Ok(Identity {
        name,
        email: clean(&email),
        date,
        zone,
    })
}

/// Removes what would break a line of a reflog, and punctuation at both ends.
fn clean(text: &[u8]) -> BString {
    let is_crud = |&byte: &u8| {
        byte <= b' '
            || matches!(
                byte,
                b',' | b':' | b';' | b'<' | b'>' | b'"' | b'\\' | b'\''
            )
    };
    let start = text.iter().position(|byte| !is_crud(byte));
    let end = text.iter().rposition(|byte| !is_crud(byte));
    let (Some(start), Some(end)) = (start, end) else {
        return BString::default();
    };
    let inner = text.get(start..=end).unwrap_or_default();
    inner
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\n' | b'<' | b'>'))
        .collect::<Vec<u8>>()
        .into()
}

/// What the system knows of a user.
struct User {
    login: BString,
    full_name: BString,
}

impl User {
    /// Looks the process's user up in the system's list.
    fn current(system: &dyn System) -> User {
        let id = rustix::process::getuid().as_raw();
        let list = system.read(Path::new("/etc/passwd")).unwrap_or_default();
        list.lines()
            .find_map(|line| User::from_line(line, id))
            .unwrap_or_else(|| User {
                login: "unknown".into(),
                full_name: "Unknown".into(),
            })
    }

    /// Reads one line of the list, if it is that user's.
    fn from_line(line: &[u8], id: u32) -> Option<User> {
        let mut fields = line.split(|&byte| byte == b':');
        let login = fields.next()?;
        let uid = fields.nth(1)?;
        if uid.to_str().ok()?.parse() != Ok(id) {
            return None;
        }
        let gecos = fields.nth(1).unwrap_or_default();
        // The field begins with the full name, in which `&` stands for the login name.
        let name = gecos.split(|&byte| byte == b',').next().unwrap_or_default();
        let mut full_name = BString::default();
        for &byte in name {
            if byte == b'&' {
                let mut capitalized = login.to_vec();
                capitalized
                    .iter_mut()
                    .take(1)
                    .for_each(u8::make_ascii_uppercase);
                full_name.push_str(capitalized);
            } else {
                full_name.push_byte(byte);
            }
        }
        Some(User {
            login: login.into(),
            full_name,
        })
    }
}

/// Returns the login name at the name of this machine.
fn default_email(system: &dyn System) -> BString {
    let mut email = User::current(system).login;
    email.push_byte(b'@');
    let mail_name = system.read(Path::new("/etc/mailname")).unwrap_or_default();
    let mail_name = mail_name.lines().next().unwrap_or_default().trim_ascii();
    if !mail_name.is_empty() {
        email.push_str(mail_name);
        return email;
    }
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_bytes();
    email.push_str(machine);
    if !machine.contains(&b'.') {
        email.push_str(".(none)");
    }
    email
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb::system::OsSystem;

    fn identity(environment: &[(&str, &str)], config: &str) -> Result<Identity> {
        let config = Config::parse(config.as_bytes()).unwrap();
        let environment = Environment::from_pairs(environment.iter().copied());
        committer(&OsSystem::new(), &environment, &config)
    }

    #[test]
    fn environment_wins_over_configuration() {
        let config = "[user]\nname = U\nemail = u@x\n[committer]\nname = C\n";
        let found = identity(&[], config).unwrap();
        assert_eq!(
            (&found.name[..], &found.email[..]),
            (&b"C"[..], &b"u@x"[..])
        );
        let environment = [
            ("GIT_COMMITTER_NAME", " ,N <x>\n y;"),
            ("GIT_COMMITTER_EMAIL", "<e@x>"),
            ("GIT_COMMITTER_DATE", "@12 -0530"),
        ];
        let found = identity(&environment, config).unwrap();
        assert_eq!(found.name, "N x y");
        assert_eq!(found.email, "e@x");
        assert_eq!(found.date, Some((12, -530)));
    }

    #[test]
    fn an_own_name_that_is_empty_is_the_users() {
        let config = "[user]\nname = U\nemail = u@x\n[committer]\nname =\nemail =\n";
        let found = identity(&[], config).unwrap();
        assert_eq!((found.name, found.email), ("U".into(), "u@x".into()));
        let found = identity(&[], "[committer]\nemail =\n").unwrap();
        assert_eq!(found.email, "");
    }

    #[test]
    fn settings_that_make_no_sense_are_told() {
        for config in [
            "[user]\nuseConfigOnly = x",
            "[author]\nname",
            "[user]\nemail",
        ] {
            let error = identity(&[], config).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{config}");
        }
    }

    #[test]
    fn somebody_is_always_found() {
        let found = identity(&[], "").unwrap();
        assert!(!found.name.is_empty());
        assert!(found.email.contains(&b'@'));
    }

    #[test]
    fn a_date_that_is_none_is_refused() {
        let error = identity(&[("GIT_COMMITTER_DATE", "nonsense")], "").unwrap_err();
        assert_eq!(error.to_string(), "invalid date format: nonsense");
    }

    #[test]
    fn full_names() {
        let user = User::from_line(b"joe:x:7:7:& Bloggs,room 1:/home/joe:/bin/sh", 7).unwrap();
        assert_eq!(user.full_name, "Joe Bloggs");
        assert!(User::from_line(b"joe:x:7:7:J:/:/bin/sh", 8).is_none());
    }
}
