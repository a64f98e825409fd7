//! What stands between the command and a bucket, and says or does something else than it was asked, at times.

use std::io::BufReader;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::server::{Answers, Conditions, Elsewhere, InMemory, refusal};
use crate::wire::Message;

/// What it does with a request that stores something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Answers 409, and did nothing.
    Conflict,
    /// Answers 500, and did nothing.
    Failed,
    /// Does it, and answers 503.
    DoneAndBusy,
    /// Does it, and hangs up.
    DoneAndGone,
    /// Hangs up, and does it when nobody thinks of it any more.
    Late,
}

const LIES: [Lie; 5] = [
    Lie::Conflict,
    Lie::Failed,
    Lie::DoneAndBusy,
    Lie::DoneAndGone,
    Lie::Late,
];

/// A key for a server that asks for none.
const NO_KEY: &str =
    r#"{"private_key": "x", "private_key_id": "x", "client_email": "x", "disable_oauth": true}"#;

/// How late.
const LATE: Duration = Duration::from_millis(400);

/// A bucket, and what stands before it.
pub(crate) struct Place {
    address: SocketAddr,
    service: String,
    shared: Arc<Between>,
}

struct Between {
    bucket: Box<dyn Answers>,
    /// Of a hundred requests that store something, so many are lied about.
    percent: u64,
    state: AtomicU64,
    /// How many milliseconds an answer takes, half of them before the request is there.
    delay: AtomicU64,
    puts: AtomicU64,
    gets: AtomicU64,
    lies: AtomicU64,
}

impl Place {
    /// The bucket that the environment names, or one in memory.
    pub(crate) fn new(percent: u64) -> Place {
        Place::at([127, 0, 0, 1].into(), percent)
    }

    /// The same, where it is reached by that address.
    pub(crate) fn at(here: IpAddr, percent: u64) -> Place {
        match std::env::var("REFDB_TEST_SERVER") {
            Ok(address) => {
                let service = std::env::var("REFDB_TEST_SERVICE").unwrap_or_else(|_| "s3".into());
                let by_its_name = service != "s3";
                let server = Elsewhere {
                    address,
                    by_its_name,
                };
                Place::before(here, Box::new(server), &service, percent)
            }
            Err(_) => {
                let bucket = Box::new(InMemory::new(Conditions::Hold));
                Place::before(here, bucket, "s3", percent)
            }
        }
    }

    pub(crate) fn in_memory(conditions: Conditions, percent: u64) -> Place {
        let here = [127, 0, 0, 1].into();
        Place::before(here, Box::new(InMemory::new(conditions)), "s3", percent)
    }

    fn before(here: IpAddr, bucket: Box<dyn Answers>, service: &str, percent: u64) -> Place {
        let listener = TcpListener::bind((here, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Between {
            bucket,
            percent,
            state: AtomicU64::new(20_261_125),
            delay: AtomicU64::new(0),
            puts: AtomicU64::new(0),
            gets: AtomicU64::new(0),
            lies: AtomicU64::new(0),
        });
        let between = Arc::clone(&shared);
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let between = Arc::clone(&between);
                thread::spawn(move || between.serve(stream));
            }
        });
        Place {
            address,
            service: service.to_owned(),
            shared,
        }
    }

    /// Puts the bucket so many milliseconds away.
    pub(crate) fn set_delay(&self, millis: u64) {
        self.shared.delay.store(millis, Ordering::Relaxed);
    }

    /// Returns the URL of a store of that name, and what the environment says about it.
    pub(crate) fn url(&self, name: &str) -> String {
        let name = format!("{name}-{:08x}", std::process::id());
        match self.service.as_str() {
            "s3" => format!("s3://refs/{name}?endpoint=http://{}", self.address),
            service => format!("{service}://refs/{name}"),
        }
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let http = format!("http://{}", self.address);
        match self.service.as_str() {
            "az" => vec![
                ("AZURE_STORAGE_USE_EMULATOR", "true".into()),
                ("AZURITE_BLOB_STORAGE_URL", http),
            ],
            "gs" => vec![
                ("GOOGLE_BASE_URL", http),
                // Without a key, the account of the machine would be asked for.
                ("GOOGLE_SERVICE_ACCOUNT_KEY", NO_KEY.into()),
            ],
            _ => vec![
                ("AWS_ACCESS_KEY_ID", "mykey".into()),
                ("AWS_SECRET_ACCESS_KEY", "hunter2secret".into()),
            ],
        }
    }

    /// Returns how many requests stored something, how many read, and how many were lied about.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shared = &self.shared;
        (get(&shared.puts), get(&shared.gets), get(&shared.lies))
    }
}

impl Between {
    fn random(&self) -> u64 {
        // splitmix64
        let state = self
            .state
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 7
    }

    fn choose(&self) -> Lie {
        let mut lies = LIES.into_iter().cycle();
        let at = usize::try_from(self.random() % 1000).unwrap_or_default();
        lies.nth(at).unwrap_or(Lie::Failed)
    }

    fn serve(self: &Arc<Self>, stream: TcpStream) {
        let mut writer = stream.try_clone().expect("a stream has two ends");
        let mut reader = BufReader::new(stream);
        while let Ok(Some(request)) = Message::read(&mut reader, false) {
            let is_put = match request.method() {
                "PUT" => true,
                // How slots of Google's are replaced.
                "POST" => request.first.starts_with("POST /upload/"),
                _ => false,
            };
            let count = if is_put { &self.puts } else { &self.gets };
            count.fetch_add(1, Ordering::Relaxed);
            let half = Duration::from_millis(self.delay.load(Ordering::Relaxed)) / 2;
            thread::sleep(half);
            let lies = is_put && self.random() % 100 < self.percent;
            let answer = match lies {
                true => {
                    self.lies.fetch_add(1, Ordering::Relaxed);
                    self.lie(self.choose(), &request)
                }
                false => Some(self.bucket.answer(&request)),
            };
            thread::sleep(half);
            let Some(answer) = answer else {
                let _ = writer.shutdown(Shutdown::Both);
                return;
            };
            if answer.write(&mut writer).is_err() {
                return;
            }
        }
    }

    /// Returns the answer; `None` for a connection that is cut.
    fn lie(self: &Arc<Self>, lie: Lie, request: &Message) -> Option<Message> {
        match lie {
            Lie::Conflict => Some(refusal(409, "ConditionalRequestConflict")),
            Lie::Failed => Some(refusal(500, "InternalError")),
            Lie::DoneAndBusy => {
                self.bucket.answer(request);
                Some(refusal(503, "SlowDown"))
            }
            Lie::DoneAndGone => {
                self.bucket.answer(request);
                None
            }
            Lie::Late => {
                let (between, request) = (Arc::clone(self), request.clone());
                thread::spawn(move || {
                    thread::sleep(LATE);
                    between.bucket.answer(&request);
                });
                None
            }
        }
    }
}
