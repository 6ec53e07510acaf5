//! What is stored of a message that gets the content of another.

use std::time::Duration;

use anyqueue::OnDuplicate::{Keep, Replace};
use anyqueue::adapter::{
    Action, Decoded, Envelope, InspectQueueStorage, PullQueueStorage, RawDelivery, Settlement,
};
use anyqueue::{MessageData, MessageId, PushOutcome, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::common::{Bed, LEASE, SOON, part, pull, run};
use crate::compaction::{keyed, push_one};

async fn release(queue: &PostgresQueue, held: &RawDelivery) {
    let settled = queue.settle(&[Settlement::new(held.lease.clone(), Action::Release)]).await.remove(0);
    assert_eq!(settled.unwrap(), SettleOutcome::Settled);
}

async fn body(conn: &mut PgConnection, schema: &str, id: MessageId) -> Vec<u8> {
    let id = id.to_string();
    let select = AssertSqlSafe(format!("SELECT body FROM {schema}.message WHERE id = $1::uuid"));
    sqlx::query_scalar(select).bind(id).fetch_one(conn).await.unwrap()
}

/// Messages whose envelopes have all kinds of entries, and items of all lengths.
fn contents() -> Vec<MessageData> {
    let mut all: Vec<_> = [0, 1, 23, 24, 255, 256, 65_535, 65_536, 3_000_000]
        .into_iter()
        .map(|bytes| MessageData::new(vec![0xF6; bytes]))
        .collect();
    for bytes in [1, 24, 256] {
        all.push(
            MessageData::new("x").with_task_id("t".repeat(bytes)).with_session_id("ü".repeat(bytes / 2)),
        );
    }
    let headers = (0..300).map(|n| (format!("name-{n}"), "v".repeat(n * n)));
    all.push(MessageData::new("x").with_session_id("s").with_headers(headers.collect()));
    all.push(MessageData::new("").with_header("", ""));
    all
}

/// As stored, byte for byte; so a message grows out of its row and back into it.
#[tokio::test]
async fn what_is_replaced_is_stored_as_if_it_had_been_pushed_so() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let mut conn = bed.connect().await;
    let optioned = |message: MessageData, n: u32| match n % 4 {
        0 => message,
        1 => message.with_max_retries(70_000).with_priority(9),
        2 => message.with_time_to_live(Duration::MAX).with_group("g".repeat(256)),
        _ => message
            .with_time_to_live(SOON * 100)
            .with_max_duration(SOON)
            .with_max_retries(0)
            .with_delay(LEASE),
    };
    for (n, first) in (0..).zip(contents()) {
        let first = optioned(first, n).with_dedup_key("k");
        assert_eq!(push_one(&queue, &p, first.clone()).await, PushOutcome::Stored(first.id()));
        let stored = body(&mut conn, &bed.schema, first.id()).await;
        let Ok(Decoded::Envelope(stored)) = Envelope::decode(&stored.into()) else {
            panic!("it is no envelope");
        };
        for (m, newer) in (1..).zip(contents()) {
            let newer = optioned(newer, n + m).with_dedup_key("k").with_on_duplicate(Replace);
            assert_eq!(push_one(&queue, &p, newer.clone()).await, PushOutcome::Replaced(first.id()));
            let mut expected = MessageData::with_id(first.id(), newer.payload_bytes())
                .with_headers(newer.headers().clone())
                .with_options(first.options().clone());
            if let Some(task) = newer.task_id() {
                expected = expected.with_task_id(task);
            }
            if let Some(session) = newer.session_id() {
                expected = expected.with_session_id(session);
            }
            let expected = Envelope::new(expected, stored.pushed_at.unwrap()).encode().unwrap();
            assert!(body(&mut conn, &bed.schema, first.id()).await == expected, "{first:?} by {newer:?}");
        }
        assert_eq!(queue.delete(&p, &[first.id()]).await.len(), 1);
    }
}

#[tokio::test]
async fn headers_of_a_postponement_and_bytes_that_cannot_be_read_give_way() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let first = keyed("old", Keep);
    push_one(&queue, &p, first.clone()).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let headers = Some([("by".to_owned(), "postponement".to_owned())].into());
    let postpone = Action::Postpone { delay: Duration::ZERO, headers };
    queue.settle(&[Settlement::new(held.lease, postpone)]).await.remove(0).unwrap();
    let newer = keyed("new", Replace).with_header("by", "push");
    assert_eq!(push_one(&queue, &p, newer.clone()).await, PushOutcome::Replaced(first.id()));
    let held = pull(&queue, &p, 1).await.remove(0);
    assert_eq!((held.message.payload(), held.message.headers()), (&b"new"[..], newer.headers()));
    release(&queue, &held).await;

    for foreign in ["", "\\xf6", "\\xf64151", "\\xf6415101", "{}"] {
        bed.run(format!("UPDATE {schema}.message SET body = '{foreign}'")).await;
        assert_eq!(push_one(&queue, &p, newer.clone()).await, PushOutcome::Replaced(first.id()));
        let held = pull(&queue, &p, 1).await.remove(0);
        assert_eq!((held.lease.id, held.message.payload()), (first.id(), &b"new"[..]), "{foreign}");
        release(&queue, &held).await;
    }
}

/// Whatever the byte is taken for, reading ends.
#[tokio::test]
async fn damaged_bytes_are_not_read_beyond_their_end() {
    let Some(bed) = Bed::find().await else { return };
    let _queue = bed.open().await;
    let message =
        MessageData::new("payload").with_session_id("s").with_header("a", "b").with_max_retries(70_000);
    let stored = Envelope::new(message, std::time::SystemTime::now()).encode().unwrap();
    let mut conn = bed.connect().await;
    run(&mut conn, format!("SET search_path = {}", bed.schema)).await;
    for at in 0..stored.len() {
        for byte in [0x00, 0x18, 0x1B, 0x5B, 0x7F, 0x9B, 0xBB, 0xFF] {
            let mut damaged = stored.clone();
            damaged[at] = byte;
            let replace = "SELECT length(replaced_body(gen_random_uuid(), $1, $2))";
            let replace = sqlx::query_scalar(replace).bind(&damaged).bind(&stored);
            let length: i32 = replace.fetch_one(&mut conn).await.unwrap();
            assert!(length > 40, "{byte} at {at}: {length} bytes");
        }
    }
}
