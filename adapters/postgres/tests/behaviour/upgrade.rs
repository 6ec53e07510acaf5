//! A schema of an older release, with messages in it: it is upgraded, and processes of that release go on meanwhile.

use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage, PushQueueStorage};
use anyqueue::{Amend, MessageData};

use crate::amend::{DAY, amend_one, let_time_pass};
use crate::common::{Bed, part, pull, run};
use crate::older_release::{make_old, push_old};
use crate::successors::drain;

#[tokio::test]
async fn a_schema_of_an_older_release_is_upgraded_with_its_messages() {
    let Some(bed) = Bed::empty().await else { return };
    let (mut conn, schema, p) = (bed.connect().await, &bed.schema, part("p"));
    make_old(&mut conn, schema, 2).await;
    let delayed = MessageData::new("delayed").with_delay(DAY);
    let [leader, behind] = ["head", "behind"].map(|text| MessageData::new(text).with_group("g"));
    let held = MessageData::new("held").with_dedup_key("k");
    let ready = MessageData::new("ready");
    push_old(&mut conn, schema, &held).await;
    let all = "ARRAY[0]::smallint[], ARRAY[0]::bigint[], ARRAY[19]::smallint[], NULL";
    let claim = format!("SELECT FROM {schema}.pull('p', false, 1, 60000, gen_random_uuid(), {all})");
    run(&mut conn, claim.clone()).await;
    for message in [&ready, &leader, &behind, &delayed] {
        push_old(&mut conn, schema, message).await;
    }

    let queue = bed.open().await;
    let counts = queue.counts(&p).await.unwrap();
    let shown = (counts.ready, counts.delayed, counts.leased, counts.disabled);
    assert_eq!(shown, (Some(3), Some(1), Some(1), Some(0)));
    amend_one(&queue, &p, &leader, Amend::new().disable()).await;
    amend_one(&queue, &p, &delayed, Amend::new().with_priority(1).now()).await;
    assert_eq!(drain(&queue, &p).await, ["delayed", "ready", "behind"]);

    // Another process of the older release has not ended yet.
    push_old(&mut conn, schema, &MessageData::new("old").with_group("g")).await;
    let one = "ARRAY[gen_random_uuid()], ARRAY[19]::smallint[], '{}'";
    let columns = "'{}', ARRAY['k2'::bytea], ARRAY['x'::bytea], ARRAY[1]::smallint[]";
    let over = format!("SELECT * FROM {schema}.push_over('p', {one}, {columns}, false)");
    run(&mut conn, over).await;
    let then = format!(
        "SELECT {schema}.store_successors(ARRAY[1], NULL, NULL, 1, ARRAY['p'], ARRAY[1], ARRAY[1], {one}, '{{}}', '{{}}', ARRAY['y'::bytea], '{{}}')"
    );
    run(&mut conn, then).await;
    run(&mut conn, claim).await; // that of the first process
    assert_eq!(drain(&queue, &p).await, ["x", "y"]);
    amend_one(&queue, &p, &leader, Amend::new().enable()).await;
    queue.push(&p, &[MessageData::new("urgent").with_urgent_after(Duration::ZERO)]).await;
    bed.run(format!("UPDATE {schema}.message SET until = now() - interval '1 s', due = now() - interval '1 s' WHERE state = 1")).await;
    let queue = let_time_pass(&bed).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(crate::common::texts(&held), ["urgent", "held", "head"]);
}
