//! The store: a mapping from names to refs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bstr::ByteSlice;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyString};
use refdb::{LogOrder, ObjectId, Part, RefFormat, RefName, TargetRef};
use refdb_arrow::Selection;
use refdb_git::Repository;
use refdb_git::repository::OpenOptions;

use crate::columns::{Columns, stream};
use crate::convert::{Id, Text, given, to_str};
use crate::failure::{detached, raised};
use crate::refs::{Names, Ref, Refs, Source};
use crate::transaction::{Signature, Transaction};

/// The refs of a repository, as one of its worktrees sees them: a mapping from names to `Ref`.
///
/// It sees what other processes write, and can be used by several threads and after `os.fork()`.
#[pyclass(frozen, mapping, module = "refdb")]
pub(crate) struct Store {
    repository: Arc<Repository>,
}

/// Opens the refs of the repository at `path`, or of the one that `path` is in.
///
/// With `discover=False` the path is the repository itself, or the top of its work tree. `config` are values
/// of the configuration that go before those of files, each `"section.key=value"`.
#[pyfunction]
#[pyo3(signature = (path=PathBuf::from("."), *, discover=true, config=vec![]))]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    discover: bool,
    config: Vec<Text>,
) -> PyResult<Store> {
    let repository = detached(py, || {
        let config = config.into_iter().map(|Text(value)| value);
        let options = config.fold(OpenOptions::new(), OpenOptions::config);
        if discover {
            return options.discover(&path);
        }
        let inside = path.join(".git");
        let is_work_tree = inside.symlink_metadata().is_ok();
        options.open(if is_work_tree { &inside } else { &path })
    })?;
    let repository = Arc::new(repository);
    Ok(Store { repository })
}

/// One entry of a reflog.
#[pyclass(frozen, get_all, eq, module = "refdb")]
#[derive(PartialEq)]
pub(crate) struct LogEntry {
    /// The value before, as hexadecimal digits; all zero when the ref came into being.
    old: String,
    /// The value after; all zero when the ref was deleted.
    new: String,
    /// Who did it.
    committer: Signature,
    /// Why.
    message: String,
}

#[pymethods]
impl LogEntry {
    fn __repr__(&self) -> String {
        let LogEntry {
            old, new, message, ..
        } = self;
        format!("LogEntry(old='{old}', new='{new}', message={message:?})")
    }
}

/// What the prefixes and names of a caller select.
fn selection(prefix: Text, start_after: Option<Text>, exclude: Vec<Text>) -> Selection {
    Selection {
        prefix: prefix.0,
        start_after: start_after.map(|name| name.0),
        exclude: exclude.into_iter().map(|prefix| prefix.0).collect(),
    }
}

fn no_text() -> Text {
    Text(Vec::new())
}

/// A part of the refs: names and ids, one behind the other, and where each begins.
#[derive(Default)]
struct Pairs {
    bytes: Vec<u8>,
    /// Where a name ends, and how many bytes of an id follow it: none for a symref.
    ends: Vec<(usize, usize)>,
}

/// So many parts of a dict are made into objects at once.
const PARTS_AT_ONCE: usize = 4;

/// Who waited for Python for longer takes more of them at once.
const WAIT_SHORT: Duration = Duration::from_millis(1);

/// Why refs are not read any further.
enum Stopped {
    /// The store cannot be read.
    Store(refdb::Error),
    /// An object could not be made.
    Python(PyErr),
}

impl From<refdb::InvalidName> for Stopped {
    fn from(error: refdb::InvalidName) -> Self {
        refdb::Error::from(error).into()
    }
}

impl From<refdb::Error> for Stopped {
    fn from(error: refdb::Error) -> Self {
        Stopped::Store(error)
    }
}

impl Stopped {
    fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Stopped::Store(error) => raised(py, &error),
            Stopped::Python(error) => error,
        }
    }
}

/// Ids as Python has them. Many refs name one object: what was made for one serves for others.
struct Digits {
    made: [Option<(ObjectId, Py<PyAny>)>; 256],
    text: Vec<u8>,
    as_bytes: bool,
}

impl Digits {
    fn new(as_bytes: bool) -> Self {
        Digits {
            made: [const { None }; 256],
            text: Vec::new(),
            as_bytes,
        }
    }

    fn of<'py>(&mut self, py: Python<'py>, oid: ObjectId) -> PyResult<Bound<'py, PyAny>> {
        let first = oid.as_bytes().first().copied().unwrap_or_default();
        let place = &mut self.made[usize::from(first)];
        if let Some((known, made)) = place
            && *known == oid
        {
            return Ok(made.bind(py).clone());
        }
        self.text.clear();
        oid.push_hex(&mut self.text);
        let made = given(py, &self.text, self.as_bytes)?;
        *place = Some((oid, made.clone().unbind()));
        Ok(made)
    }
}

