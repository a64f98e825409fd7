//! A bucket as a place for refs.
//!
//! 1. A slot is replaced by one request, which nothing here and nothing below sends again.
//! 2. What became of it is told from the answer to that very request, not from what a library made of it.
//! 3. Everything else is stored under a name of its own, or is only read: it may be sent again, a few times.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use http::Extensions;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, ObjectStore, PutMode, PutOptions, PutPayload, RetryConfig,
    UpdateVersion,
};
use refdb::shared::{Read, Shared, Swap, Version};
use refdb::system::Bytes;
use refdb::{Error, ErrorKind, Result};

use crate::google::Slots;
use crate::http_client::{Connector, Counts};
use crate::outcome::{Noted, Outcome, Verdict, judge};
use crate::place::{Place, Service};
use crate::secrets::Secrets;

/// How long a small request may take, and one that carries a table, in all.
const SMALL_MAX: Duration = Duration::from_secs(30);
const LARGE_MAX: Duration = Duration::from_secs(600);

/// How often what may be sent again is sent.
const TRIES_MAX: u32 = 5;

/// Objects that are longer are fetched in parts of this length, so many at a time.
const PART_LEN: u64 = 8 << 20;
const PARTS_AT_ONCE: usize = 6;

/// So much is read of a slot at most: no head is as long.
const HEAD_MAX: u64 = 1 << 20;

/// A bucket, or a part of one.
pub struct Bucket {
    place: Place,
    small: Arc<dyn ObjectStore>,
    large: Arc<dyn ObjectStore>,
    /// What reads and replaces slots where that is not done as with all other objects.
    slots: Option<Slots>,
    secrets: Secrets,
    counts: Arc<Counts>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.place.name).finish()
    }
}

/// What did not work: what became of the request, and what the library says.
struct Failed {
    outcome: Outcome,
    error: object_store::Error,
}

impl Bucket {
    pub(crate) fn open(url: &str) -> Result<Bucket> {
        let place = Place::parse(url)?;
        let secrets = Secrets::of_environment();
        let counts = Arc::new(Counts::default());
        let build = |whole_max| {
            client(&place, Connector::new(whole_max, Arc::clone(&counts))).map_err(|error| {
                let text = secrets.hide(&format!("{}: {error}", place.name));
                Error::new(ErrorKind::Config, text)
            })
        };
        let ((small, slots), (large, _)) = (build(SMALL_MAX)?, build(LARGE_MAX)?);
        Ok(Bucket {
            place,
            small,
            large,
            slots,
            secrets,
            counts,
        })
    }

