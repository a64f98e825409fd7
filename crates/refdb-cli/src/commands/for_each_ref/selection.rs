//! Which refs are listed, as far as refs alone tell.

use refdb::name::is_root_ref;
use refdb::{ObjectId, RefRecord, Refs, TargetRef};

use super::Settings;
use super::patterns::Patterns;
use super::value::Item;
use crate::commands::listed::{Broken, Rules, each_prefix};
use crate::context::{Context, Tell};
use crate::failure::Result;

/// The refs that are asked for.
pub(super) struct Selection<'a> {
    pub(super) rules: Rules<'a>,
    include: Patterns,
    exclude: Patterns,
    /// The name behind which it begins.
    start_after: Option<&'a [u8]>,
    /// Whether root refs are among them.
    root_refs: bool,
    /// Whether every ref below `refs/` is that is not broken.
    takes_all: bool,
}

impl<'a> Selection<'a> {
    pub(super) fn new(
        context: &'a Context,
        settings: &'a Settings,
        include: Vec<Vec<u8>>,
    ) -> Result<Self> {
        let rules = Rules::new(context, Broken::Told)?;
        let is_open = include.is_empty() && settings.exclude.is_empty();
        Ok(Selection {
            rules,
            include: Patterns::new(include, settings.ignore_case),
            exclude: Patterns::new(settings.exclude.clone(), settings.ignore_case),
            start_after: settings.start_after.as_deref(),
            root_refs: settings.root_refs,
            takes_all: is_open && rules.are_plain(),
        })
    }

    /// Calls `each` for every range of names in which refs can be asked for, with a cursor that stands
    /// before its first ref, until it gives `false`.
    pub(super) fn each_range(
        &self,
        refs: Refs,
        mut each: impl FnMut(&mut Refs) -> Result<bool>,
    ) -> Result<()> {
        let mut refs = refs.excluding(self.exclude.whole_ranges());
        if let Some(marker) = self.start_after {
            // Behind the name itself, and before every name that goes on from it.
            let behind = [marker, b"\x01"].concat();
            refs.seek(&behind)?;
            each(&mut refs)?;
            return Ok(());
        }
        if self.root_refs {
            each(&mut refs)?;
            return Ok(());
        }
        each_prefix(&mut refs, &self.include.prefixes(), each)
    }

    /// Returns the object of a ref that is plainly asked for, as most are where all are; `None` tells
    /// nothing. Nothing is copied: that would take longer than the look.
    #[inline]
    pub(super) fn plain<'r>(&self, record: &'r RefRecord<'_>) -> Option<&'r ObjectId> {
        let TargetRef::Direct(oid) = &record.target else {
            return None;
        };
        let is_plain = self.takes_all
            && !record.broken
            && record.name.as_bytes().starts_with(b"refs/")
            && !record.has_bad_name();
        is_plain.then_some(oid)
    }

    /// Returns what is listed of a ref; `None` if it is not asked for.
    pub(super) fn item<'r>(
        &self,
        record: &RefRecord<'r>,
        tell: &mut Tell<'_>,
    ) -> Result<Option<Item<'r>>> {
        let name = record.name.as_bytes();
        let listed = name.starts_with(b"refs/") || (self.root_refs && is_root_ref(name));
        if !listed {
            return Ok(None);
        }
        // Git looks at the objects before it looks at patterns.
        let Some((oid, peeled)) = self.rules.leads(record, tell)? else {
            return Ok(None);
        };
        let included = self.include.is_empty() || self.include.match_path(name);
        if !included || self.exclude.match_path(name) {
            return Ok(None);
        }
        Ok(Some(Item::of(record, oid, peeled)))
    }
}