impl Store {
    fn store(&self) -> &refdb::Store {
        self.repository.store()
    }

    fn read(&self, py: Python<'_>, name: &Text) -> PyResult<Option<Ref>> {
        // What no ref can be called is not there.
        let Ok(name) = RefName::lax(&name.0) else {
            return Ok(None);
        };
        Ok(detached(py, || self.store().read(name))?.map(Ref::new))
    }

    fn refs(&self, py: Python<'_>, selection: &Selection) -> PyResult<refdb::Refs> {
        detached(py, || selection.refs(self.store()))
    }

    fn all(&self, py: Python<'_>, is_named: bool, selection: &Selection) -> PyResult<Refs> {
        let source = Source::new(self.refs(py, selection)?);
        Ok(Refs { source, is_named })
    }

    /// Reads names and ids, by two threads where there are many refs, and gives them to `take` part by part.
    fn pairs(
        &self,
        selection: &Selection,
        mut take: impl FnMut(Pairs) -> Result<bool, Stopped>,
    ) -> Result<(), Stopped> {
        let maker = || {
            let (mut count, mut len) = (0, 0);
            move |part: &mut Part<'_>| {
                // The next ones are about as many, and about as long, as the last ones.
                let mut pairs = Pairs {
                    bytes: Vec::with_capacity(len + len / 8),
                    ends: Vec::with_capacity(count + count / 8),
                };
                part.each(|record| {
                    let oid = match &record.target {
                        TargetRef::Direct(oid) if !record.broken => oid.as_bytes(),
                        TargetRef::Symbolic(_) => &[],
                        TargetRef::Direct(_) => return Ok(()),
                    };
                    pairs.bytes.extend_from_slice(record.name.as_bytes());
                    let end = pairs.bytes.len();
                    pairs.bytes.extend_from_slice(oid);
                    pairs.ends.push((end, oid.len()));
                    Ok::<_, refdb::Error>(())
                })?;
                (count, len) = (pairs.ends.len(), pairs.bytes.len());
                Ok::<_, refdb::Error>(pairs)
            }
        };
        let mut refs = selection.refs(self.store())?;
        refs.by_parts(maker, |pairs: refdb::Result<Pairs>| take(pairs?))?;
        Ok(())
    }

    /// Puts what was read into a dict. Symrefs are followed.
    fn put(&self, dict: &Bound<'_, PyDict>, pairs: &Pairs, digits: &mut Digits) -> PyResult<()> {
        let py = dict.py();
        let mut start = 0;
        for (end, len) in &pairs.ends {
            let name = &pairs.bytes[start..*end];
            start = end + len;
            let oid = match ObjectId::from_bytes(&pairs.bytes[*end..start]) {
                None => self.find(py, name)?,
                found => found,
            };
            if let Some(oid) = oid {
                let name = given(py, name, digits.as_bytes)?;
                dict.set_item(name, digits.of(py, oid)?)?;
            }
        }
        Ok(())
    }
}

#[pymethods]
impl Store {
    fn __getitem__(&self, py: Python<'_>, name: Text) -> PyResult<Ref> {
        match self.read(py, &name)? {
            Some(found) => Ok(found),
            None => Err(PyKeyError::new_err(name.0.as_bstr().to_string())),
        }
    }

