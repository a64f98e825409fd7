//! The mailmap: which names and addresses stand for the same person.
//!
//! Entries are found by address, and among those of an address by name, both without regard for
//! case. The library that reads mailmaps has other rules for what a line is than Git, and would bring
//! a second reader of persons with it.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use bstr::{BString, ByteSlice};
use refdb::error::io_text;
use refdb::objects::ObjectKind;
use refdb::system::FileKind;
use refdb_git::repository::config::Scope;

use crate::context::Context;
use crate::failure::{Result, say};

/// What a person is called instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Proper {
    name: Option<BString>,
    email: Option<BString>,
}

/// What is known of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Address {
    /// For whoever uses it.
    anybody: Proper,
    /// For those who use it under a name, in lower case.
    named: HashMap<BString, Proper>,
}

/// A mailmap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct Mailmap {
    /// By address in lower case.
    addresses: HashMap<BString, Address>,
}

impl Mailmap {
    /// Reads `.mailmap` of the work tree, then the object and the file that the configuration names.
    /// What cannot be read is told and left out.
    ///
    /// # Errors
    /// Fatal, when the configuration or the objects cannot be read.
    pub(in crate::commands) fn read(context: &Context) -> Result<Mailmap> {
        let repository = context.repository()?;
        let config = repository.config();
        let mut map = Mailmap::default();
        let mut blob = config.text("mailmap.blob")?.map(|it| it.to_vec());
        if repository.is_bare() {
            blob = Some(blob.unwrap_or_else(|| b"HEAD:.mailmap".to_vec()));
        } else if let Some(tree) = repository.work_tree() {
            map.add_file(context, &tree.join(".mailmap"), None)?;
        }
        if let Some(blob) = blob {
            map.add_blob(context, &blob)?;
        }
        if let (Some(file), Some(entry)) =
            (config.path("mailmap.file")?, config.get("mailmap.file"))
        {
            // In a work tree paths are those of its top.
            let file = match repository.work_tree() {
                Some(top) if context.is_in_work_tree()? => top.join(file),
                _ => file,
            };
            map.add_file(context, &file, Some(entry.scope()))?;
        }
        Ok(map)
    }

    /// Adds the file that a value of that scope names, or the one in the work tree.
    fn add_file(&mut self, context: &Context, path: &Path, named: Option<Scope>) -> Result<()> {
        let follow = named.is_some();
        let system = context.repository()?.system();
        let is_link = !follow
            && system
                .lstat(path)
                .is_ok_and(|stat| stat.kind == FileKind::Symlink);
        let name = match follow {
            true => path.display().to_string(),
            false => ".mailmap".to_owned(),
        };
        let complain = |reason: &str| {
            let text = format!("unable to open mailmap at {name}: {reason}");
            say("error", text.as_bytes());
        };
        if is_link {
            complain("Too many levels of symbolic links");
            return Ok(());
        }
        match named.unwrap_or(Scope::Local).read(system.as_ref(), path) {
            Ok(text) => self.add(&text),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
            }
            Err(error) => complain(&io_text(&error)),
        }
        Ok(())
    }

    fn add_blob(&mut self, context: &Context, name: &[u8]) -> Result<()> {
        // A name that means nothing is no mistake.
        let Some(oid) = context.find_object(name)? else {
            return Ok(());
        };
        let shown = name.as_bstr();
        match context.odb()?.read(oid)? {
            None => {
                let text = format!("unable to read mailmap object at {shown}");
                say("error", text.as_bytes());
            }
            Some(object) if object.kind != ObjectKind::Blob => {
                say(
                    "error",
                    format!("mailmap is not a blob: {shown}").as_bytes(),
                );
            }
            Some(object) => self.add(&object.data),
        }
        Ok(())
    }

    /// Adds the lines of a text; later ones win.
    fn add(&mut self, text: &[u8]) {
        for line in text.lines_with_terminator() {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            if line.starts_with(b"#") {
                continue;
            }
            let Some(proper) = Person::parse(line).filter(|person| !person.email.is_empty()) else {
                continue;
            };
            let name = proper.name.map(BString::from);
            match Person::parse(proper.rest) {
                None => self.insert(proper.email, None, Proper { name, email: None }),
                Some(old) => {
                    let email = Some(proper.email.into());
                    self.insert(old.email, old.name, Proper { name, email });
                }
            }
        }
    }

    fn insert(&mut self, email: &[u8], name: Option<&[u8]>, proper: Proper) {
        let address = self.addresses.entry(lower(email)).or_default();
        match name {
            Some(name) => {
                address.named.insert(lower(name), proper);
            }
            None => {
                let anybody = &mut address.anybody;
                anybody.name = proper.name.or(anybody.name.take());
                anybody.email = proper.email.or(anybody.email.take());
            }
        }
    }

    /// Returns the line of a person (`Name <address> ...`) with the proper name and address, if
    /// there are such.
    pub(in crate::commands) fn rewrite(&self, line: &[u8]) -> Option<Vec<u8>> {
        let person = Person::parse(line)?;
        let address = self.addresses.get(&lower(person.email))?;
        let proper = person
            .name
            .and_then(|name| address.named.get(&lower(name)))
            .unwrap_or(&address.anybody);
        if proper.name.is_none() && proper.email.is_none() {
            return None;
        }
        let name = proper.name.as_ref().map(|name| name.as_slice());
        let name = name.or(person.name).unwrap_or_default();
        let email = proper
            .email
            .as_ref()
            .map_or(person.email, |it| it.as_slice());
        Some([name, b" <", email, b">", person.rest].concat())
    }
}

/// A line `Name <address> rest`; the name may be missing.
struct Person<'a> {
    name: Option<&'a [u8]>,
    email: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Person<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let (name, rest) = line.split_once_str("<")?;
        let (email, rest) = rest.split_once_str(">")?;
        let name = name.trim_ascii();
        Some(Person {
            name: Some(name).filter(|name| !name.is_empty()),
            email,
            rest,
        })
    }
}

fn lower(text: &[u8]) -> BString {
    text.to_ascii_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(map: &str, line: &str) -> Option<String> {
        let mut mailmap = Mailmap::default();
        mailmap.add(map.as_bytes());
        let line = mailmap.rewrite(line.as_bytes())?;
        Some(String::from_utf8(line).unwrap())
    }

    #[test]
    fn entries_are_found_by_address_and_by_name() {
        let map = "# comment\nProper <p@x>\n<new@x> <OLD@x>\nA <a@x> B <both@x>\nC <both@x>\n";
        let line = |text: &str| rewrite(map, &format!("{text} 1 +0000"));
        let is = |text: &str| Some(format!("{text} 1 +0000"));
        assert_eq!(line("x <P@X>"), is("Proper <P@X>"));
        assert_eq!(line("x <old@x>"), is("x <new@x>"));
        assert_eq!(line("b <both@x>"), is("A <a@x>"));
        assert_eq!(line("z <both@x>"), is("C <both@x>"));
        assert_eq!(line("z <other@x>"), None);
        assert_eq!(rewrite("<> <x>\nno line\n", "a <x> 1"), None);
    }
}
