//! `anyqueue serve`: a service of its own process.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use crate::bed::{Bed, PATIENCE, ended, signal};

/// A service that listens.
pub(crate) struct Service {
    pub(crate) child: Child,
    pub(crate) address: String,
}

pub(crate) async fn serve(bed: &Bed, arguments: &[&str]) -> Service {
    serve_at(bed, "127.0.0.1:0", arguments).await.expect("a service that listens")
}

/// Nothing if it ends before it listens.
pub(crate) async fn serve_at(bed: &Bed, address: &str, arguments: &[&str]) -> Option<Service> {
    let mut all = vec!["serve", "--listen", address, "--json"];
    all.extend(arguments);
    let mut child = bed.command(&all).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, out.read_line(&mut line)).await.unwrap().unwrap();
    let said: Value = serde_json::from_str(&line).ok()?;
    Some(Service { child, address: said["listening"].as_str().unwrap().to_owned() })
}

impl Service {
    /// The status and the body of an answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let exchange = async {
            let mut stream = TcpStream::connect(&self.address).await.unwrap();
            let length = body.len();
            let request = format!(
                "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}",
                self.address
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
            (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("an answer in time")
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let (status, answer) =
            self.ask("POST", path, "content-type: application/json\r\n", &body.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).unwrap()
    }
}

#[tokio::test]
async fn what_a_service_handed_out_before_it_was_killed_the_next_one_settles() {
    let bed = Bed::new();
    let first = serve(&bed, &["--ledger"]).await;
    first.post("/v1/partitions/mail/messages", json!({ "payload": "hello" })).await;
    let pulled = first.post("/v1/pull", json!({ "partitions": ["mail"] })).await;
    signal(&first.child, Signal::KILL);
    ended(first.child).await;
    let second = serve(&bed, &["--ledger"]).await;
    let delivery = &pulled["deliveries"][0];
    let settled = second
        .post(
            "/v1/settle",
            json!([{ "delivery": delivery["delivery"], "status": "processed", "result": "sent" }]),
        )
        .await;
    assert_eq!(settled[0]["outcome"], "settled");
    let shown = bed.ok(&["tasks", "show", "mail", delivery["id"].as_str().unwrap(), "--json"]).await;
    assert_eq!(shown.objects()[0]["state"], "succeeded", "{shown:?}");
}

#[tokio::test]
async fn it_ends_in_order_and_measures_what_it_did() {
    let bed = Bed::new();
    let service = serve(&bed, &[]).await;
    service.post("/v1/partitions/mail/messages", json!({ "payload": "hello" })).await;
    let (status, metrics) = service.ask("GET", "/metrics", "", "").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("anyqueue_pushed_total"), "{metrics}");
    signal(&service.child, Signal::TERM);
    ended(service.child).await.ended_with(0);
}

#[tokio::test]
async fn other_machines_are_served_with_tokens_only() {
    let bed = Bed::new();
    let refused = bed.run(&["serve", "--listen", "0.0.0.0:0"]).await.ended_with(2);
    assert!(refused.err.contains("require a token"), "{refused:?}");
    std::fs::write(bed.path("tokens"), "# ours\ncorrect-horse-battery # the second team's\n").unwrap();
    let service = serve(&bed, &["--token-file", "tokens"]).await;
    assert_eq!(service.ask("GET", "/v1/partitions", "", "").await.0, 401);
    let token = "authorization: Bearer correct-horse-battery\r\n";
    assert_eq!(service.ask("GET", "/v1/partitions", token, "").await.0, 200);
    let listen = ["serve", "--listen", "0.0.0.0:0", "--token-file", "tokens"];
    let plain = bed.run(&listen).await.ended_with(2);
    assert!(plain.err.contains("without TLS"), "{plain:?}");
    let half = bed.run(&[&listen[..], &["--tls-cert", "server.crt"]].concat()).await.ended_with(2);
    assert!(half.err.contains("--tls-key"), "{half:?}");
    let files = ["--tls-cert", "server.crt", "--tls-key", "server.key"];
    let missing = bed.run(&[&listen[..], &files].concat()).await.ended_with(2);
    assert!(missing.err.contains("server.crt cannot be read"), "{missing:?}");
    let clients = ["--tls-client-ca", "clients.crt"];
    let plain = bed.run(&[&listen[..], &clients].concat()).await.ended_with(2);
    assert!(plain.err.contains("--tls-cert"), "{plain:?}");
    let nobody =
        bed.run(&[&listen[..], &files, &["--require-client-certificates"]].concat()).await.ended_with(2);
    assert!(nobody.err.contains("--tls-client-ca"), "{nobody:?}");
    std::fs::write(bed.path("short"), "abc\n").unwrap();
    let short = bed.run(&["serve", "--token-file", "short"]).await;
    assert!(short.err.contains("16 bytes") && !short.err.contains("abc"), "{short:?}");
    let none = bed.run(&["serve", "--token-file", "missing"]).await.ended_with(2);
    assert!(none.err.contains("missing"), "{none:?}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let bed = Bed::new();
    let service = serve(&bed, &[]).await;
    let taken = bed.run(&["serve", "--listen", &service.address]).await.ended_with(1);
    assert!(taken.err.contains(&format!("cannot listen on {}", service.address)), "{taken:?}");
}
