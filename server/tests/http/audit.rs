//! The audit trail: each managing request leaves one entry, and no other request leaves any; on each backend that keeps one.

use std::sync::atomic::Ordering;

use anyqueue::Page;
use anyqueue_control::audit::{Audit, AuditEntry};
use anyqueue_server::ServerBuilder;
use anyqueue_testkit::{Postgres, Redis, provide};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::away::leaving;
use crate::bed::{Bed, memory};
use crate::client::Answer;
use crate::place::{Place, apart};
use crate::rights::{ADMIN, ask, create, needed};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const ID: &str = "00000000-0000-0000-0000-000000000000";

macro_rules! on_each_backend {
    ($($test:ident,)*) => {
        mod on_memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Place::Memory(super::memory())).await;
            })*
        }

        #[tokio::test]
        async fn on_sqlite() {
            $({
                let folder = tempfile::tempdir().unwrap();
                let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
                $test(Place::At(url)).await;
            })*
        }

        #[tokio::test]
        async fn on_postgres() {
            let server = provide(Postgres::new()).await.unwrap();
            let Some(url) = server.url() else { return };
            let mut place = apart(url, "schema");
            $($test(place()).await;)*
        }

        #[tokio::test]
        async fn on_redis() {
            let server = provide(Redis::new()).await.unwrap();
            let Some(url) = server.url() else { return };
            let mut place = apart(url, "prefix");
            $($test(place()).await;)*
        }
    };
}

on_each_backend![
    each_managing_request_leaves_one_entry_and_no_other_leaves_any,
    forms_of_pages_are_entered_and_looking_and_working_are_not,
    an_entry_says_who_when_from_where_what_and_what_came_of_it,
    what_acts_on_many_says_on_which_and_on_how_many,
    the_trail_holds_no_secret_and_nothing_of_a_body,
    of_two_instances_that_manage_at_once_no_entry_is_lost,
    a_service_that_only_reads_enters_nothing_and_shows_what_others_entered,
];

fn closed(builder: ServerBuilder) -> ServerBuilder {
    builder.token(ADMIN)
}

/// The newest first.
async fn trail(bed: &Bed) -> Vec<AuditEntry> {
    Audit::new(bed.queue.control().unwrap()).list(Page::of(100)).await.unwrap().entries
}

/// Numbers follow each other: how many were entered.
async fn entered(bed: &Bed) -> u64 {
    trail(bed).await.first().map_or(0, |entry| entry.number)
}

async fn form(bed: &Bed, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {ADMIN}");
    bed.client.send("POST", path, &[("authorization", bearer.as_str()), FORM], body.as_bytes()).await
}

async fn each_managing_request_leaves_one_entry_and_no_other_leaves_any(place: Place) {
    let bed = Bed::with(place.open().await, closed).await;
    let description: Value = serde_json::from_str(&anyqueue_server::openapi()).unwrap();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, request) in methods.as_object().unwrap() {
            let operation = request["operationId"].as_str().unwrap();
            // Events end with the service.
            if operation == "events" {
                continue;
            }
            let (path, method) = (path.replace(['{', '}'], ""), method.to_uppercase());
            let manages = method != "GET" && matches!(needed(operation), Some("manage" | "admin"));
            let before = entered(&bed).await;
            let answer = ask(&bed, ADMIN, &method, &path, &json!({})).await;
            assert_eq!(entered(&bed).await - before, u64::from(manages), "{method} {path}");
            if manages {
                let entry = trail(&bed).await.remove(0);
                assert_eq!((&entry.method, &entry.path), (&method, &path));
                assert_eq!(entry.outcome.unwrap().status, answer.status, "{method} {path}");
            }
        }
    }
}