    /// Returns how many requests were sent.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    fn path(&self, key: &str) -> Path {
        let parts = self.place.prefix.parts();
        parts.chain(Path::from(key).parts()).collect()
    }

    fn slot(&self, slot: u32) -> Path {
        self.path(&format!("head/{slot}"))
    }

    /// Returns what tells a content from others, by what the service goes by.
    fn version(&self, e_tag: Option<String>, version: Option<String>) -> Result<Version> {
        let found = match self.place.service {
            Service::Google => version,
            Service::S3 | Service::Azure => e_tag,
        };
        found.map(Version).ok_or_else(|| {
            let what = "the answer says no version, so that nothing can be replaced safely";
            Error::new(ErrorKind::Io, format!("{}: {what}", self.place.name))
        })
    }

    /// Reads a slot of Google's.
    fn read_google(&self, slots: &Slots, path: &Path, known: Option<&Version>) -> Result<Read> {
        let read = self.repeated(|| {
            let read = slots.read(path.as_ref(), known);
            read.map_err(|(outcome, error)| Failed { outcome, error })
        });
        match read {
            Ok((content, version)) => {
                let version = self.version(None, version.map(|version| version.0))?;
                self.as_read(path, content, version, known)
            }
            Err(failed) => self.not_read(path, &failed),
        }
    }

    fn as_read(
        &self,
        path: &Path,
        content: Bytes,
        version: Version,
        known: Option<&Version>,
    ) -> Result<Read> {
        if content.len() as u64 > HEAD_MAX {
            let what = format!("{}: '{path}' is no head: it is too long", self.place.name);
            return Err(Error::new(ErrorKind::Io, what));
        }
        Ok(match known == Some(&version) {
            true => Read::Same,
            false => Read::Head(content, version),
        })
    }

    fn not_read(&self, path: &Path, failed: &Failed) -> Result<Read> {
        match &failed.outcome {
            Outcome::Answered(304, _) => Ok(Read::Same),
            _ if is_absent(failed) => Ok(Read::Missing),
            _ => Err(self.failure("read", path, failed)),
        }
    }

    fn failure(&self, what: &str, path: &Path, failed: &Failed) -> Error {
        let name = &self.place.name;
        let why = match &failed.outcome {
            Outcome::Answered(status, text) if text.is_empty() => format!("status {status}"),
            Outcome::Answered(status, text) => format!("status {status}, {text}"),
            Outcome::Unreachable => "no connection".to_owned(),
            Outcome::Lost => "no whole answer".to_owned(),
            Outcome::NotSent => failed.error.to_string(),
        };
        let detail = match failed.outcome {
            Outcome::Unreachable | Outcome::Lost => cause(&failed.error),
            _ => String::new(),
        };
        let text = format!("{name}: cannot {what} '{path}': {why}{detail}");
        Error::new(ErrorKind::Io, self.secrets.hide(&text))
    }

    /// Does what may be done twice until it is done, or there is no use in it.
    fn repeated<T>(
        &self,
        mut act: impl FnMut() -> std::result::Result<T, Failed>,
    ) -> std::result::Result<T, Failed> {
        let mut attempt = 0;
        loop {
            match act() {
                Err(failed) if failed.outcome.may_pass() && attempt + 1 < TRIES_MAX => {
                    thread::sleep(Duration::from_millis(50 << attempt));
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    /// Reads an object once, or what the options say of it.
    fn read_once(
        &self,
        store: &dyn ObjectStore,
        path: &Path,
        mut options: GetOptions,
    ) -> std::result::Result<(Bytes, GetResult), Failed> {
        let noted = with_note(&mut options.extensions);
        let read = async {
            let mut result = store.get_opts(path, options).await?;
            let empty = object_store::GetResultPayload::Stream(stream::empty().boxed());
            let payload = std::mem::replace(&mut result.payload, empty);
            let whole = GetResult {
                payload,
                meta: result.meta.clone(),
                range: result.range.clone(),
                attributes: object_store::Attributes::new(),
                extensions: Extensions::new(),
            };
            Ok((whole.bytes().await?, result))
        };
        pollster::block_on(read).map_err(|error| failed(&noted, error))
    }

    /// Reads an object, or the part of it that is in a range; `None` if there is none. Returns how long it is.
    fn read_part(&self, path: &Path, range: Range<u64>) -> Result<Option<(Bytes, u64)>> {
        let read = self.repeated(|| {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                ..GetOptions::default()
            };
            self.read_once(self.large.as_ref(), path, options)
        });
        match read {
            Ok((content, result)) => Ok(Some((content, result.meta.size))),
            Err(failed) if is_absent(&failed) => Ok(None),
            // It ends before the range begins.
            Err(failed) if matches!(failed.outcome, Outcome::Answered(416, _)) => {
                Ok(Some((Bytes::new(), 0)))
            }
            Err(failed) => Err(self.failure("read", path, &failed)),
        }
    }

    /// Reads a range of an object behind `whole`, several parts at a time.
    fn read_parts(&self, path: &Path, whole: Bytes, range: Range<u64>) -> Result<Option<Bytes>> {
        let next = |start: &u64| Some(start + PART_LEN).filter(|start| *start < range.end);
        let starts: Vec<u64> = std::iter::successors(Some(range.start), next).collect();
        let mut parts = vec![whole];
        for starts in starts.chunks(PARTS_AT_ONCE) {
            let read = thread::scope(|scope| {
                let threads: Vec<_> = starts
                    .iter()
                    .map(|&start| {
                        let end = (start + PART_LEN).min(range.end);
                        scope.spawn(move || self.read_part(path, start..end))
                    })
                    .collect();
                let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
                joined.collect::<Vec<_>>()
            });
            for part in read {
                let panicked = || Error::new(ErrorKind::Io, "a thread that reads a part panicked");
                match part.map_err(|_| panicked())?? {
                    Some((part, _)) => parts.push(part),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(parts.concat().into()))
    }

    fn put_once(
        &self,
        store: &dyn ObjectStore,
        path: &Path,
        content: &Bytes,
        mode: PutMode,
    ) -> std::result::Result<object_store::PutResult, Failed> {
        let mut options = PutOptions::from(mode);
        let noted = with_note(&mut options.extensions);
        let payload = PutPayload::from(content.clone());
        let put = store.put_opts(path, payload, options);
        pollster::block_on(put).map_err(|error| failed(&noted, error))
    }

    fn remove(&self, paths: &[Path]) -> Result<()> {
        if let Some(slots) = &self.slots {
            return paths.iter().try_for_each(|path| {
                let removed = self.repeated(|| {
                    let removed = slots.remove(path.as_ref());
                    removed.map_err(|(outcome, error)| Failed { outcome, error })
                });
                removed.map_err(|failed| self.failure("remove", path, &failed))
            });
        }
        let attempt = || {
            let paths: Vec<object_store::Result<Path>> = paths.iter().cloned().map(Ok).collect();
            let removed = self.large.delete_stream(stream::iter(paths).boxed());
            let removed = removed.filter(|it| {
                let is_gone = matches!(it, Err(object_store::Error::NotFound { .. }));
                std::future::ready(!is_gone)
            });
            let removed = removed.try_for_each(|_| std::future::ready(Ok(())));
            // Nothing is noted with such a request; it may be sent again whatever became of it.
            let lost = |error| Failed {
                outcome: Outcome::Lost,
                error,
            };
            pollster::block_on(removed).map_err(lost)
        };
        match paths.first() {
            None => Ok(()),
            Some(first) => self
                .repeated(attempt)
                .map_err(|failed| self.failure("remove", first, &failed)),
        }
    }
}

impl Shared for Bucket {
    fn name(&self) -> String {
        self.place.name.clone()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
        let path = self.slot(slot);
        if let Some(slots) = &self.slots {
            return self.read_google(slots, &path, known);
        }
        let read = self.repeated(|| {
            let options = GetOptions {
                if_none_match: known.map(|version| version.0.clone()),
                ..GetOptions::default()
            };
            self.read_once(self.small.as_ref(), &path, options)
        });
        match read {
            Ok((content, result)) => {
                let version = self.version(result.meta.e_tag, result.meta.version)?;
                self.as_read(&path, content, version, known)
            }
            Err(failed) => self.not_read(&path, &failed),
        }
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
        let path = self.slot(slot);
        let mode = match expected {
            None => PutMode::Create,
            Some(version) => PutMode::Update(UpdateVersion {
                e_tag: Some(version.0.clone()),
                version: Some(version.0.clone()),
            }),
        };
        let content = Bytes::copy_from_slice(new);
        let put = match &self.slots {
            None => {
                let put = self.put_once(self.small.as_ref(), &path, &content, mode);
                put.map(|result| (result.e_tag, result.version))
            }
            Some(slots) => {
                let put = slots.replace(path.as_ref(), expected, content);
                let put = put.map(|version| (None, version.map(|version| version.0)));
                put.map_err(|(outcome, error)| Failed { outcome, error })
            }
        };
        match put {
            Ok((e_tag, version)) => match self.version(e_tag, version) {
                Ok(version) => Ok(Swap::Done(version)),
                // It was done, as of which version is to be read.
                Err(_) => Ok(Swap::Unknown),
            },
            Err(failed) => match judge(&failed.outcome, expected.is_none()) {
                Verdict::Moved => Ok(Swap::Moved),
                Verdict::Unknown => Ok(Swap::Unknown),
                Verdict::Refused => Err(self.failure("replace", &path, &failed)),
            },
        }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let path = self.path(key);
        match range {
            Some(range) if range.end.saturating_sub(range.start) > PART_LEN => {
                self.read_parts(&path, Bytes::new(), range)
            }
            Some(range) => Ok(self.read_part(&path, range)?.map(|found| found.0)),
            None => match self.read_part(&path, 0..PART_LEN)? {
                Some((first, len)) if (first.len() as u64) < len => {
                    let rest = first.len() as u64..len;
                    self.read_parts(&path, first, rest)
                }
                found => Ok(found.map(|found| found.0)),
            },
        }
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<()> {
        let path = self.path(key);
        let content = Bytes::copy_from_slice(content);
        let put = || self.put_once(self.large.as_ref(), &path, &content, PutMode::Overwrite);
        match self.repeated(put) {
            Ok(_) => Ok(()),
            Err(failed) => Err(self.failure("store", &path, &failed)),
        }
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        let paths: Vec<Path> = keys.iter().map(|key| self.path(key)).collect();
        self.remove(&paths)
    }

    fn clear(&self, slots: Range<u32>) -> Result<()> {
        let paths: Vec<Path> = slots.map(|slot| self.slot(slot)).collect();
        self.remove(&paths)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        // A folder is listed whole, as services do.
        let folder = prefix.rsplit_once('/').map_or("", |it| it.0);
        let path = self.path(folder);
        let root = self.place.prefix.as_ref();
        let found = self.repeated(|| {
            let found = self.large.list(Some(&path)).try_collect::<Vec<_>>();
            let lost = |error| Failed {
                outcome: Outcome::Lost,
                error,
            };
            pollster::block_on(found).map_err(lost)
        });
        let found = found.map_err(|failed| self.failure("list", &path, &failed))?;
        let named = found.into_iter().filter_map(|meta| {
            let key = meta.location.as_ref().strip_prefix(root)?;
            let key = key.trim_start_matches('/');
            key.starts_with(prefix).then(|| (key.to_owned(), meta.size))
        });
        Ok(named.collect())
    }
}

/// Has a request note what becomes of it.
fn with_note(extensions: &mut Extensions) -> Noted {
    let noted = Noted::default();
    extensions.insert(noted.clone());
    noted
}

fn failed(noted: &Noted, error: object_store::Error) -> Failed {
    Failed {
        outcome: noted.get(),
        error,
    }
}

/// Returns whether there is no such object. Without a bucket there is none either, and that is told.
fn is_absent(failed: &Failed) -> bool {
    match &failed.outcome {
        Outcome::Answered(404, text) => ![
            "NoSuchBucket",
            "ContainerNotFound",
            "The specified bucket does not exist",
        ]
        .iter()
        .any(|code| text.starts_with(code)),
        _ => false,
    }
}

/// Returns the innermost reason, which names neither a URL nor a header.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    format!(": {innermost}")
}

/// What speaks with a service, and with its slots if those are another matter.
type Client = (Arc<dyn ObjectStore>, Option<Slots>);

/// Returns what speaks with the service. Nothing is sent twice by it.
fn client(place: &Place, connector: Connector) -> std::result::Result<Client, String> {
    let said = |error: object_store::Error| error.to_string();
    let once = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    Ok(match place.service {
        Service::S3 => {
            let mut builder = AmazonS3Builder::from_env();
            if let Some(endpoint) = &place.endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            if let Some(region) = &place.region {
                builder = builder.with_region(region);
            }
            let builder = builder
                .with_bucket_name(&place.bucket)
                // Whatever else the environment says: a place without conditions keeps no refs.
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .with_config(AmazonS3ConfigKey::DisableTagging, "true")
                .with_retry(once)
                .with_http_connector(connector);
            (Arc::new(builder.build().map_err(said)?), None)
        }
        Service::Azure => {
            let builder = MicrosoftAzureBuilder::from_env()
                .with_container_name(&place.bucket)
                .with_retry(once)
                .with_http_connector(connector);
            (Arc::new(builder.build().map_err(said)?), None)
        }
        Service::Google => {
            let builder = GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(&place.bucket)
                .with_retry(once)
                .with_http_connector(connector.clone());
            let store = Arc::new(builder.clone().build().map_err(said)?);
            let slots = Slots::new(&builder, &place.bucket, &store, connector);
            (store, Some(slots.map_err(|error| error.to_string())?))
        }
    })
}
