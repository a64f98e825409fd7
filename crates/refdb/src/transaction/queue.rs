//! The queue: edits whose names and objects have been checked, each object looked up once.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Reason, Rejection, Result};
use crate::name::{FormatOptions, is_pseudoref, is_safe, is_well_formed};
use crate::objects::{ObjectKind, Objects, Peeled};
use crate::oid::{ObjectFormat, ObjectId};
use crate::reflog::{is_normalized, normalize_message};

use super::edit::{Change, Edit};

pub(super) struct Queue<'s, 'a> {
    objects: &'s dyn Objects,
    format: ObjectFormat,
    pub(super) edits: Vec<Edit<'a>>,
    /// What the new value of each edit peels to, for those that are tags.
    pub(super) peeled: Vec<Option<ObjectId>>,
    known: HashMap<ObjectId, Option<Known>>,
}

#[derive(Clone, Copy)]
struct Known {
    kind: ObjectKind,
    peeled: Option<ObjectId>,
}

impl<'s, 'a> Queue<'s, 'a> {
    pub(super) fn new(objects: &'s dyn Objects, format: ObjectFormat) -> Self {
        Queue {
            objects,
            format,
            edits: Vec::new(),
            peeled: Vec::new(),
            known: HashMap::new(),
        }
    }

    pub(super) fn format(&self) -> ObjectFormat {
        self.format
    }

    pub(super) fn add(&mut self, mut edit: Edit<'a>) -> Result<()> {
        check_name(&edit)?;
        check_text(&edit)?;
        let peeled = match edit.change {
            Change::Update(oid) if oid.format() != self.format => {
                return Err(Error::new(
                    ErrorKind::Misuse,
                    format!("{oid} is not of the object format {}", self.format.name()),
                ));
            }
            Change::Update(oid) if !oid.is_null() && !edit.skip_object_check => {
                self.check_object(&edit, oid)?
            }
            _ => None,
        };
        if !is_normalized(&edit.message) {
            edit.message = Cow::Owned(normalize_message(&edit.message));
        }
        self.edits.push(edit);
        self.peeled.push(peeled);
        Ok(())
    }

    fn check_object(&mut self, edit: &Edit<'a>, oid: ObjectId) -> Result<Option<ObjectId>> {
        let known = match self.known.get(&oid) {
            Some(known) => *known,
            None => {
                let known = self.look_up(oid)?;
                self.known.insert(oid, known);
                known
            }
        };
        let refuse = |message: String| {
            Error::rejected(Rejection {
                index: self.edits.len(),
                name: edit.name().to_owned(),
                reason: Reason::InvalidNewValue,
                message,
            })
        };
        let name = edit.name();
        let Some(known) = known else {
            return Err(refuse(format!(
                "trying to write ref '{name}' with nonexistent object {oid}"
            )));
        };
        let is_branch = name.is_head() || name.as_bytes().starts_with(b"refs/heads/");
        if is_branch && known.kind != ObjectKind::Commit {
            return Err(refuse(format!(
                "trying to write non-commit object {oid} to branch '{name}'"
            )));
        }
        Ok(known.peeled)
    }

    fn look_up(&self, oid: ObjectId) -> Result<Option<Known>> {
        let Some(kind) = self.objects.kind(oid)? else {
            return Ok(None);
        };
        let peeled = match kind {
            ObjectKind::Tag => match self.objects.peel(oid)? {
                Peeled::To(peeled) => Some(peeled),
                Peeled::Itself | Peeled::Nowhere | Peeled::Missing => None,
            },
            ObjectKind::Commit | ObjectKind::Tree | ObjectKind::Blob => None,
        };
        Ok(Some(Known { kind, peeled }))
    }

    /// Returns the positions of the edits in the order of their names.
    ///
    /// # Errors
    /// `Rejected` when two edits (entries for the reflog alone aside) have the same name.
    pub(super) fn sorted(&self) -> Result<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.edits.len()).collect();
        if !self
            .edits
            .is_sorted_by(|low, high| low.name() <= high.name())
        {
            order.sort_by(|&low, &high| self.edits[low].name().cmp(&self.edits[high].name()));
        }
        let mut previous: Option<&Edit<'a>> = None;
        for &index in &order {
            let edit = &self.edits[index];
            if edit.is_log_only() {
                continue;
            }
            if previous.is_some_and(|previous| previous.name() == edit.name()) {
                return Err(Error::rejected(Rejection {
                    index,
                    name: edit.name().to_owned(),
                    reason: Reason::Generic,
                    message: format!("multiple updates for ref '{}' not allowed", edit.name()),
                }));
            }
            previous = Some(edit);
        }
        Ok(order)
    }
}

