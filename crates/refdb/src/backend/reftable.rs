//! The `reftable` backend.

use std::sync::Arc;

use super::cursor::Cursor;
use super::{Backend, LogOrder, OptimizeOptions, Ref, RefFormat, Session};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::name::{RefName, RefNameBuf};
use crate::oid::ObjectId;
use crate::options::Options;
use crate::reflog::LogEntry;
use crate::system::System;

#[derive(Debug)]
pub(crate) struct ReftableBackend {
    system: Arc<dyn System>,
    layout: Layout,
    options: Arc<Options>,
}

impl ReftableBackend {
    pub(crate) fn new(system: Arc<dyn System>, layout: Layout, options: Arc<Options>) -> Self {
        ReftableBackend {
            system,
            layout,
            options,
        }
    }
}

fn none<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "not here yet"))
}

impl Backend for ReftableBackend {
    fn format(&self) -> RefFormat {
        let _ = (&self.system, &self.layout, &self.options);
        RefFormat::Reftable
    }
    fn read(&self, _name: RefName<'_>) -> Result<Option<Ref>> {
        none()
    }
    fn cursor(&self) -> Result<Box<dyn Cursor>> {
        none()
    }
    fn log_exists(&self, _name: RefName<'_>) -> Result<bool> {
        none()
    }
    fn for_each_log_entry(
        &self,
        _name: RefName<'_>,
        _order: LogOrder,
        _each: &mut dyn FnMut(LogEntry) -> Result<bool>,
    ) -> Result<bool> {
        none()
    }
    fn log_names(&self) -> Result<Vec<RefNameBuf>> {
        none()
    }
    fn begin(&self) -> Result<Box<dyn Session + '_>> {
        none()
    }
    fn optimize(&self, _options: &OptimizeOptions<'_>) -> Result<()> {
        none()
    }
    fn refs_by_oid(&self, _oid: ObjectId) -> Result<Option<Vec<(RefNameBuf, Ref)>>> {
        none()
    }
}
