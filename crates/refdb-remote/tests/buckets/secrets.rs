//! Secrets are in the environment, and nowhere else: not in what is printed, not in traces, not in arguments.

use std::io::{BufReader, Read};
use std::net::TcpListener;
use std::thread;

use refdb_testkit::Format;
use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;

use crate::server::refusal;
use crate::wire::Message;

/// What must be seen nowhere.
const SECRET: &str = "hunter2-and-some-more";

/// A server that answers everything with an error in which is all that it was sent.
fn parrot() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut writer = stream.try_clone().expect("two ends");
                let mut reader = BufReader::new(stream);
                while let Ok(Some(request)) = Message::read(&mut reader, false) {
                    let mut answer = refusal(403, "AccessDenied");
                    let text = format!("{} {:?} {SECRET}", request.first, request.headers);
                    let body = format!("<Error><Code>No</Code><Message>{text}</Message></Error>");
                    answer.body = body.into_bytes();
                    if answer.write(&mut writer).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address.to_string()
}

#[test]
fn no_secret_is_shown() {
    let repo = Repo::init(Format::ALL[0]);
    let server = parrot();
    let trace = repo.path().join("trace");
    let s3 = format!("s3://refs/x?endpoint=http://{server}");
    let calls: [&[&str]; 4] = [
        &["for-each-ref"],
        &["update-ref", "refs/heads/a", "HEAD"],
        &["store", "status"],
        &["store", "verify"],
    ];
    let services: [(&str, Vec<(&str, String)>); 4] = [
        (
            &s3,
            vec![
                ("AWS_ACCESS_KEY_ID", "id".into()),
                ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
                ("AWS_SESSION_TOKEN", SECRET.into()),
            ],
        ),
        (
            "az://refs/x",
            vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", "me".into()),
                (
                    "AZURE_STORAGE_SAS_TOKEN",
                    format!("sv=2024-01-01&sig={SECRET}"),
                ),
                ("AZURE_STORAGE_ENDPOINT", format!("http://{server}")),
            ],
        ),
        (
            "gs://refs/x",
            vec![
                ("GOOGLE_BEARER_TOKEN", SECRET.into()),
                ("GOOGLE_BASE_URL", format!("http://{server}")),
            ],
        ),
        // A key that is none.
        (
            "gs://refs/x",
            vec![(
                "GOOGLE_SERVICE_ACCOUNT_KEY",
                format!("{{\"private_key\": \"{SECRET}\"}}"),
            )],
        ),
    ];
    let mut answered = 0;
    for (url, environment) in &services {
        for args in calls {
            let mut run = oracle::run_of(env!("CARGO_BIN_EXE_refdb-remote"), repo.path());
            run = run.args(["--store", url]).args(args);
            for (name, value) in environment {
                run = run.env(name, value);
            }
            let output = run.env("GIT_TRACE2_EVENT", &trace).run();
            let text =
                String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat())
                    .into_owned();
            assert_eq!(output.code(), 128, "{text}");
            assert!(!text.contains("hunter2"), "{url} {args:?}: {text}");
            answered += usize::from(text.contains("status 403"));
        }
    }
    // All but the key that is none came as far as the server, which repeats what it was told.
    assert_eq!(answered, 3 * calls.len());
    let mut traced = String::new();
    let mut file = std::fs::File::open(&trace).expect("something was traced");
    file.read_to_string(&mut traced).expect("it is text");
    assert!(traced.contains("for-each-ref") && !traced.contains("hunter2"));
}

#[test]
fn a_secret_in_a_url_is_refused_and_not_repeated() {
    let repo = Repo::init(Format::ALL[0]);
    for url in [
        "s3://id:hunter2@refs/x",
        "s3://refs/x?secret_access_key=hunter2",
        "az://refs/x?sig=hunter2",
    ] {
        let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb-remote"), repo.path());
        let output = run.args(["store", "status", url]).run();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.code() != 0 && !text.contains("hunter2"), "{text}");
    }
}
