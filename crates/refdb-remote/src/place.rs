//! What the URL of a bucket says.

use object_store::path::Path;
use refdb::{Error, ErrorKind, Result};
use url::Url;

/// Whose bucket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    S3,
    Azure,
    Google,
}

/// What a URL names.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) service: Service,
    /// The bucket, or the container.
    pub(crate) bucket: String,
    /// What the names of all objects begin with.
    pub(crate) prefix: Path,
    /// Where a server of one's own is.
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    /// The same, as it is shown and written down.
    pub(crate) name: String,
}

fn misuse(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Misuse, what.into())
}

impl Place {
    /// Reads a URL. What is wrong with it is told without showing it: there may be a secret in it.
    pub(crate) fn parse(text: &str) -> Result<Place> {
        let scheme = text.split_once("://").map_or("", |it| it.0);
        let service = match scheme {
            "s3" => Service::S3,
            "az" => Service::Azure,
            "gs" => Service::Google,
            _ => {
                return Err(misuse(
                    "the URL of a bucket begins with s3://, az:// or gs://",
                ));
            }
        };
        let url = Url::parse(text)
            .map_err(|error| misuse(format!("the URL of the {scheme}:// store: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(misuse(format!(
                "the URL of a {scheme}:// store has no room for credentials: they stand in the environment"
            )));
        }
        if url.port().is_some() || url.fragment().is_some() {
            return Err(misuse(format!(
                "the URL of a {scheme}:// store has no port and no fragment"
            )));
        }
        let bucket = url.host_str().unwrap_or_default().to_owned();
        if bucket.is_empty() {
            return Err(misuse(format!(
                "{scheme}:// is followed by the name of a bucket"
            )));
        }
        let prefix = Path::from_url_path(url.path()).map_err(|_| {
            misuse("the path of the store in its bucket has an empty part, or a dot")
        })?;
        let mut place = Place {
            service,
            name: match prefix.as_ref() {
                "" => format!("{scheme}://{bucket}"),
                path => format!("{scheme}://{bucket}/{path}"),
            },
            bucket,
            prefix,
            endpoint: None,
            region: None,
        };
        place.read_options(&url)?;
        Ok(place)
    }

    fn read_options(&mut self, url: &Url) -> Result<()> {
        let mut joint = '?';
        for (key, value) in url.query_pairs() {
            match &*key {
                "endpoint" if self.service == Service::S3 => {
                    let endpoint = Url::parse(&value).ok().filter(|endpoint| {
                        matches!(endpoint.scheme(), "http" | "https")
                            && endpoint.has_host()
                            && endpoint.username().is_empty()
                            && endpoint.password().is_none()
                            && endpoint.query().is_none()
                    });
                    if endpoint.is_none() {
                        return Err(misuse("endpoint= takes http://host:port or https://host"));
                    }
                    self.endpoint = Some(value.trim_end_matches('/').to_owned());
                }
                "region" if self.service == Service::S3 => self.region = Some(value.to_string()),
                _ => {
                    return Err(misuse(
                        "the URL of a store can say endpoint= and region=, and only behind s3://; all else \
                         is said by the environment",
                    ));
                }
            }
            self.name.push_str(&format!("{joint}{key}={value}"));
            joint = '&';
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_bucket_prefix_and_where() {
        let place = Place::parse("s3://b-1/a/b/?endpoint=http://127.0.0.1:7070/&region=x").unwrap();
        assert_eq!(
            (place.bucket.as_str(), place.prefix.as_ref()),
            ("b-1", "a/b")
        );
        assert_eq!(place.endpoint.as_deref(), Some("http://127.0.0.1:7070"));
        assert_eq!(place.region.as_deref(), Some("x"));
        let again = Place::parse(&place.name).unwrap();
        assert_eq!((again.name, again.endpoint), (place.name, place.endpoint));
        let place = Place::parse("az://c").unwrap();
        assert_eq!(
            (place.service, place.name.as_str()),
            (Service::Azure, "az://c")
        );
        assert_eq!(Place::parse("gs://g/x").unwrap().service, Service::Google);
    }

    #[test]
    fn what_a_url_cannot_say_is_not_shown() {
        for url in [
            "s3://me:hunter2@bucket/x",
            "s3://hunter2@bucket/x",
            "s3://bucket/x?secret=hunter2",
            "s3://bucket/x?endpoint=https://hunter2@host",
            "s3://bucket/x?endpoint=https://host/?sig=hunter2",
            "az://container/x?sig=hunter2",
            "gs://bucket/x?endpoint=http://hunter2",
            "s3://bucket/a//hunter2",
            "s3:///hunter2",
            "ftp://hunter2/x",
            "hunter2",
        ] {
            let error = Place::parse(url).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
