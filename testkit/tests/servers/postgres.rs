//! PostgreSQL.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyqueue_testkit::{Postgres, Server, start_if_installed};

use crate::fixture::{Client, eventually, folder, is_refused};

const READY: &[u8] = b"Z\0\0\0\x05I";

async fn start() -> Option<Server> {
    start_if_installed(Postgres::new()).await.unwrap()
}

pub(crate) async fn login(addr: SocketAddr) -> Client {
    let mut client = Client::connect(addr).await;
    client.ask(b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0", READY).await;
    client
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    let mut message = vec![b'Q'];
    message.extend(u32::try_from(sql.len() + 5).unwrap().to_be_bytes());
    message.extend(sql.as_bytes());
    message.push(0);
    message
}

/// What the query answers, as the bytes of the protocol.
pub(crate) async fn ask(client: &mut Client, sql: &str) -> String {
    client.send(&query(sql)).await;
    let answer = client.read_until(READY).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn data_survives_stop_kill_and_restart_at_the_same_address() {
    let Some(server) = start().await else { return };
    let addr = server.addr();
    let mut client = login(addr).await;
    ask(&mut client, "CREATE TABLE t (text TEXT); INSERT INTO t VALUES ('before the stop')").await;
    server.stop().await.unwrap();
    client.ends().await;
    is_refused(addr).await;
    server.restart().await.unwrap();

    let mut client = login(addr).await;
    assert!(ask(&mut client, "SELECT text FROM t").await.contains("before the stop"));
    ask(&mut client, "INSERT INTO t VALUES ('before the kill')").await;
    server.kill().await.unwrap();
    client.ends().await;
    is_refused(addr).await;
    server.restart().await.unwrap();
    assert_eq!(server.addr(), addr);
    let mut client = login(addr).await;
    assert!(ask(&mut client, "SELECT text FROM t").await.contains("before the kill"));
}

/// Their data is copied from one folder, which the first of them makes.
#[tokio::test]
async fn servers_that_start_at_once_share_nothing() {
    let (one, other) = tokio::join!(start(), start());
    let (Some(one), Some(other)) = (one, other) else { return };
    ask(&mut login(one.addr()).await, "CREATE TABLE of_one ()").await;
    let asked = "SELECT 'there=' || (to_regclass('of_one') IS NOT NULL)::text";
    assert!(ask(&mut login(one.addr()).await, asked).await.contains("there=true"));
    assert!(ask(&mut login(other.addr()).await, asked).await.contains("there=false"));
}

/// Each connection has a process of its own, outside of the server's process group.
#[tokio::test]
async fn a_freeze_reaches_the_processes_of_connections() {
    let Some(server) = start().await else { return };
    let mut client = login(server.addr()).await;
    server.freeze().await.unwrap();
    client.send(&query("SELECT 'answered'")).await;
    client.hears_nothing().await;
    server.thaw().await.unwrap();
    let answer = client.read_until(READY).await;
    assert!(String::from_utf8_lossy(&answer).contains("answered"));
}

#[tokio::test]
async fn a_kill_reaches_a_connection_that_is_busy() {
    let Some(server) = start().await else { return };
    let mut client = login(server.addr()).await;
    let own = ask(&mut client, "SELECT 'pid=' || pg_backend_pid() || '.'").await;
    let pid = own.split("pid=").nth(1).unwrap().split('.').next().unwrap().to_owned();
    client.send(&query("SELECT count(*) FROM generate_series(1, 100000000000)")).await;
    server.kill().await.unwrap();
    client.ends().await;
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap() || state(&pid) == 'Z');
}

fn state(pid: &str) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// The shared memory that belongs to a process of the server, by its creator.
fn segments(creator: &str) -> usize {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    table.lines().filter(|line| line.split_whitespace().nth(4) == Some(creator)).count()
}

#[tokio::test]
async fn nothing_is_left_of_it_when_it_is_dropped() {
    let Some(server) = start().await else { return };
    let (addr, folder) = (server.addr(), folder(&server));
    let creator = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    let creator = creator.lines().next().unwrap().to_owned();
    assert_eq!(segments(&creator), 1);
    let mut client = login(addr).await;
    server.freeze().await.unwrap();
    drop(server);
    client.ends().await;
    is_refused(addr).await;
    assert!(!folder.exists());
    eventually(|| segments(&creator) == 0).await;
}

#[tokio::test]
async fn settings_reach_it() {
    let program = Postgres::new().setting("max_connections", "37");
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let answer = ask(&mut login(server.addr()).await, "SHOW max_connections").await;
    assert!(answer.contains("37"), "{answer}");
    assert!(server.version().starts_with(|c: char| c.is_ascii_digit()), "{}", server.version());
}

#[tokio::test]
async fn a_start_that_fails_tells_what_the_server_said() {
    let wrong = Postgres::new().setting("max_connections", "many");
    let error = match start_if_installed(wrong).await {
        Ok(None) => return,
        Ok(Some(_)) => panic!("it started"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("max_connections"), "{error}");
}

#[tokio::test]
async fn a_standby_follows_its_primary_and_takes_over() {
    let Some(primary) = start().await else { return };
    let standby = Server::start(Postgres::new().standby_of(&primary)).await.unwrap();
    ask(&mut login(primary.addr()).await, "CREATE TABLE kept AS SELECT 4711 AS n").await;
    let mut client = login(standby.addr()).await;
    let asked = "SELECT (to_regclass('kept') IS NOT NULL)::text || pg_is_in_recovery()::text";
    let follows = async { while !ask(&mut client, asked).await.contains("truetrue") {} };
    tokio::time::timeout(Duration::from_secs(30), follows).await.expect("it does not follow");
    primary.kill().await.unwrap();
    ask(&mut client, "SELECT pg_promote()").await;
    let answer = ask(&mut client, "INSERT INTO kept VALUES (4712) RETURNING n").await;
    assert!(answer.contains("4712"), "{answer}");
}
