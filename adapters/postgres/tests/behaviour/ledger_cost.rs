//! Many ends, and large ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{EndedQuery, LedgerQueueStorage};
use anyqueue::{EndState, MAX_RESULT_BYTES, MessageId, Page};

use crate::common::{Bed, part, run};
use crate::cost::rows_read;
use crate::ledger::{count, done, end_new};

/// What an index gives is far below, what is read through far above.
const QUICK: Duration = Duration::from_millis(100);

/// In all tables: kept for a day, a week, or until they are deleted.
async fn add_a_million(bed: &Bed) {
    let schema = &bed.schema;
    bed.run(format!(
        "INSERT INTO {schema}.ended (id, ended_at, rank, part, bucket, state, ended_us, expires_at, body)
         SELECT gen_random_uuid(), t.at, i, 1, {schema}.ended_bucket(t.keep, t.at + t.keep), 1 + i / 3 % 4, 0, t.at + t.keep, '\\x01a3000404000500'
         FROM generate_series(1, 1000000) i, LATERAL (SELECT {schema}.ended_now() - i * 80::bigint AS at,
             CASE i % 3 WHEN 0 THEN 86400000 WHEN 1 THEN 604800000 END::bigint AS keep) t"
    ))
    .await;
}

#[tokio::test]
async fn the_first_and_any_later_page_and_a_capped_count_of_a_million_ends_take_milliseconds() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    end_new(&queue, &p, 1, &done()).await;
    add_a_million(&bed).await;
    for analyzed in [false, true] {
        let mut conn = bed.connect().await;
        if analyzed {
            run(&mut conn, format!("ANALYZE {schema}.ended")).await;
        }
        for states in ["1,2,3,4", "4", "2,3"] {
            let number = i64::try_from(states.split(',').count()).unwrap();
            for (since, before) in
                [("0", "9223372036854775807"), ("{s}.ended_now() - 60000000", "{s}.ended_now() - 40000000")]
            {
                let page = format!(
                    "SELECT * FROM {{s}}.ended_page('p', ARRAY[{states}]::smallint[], {since}, {before}, '00000000-0000-0000-0000-000000000000', 50)"
                );
                // Of each table and state one row is looked at before the first is known to be the newest.
                let read = rows_read(&mut conn, schema, &page).await;
                assert!(
                    read <= 10 * (50 + 25) * number + 100,
                    "{page} reads {read} rows in ten calls (analyzed: {analyzed})"
                );
                let counted = format!(
                    "SELECT {{s}}.count_ended('p', ARRAY[{states}]::smallint[], {since}, {before}, 1000)"
                );
                let read = rows_read(&mut conn, schema, &counted).await;
                assert!(
                    read <= 10 * 1001 + 100,
                    "{counted} reads {read} rows in ten calls (analyzed: {analyzed})"
                );
            }
        }
    }
    let mut query = EndedQuery::default();
    let mut quickest = [Duration::MAX; 3];
    // The quickest counts: on a busy machine most rounds are slow.
    for round in 0..50 {
        if round >= 5 && quickest.iter().all(|took| *took < QUICK) {
            break;
        }
        query.states = if round % 2 == 0 { vec![] } else { vec![EndState::Succeeded, EndState::Failed] };
        let began = Instant::now();
        let page = queue.ended(&p, &query, Page::of(50)).await.unwrap();
        quickest[0] = quickest[0].min(began.elapsed());
        let (last, began) = (page.last().unwrap().cursor(), Instant::now());
        assert_eq!(queue.ended(&p, &query, Page::of(50).after(Some(last))).await.unwrap().len(), 50);
        quickest[1] = quickest[1].min(began.elapsed());
        let began = Instant::now();
        assert_eq!(queue.count_ended(&p, &query, 1000).await.unwrap(), 1000);
        quickest[2] = quickest[2].min(began.elapsed());
    }
    assert!(quickest.iter().all(|took| *took < QUICK), "{quickest:?}");
    println!("first page, second page, count up to 1000 of a million: {quickest:?}");
}

#[tokio::test]
async fn more_results_than_one_statement_can_carry_are_stored_and_found_all_the_same() {
    const ENDS: usize = 260;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let end = done().with_result(vec![7; MAX_RESULT_BYTES]);
    end_new(&queue, &p, ENDS, &end).await;
    let recorded: Vec<_> = (0..ENDS).map(|_| (MessageId::new(), Arc::new(end.clone()))).collect();
    for outcome in queue.record_ended(&p, &recorded).await {
        outcome.unwrap();
    }
    assert_eq!(count(&queue, &p).await, 2 * ENDS as u64);
    let ids: Vec<_> = recorded.iter().map(|(id, _)| *id).collect();
    for (found, id) in queue.find_ended(&p, &ids).await.into_iter().zip(ids) {
        let found = found.unwrap().unwrap();
        assert_eq!((found.id, &found.end.result), (id, &end.result));
    }
}
