//! Doctor: what it finds, and its exit codes. And the small bench.

use serde_json::Value;
use tokio::task::JoinSet;

use crate::bed::{Bed, ended};
use crate::small_disk::SmallDisk;

/// What every backend has a line about.
const TOPICS: [&str; 6] = ["version", "rights", "durability", "bloat", "consumer timeout", "clock"];

/// The verdicts of a check, one for each of its lines.
pub(crate) fn verdict<'a>(findings: &'a [Value], check: &str) -> Vec<&'a str> {
    findings.iter().filter(|f| f["check"] == check).map(|f| f["verdict"].as_str().unwrap()).collect()
}

/// The text of the only finding of a check.
fn text<'a>(findings: &'a [Value], check: &str) -> &'a str {
    let mut found = findings.iter().filter(|f| f["check"] == check);
    let (first, more) = (found.next(), found.next());
    assert!(first.is_some() && more.is_none(), "one line of {check}: {findings:?}");
    first.unwrap()["text"].as_str().unwrap()
}

#[tokio::test]
async fn a_healthy_backend_passes_the_gate() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1"]).await;
    let findings = bed.ok(&["doctor", "--strict", "--probe", "--json"]).await.objects();
    for check in ["open", "health", "durability", "probe"] {
        assert_eq!(verdict(&findings, check), ["ok"], "{check} of {findings:?}");
    }
    assert_eq!(bed.counts("anyqueue-doctor").await, [0, 0, 0, 0], "the probe leaves nothing");
    assert!(bed.ok(&["doctor"]).await.out.contains("survive the loss of power"));
}

#[tokio::test]
async fn a_warning_fails_the_strict_gate_only() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1"]).await;
    let url = "sqlite:jobs.db?synchronous=normal";
    let findings = bed.ok(&["doctor", url, "--json"]).await.objects();
    assert_eq!(verdict(&findings, "durability"), ["warning"]);
    bed.run(&["doctor", url, "--strict"]).await.ended_with(3);
}

#[tokio::test]
async fn what_cannot_be_used_fails_the_gate() {
    let bed = Bed::new();
    let missing = bed.run(&["doctor", "--json"]).await.ended_with(3);
    assert_eq!(verdict(&missing.objects(), "open"), ["failed"]);
    std::fs::write(
        bed.path("jobs.db"),
        "this is no database, and long enough to be looked at as one".repeat(100),
    )
    .unwrap();
    let broken = bed.run(&["doctor"]).await.ended_with(3);
    assert!(broken.out.contains("FAILED"), "{broken:?}");
}

#[tokio::test]
async fn limits_are_part_of_the_gate() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1", "2"]).await;
    bed.ok(&["doctor", "--max-dead", "0", "--max-ready", "2"]).await;
    let full = bed.run(&["doctor", "--max-ready", "1"]).await.ended_with(3);
    assert!(full.out.contains("q: 2 ready, more than 1"), "{full:?}");
    bed.ok(&["pull", "q", "--settle", "poisonous"]).await;
    bed.run(&["doctor", "--max-dead", "0"]).await.ended_with(3);
    bed.ok(&["doctor", "--max-dead", "0", "--queue", "other"]).await;
}