    fn __contains__(&self, py: Python<'_>, name: Text) -> PyResult<bool> {
        Ok(self.read(py, &name)?.is_some())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        detached(py, || {
            let mut count = 0;
            self.store().refs()?.each(|_| {
                count += 1;
                Ok::<_, refdb::Error>(true)
            })?;
            Ok(count)
        })
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Names> {
        self.keys(py, no_text(), None, vec![], false)
    }

    /// Returns the ref of that name, or `default`.
    #[pyo3(signature = (name, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: Text,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.read(py, &name)? {
            Some(found) => Ok(Some(Bound::new(py, found)?.into_any())),
            None => Ok(default),
        }
    }

    /// Goes through the names below `prefix`, behind `start_after`, without those below what is in `exclude`.
    #[pyo3(signature = (prefix=no_text(), start_after=None, exclude=vec![], *, as_bytes=false))]
    fn keys(
        &self,
        py: Python<'_>,
        prefix: Text,
        start_after: Option<Text>,
        exclude: Vec<Text>,
        as_bytes: bool,
    ) -> PyResult<Names> {
        let refs = self.refs(py, &selection(prefix, start_after, exclude))?;
        let source = Source::new(refs);
        Ok(Names { source, as_bytes })
    }

    /// Goes through refs: as `keys`.
    #[pyo3(signature = (prefix=no_text(), start_after=None, exclude=vec![]))]
    fn values(
        &self,
        py: Python<'_>,
        prefix: Text,
        start_after: Option<Text>,
        exclude: Vec<Text>,
    ) -> PyResult<Refs> {
        self.all(py, false, &selection(prefix, start_after, exclude))
    }

    /// Goes through pairs of a name and a ref: as `keys`.
    #[pyo3(signature = (prefix=no_text(), start_after=None, exclude=vec![]))]
    fn items(
        &self,
        py: Python<'_>,
        prefix: Text,
        start_after: Option<Text>,
        exclude: Vec<Text>,
    ) -> PyResult<Refs> {
        self.all(py, true, &selection(prefix, start_after, exclude))
    }

    /// Returns a dict from names to the objects that they lead to, as hexadecimal digits: the quickest way to
    /// many refs. Symrefs are followed; what leads nowhere is not in it. With `as_bytes` all is bytes.
    #[pyo3(signature = (prefix=no_text(), start_after=None, exclude=vec![], *, as_bytes=false))]
    fn dict<'py>(
        &self,
        py: Python<'py>,
        prefix: Text,
        start_after: Option<Text>,
        exclude: Vec<Text>,
        as_bytes: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let selection = selection(prefix, start_after, exclude);
        let (dict, mut digits) = (PyDict::new(py).unbind(), Digits::new(as_bytes));
        // Some parts are made into objects while another thread reads the next ones: a fifth less for 100,000 refs.
        let (mut waiting, mut room) = (Vec::new(), PARTS_AT_ONCE);
        let put = |pairs: Pairs| {
            waiting.push(pairs);
            if waiting.len() < room {
                return Ok(true);
            }
            let asked = Instant::now();
            let put = Python::try_attach(|py| {
                // Other threads of Python compute, and whoever asks for it waits for 5 ms each time.
                if asked.elapsed() > WAIT_SHORT {
                    room *= 4;
                }
                let mut parts = waiting.drain(..);
                parts.try_for_each(|pairs| self.put(dict.bind(py), &pairs, &mut digits))
            });
            // Where Python ends, nobody takes the dict.
            put.map_or(Ok(false), |put| put.map(|()| true).map_err(Stopped::Python))
        };
        let read = py.detach(|| self.pairs(&selection, put));
        read.map_err(|stopped| stopped.raised(py))?;
        let dict = dict.into_bound(py);
        for pairs in &waiting {
            self.put(&dict, pairs, &mut digits)?;
        }
        Ok(dict)
    }

    /// Returns the refs as Arrow columns, which `pyarrow.table` and others take without a copy.
    #[pyo3(signature = (prefix=no_text(), start_after=None, exclude=vec![]))]
    fn table(&self, prefix: Text, start_after: Option<Text>, exclude: Vec<Text>) -> Columns {
        Columns {
            repository: Arc::clone(&self.repository),
            selection: selection(prefix, start_after, exclude),
        }
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // There is one schema; whoever asks for another one converts.
        drop(requested_schema);
        stream(py, &self.repository, &Selection::default())
    }

    /// Follows symrefs from `name` to an object, and returns its hexadecimal digits; None if there is none.
    fn resolve(&self, py: Python<'_>, name: Text) -> PyResult<Option<String>> {
        Ok(self.find(py, &name.0)?.map(|oid| oid.to_string()))
    }

    /// Returns the branch that is checked out and the object it is at: `(name, oid)`. The name is None where
    /// an object is checked out, and the object None where the branch has no commit yet.
    fn head<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Option<Bound<'py, PyString>>, Option<String>)> {
        let (head, oid) = detached(py, || {
            let head = self.store().read(RefName::HEAD)?;
            Ok((head, self.store().resolve(RefName::HEAD)?))
        })?;
        let branch = head.as_ref().and_then(|head| head.target.symbolic());
        let branch = branch.map(|name| to_str(py, name.as_bytes())).transpose()?;
        Ok((branch, oid.map(|found| found.oid.to_string())))
    }

    /// Returns the refs whose value, or peeled value where that is stored, is an object.
    fn points_at(&self, py: Python<'_>, oid: Id) -> PyResult<Vec<Ref>> {
        let found = detached(py, || self.store().refs_by_oid(oid.0))?;
        Ok(found.into_iter().map(Ref::new).collect())
    }

    /// Returns the reflog of a ref, the newest entry first; None if it has none.
    #[pyo3(signature = (name, *, newest_first=true))]
    fn log(
        &self,
        py: Python<'_>,
        name: Text,
        newest_first: bool,
    ) -> PyResult<Option<Vec<LogEntry>>> {
        let name = RefName::lax(&name.0).map_err(|error| raised(py, &error.into()))?;
        let order = match newest_first {
            true => LogOrder::NewestFirst,
            false => LogOrder::OldestFirst,
        };
        let Some(entries) = detached(py, || self.store().log(name, order))? else {
            return Ok(None);
        };
        let entries = entries.into_iter().map(|entry| LogEntry {
            old: entry.old.to_string(),
            new: entry.new.to_string(),
            committer: Signature(entry.who),
            message: entry.message.to_str_lossy().into_owned(),
        });
        Ok(Some(entries.collect()))
    }

    /// Begins a transaction: `with store.transaction(message="why") as t: t.update(name, oid)`. It commits
    /// at the end of the block, and is given up when an exception leaves it.
    ///
    /// `committer` is `(name, email, seconds, zone)` for reflogs, the zone as the number HHMM; without it
    /// whom Git would name, now. With `batch` single edits may be refused while the others go on:
    /// `rejections` lists them afterwards. Without it a refused edit raises `Rejected`, and nothing happens.
    #[pyo3(signature = (*, committer=None, message=no_text(), batch=false))]
    fn transaction(&self, committer: Option<Signature>, message: Text, batch: bool) -> Transaction {
        let repository = Arc::clone(&self.repository);
        Transaction::new(repository, committer, message.0, batch)
    }

    /// Gives a ref and its reflog another name, which no ref has unless `replace` is given. Without such a ref, or
    /// with another one in the way, it raises `Rejected`.
    #[pyo3(signature = (old, new, *, message=no_text(), replace=false))]
    fn rename(
        &self,
        py: Python<'_>,
        old: Text,
        new: Text,
        message: Text,
        replace: bool,
    ) -> PyResult<()> {
        detached(py, || {
            let (old, new) = (RefName::lax(&old.0)?, RefName::new(&new.0)?);
            let _ = match replace {
                true => self.store().rename(old, new, &message.0)?,
                false => self.store().rename_to_new(old, new, &message.0)?,
            };
            Ok(())
        })
    }

    /// Packs loose refs, or compacts tables, if `always` or if it is worth it.
    #[pyo3(signature = (*, always=true))]
    fn optimize(&self, py: Python<'_>, always: bool) -> PyResult<()> {
        detached(py, || {
            self.store().optimize(&refdb::Optimize {
                auto: !always,
                ..refdb::Optimize::default()
            })
        })
    }

    /// Returns bytes that are others whenever a ref is another, for whoever keeps what depends on refs. They
    /// are a hash of the names and values of all refs, which are read for it.
    fn token<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let digest = detached(py, || self.digest())?;
        Ok(PyBytes::new(py, &digest))
    }

    /// How refs are kept: "files" or "reftable".
    #[getter]
    fn ref_format(&self) -> &'static str {
        match self.store().format() {
            RefFormat::Files => "files",
            RefFormat::Reftable => "reftable",
        }
    }

    /// How objects are named: "sha1" or "sha256".
    #[getter]
    fn object_format(&self) -> &'static str {
        self.repository.object_format().name()
    }

    /// The directory of the repository.
    #[getter]
    fn path(&self) -> PathBuf {
        self.repository.git_dir().to_owned()
    }

    fn __repr__(&self) -> String {
        format!("<refdb.Store of '{}'>", self.repository.git_dir().display())
    }
}

