//! The tests of the client for Python, against a service over each backend.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::format_push_string
)]

#[path = "http/bed.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod bed;
#[path = "http/client.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod client;

use std::path::Path;
use std::time::Duration;

use anyqueue::{Keep, Queue};
use anyqueue_server::Tls;
use anyqueue_testkit::{Certificates, Ministack, Postgres, RabbitMq, Redis, provide};
use bed::Bed;
use tokio::process::Command;

/// How long one run may take: it waits for two leases to pass, and for interpreters to start.
const PATIENCE: Duration = Duration::from_mins(5);

/// Tests of what RabbitMQ and SQS do not have: two of a ledger, two of requests for cancellation.
const WITHOUT_LEDGER: usize = 4;

/// Runs them over this storage. As many are skipped as the backend lacks, and no more.
async fn passes_on(url: &str, skipped: usize) {
    let storage = anyqueue_backends::open(url).await.unwrap();
    let mut builder = Queue::builder(storage);
    if skipped == 0 {
        builder = builder.ledger(Keep::default());
    }
    let queue = builder.build().unwrap();
    queue.init().await.unwrap();
    // Where the backend keeps no control entries, they are another's.
    let control = if queue.capabilities().control { queue.control() } else { bed::memory().control() };
    let bed = Bed::with(queue, |builder| builder.control(control.unwrap())).await;
    let ran = tokio::time::timeout(PATIENCE, unittest(&bed.client.0.to_string())).await;
    let (passed, output) = ran.unwrap_or_else(|_| panic!("the tests did not end within {PATIENCE:?}"));
    assert!(passed, "{output}");
    let ending = if skipped == 0 { "\nOK\n".to_owned() } else { format!("\nOK (skipped={skipped})\n") };
    assert!(output.ends_with(&ending), "expected {ending:?} of\n{output}");
    bed.end().await;
}

/// Whether they pass at this address, and what they say.
async fn unittest(address: &str) -> (bool, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/python");
    let ran = Command::new("python3")
        .args(["-B", "-m", "unittest", "discover", "-v", "-s", "tests", "-t", "."])
        .env("ANYQUEUE_TEST_ADDRESS", address)
        .current_dir(folder)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap_or_else(|error| {
            panic!("python3 cannot be run ({error}): install Python 3.9 or later, for instance with `cargo xtask setup`")
        });
    (ran.status.success(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_memory() {
    passes_on("memory:", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    passes_on(&format!("sqlite:{}", folder.path().join("jobs.db").display()), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    passes_on(&with(url, &format!("schema=python_{}", std::process::id())), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    passes_on(&with(url, &format!("prefix=python_{}", std::process::id())), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_rabbitmq() {
    let server = provide(RabbitMq::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    passes_on(&with(url, &format!("prefix=python_{}", std::process::id())), WITHOUT_LEDGER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqs() {
    let server = provide(Ministack::new()).await.unwrap();
    let Some(endpoint) = server.url() else { return };
    let url = format!("sqs://test:test@us-east-1/python_{}?endpoint={endpoint}", std::process::id());
    passes_on(&url, WITHOUT_LEDGER).await;
}

/// Pushes, pulls and settles over TLS with a token, as a program would.
const ONE_TASK: &str = r#"
import sys
from anyqueue import Client
with Client(sys.argv[1], token="correct-horse-battery", timeout=30.0) as client:
    client.push("mail", {"payload": "hello"})
    delivery = client.pull(["mail"], wait=10.0)["deliveries"][0]
    print(client.settle({"delivery": delivery["delivery"], "status": "processed"})[0]["outcome"])
"#;

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_it_talks_to_whom_its_authority_vouches_for_and_to_nobody_else() {
    let certificates = Certificates::make().await.unwrap();
    let tls = Tls::from_files(certificates.certificate(), certificates.key()).unwrap();
    let bed = Bed::with(bed::memory(), |builder| builder.tls(tls).token("correct-horse-battery")).await;
    let url = format!("https://localhost:{}", bed.client.0.port());
    let run = |authority: std::path::PathBuf| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/python");
        let mut python = Command::new("python3");
        python.args(["-B", "-c", ONE_TASK, &url]).env("SSL_CERT_FILE", authority).current_dir(folder);
        python.kill_on_drop(true);
        async move { tokio::time::timeout(PATIENCE, python.output()).await.expect("an end").unwrap() }
    };
    let done = run(certificates.authority()).await;
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!((String::from_utf8_lossy(&done.stdout).trim(), &*errors), ("settled", ""));
    let refused = run(Certificates::make().await.unwrap().authority()).await;
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && errors.contains("certificate"), "{errors}");
    bed.end().await;
}

fn with(url: &str, option: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{option}")
}