#[tokio::test]
async fn each_topic_has_a_line() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1"]).await;
    let findings = bed.ok(&["doctor", "--strict", "--max-clock-skew", "0s", "--json"]).await.objects();
    for topic in TOPICS {
        assert_eq!(verdict(&findings, topic), ["ok"], "{topic} of {findings:?}");
    }
    assert!(text(&findings, "version").starts_with("3."), "{findings:?}");
    for fact in ["pages are free", "the log takes", "free on the disk"] {
        assert!(text(&findings, "bloat").contains(fact), "no {fact} in {findings:?}");
    }
    assert!(text(&findings, "durability").contains("asked for synchronous"), "{findings:?}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_fails_the_gate() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let bed = Bed::new();
    bed.ok(&["push", "q", "1"]).await;
    let allow = |name: &str, mode| {
        std::fs::set_permissions(bed.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("jobs.db", 0o444);
    allow(".", 0o777);
    let mut doctor = bed.command(&["doctor", "--json"]);
    if std::fs::metadata(bed.path("jobs.db")).unwrap().uid() == 0 {
        doctor.uid(65_534).gid(65_534); // no right is refused to the superuser
    }
    let denied = ended(doctor.spawn().unwrap()).await.ended_with(3);
    let findings = denied.objects();
    assert_eq!(verdict(&findings, "rights"), ["failed"], "{denied:?}");
    assert!(text(&findings, "rights").contains("no right to write the file"), "{denied:?}");
}

/// As the replicas of a roll-out do. Each must find a message to take.
async fn probe_at_once(bed: &Bed) {
    let mut probes = JoinSet::new();
    for _ in 0..8 {
        probes.spawn(ended(bed.command(&["doctor", "--probe", "--json"]).spawn().unwrap()));
    }
    while let Some(probe) = probes.join_next().await {
        let findings = probe.unwrap().ended_with(0).objects();
        assert_eq!(verdict(&findings, "probe"), ["ok"], "{findings:?}");
    }
}

#[tokio::test]
async fn probes_at_once_do_not_take_away_each_others_proof() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1"]).await;
    for _ in 0..3 {
        probe_at_once(&bed).await;
        assert_eq!(bed.counts("anyqueue-doctor").await, [0, 0, 0, 0], "nothing is left behind");
    }
}

#[cfg(feature = "sqs")]
#[tokio::test]
async fn probes_at_once_succeed_where_messages_have_no_order() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Ministack::new()).await.unwrap();
    let Some(endpoint) = server.url() else { return };
    let prefix = format!("doctor_{}", std::process::id());
    let bed = Bed::at(&format!("sqs://test:test@us-east-1/{prefix}?endpoint={endpoint}"));
    probe_at_once(&bed).await;
    probe_at_once(&bed).await;
    let rights = bed.ok(&["doctor", "--json"]).await.objects();
    assert_eq!(verdict(&rights, "rights"), ["unknown"], "{rights:?}");
    assert_eq!(verdict(&rights, "version"), ["unknown"], "{rights:?}");
}

#[tokio::test]
async fn a_probe_takes_another_for_a_proof_and_nothing_else() {
    let bed = Bed::new();
    // As if another probe had pushed this, and were about to take one.
    bed.ok(&["push", "anyqueue-doctor", "a probe of anyqueue doctor"]).await;
    bed.ok(&["doctor", "--probe"]).await;
    assert_eq!(bed.counts("anyqueue-doctor").await, [1, 0, 0, 0], "one is left for the other");
    bed.ok(&["purge", "anyqueue-doctor", "--yes"]).await;
    bed.ok(&["push", "anyqueue-doctor", "something of somebody"]).await;
    let foreign = bed.run(&["doctor", "--probe", "--json"]).await.ended_with(3);
    assert_eq!(verdict(&foreign.objects(), "probe"), ["failed"], "{foreign:?}");
    assert_eq!(bed.counts("anyqueue-doctor").await[0], 2, "what is not a probe is released");
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_role_without_a_right_on_postgres_fails_the_gate() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Postgres::new()).await.unwrap();
    let Some(plain) = server.url() else { return };
    let (separator, name) =
        (if plain.contains('?') { '&' } else { '?' }, format!("doctor_{}", std::process::id()));
    let bed = Bed::at(&format!("{plain}{separator}schema={name}"));
    bed.ok(&["push", "q", "1"]).await;
    let owned = bed.ok(&["doctor", "--strict", "--json"]).await.objects();
    assert!(TOPICS.iter().all(|topic| verdict(&owned, topic) == ["ok"]), "{owned:?}");
    let grants = format!(
        "CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {name} TO {name};
         GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {name} TO {name}"
    );
    let psql = tokio::process::Command::new("psql").args([plain, "-c", &grants]).output().await.unwrap();
    assert!(psql.status.success(), "{psql:?}");
    let url = bed.url.replace("//postgres@", &format!("//{name}@"));
    let denied = bed.run(&["doctor", &url, "--json"]).await.ended_with(3).objects();
    assert_eq!(verdict(&denied, "rights"), ["failed"], "{denied:?}");
    assert!(text(&denied, "rights").contains("DELETE on table message"), "{denied:?}");
}