/// Refuses targets and signatures that could not be read back as they were given.
fn check_text(edit: &Edit<'_>) -> Result<()> {
    match &edit.change {
        Change::Symbolic(target) if !is_well_formed(target, FormatOptions::ONE_LEVEL) => {
            Err(Error::new(
                ErrorKind::InvalidName,
                format!(
                    "refusing to set '{}' to invalid ref '{target}'",
                    edit.name()
                ),
            ))
        }
        Change::Log(entry) => {
            let is_bad = |byte: &u8| matches!(byte, b'\n' | b'\0' | b'<' | b'>');
            let who = entry.who.iter();
            let mut bytes = who.flat_map(|who| who.name.iter().chain(who.email.iter()));
            if bytes.any(is_bad) {
                let name = edit.name();
                let message = format!("the signature of an entry for '{name}' has an invalid byte");
                return Err(Error::new(ErrorKind::Misuse, message));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses names that Git refuses: pseudorefs always, ill-formed names for new values, unsafe
/// names for everything else.
fn check_name(edit: &Edit<'_>) -> Result<()> {
    let name = edit.name();
    let what = if edit.is_log_only() { "reflog" } else { "ref" };
    if is_pseudoref(name.as_bytes()) {
        let which = if edit.is_log_only() {
            "reflog for pseudoref"
        } else {
            "pseudoref"
        };
        return Err(Error::new(
            ErrorKind::InvalidName,
            format!("refusing to update {which} '{name}'"),
        ));
    }
    let has_new_value = match &edit.change {
        Change::Update(oid) => !oid.is_null(),
        Change::Log(entry) => !entry.new.is_null(),
        Change::Symbolic(_) | Change::Delete | Change::Verify => false,
    };
    let fine = if has_new_value {
        is_well_formed(name.as_bytes(), FormatOptions::ONE_LEVEL)
    } else {
        is_safe(name.as_bytes())
    };
    if fine {
        Ok(())
    } else {
        Err(Error::new(
            ErrorKind::InvalidName,
            format!("refusing to update {what} with bad name '{name}'"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::RefName;
    use crate::objects::NoObjects;
    use crate::reflog::Signature;

    #[test]
    fn what_could_not_be_read_back_is_refused() {
        let mut queue = Queue::new(&NoObjects, ObjectFormat::Sha1);
        let name = RefName::new("refs/heads/a").unwrap();
        // Safe, and so a name that may be deleted, but nothing to point to.
        let target = RefName::new("refs/heads/two\nlines").unwrap();
        let error = queue.add(Edit::symbolic(name, target)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName);

        let null = ObjectId::null(ObjectFormat::Sha1);
        let one = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        let signature = |email: &str| Signature {
            name: "A".into(),
            email: email.into(),
            time: 1,
            zone: 0,
        };
        let log = |email: &str| Edit::log(name, null, one).signed(signature(email));
        let error = queue.add(log("a@b>\nforged")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse);
        assert!(queue.add(log("a@b")).is_ok());
        assert_eq!(queue.edits.len(), 1);
    }

    #[test]
    fn two_edits_of_one_name_are_refused_and_entries_are_not() {
        let mut queue = Queue::new(&NoObjects, ObjectFormat::Sha1);
        let name = RefName::new("refs/heads/a").unwrap();
        let one = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        queue.add(Edit::log(name, one, one)).unwrap();
        queue.add(Edit::log(name, one, one)).unwrap();
        queue.add(Edit::update(name, one)).unwrap();
        assert_eq!(queue.sorted().unwrap(), [0, 1, 2]);
        queue.add(Edit::delete(name)).unwrap();
        let error = queue.sorted().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("multiple updates for ref 'refs/heads/a'")
        );
    }
}
