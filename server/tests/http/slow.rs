//! Clients that send or read too slowly, and those that are slow but move.

use std::time::Duration;

use anyqueue::MessageData;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, memory};

const DEADLINE: Duration = Duration::from_mins(1);

async fn bed(patience: Duration, most: usize) -> Bed {
    Bed::with(memory(), |builder| builder.patience(patience).max_connections(most)).await
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Sends a body in parts with a pause between them, and reads the answer until the service hangs up.
async fn send(bed: &Bed, head: &str, parts: Vec<Vec<u8>>, pause: Duration) -> String {
    let (mut reading, mut writing) = TcpStream::connect(bed.client.0).await.unwrap().into_split();
    let length: usize = parts.iter().map(Vec::len).sum();
    let head = format!("{head} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n", bed.client.0);
    writing.write_all(head.as_bytes()).await.unwrap();
    let sending = tokio::spawn(async move {
        writing.write_all(b"content-type: application/json\r\n\r\n").await.unwrap();
        for part in parts {
            // Whoever is cut cannot send on.
            if writing.write_all(&part).await.is_err() {
                return;
            }
            sleep(pause).await;
        }
        std::future::pending::<()>().await;
    });
    let mut answer = Vec::new();
    let _ = timeout(DEADLINE, reading.read_to_end(&mut answer)).await.expect("an end");
    sending.abort();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_body_that_comes_a_byte_at_a_time_is_cut() {
    let bed = bed(millis(300), 10).await;
    for head in ["POST /v1/partitions/mail/messages", "POST /v1/pull"] {
        let bytes = vec![vec![b' ']; 2000];
        let answer = send(&bed, head, bytes, millis(50)).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{head}: {answer}");
        assert!(answer.contains(r#""kind":"timed_out""#) && answer.contains(r#""retry":"safe""#), "{answer}");
    }
}

#[tokio::test]
async fn a_large_body_has_more_time() {
    // All of it takes longer than this, and a busy machine has enough time for the first part.
    let bed = bed(millis(1000), 10).await;
    let mut parts = vec![vec![b' '; 256 << 10]; 6];
    parts.push(br#"{"payload":"x"}"#.to_vec());
    let answer = send(&bed, "POST /v1/partitions/mail/messages", parts, millis(250));
    // The service keeps the connection afterwards: what was pushed tells that it arrived.
    let pushed = async {
        assert_eq!(bed.queue.pull("mail").await.unwrap().len(), 1);
    };
    let arrived = async {
        while bed.queue.counts("mail").await.unwrap().ready == Some(0) {
            sleep(millis(10)).await;
        }
        pushed.await;
    };
    tokio::select! {
        answer = answer => panic!("{answer}"),
        arrived = timeout(DEADLINE, arrived) => arrived.expect("it is pushed"),
    }
}

/// Asks for 25 MB: far more than what is on its way fits into.
async fn ask_for_much(bed: &Bed) -> TcpStream {
    let mut stream = TcpStream::connect(bed.client.0).await.unwrap();
    let path = "/v1/partitions/mail/messages?payloads=true&limit=100";
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", bed.client.0);
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn push_much(bed: &Bed) {
    let payload = "x".repeat(256 << 10);
    let messages = (0..100).map(|_| MessageData::new(payload.clone())).collect();
    bed.queue.push_many("mail", messages).await.unwrap();
}

#[tokio::test]
async fn who_does_not_read_loses_the_place() {
    let bed = bed(millis(500), 2).await;
    push_much(&bed).await;
    let (_first, _second) = (ask_for_much(&bed).await, ask_for_much(&bed).await);
    // There is no place until they are cut.
    assert_eq!(bed.client.get("/livez").await.status, 200);
}

#[tokio::test]
async fn who_reads_slowly_gets_it_all() {
    let bed = bed(millis(3000), 10).await;
    push_much(&bed).await;
    let mut stream = ask_for_much(&bed).await;
    let mut answer = Vec::new();
    let read = async {
        // Longer than the service waits for one who reads nothing.
        loop {
            let mut part = (&mut stream).take(1 << 20);
            if part.read_to_end(&mut answer).await.unwrap() == 0 {
                return;
            }
            sleep(millis(150)).await;
        }
    };
    timeout(DEADLINE, read).await.expect("an end");
    assert!(answer.len() > 25 << 20 && answer.ends_with(b"}"), "{}", answer.len());
}