impl Store {
    fn find(&self, py: Python<'_>, name: &[u8]) -> PyResult<Option<ObjectId>> {
        let Ok(name) = RefName::lax(name) else {
            return Ok(None);
        };
        Ok(detached(py, || self.store().resolve(name))?.map(|found| found.oid))
    }

    fn digest(&self) -> refdb::Result<Vec<u8>> {
        let maker = || {
            |part: &mut Part<'_>| {
                let mut text = Vec::new();
                part.each(|record| {
                    text.extend_from_slice(record.name.as_bytes());
                    // No name has such a byte: what follows cannot be taken for a part of one.
                    text.push(0);
                    match record.target {
                        TargetRef::Direct(oid) => text.extend_from_slice(oid.as_bytes()),
                        TargetRef::Symbolic(name) => text.extend_from_slice(name.as_bytes()),
                    }
                    text.push(0);
                    Ok::<_, refdb::Error>(())
                })?;
                Ok::<_, refdb::Error>(text)
            }
        };
        let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha256);
        self.store().refs()?.by_parts(maker, |text| {
            hasher.update(&text?);
            Ok::<_, refdb::Error>(true)
        })?;
        match hasher.try_finalize() {
            Ok(digest) => Ok(digest.as_bytes().to_vec()),
            Err(error) => Err(refdb::Error::new(refdb::ErrorKind::Io, error.to_string())),
        }
    }
}

/// Fails for what Python gives and no time zone can be.
pub(crate) fn zone(zone: i64) -> PyResult<i16> {
    i16::try_from(zone).map_err(|_| PyValueError::new_err("a time zone is a number HHMM"))
}
