//! `PgBouncer` in front of PostgreSQL.

use anyqueue_testkit::{PgBouncer, Postgres, start_if_installed};

use crate::fixture::is_refused;
use crate::postgres::{ask, login};

#[tokio::test]
async fn it_serves_what_is_behind_it_through_stop_kill_and_freeze() {
    let Some(postgres) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let Some(pool) = start_if_installed(PgBouncer::new(postgres.addr())).await.unwrap() else { return };
    let addr = pool.addr();
    let mut client = login(addr).await;
    ask(&mut client, "CREATE TABLE t AS SELECT 'behind the pool' AS text").await;

    pool.freeze().await.unwrap();
    client.send(&crate::postgres::query("SELECT text FROM t")).await;
    client.hears_nothing().await;
    pool.thaw().await.unwrap();
    client.read_until(b"behind the pool").await;

    pool.kill().await.unwrap();
    is_refused(addr).await;
    pool.restart().await.unwrap();
    assert!(ask(&mut login(addr).await, "SELECT text FROM t").await.contains("behind the pool"));
    pool.stop().await.unwrap();
    is_refused(addr).await;
    pool.restart().await.unwrap();
    assert_eq!(pool.addr(), addr);
    assert!(ask(&mut login(addr).await, "SELECT text FROM t").await.contains("behind the pool"));
}

/// The backend's number differs from the pool's, which a client in transaction mode can tell by nothing else.
#[tokio::test]
async fn transactions_of_clients_share_a_connection() {
    let Some(postgres) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let program = PgBouncer::new(postgres.addr()).setting("default_pool_size", "1");
    let Some(pool) = start_if_installed(program).await.unwrap() else { return };
    let (mut first, mut second) = (login(pool.addr()).await, login(pool.addr()).await);
    let pid = "SELECT 'pid=' || pg_backend_pid()";
    assert_eq!(ask(&mut first, pid).await, ask(&mut second, pid).await);
}
