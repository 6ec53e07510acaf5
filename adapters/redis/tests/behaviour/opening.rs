//! Opening: users, settings and input that are wrong, and a server that is full.

use std::time::Duration;

use anyqueue::adapter::{
    Action, DurabilityLevel, Extension, InspectQueueStorage, PauseQueueStorage, PullQueueStorage,
    PullRequest, PushQueueStorage, QueueStorage,
};
use anyqueue::{DeleteOutcome, ErrorKind, ExtendOutcome, MessageData, PushOutcome, RetryClass};
use anyqueue_redis::{RedisBuilder, RedisQueue};
use anyqueue_testkit::Redis;

use crate::common::{Bed, LEASE, messages, part, pull, pull_wait, push, settle, texts};

const SECRET: &str = "secret-word";

#[tokio::test]
async fn a_wrong_password_is_told_and_not_shown() {
    let Some(bed) = Bed::find().await else { return };
    bed.run("CONFIG SET requirepass right-one").await;
    for url in [bed.url(), bed.url_of(&format!(":{SECRET}")), bed.url_of(&format!("nobody:{SECRET}"))] {
        let error = RedisQueue::open(&url).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
        assert!(error.message().contains("user and password"), "{error}");
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    }
    let queue = RedisQueue::open(&bed.url_of(":right-one")).await.unwrap();
    assert!(!format!("{queue:?}").contains("right-one"), "{queue:?}");
}

#[tokio::test]
async fn a_user_without_rights_learns_which_are_missing() {
    let Some(bed) = Bed::find().await else { return };
    let url = bed.url_of("app:secret-word");
    let rights = "+@read +@write +@scripting +@connection +publish +subscribe +info +time +config|get";
    let keys = format!("~{0}:* &{0}:*", bed.prefix);
    for (granted, missing) in [
        (format!("{keys} +@connection"), "info"),
        (format!("{keys} +@connection +info"), "evalsha"),
        (format!("{keys} {rights} -zpopmin -getdel"), "ZPOPMIN, GETDEL"),
        (
            format!("{keys} {rights} -hexists -hgetall -expireat -zremrangebyscore"),
            "HEXISTS, HGETALL, EXPIREAT, ZREMRANGEBYSCORE",
        ),
        (format!("{keys} {rights} -publish"), "PUBLISH"),
        (format!("~other:* &{}:* {rights}", bed.prefix), "keys"),
    ] {
        bed.run(&format!("ACL SETUSER app reset resetchannels on >{SECRET} {granted}")).await;
        let error = RedisQueue::open(&url).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
        assert!(error.message().contains(missing), "{error}, without {missing}");
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    }
    bed.run(&format!("ACL SETUSER app reset resetchannels on >{SECRET} {keys} {rights}")).await;
    let (queue, p) = (RedisQueue::open(&url).await.unwrap(), part("p"));
    let waiting = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        async move { pull_wait(&queue, &p, 1).await }
    });
    push(&queue, &p, &messages(&["allowed"])).await;
    assert_eq!(texts(&waiting.await.unwrap()), ["allowed"]);
}

#[tokio::test]
async fn a_wrong_database_an_absent_server_and_a_bad_url_are_told_apart() {
    let Some(bed) = Bed::find().await else { return };
    let wrong = bed.server.url().replace("redis://", "redis://:secret-word@");
    let error = RedisQueue::open(&format!("{}99", bed.server.url())).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidInput, RetryClass::Never), "{error}");
    assert!(error.message().contains("database 99"), "{error}");
    let absent = RedisQueue::open("redis://:secret-word@127.0.0.1:1/").await.unwrap_err();
    assert_eq!((absent.kind(), absent.retry()), (ErrorKind::Unavailable, RetryClass::Safe), "{absent}");
    let named = RedisQueue::open(&format!("{wrong}jobs")).await.unwrap_err();
    assert_eq!(named.kind(), ErrorKind::InvalidInput);
    let option = RedisQueue::builder(&format!("{wrong}?prefix=a{{b}}")).unwrap().open().await.unwrap_err();
    assert_eq!(option.kind(), ErrorKind::InvalidInput);
    for error in [error, absent, named, option] {
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    }
}

#[tokio::test]
async fn a_replica_is_refused_and_a_master_that_becomes_one_is_named_as_such() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    bed.run("REPLICAOF 127.0.0.1 1").await;
    let error = RedisQueue::open(&bed.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("replica"), "{error}");
    let error = queue.push(&part("p"), &messages(&["x"])).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("replica"), "{error}");
    bed.run("REPLICAOF NO ONE").await;
    assert!(pull(&queue, &part("p"), 1).await.is_empty(), "stored though refused");
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    let Some(bed) = Bed::with(Redis::new().setting("maxmemory-policy", "allkeys-lru")).await else { return };
    let error = RedisQueue::open(&bed.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.message().contains("noeviction"), "{error}");
}

#[tokio::test]
async fn a_key_of_somebody_else_under_the_prefix_is_named() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    bed.run(&format!("SET {}:{{p}}:messages theirs", bed.prefix)).await;
    let error = queue.push(&part("p"), &messages(&["x"])).await.remove(0).unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Incompatible, RetryClass::Never), "{error}");
    assert!(error.message().contains("prefix"), "{error}");
}