#[cfg(feature = "rabbitmq")]
#[tokio::test]
async fn what_a_broker_cannot_tell_is_said_and_fails_only_who_gave_a_limit() {
    let Some(url) = crate::bed::rabbitmq().await else { return };
    let separator = if url.contains('?') { '&' } else { '?' };
    let bed = Bed::at(&format!("{url}{separator}prefix=doctor_{}&consumer_timeout=20m", std::process::id()));
    let told = bed.ok(&["doctor", "--json"]).await.objects();
    for topic in ["rights", "bloat", "consumer timeout", "clock"] {
        assert_eq!(verdict(&told, topic), ["unknown"], "{topic} of {told:?}");
    }
    let hold = text(&told, "consumer timeout");
    assert!(hold.contains("the server does not tell it") && hold.contains("assumes 20m"), "{hold}");
    assert!(hold.contains("rabbitmqctl eval 'application:get_env(rabbit, consumer_timeout).'"), "{hold}");
    assert!(text(&told, "durability").contains("not asked"), "{told:?}");
    // Where the server is one that was tested there is nothing to warn of: what is unknown is no warning.
    let warns = told.iter().any(|finding| finding["verdict"] == "warning");
    bed.run(&["doctor", "--strict"]).await.ended_with(if warns { 3 } else { 0 });
    let skew = bed.run(&["doctor", "--max-clock-skew", "1s", "--json"]).await.ended_with(3).objects();
    assert_eq!(verdict(&skew, "clock"), ["failed"], "{skew:?}");
    let ready = bed.run(&["doctor", "--max-ready", "5", "--json"]).await.ended_with(3).objects();
    assert_eq!(verdict(&ready, "limits"), ["failed"], "{ready:?}");
    assert!(text(&ready, "limits").contains("--queue"), "{ready:?}");
    assert_eq!(verdict(&ready, "open"), ["ok"], "what was found before is shown");
    probe_at_once(&bed).await;
}

#[tokio::test]
async fn the_bench_takes_out_all_that_it_puts_in() {
    let bed = Bed::new();
    let rows =
        bed.ok(&["bench", "--messages", "200", "--pings", "5", "--tasks", "8", "--json"]).await.objects();
    assert_eq!(rows.len(), 7, "{rows:?}");
    assert!(rows[..6].iter().all(|row| row["per_second"].as_u64().unwrap() > 0), "{rows:?}");
    assert!(rows[6]["p50_us"].as_u64().unwrap() <= rows[6]["p99_us"].as_u64().unwrap(), "{rows:?}");
    for row in bed.ok(&["stats", "--json"]).await.objects() {
        assert_eq!(row["ready"], 0, "{row}");
    }
}

#[tokio::test]
async fn a_missing_file_is_a_finding_also_for_programs() {
    let bed = Bed::at("sqlite:missing/jobs.db");
    let ran = bed.run(&["doctor", "--json"]).await.ended_with(3);
    let finding = ran.objects().remove(0);
    assert_eq!((&finding["check"], &finding["verdict"]), (&"open".into(), &"failed".into()), "{ran:?}");
    // A URL of the wrong form is a mistake of whoever asks.
    bed.run(&["doctor", "sqlite:jobs.db?colour=red"]).await.ended_with(2);
}

#[tokio::test]
async fn a_disk_too_full_for_pushes_is_found_without_a_probe() {
    let bed = Bed::at("sqlite:disk/jobs.db");
    let test = "a_disk_too_full_for_pushes_is_found_without_a_probe";
    let Some(disk) = SmallDisk::mount(bed.path("disk"), test) else { return };
    bed.ok(&["push", "q", "first"]).await;
    bed.ok(&["doctor"]).await;
    disk.fill();
    bed.run(&["push", "q", "second"]).await.ended_with(1);
    let ran = bed.run(&["doctor", "--json"]).await.ended_with(3);
    assert_eq!(verdict(&ran.objects(), "room"), ["failed"], "{ran:?}");
    assert!(ran.out.contains("pushes are refused"), "{ran:?}");
}
