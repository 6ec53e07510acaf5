//! What the service and all below it log, at every level, holds no secret. A program of its own: who listens
//! is decided once for a process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::format_push_string
)]

#[path = "http/away.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod away;
#[path = "http/bed.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod bed;
#[path = "http/client.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod client;

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::control::Key;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use bed::Bed;
use client::Answer;

/// A token that the service is started with, and two that it does not know.
const FIXED: &str = "correct-horse-battery";
const WRONG: &str = "incorrect-zebra-charger";
const FORGED: &str = "aq_ci_0123456789abcdef0123456789abcdef";
const PAYLOAD: &str = "what-the-message-holds";
const RESULT: &str = "what-the-worker-returned";

/// Writes down all spans and events, with all their fields.
#[derive(Clone, Default)]
struct Listener {
    heard: Arc<Mutex<String>>,
    spans: Arc<AtomicU64>,
}

impl Listener {
    fn note(&self, what: &str, fields: impl FnOnce(&mut dyn Visit)) {
        let mut line = Line(what.to_owned());
        fields(&mut line);
        self.heard.lock().unwrap().push_str(&format!("{}\n", line.0));
    }

    fn text(&self) -> String {
        self.heard.lock().unwrap().clone()
    }

    async fn hears(&self, text: &str) {
        let waiting = async {
            while !self.text().contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), waiting).await.unwrap_or_else(|_| panic!("no {text:?}"));
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(span.metadata().name(), |fields| span.record(fields));
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        self.note("later", |fields| values.record(fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.note(event.metadata().target(), |fields| event.record(fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

async fn ask(bed: &Bed, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    bed.client.send(method, path, &headers, body.to_string().as_bytes()).await
}

/// Logs in on the page, and returns the name of the session if that succeeds.
async fn log_in(bed: &Bed, token: &str) -> Option<String> {
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = bed.client.send("POST", "/login", &form, format!("token={token}").as_bytes()).await;
    let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: "))?;
    let (_, value) = cookie.split(';').next()?.split_once('=')?;
    Some(value.to_owned())
}

/// The key with which deliveries are sealed, in the forms in which it could be printed.
async fn key(bed: &Bed) -> [String; 3] {
    let entry = bed.queue.control().unwrap().get(&Key::new("server/seal").unwrap()).await.unwrap().value;
    let stored: Value = serde_json::from_slice(&entry.expect("a key").value).unwrap();
    let text = stored["key"].as_str().unwrap().to_owned();
    let bytes = BASE64.decode(&text).unwrap();
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [text, digits.concat(), format!("{bytes:?}")]
}

/// A task from its push to its end, with everything that can go wrong on the way; returns its seal.
async fn a_tasks_way(bed: &Bed, token: &str) -> String {
    let push = json!({ "payload": PAYLOAD });
    ask(bed, token, "POST", "/v1/partitions/q/messages", &push).await.ok();
    let pulled =
        ask(bed, token, "POST", "/v1/pull", &json!({ "partitions": ["q"], "worker": "w" })).await.ok();
    let seal = pulled["deliveries"][0]["delivery"].as_str().unwrap().to_owned();
    ask(bed, token, "POST", "/v1/extend", &json!({ "delivery": seal, "lease_ms": 60_000 })).await.ok();
    let cut = &seal[..seal.len() - 4];
    let settle = |delivery: &str| json!({ "delivery": delivery, "status": "processed", "result": RESULT });
    let outcomes = [(cut, "error"), (seal.as_str(), "settled"), (seal.as_str(), "lost")];
    for (delivery, outcome) in outcomes {
        let settled = ask(bed, token, "POST", "/v1/settle", &settle(delivery)).await.ok();
        assert_eq!(settled[0]["outcome"], outcome);
    }
    // What one pull brought and the next does not name as received is given back.
    ask(bed, token, "POST", "/v1/partitions/q/messages", &push).await.ok();
    for _ in 0..2 {
        ask(bed, token, "POST", "/v1/pull", &json!({ "partitions": ["q"], "worker": "w" })).await.ok();
    }
    seal
}

#[tokio::test]
async fn no_secret_is_in_what_is_logged_at_any_level() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let (queue, away) = away::leaving();
    let bed = Bed::with(queue, |builder| builder.token(FIXED)).await;
    let rights = json!({ "rights": ["push", "work", "read", "payloads", "manage"], "partitions": ["*"] });
    let created = ask(&bed, FIXED, "PUT", "/v1/tokens/ci", &rights).await.ok();
    let token = created["token"].as_str().unwrap();
    for wrong in [WRONG, FORGED] {
        assert_eq!(ask(&bed, wrong, "GET", "/v1/partitions", &json!({})).await.status, 401);
        assert!(log_in(&bed, wrong).await.is_none());
    }
    let session = log_in(&bed, token).await.expect("a session");
    let cookie = format!("anyqueue_session={session}");
    assert_eq!(bed.client.send("GET", "/", &[("cookie", cookie.as_str())], b"").await.status, 200);
    let seal = a_tasks_way(&bed, token).await;
    let key = key(&bed).await;
    // A token where a name belongs, and one in a request that makes no sense.
    ask(&bed, FIXED, "DELETE", &format!("/v1/tokens/{token}"), &json!({})).await;
    let nonsense = format!("GET /livez HTTP/1.1\r\nauthorization: Bearer {token}\r\nno header\r\n\r\n");
    assert_eq!(bed.client.raw(nonsense.as_bytes()).await.status, 400);
    listener.hears("a connection ended").await;
    away.store(true, Ordering::SeqCst);
    // Another one: of the first it is known for a second that it does not count.
    let other = FORGED.replace("01", "10");
    assert_eq!(ask(&bed, &other, "GET", "/v1/partitions", &json!({})).await.status, 503);
    assert_eq!(ask(&bed, FIXED, "POST", "/v1/partitions/q/pause", &json!({})).await.status, 503);
    listener.hears("could not be recorded in the audit trail").await;
    bed.end().await;

    let heard = listener.text();
    assert!(heard.contains("anyqueue.call"), "calls of the backend are heard: {heard}");
    // What is secret of a token is its digits.
    let digits = [token, FORGED, other.as_str()].map(|token| token.rsplit_once('_').unwrap().1);
    let others = [FIXED, WRONG, session.as_str(), seal.as_str(), PAYLOAD, RESULT];
    for secret in digits.into_iter().chain(others).chain(key.iter().map(String::as_str)) {
        let line = heard.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret} is in {line:?}");
    }
}
