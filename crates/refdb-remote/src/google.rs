//! The slots of a bucket of Google's, by the interface that has conditions for reading too: object_store speaks
//! another one. Objects are removed by it as well; for all else they go the common way.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Method, Request, Response};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use refdb::shared::Version;
use refdb::{Error, ErrorKind, Result};
use url::Url;

use crate::http_client::Connector;
use crate::outcome::{Noted, Outcome};

/// Where Google is, unless the environment says otherwise.
const GOOGLE: &str = "https://storage.googleapis.com";

/// The generation of an object, which is what Google calls a version.
const GENERATION: &str = "x-goog-generation";

/// What did not work, and what is said about it.
pub(crate) type Failure = (Outcome, object_store::Error);

/// Slots of a bucket of Google's.
pub(crate) struct Slots {
    base: Url,
    bucket: String,
    /// Whose credentials requests have; `None` where the environment says that they need none.
    signer: Option<Arc<GoogleCloudStorage>>,
    connector: Connector,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slots").field(&self.bucket).finish()
    }
}

fn failure(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic {
        store: "GCS",
        source: source.into(),
    }
}

impl Slots {
    pub(crate) fn new(
        builder: &GoogleCloudStorageBuilder,
        bucket: &str,
        store: &Arc<GoogleCloudStorage>,
        connector: Connector,
    ) -> Result<Slots> {
        let base = builder.get_config_value(&GoogleConfigKey::BaseUrl);
        let base = Url::parse(base.as_deref().unwrap_or(GOOGLE)).map_err(|_| {
            let what = "GOOGLE_BASE_URL is no URL";
            Error::new(ErrorKind::Config, what)
        })?;
        let unsigned = builder.get_config_value(&GoogleConfigKey::SkipSignature);
        let is_signed = unsigned.as_deref() != Some("true");
        Ok(Slots {
            base,
            bucket: bucket.to_owned(),
            signer: is_signed.then(|| Arc::clone(store)),
            connector,
        })
    }

    /// Reads a slot, unless it is of the version that is known.
    pub(crate) fn read(
        &self,
        name: &str,
        known: Option<&Version>,
    ) -> std::result::Result<(Bytes, Option<Version>), Failure> {
        let mut url = self.object(name);
        url.query_pairs_mut().append_pair("alt", "media");
        if let Some(known) = known {
            let mut query = url.query_pairs_mut();
            query.append_pair("ifGenerationNotMatch", &known.0);
        }
        let response = self.ask(Method::GET, &url, Bytes::new())?;
        let version = response.headers().get(GENERATION);
        let version = version.and_then(|it| it.to_str().ok());
        let version = version.map(|it| Version(it.to_owned()));
        Ok((response.into_body(), version))
    }

    /// Replaces a slot; returns its new version, if the answer says it.
    pub(crate) fn replace(
        &self,
        name: &str,
        expected: Option<&Version>,
        content: Bytes,
    ) -> std::result::Result<Option<Version>, Failure> {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(["upload", "storage", "v1", "b", &self.bucket, "o"]);
        }
        let is_none =
            |it: &&Version| it.0.is_empty() || !it.0.bytes().all(|it| it.is_ascii_digit());
        if expected.as_ref().is_some_and(is_none) {
            // It is of another place: Google would refuse to look.
            let failure = failure("it is no generation");
            return Err((Outcome::Answered(412, String::new()), failure));
        }
        // No generation is one that is not there.
        let expected = expected.map_or("0", |version| &version.0);
        url.query_pairs_mut()
            .append_pair("uploadType", "media")
            .append_pair("name", name)
            .append_pair("ifGenerationMatch", expected);
        let response = self.ask(Method::POST, &url, content)?;
        Ok(generation_in(response.body()))
    }

    /// Removes an object, slot or not. One that is not there is fine.
    pub(crate) fn remove(&self, name: &str) -> std::result::Result<(), Failure> {
        match self.ask(Method::DELETE, &self.object(name), Bytes::new()) {
            Err((Outcome::Answered(404, _), _)) => Ok(()),
            removed => removed.map(drop),
        }
    }

    fn object(&self, name: &str) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(["storage", "v1", "b", &self.bucket, "o", name]);
        }
        url
    }

    /// Sends a request once.
    fn ask(
        &self,
        method: Method,
        url: &Url,
        body: Bytes,
    ) -> std::result::Result<Response<Bytes>, Failure> {
        let mut request = Request::builder().method(method).uri(url.as_str());
        if let Some(signer) = &self.signer {
            let credential = pollster::block_on(signer.credentials().get_credential());
            let credential = credential.map_err(|error| (Outcome::NotSent, error))?;
            if !credential.bearer.is_empty() {
                request = request.header(AUTHORIZATION, format!("Bearer {}", credential.bearer));
            }
        }
        let request = request.header("content-type", "application/octet-stream");
        let request = request.body(body);
        let request = request.map_err(|error| (Outcome::NotSent, failure(error)))?;
        let noted = Noted::default();
        match self.connector.ask(request, &noted) {
            Ok(response) if response.status().is_success() => Ok(response),
            Ok(response) => Err((noted.get(), failure(response.status().to_string()))),
            Err(error) => Err((noted.get(), failure(error))),
        }
    }
}

/// Returns the generation that Google says of an object, in JSON.
fn generation_in(body: &[u8]) -> Option<Version> {
    let body = std::str::from_utf8(body).ok()?;
    let (_, rest) = body.split_once("\"generation\"")?;
    let rest = rest.trim_start().strip_prefix(':')?;
    let rest = rest.trim_start().strip_prefix('"')?;
    let (number, _) = rest.split_once('"')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Version(number.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_found_where_it_is_said() {
        let version = |text: &str| generation_in(text.as_bytes()).map(|version| version.0);
        let said = "{\"name\": \"a\\\"generation\\\": \\\"7\\\"\", \"metageneration\": \"1\", \"generation\": \"17\"}";
        assert_eq!(version(said).as_deref(), Some("17"));
        assert_eq!(version("{\"generation\":\"18\"}").as_deref(), Some("18"));
        for text in [
            "",
            "{}",
            "{\"generation\": 17}",
            "{\"generation\": \"x\"}",
            "\"generation\"",
        ] {
            assert_eq!(version(text), None, "{text}");
        }
    }
}
