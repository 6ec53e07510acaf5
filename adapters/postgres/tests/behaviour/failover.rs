//! A standby that takes over from a primary that is dead: the address leads to it, and the same clients go on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::MessageData;
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Postgres, Proxy, Server, start_if_installed};
use sqlx::{Connection, PgConnection};
use tokio::sync::watch;

use crate::common::run;
use crate::faults::{ALL, RECOVERY, client, drain, push_all, recovered, until};

const MESSAGES: usize = 20_000;

/// A primary whose commits wait for its standby.
async fn pair() -> Option<(Server, Server)> {
    let primary = start_if_installed(Postgres::new()).await.unwrap()?;
    let standby = Server::start(Postgres::new().standby_of(&primary)).await.unwrap();
    let mut conn = PgConnection::connect(primary.url()).await.unwrap();
    run(&mut conn, "ALTER SYSTEM SET synchronous_standby_names = '*'".to_owned()).await;
    run(&mut conn, "SELECT pg_reload_conf()".to_owned()).await;
    let following = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while sqlx::query_scalar::<_, i64>(following).fetch_one(&mut conn).await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Some((primary, standby))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_standby_that_takes_over_has_all_that_was_acknowledged() {
    let Some((primary, standby)) = pair().await else { return };
    let proxy = Proxy::start(primary.addr()).unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.addr());
    // Making the schema is much for the deadline of a call: the standby has all of it on its disk before the commit is over.
    PostgresQueue::builder(&url).unwrap().open().await.unwrap();
    let (pusher, consumer) = (client(&url).await, client(&url).await);
    let messages: Arc<Vec<_>> =
        Arc::new((0..MESSAGES).map(|number| MessageData::new(format!("{number:0256}"))).collect());
    let (count, mut acknowledged) = watch::channel(0);
    let pushing = push_all(pusher.clone(), messages.clone(), count);
    let draining = drain(consumer.clone(), acknowledged.clone(), MESSAGES);

    until(&mut acknowledged, MESSAGES / 2).await;
    primary.kill().await.unwrap();
    // For a moment the address leads to a server that only reads.
    proxy.redirect(standby.addr());
    let clients = [&pusher, &consumer];
    let mut conn = PgConnection::connect(standby.url()).await.unwrap();
    let ((), took) = tokio::join!(run(&mut conn, "SELECT pg_promote()".to_owned()), recovered(&clients));
    assert!(took < RECOVERY, "recovery after a fail-over took {took:?}");

    tokio::time::timeout(ALL, pushing).await.expect("all is pushed in the end").unwrap();
    let seen = tokio::time::timeout(ALL, draining).await.expect("all is processed in the end").unwrap();
    let lost = messages.iter().filter(|message| !seen.delivered.contains(&message.id())).count();
    assert_eq!(lost, 0, "acknowledged messages that never came");
    let attempted: HashSet<_> = messages.iter().map(MessageData::id).collect();
    assert!(seen.delivered.is_subset(&attempted), "messages that nobody pushed");
}