async fn forms_of_pages_are_entered_and_looking_and_working_are_not(place: Place) {
    let bed = Bed::with(place.open().await, closed).await;
    let push = json!([{ "payload": "1" }, { "payload": "2" }]);
    ask(&bed, ADMIN, "POST", "/v1/partitions/mail/messages", &push).await.ok();
    let pulled = ask(&bed, ADMIN, "POST", "/v1/pull", &json!({ "partitions": ["mail"] })).await.ok();
    let delivery = &pulled["deliveries"][0]["delivery"];
    ask(&bed, ADMIN, "POST", "/v1/extend", &json!({ "delivery": delivery, "lease_ms": 9000 })).await.ok();
    ask(&bed, ADMIN, "POST", "/v1/settle", &json!({ "delivery": delivery, "status": "processed" }))
        .await
        .ok();
    for path in [
        "/",
        "/partitions/mail",
        "/tasks?partition=mail",
        "/tasks/confirm/cancel?partition=mail",
        "/workers",
        "/dead?partition=mail",
        "/dead/confirm?action=purge&partition=mail",
        "/cron",
        "/limits",
        "/limits/confirm?name=x",
        "/audit",
        "/login",
    ] {
        assert_eq!(ask(&bed, ADMIN, "GET", path, &json!({})).await.status, 200, "{path}");
    }
    assert_eq!(bed.client.post("/v1/partitions/mail/pause", &json!({})).await.status, 401);
    let reader = create(&bed, "reader", &["read"], &["*"]).await;
    let refused = ask(&bed, &reader, "POST", "/v1/partitions/mail/pause", &json!({})).await;
    assert_eq!(refused.status, 403);
    assert_eq!(form(&bed, "/login", "token=wrong-horse-battery").await.status, 401);
    let made = trail(&bed).await;
    assert_eq!(made.len(), 1, "the token alone: {made:?}");
    for (path, body, said) in [
        ("/do/partitions/mail/pause", "", ""),
        ("/do/tasks/cancel", "partition=mail&limit=5", "removed: 1"),
        (&format!("/do/tasks/{ID}/cancel?partition=mail"), "", ""),
        ("/do/workers/w/quiet", "", ""),
        ("/do/dead/purge", "partition=mail", "deleted: 0"),
        ("/do/dead/redrive", "partition=mail", "put back: 0"),
        ("/do/cron/pause", "name=new+year", "schedule: new year"),
        ("/do/limits/delete", "name=smtp", "limit: smtp"),
        ("/login", &format!("token={ADMIN}"), ""),
    ] {
        let before = entered(&bed).await;
        let answer = form(&bed, path, body).await;
        let entry = trail(&bed).await.remove(0);
        assert_eq!(entry.number - before, 1, "{path}");
        let outcome = entry.outcome.unwrap();
        assert_eq!((outcome.status, Some(entry.path.as_str())), (answer.status, path.split('?').next()));
        let details = outcome.details.iter().map(|(name, value)| format!("{name}: {value}"));
        assert!(said.is_empty() || details.into_iter().any(|detail| detail == said), "{path}: {outcome:?}");
    }
}

async fn an_entry_says_who_when_from_where_what_and_what_came_of_it(place: Place) {
    let bed = Bed::with(place.open().await, closed).await;
    let ops = create(&bed, "ops", &["manage", "push"], &["mail", "eu.*"]).await;
    for queue in ["mail", "eu.west"] {
        ask(&bed, &ops, "POST", &format!("/v1/partitions/{queue}/messages"), &json!({ "payload": "x" }))
            .await
            .ok();
    }
    ask(&bed, &ops, "DELETE", "/v1/partitions/mail/messages?confirm=mail", &json!({})).await.ok();
    let others = ask(&bed, &ops, "POST", "/v1/partitions/theirs/pause", &json!({})).await;
    assert_eq!(others.status, 403);
    let bulk = |dry: bool| json!({ "partition": "eu.west", "action": "cancel", "limit": 9, "dry_run": dry });
    for dry in [true, false] {
        assert_eq!(ask(&bed, &ops, "POST", "/v1/tasks/bulk", &bulk(dry)).await.lines().len(), 2);
    }
    let page = ask(&bed, ADMIN, "GET", "/v1/audit?limit=4", &json!({})).await.ok();
    let of = |place: usize| {
        let entry = &page["entries"][place];
        assert_eq!((&entry["token"], &entry["from"]), (&json!("ops"), &json!("127.0.0.1")), "{entry}");
        let at = entry["at"].as_str().unwrap();
        assert!(humantime::parse_rfc3339(at).unwrap().elapsed().unwrap().as_secs() < 300, "{at}");
        let what = format!("{} {}", entry["method"].as_str().unwrap(), entry["path"].as_str().unwrap());
        (what, entry["status"].clone(), entry["partitions"].clone(), entry["details"].clone())
    };
    let what = |text: &str| text.to_owned();
    assert_eq!(
        of(0),
        (
            what("POST /v1/tasks/bulk"),
            json!(200),
            json!(["eu.west"]),
            json!({ "action": "cancel", "filter": "all", "limit": "9", "tasks": "1" })
        )
    );
    let dry = json!({ "action": "cancel", "filter": "all", "limit": "9", "tasks": "1", "dry run": "nothing was changed" });
    assert_eq!(of(1).3, dry);
    assert_eq!(of(2), (what("POST /v1/partitions/theirs/pause"), json!(403), json!(["theirs"]), json!({})));
    assert_eq!(
        of(3),
        (what("DELETE /v1/partitions/mail/messages"), json!(200), json!(["mail"]), json!({ "deleted": "1" }))
    );
    let next = &page["next"];
    let rest = ask(&bed, ADMIN, "GET", &format!("/v1/audit?after={next}"), &json!({})).await.ok();
    let first = &rest["entries"][0];
    assert_eq!((&first["path"], &first["token"]), (&json!("/v1/tokens/ops"), &json!(null)), "the operator");
    assert_eq!((rest["entries"].as_array().unwrap().len(), &rest["next"]), (1, &json!(null)));
}

