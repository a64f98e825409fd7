//! How requests are sent: by calls that block, each once, and each with an end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use crate::outcome::{Noted, Outcome, said};

/// How long a name and a connection are waited for.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the first byte of an answer is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Connections that were idle for longer are not used again: servers close them about then.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// How many requests were sent, by their kind.
#[derive(Debug, Default)]
pub struct Counts {
    puts: AtomicU64,
    gets: AtomicU64,
    others: AtomicU64,
}

impl Counts {
    /// Returns how many requests stored something, read or listed, and did anything else.
    pub fn get(&self) -> (u64, u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.puts), get(&self.gets), get(&self.others))
    }

    fn add(&self, method: &Method) {
        let count = match *method {
            Method::PUT => &self.puts,
            Method::GET | Method::HEAD => &self.gets,
            _ => &self.others,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes connections for object_store.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    agent: Agent,
    counts: Arc<Counts>,
}

impl Connector {
    /// `whole_max` is how long a request may take, with everything that is sent and received.
    pub(crate) fn new(whole_max: Duration, counts: Arc<Counts>) -> Connector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // Where a request leads is for its signer to say.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(whole_max))
            .timeout_resolve(Some(CONNECT_MAX))
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_recv_response(Some(ANSWER_MAX))
            .max_idle_age(IDLE_MAX)
            .max_idle_connections(32)
            .max_idle_connections_per_host(32)
            .user_agent(concat!("refdb/", env!("CARGO_PKG_VERSION")))
            .build();
        Connector {
            agent: config.new_agent(),
            counts,
        }
    }

    /// Sends a request once, and notes what became of it.
    pub(crate) fn ask(
        &self,
        request: Request<Bytes>,
        noted: &Noted,
    ) -> Result<Response<Bytes>, ureq::Error> {
        self.counts.add(request.method());
        // From here on it may arrive.
        noted.set(Outcome::Lost);
        match send(&self.agent, request) {
            Ok(response) => {
                let status = response.status();
                let text = match status.is_success() {
                    true => String::new(),
                    false => said(response.body()),
                };
                noted.set(Outcome::Answered(status.as_u16(), text));
                Ok(response)
            }
            Err(error) => {
                if never_sent(&error) {
                    noted.set(Outcome::Unreachable);
                }
                Err(error)
            }
        }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let noted = parts.extensions.get::<Noted>().cloned().unwrap_or_default();
        let body = body.collect().await?.to_bytes();
        let response = self.ask(Request::from_parts(parts, body), &noted);
        let response = response.map_err(|error| HttpError::new(kind_of(&error), error))?;
        Ok(response.map(Into::into))
    }
}

fn send(agent: &Agent, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
    let (parts, body) = request.into_parts();
    let has_body = matches!(parts.method, Method::PUT | Method::POST);
    let response = match has_body {
        true => agent.run(Request::from_parts(parts, &body[..]))?,
        false => agent.run(Request::from_parts(parts, ()))?,
    };
    let (parts, mut body) = response.into_parts();
    let content = body.with_config().limit(u64::MAX).read_to_vec()?;
    Ok(Response::from_parts(parts, content.into()))
}

/// Returns whether it is certain that a request did not leave this machine.
fn never_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BadUri(_)
        | ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => true,
        ureq::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

fn kind_of(error: &ureq::Error) -> HttpErrorKind {
    match error {
        error if never_sent(error) => HttpErrorKind::Connect,
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        _ => HttpErrorKind::Interrupted,
    }
}
