//! What compaction costs: one statement, and nothing where nobody asks for it.

use anyqueue::OnDuplicate::{Behind, Earlier, Keep, Replace};
use anyqueue::adapter::{PullQueueStorage, PushQueueStorage};
use anyqueue::{ErrorKind, MessageData, PushOutcome, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Postgres, start_if_installed};

use crate::common::{Bed, part, pull, push, remove};
use crate::compaction::{keyed, push_one};
use crate::successor_cost::called;
use crate::successors::removal;

/// What the log shows of the statement for plain messages.
const PLAIN: &str = "message +first_lane+place_at+partition WHERE name = $1 AND ";

#[tokio::test]
async fn a_push_that_keeps_uses_the_statements_it_always_did_and_one_that_does_not_uses_one() {
    let program = Postgres::new().setting("log_statement", "all");
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let queue = PostgresQueue::builder(server.url()).unwrap().notify(false).open().await.unwrap();
    let p = part("p");
    push(&queue, &p, &["the partition is known"]).await;
    let plain = || MessageData::new("plain");
    for (messages, expected) in [
        (vec![plain(), plain()], PLAIN),
        (vec![plain(), keyed("kept", Keep)], "push"),
        (vec![plain(), keyed("over", Replace)], "push_over"),
        (vec![keyed("over", Earlier)], "push_over"),
        (vec![keyed("over", Behind)], "push_over"),
        // There are no keys among dead letters, nor where a message has none.
        (vec![plain().with_on_duplicate(Replace)], PLAIN),
    ] {
        let (outcomes, used) = called(&server, queue.push(&p, &messages)).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(used, [expected]);
    }
    let (_, used) = called(&server, queue.push(&p.dead_letters(), &[keyed("dead", Replace)])).await;
    assert_eq!(used, ["push"]);
}

/// Shown by taking away what only compaction needs.
#[tokio::test]
async fn who_keeps_uses_nothing_that_compaction_needs() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    bed.run(format!("DROP FUNCTION {0}.push_over, {0}.store_over, {0}.replaced_body", bed.schema)).await;
    let first = keyed("first", Keep).with_group("g");
    assert_eq!(push_one(&queue, &p, first.clone()).await, PushOutcome::Stored(first.id()));
    let held = pull(&queue, &p, 1).await.remove(0);
    let then = [(&p, keyed("next", Keep).with_group("g"))];
    assert_eq!(queue.settle(&[removal(&held, &then)]).await.remove(0).unwrap(), SettleOutcome::Settled);
    let error = queue.push(&p, &[keyed("over", Replace)]).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let held = pull(&queue, &p, 1).await.remove(0);
    let settled = queue.settle(&[removal(&held, &[(&p, keyed("over", Replace))])]).await.remove(0);
    assert_eq!(settled.unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(remove(&queue, &held.lease).await, SettleOutcome::Settled);
}