#[tokio::test]
async fn keys_of_the_layout_before_the_first_release_are_told() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    bed.run(&format!("HSET {}:messages id record", bed.prefix)).await;
    for error in [RedisQueue::open(&bed.url()).await.unwrap_err(), queue.init().await.unwrap_err()] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Incompatible, RetryClass::Never), "{error}");
        assert!(error.message().contains(&format!("{}:messages", bed.prefix)), "{error}");
    }
}

#[tokio::test]
async fn keys_of_another_layout_are_told() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, &part("p"), &messages(&["x"])).await;
    bed.open().await;
    for layout in ["0", "5"] {
        bed.run(&format!("ZADD {}:partitions {layout} other", bed.prefix)).await;
        for error in [RedisQueue::open(&bed.url()).await.unwrap_err(), queue.init().await.unwrap_err()] {
            assert_eq!(
                (error.kind(), error.retry()),
                (ErrorKind::Incompatible, RetryClass::Never),
                "{error}"
            );
            assert!(error.message().contains(&format!("other is of layout {layout}")), "{error}");
        }
    }
}

#[tokio::test]
async fn a_description_that_asks_for_another_protocol_is_no_hindrance() {
    let Some(bed) = Bed::find().await else { return };
    let url = format!("{}?protocol=resp3", bed.server.url());
    let connect = redis::IntoConnectionInfo::into_connection_info(url.as_str()).unwrap();
    let (queue, p) = (RedisBuilder::new(connect).open().await.unwrap(), part("p"));
    push(&queue, &p, &messages(&["x"])).await;
    assert_eq!(texts(&pull(&queue, &p, 1).await), ["x"]);
}

#[tokio::test]
async fn nothing_stays_of_having_waited() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let soon = PullRequest::new(1, Duration::from_millis(20), LEASE);
    assert!(queue.pull(&p, soon).await.unwrap().is_empty());
    let redis::Value::Int(seconds) = bed.run(&format!("TTL {}:{{p}}:waits", bed.prefix)).await else {
        panic!()
    };
    assert!((1..=180).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn what_the_server_survives_is_declared() {
    for (appendonly, appendfsync, not_on_rewrite, level, warned) in [
        ("yes", "always", "no", DurabilityLevel::PowerLoss, false),
        ("yes", "always", "yes", DurabilityLevel::None, true),
        ("yes", "everysec", "no", DurabilityLevel::None, false),
        ("yes", "no", "no", DurabilityLevel::None, true),
        ("no", "always", "no", DurabilityLevel::None, true),
    ] {
        let redis = Redis::new()
            .setting("appendonly", appendonly)
            .setting("appendfsync", appendfsync)
            .setting("no-appendfsync-on-rewrite", not_on_rewrite);
        let Some(bed) = Bed::with(redis).await else { return };
        let queue = bed.open().await;
        assert_eq!(queue.capabilities().durability.push, level);
        let health = queue.check().await.unwrap();
        assert_eq!(!health.warnings.is_empty(), warned, "{:?}", health.warnings);
        assert!(health.server_version.is_some_and(|version| version.contains('.')));
    }
}

#[tokio::test]
async fn a_handle_that_promised_more_than_the_server_now_keeps_says_so() {
    let Some(bed) = Bed::with(Redis::new().setting("appendfsync", "always")).await else { return };
    let queue = bed.open().await;
    queue.init().await.unwrap();
    bed.run("CONFIG SET appendfsync everysec").await;
    assert_eq!(queue.init().await.unwrap_err().kind(), ErrorKind::Incompatible);
}

#[tokio::test]
async fn a_full_server_refuses_pushes_and_loses_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let used = bed.info("used_memory").await;
    bed.run(&format!("CONFIG SET maxmemory {}", used + 4_000_000)).await;
    let mut stored = Vec::new();
    let refused = loop {
        let message = MessageData::new(vec![b'.'; 100_000]);
        match queue.push(&p, &[message]).await.remove(0) {
            Ok(PushOutcome::Stored(id)) => stored.push(id),
            other => break other.unwrap_err(),
        }
        assert!(stored.len() < 100, "never full");
    };
    assert_eq!((refused.kind(), refused.retry()), (ErrorKind::Full, RetryClass::Safe), "{refused}");
    // Whoever waits, holds or tidies up goes on.
    let soon = PullRequest::new(1, Duration::from_millis(20), LEASE);
    assert!(queue.pull(&part("empty"), soon).await.unwrap().is_empty());
    let held = pull(&queue, &p, 1).await.remove(0);
    let extension = Extension { lease: held.lease.clone(), duration: 2 * LEASE };
    assert_eq!(queue.extend(&[extension]).await.remove(0).unwrap(), ExtendOutcome::Extended);
    queue.set_paused(&p, true).await.unwrap();
    queue.set_paused(&p, false).await.unwrap();
    settle(&queue, &[held], Action::Release).await;
    let last = stored.pop().unwrap();
    assert_eq!(queue.delete(&p, &[last]).await.remove(0).unwrap(), DeleteOutcome::Deleted);
    // Consumers make room.
    let mut seen = Vec::new();
    while seen.len() < stored.len() {
        let held = pull(&queue, &p, 3).await;
        assert!(!held.is_empty(), "{} of {} came", seen.len(), stored.len());
        seen.extend(held.iter().map(|delivery| delivery.lease.id));
        settle(&queue, &held, Action::Remove).await;
    }
    assert_eq!(seen, stored);
    push(&queue, &p, &[MessageData::new(vec![b'.'; 100_000])]).await;
}
