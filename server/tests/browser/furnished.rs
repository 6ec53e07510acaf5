//! A service with something on each of its pages, and text of somebody else's in each place that has any.

use anyqueue::PartitionId;
use anyqueue_control::cron::{Schedule, Scheduler, Timetable, Zone};
use anyqueue_control::limits::{Limit, Limits};
use anyqueue_control::registry::{Member, MemberOptions, Registry};
use anyqueue_worker::{Partition, Worker};
use serde_json::{Value, json};

use crate::bed::Bed;

/// A service, and what it takes to keep it as it is.
pub(crate) struct Furnished {
    pub(crate) bed: Bed,
    /// Every page, with what is on it.
    pub(crate) paths: Vec<String>,
    _member: Member,
}

impl Furnished {
    /// With this text wherever a pusher or a worker may say what they like.
    pub(crate) async fn with(text: &str) -> Self {
        let bed = Bed::new().await;
        let ids = tasks(&bed, text).await;
        let member = worker(&bed).await;
        schedule(&bed, text).await;
        managed(&bed, text).await;
        Limits::new(bed.queue.control().unwrap())
            .put(text, &Limit::partition("mail").unwrap().cap(5).rate(10.0, 20))
            .await
            .unwrap();
        let mut paths: Vec<String> =
            ["/", "/partitions/mail", "/partitions/-._Aa0", "/dead?partition=mail"].map(str::to_owned).into();
        paths.extend(ids.iter().map(|id| format!("/tasks/{id}?partition=mail")));
        let said = encoded(text);
        paths.push(format!("/tasks?partition=mail&error={}", encoded("no")));
        paths.push(format!("/tasks?partition={said}&kind={said}&worker={said}&task_id_prefix={said}&error={said}&since={said}"));
        paths.push("/tasks?partition=mail".to_owned());
        paths.push(format!("/tasks?partition=mail&kind={said}"));
        paths.push(format!("/dead/confirm?action=redrive&partition=mail&reason={said}"));
        paths.push("/dead/confirm?action=purge&partition=mail".to_owned());
        paths.push(format!("/workers?said={said}"));
        paths.push(format!("/partitions/{said}"));
        paths.push(format!("/tasks/{said}?partition={said}"));
        paths.push(format!("/cron?said={said}"));
        paths.push(format!("/cron/confirm?name={said}"));
        paths.push(format!("/limits?said={said}"));
        paths.push(format!("/limits/confirm?name={said}"));
        paths.push(format!("/tasks/confirm/cancel?partition=mail&kind={said}"));
        paths.push(format!("/tasks?partition=mail&said={said}"));
        paths.push("/audit".to_owned());
        paths.push("/login".to_owned());
        Self { bed, paths, _member: member }
    }
}

/// A task in each state; what ended well tells all that can be told.
async fn tasks(bed: &Bed, text: &str) -> Vec<String> {
    let said = |more: Value| {
        let mut all = json!({ "payload": text, "kind": text, "task_id": text, "session_id": text, "headers": { "x-mine": text, text: "x", "traceparent": text } });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let mut ids = Vec::new();
    for status in ["processed", "poisonous"] {
        ids.push(bed.push("mail", said(json!({ "max_retries": 3 }))).await);
        let first = bed.pull("mail").await;
        bed.settle(json!({ "delivery": first["delivery"], "status": "failed", "error": text, "delay_ms": 0, "worker": text })).await;
        let again = bed.pull("mail").await;
        let mut end =
            json!({ "delivery": again["delivery"], "status": status, "error": text, "worker": text });
        if status == "processed" {
            end["result"] = json!({ text: text });
            end["log"] = json!(text);
        }
        bed.settle(end).await;
    }
    ids.push(bed.push("mail", said(json!({}))).await);
    bed.pull("mail").await;
    ids.push(bed.push("mail", said(json!({ "delay_ms": 600_000 }))).await);
    ids.push(bed.push("mail", said(json!({}))).await);
    bed.push("-._Aa0", said(json!({}))).await;
    ids
}

async fn schedule(bed: &Bed, text: &str) {
    let timetable = Timetable::new("0 7 * * MON-FRI".parse().unwrap(), Zone::utc());
    let schedule = Schedule::new(text, timetable, PartitionId::new("mail").unwrap()).with_kind(text);
    Scheduler::new(&bed.queue).unwrap().put(&schedule).await.unwrap();
}

/// Something in the audit trail, which leaves everything as it was.
async fn managed(bed: &Bed, text: &str) {
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for action in ["pause", "resume"] {
        let (path, name) = (format!("/do/cron/{action}"), format!("name={}", encoded(text)));
        assert_eq!(bed.client.send("POST", &path, &form, name.as_bytes()).await.status, 303);
    }
}

/// A worker that is quiet, so that it takes nothing away.
async fn worker(bed: &Bed) -> Member {
    let worker = Worker::builder(bed.queue.clone())
        .name("w/1 <b>")
        .partition(Partition::new(PartitionId::new("other").unwrap()))
        .any_handler(|_, _| async { Ok(()) })
        .build()
        .unwrap();
    let registry = Registry::new(bed.queue.control().unwrap());
    registry.join(&worker, MemberOptions::default()).await.unwrap()
}

/// For an address.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat()
}
