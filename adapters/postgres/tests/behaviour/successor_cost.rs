//! What successors cost: no statement more, and nothing where there are none.

use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage, PullQueueStorage, PullRequest, RawDelivery};
use anyqueue::{ErrorKind, MessageData, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Postgres, Server, start_if_installed};

use crate::common::{Bed, LEASE, part, pull, push};
use crate::successors::{actions, drain, outcomes, removal, with};

/// The functions that the statements of this call use, as the server's log tells.
pub(crate) async fn called<T>(server: &Server, call: impl Future<Output = T>) -> (T, Vec<String>) {
    let log = || std::fs::read_to_string(server.log()).unwrap();
    let before = log().len();
    let done = call.await;
    let statements = log().split_off(before);
    let statements = statements.split(" execute sqlx_s_").skip(1);
    let used = |statement: &str| {
        let names = statement.split("\"anyqueue\".").skip(1);
        names.map(|name| name.split('(').next().unwrap()).collect::<Vec<_>>().join("+")
    };
    (done, statements.map(used).collect())
}

#[tokio::test]
async fn ends_and_what_they_bring_take_one_statement_and_the_pull_beside_them_gets_it() {
    let program = Postgres::new().setting("log_statement", "all");
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let queue = PostgresQueue::builder(server.url()).unwrap().notify(false).open().await.unwrap();
    let (p, next) = (part("p"), part("next"));
    let statements = [
        ("remove", "store_successors+remove_only"),
        ("give_back", "store_successors+give_back"),
        ("give_back", "store_successors+give_back"),
        ("give_back", "store_successors+give_back"),
        ("move", "store_successors+move_only"),
    ];
    for (action, (without, with_successors)) in actions().into_iter().zip(statements) {
        for (brought, expected) in [(0, without), (90, with_successors)] {
            push(&queue, &p, &["m"; 100]).await;
            let held = pull(&queue, &p, 100).await;
            let end = |(n, held): (usize, &RawDelivery)| {
                let then = [(&next, MessageData::new("m"))];
                with(&held.lease, action.clone(), if n < brought { &then } else { &[] })
            };
            let ends: Vec<_> = held.iter().enumerate().map(end).collect();
            let (settled, used) = called(&server, queue.settle(&ends)).await;
            assert_eq!(used, [expected], "{action:?}");
            assert!(settled.iter().all(|settled| *settled.as_ref().unwrap() == SettleOutcome::Settled));
            assert_eq!(drain(&queue, &next).await.len(), brought);
            queue.purge(&p, 1000).await.unwrap();
        }
    }

    for (then, expected) in
        [(vec![], "remove+pull"), (vec![(&next, MessageData::new("m"))], "store_successors+remove_only+pull")]
    {
        push(&queue, &p, &["m"]).await;
        let held = pull(&queue, &p, 1).await.remove(0);
        let ends = [removal(&held, &then)];
        let request = PullRequest::new(9, Duration::ZERO, LEASE);
        let ((_, pulled), used) = called(&server, queue.exchange(&ends, &next, request)).await;
        assert_eq!(used, [expected]);
        assert_eq!(pulled.unwrap().len(), then.len());
    }
}

/// Shown by taking away what only successors need.
#[tokio::test]
async fn ends_without_successors_use_nothing_that_successors_need() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &["m"; 7]).await;
    let held = pull(&queue, &p, 7).await;
    bed.run(format!("DROP FUNCTION {0}.store_successors, {0}.remove_only", bed.schema)).await;
    let ends = actions().into_iter().zip(&held).map(|(action, held)| with(&held.lease, action, &[]));
    let settled = queue.settle(&ends.collect::<Vec<_>>()).await;
    assert_eq!(outcomes(&settled), [Ok(SettleOutcome::Settled); 5]);
    let request = PullRequest::new(1, Duration::ZERO, LEASE);
    let (settled, _) = queue.exchange(&[removal(&held[5], &[])], &p, request).await;
    assert_eq!(outcomes(&settled), [Ok(SettleOutcome::Settled)]);
    let needing = removal(&held[6], &[(&p, MessageData::new("next"))]);
    assert_eq!(outcomes(&queue.settle(&[needing]).await), [Err(ErrorKind::Incompatible)]);
}