async fn what_acts_on_many_says_on_which_and_on_how_many(place: Place) {
    let bed = Bed::with(place.open().await, closed).await;
    let token = create(&bed, "ops", &["admin"], &["*"]).await;
    let push = json!([{ "payload": "1", "kind": "smtp" }, { "payload": "2", "kind": "smtp" }]);
    ask(&bed, &token, "POST", "/v1/partitions/mail/messages", &push).await.ok();
    let encoded = token.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
    let long = "é".repeat(1000);
    let bulk = |error: &str| {
        json!({
            "partition": "mail", "action": "retry", "limit": 9, "state": "failed", "since": "2020-01-01T00:00:00Z",
            "before": "2020-01-02T00:00:00Z", "kind": "smtp", "session": "s", "task_id_prefix": "t", "error": error,
            "min_attempts": 2
        })
    };
    let redrive = json!({ "ids": [ID, ID], "reason": "timed_out", "limit": 5 });
    let ended = "/v1/tasks?partition=mail&limit=7&state=succeeded&worker=w%201";
    let cancel = json!({ "partition": "mail", "action": "cancel", "limit": 1, "kind": "smtp" });
    for (method, path, body, said) in [
        ("POST", "/v1/tasks/bulk", cancel, json!({ "filter kind": "smtp", "limit": "1", "tasks": "1" })),
        (
            "POST",
            "/v1/tasks/bulk",
            bulk(&long),
            json!({
                "filter state": "failed", "filter since": "2020-01-01T00:00:00Z", "filter before": "2020-01-02T00:00:00Z",
                "filter kind": "smtp", "filter session": "s", "filter task id prefix": "t", "filter min attempts": "2",
                "filter error": format!("{}…", "é".repeat(126)), "tasks": "0"
            }),
        ),
        ("POST", "/v1/tasks/bulk", bulk(&token), json!({ "filter error": "aq_ops_…" })),
        ("POST", "/v1/tasks/bulk", bulk(&encoded), json!({ "filter error": "aq_ops_…" })),
        (
            "DELETE",
            ended,
            json!({}),
            json!({ "filter state": "succeeded", "filter worker": "w 1", "limit": "7", "deleted": "0" }),
        ),
        (
            "POST",
            "/v1/partitions/mail/dead/redrive",
            redrive,
            json!({ "filter ids": format!("2: {ID}, {ID}"), "filter reason": "timed_out", "limit": "5", "put back": "0" }),
        ),
        ("POST", "/v1/partitions/mail/dead/redrive", json!({}), json!({ "filter": "all", "put back": "0" })),
    ] {
        let answer = ask(&bed, &token, method, path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        assert_details(&bed, &said).await;
    }
    for (path, body, said) in [
        (
            "/do/tasks/cancel",
            "partition=mail&limit=5&kind=smtp",
            json!({ "filter kind": "smtp", "limit": "5", "removed": "1" }),
        ),
        (
            "/do/dead/redrive",
            "partition=mail&reason=port+%23",
            json!({ "filter reason": "port #", "put back": "0" }),
        ),
    ] {
        assert_eq!(form(&bed, path, body).await.status, 303, "{path}");
        assert_details(&bed, &said).await;
    }
}

/// That these are among the details of the newest entry.
async fn assert_details(bed: &Bed, said: &Value) {
    let entry = trail(bed).await.remove(0);
    let details = entry.outcome.as_ref().unwrap().details.clone();
    for (name, value) in said.as_object().unwrap() {
        let found = details.iter().find(|(there, _)| there == name).map(|(_, value)| value.as_str());
        assert_eq!(found, value.as_str(), "{name}: {entry:?}");
    }
}

async fn the_trail_holds_no_secret_and_nothing_of_a_body(place: Place) {
    let bed = Bed::with(place.open().await, closed).await;
    let token = create(&bed, "ops", &["admin"], &["*"]).await;
    let cron = json!({ "spec": "0 0 * * *", "partition": "mail", "payload": "confidential" });
    ask(&bed, &token, "PUT", "/v1/cron/nightly", &cron).await.ok();
    ask(&bed, &token, "DELETE", &format!("/v1/tokens/{token}"), &json!({ "payload": "confidential" })).await;
    ask(&bed, &token, "DELETE", "/v1/partitions/mail/dead?confirm=confidential", &json!({})).await;
    assert_eq!(form(&bed, "/login", &format!("token={token}")).await.status, 303);
    assert_eq!(form(&bed, "/login", &format!("token={ADMIN}")).await.status, 303);
    form(&bed, "/do/limits/delete", &format!("name={token}")).await;
    let encoded = token.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
    ask(&bed, &token, "DELETE", &format!("/v1/tokens/{encoded}"), &json!({})).await;
    ask(&bed, &token, "POST", &format!("/v1/partitions/{encoded}/pause"), &json!({})).await.ok();
    let all = bed.queue.control().unwrap().list_all("audit/", 100).await.unwrap().value;
    assert_eq!(all.len(), 9);
    let digits = token.rsplit_once('_').unwrap().1;
    for entry in all {
        let text = format!("{} {}", entry.key, String::from_utf8(entry.value.to_vec()).unwrap());
        for hidden in [digits, encoded.as_str(), ADMIN, "confidential"] {
            assert!(!text.contains(hidden), "{text}");
        }
    }
}

async fn of_two_instances_that_manage_at_once_no_entry_is_lost(place: Place) {
    const EACH: usize = 20;
    let (one, other) = (Bed::over(place.open().await).await, Bed::over(place.open().await).await);
    let body = json!({});
    let all = (0..EACH).flat_map(|_| [&one, &other]);
    let answers = join_all(all.map(|bed| bed.client.post("/v1/partitions/mail/pause", &body))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let numbers: Vec<_> = trail(&one).await.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, (1..=2 * EACH as u64).rev().collect::<Vec<_>>());
    assert!(trail(&one).await.iter().all(|entry| entry.outcome.as_ref().is_some_and(|it| it.status == 200)));
}

#[tokio::test]
async fn what_cannot_be_entered_is_refused_before_anything_is_done() {
    let (queue, away) = leaving();
    let bed = Bed::with(queue, closed).await;
    ask(&bed, ADMIN, "POST", "/v1/partitions/mail/messages", &json!({ "payload": "x" })).await.ok();
    away.store(true, Ordering::SeqCst);
    let refused = ask(&bed, ADMIN, "POST", "/v1/partitions/mail/pause", &json!({})).await;
    assert_eq!((refused.status, &refused.json()["retry"]), (503, &json!("safe")));
    assert!(refused.json()["detail"].as_str().unwrap().contains("nothing was done"));
    assert!(!bed.queue.is_paused("mail").await.unwrap());
    assert_eq!(form(&bed, "/login", &format!("token={ADMIN}")).await.status, 503);
    // What is not entered goes on.
    let looked = ask(&bed, ADMIN, "GET", "/v1/partitions/mail", &json!({})).await.ok();
    assert_eq!(looked["ready"], 1);
    let pulled = ask(&bed, ADMIN, "POST", "/v1/pull", &json!({ "partitions": ["mail"] })).await.ok();
    assert_eq!(pulled["deliveries"].as_array().unwrap().len(), 1);
    away.store(false, Ordering::SeqCst);
    ask(&bed, ADMIN, "POST", "/v1/partitions/mail/pause", &json!({})).await.ok();
    assert!(bed.queue.is_paused("mail").await.unwrap());
}

async fn a_service_that_only_reads_enters_nothing_and_shows_what_others_entered(place: Place) {
    let bed = Bed::over(place.open().await).await;
    bed.client.post("/v1/partitions/mail/pause", &json!({})).await.ok();
    let reads = Bed::with(place.open().await, |builder| builder.read_only(true)).await;
    assert_eq!(reads.client.post("/v1/partitions/mail/resume", &json!({})).await.status, 403);
    let shown = reads.client.get("/v1/audit").await.ok();
    assert_eq!(shown["entries"].as_array().unwrap().len(), 1);
    let page = String::from_utf8(reads.client.get("/audit").await.body).unwrap();
    assert!(page.contains("POST /v1/partitions/mail/pause") && page.contains("operator"), "{page}");
}
