//! What becomes of servers when the process that started them is gone.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use anyqueue_testkit::{Ministack, Postgres, Program, Redis};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::fixture::{LIMIT, eventually, is_refused};

/// A process with a server of its own, that server's address, and the folder in which its data is.
async fn holder(name: &str, program: impl Program) -> Option<(Child, SocketAddr, tempfile::TempDir)> {
    let start = format!("{}=", program.variable());
    // Says so, and fails where it must, if there is none.
    anyqueue_testkit::start_if_installed(program).await.unwrap()?;
    let temporary = tempfile::tempdir().unwrap();
    // Servers that refuse to run as root have their folders in it.
    std::fs::set_permissions(temporary.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut holder = Command::new(env!("CARGO_BIN_EXE_anyqueue-testkit"));
    holder.arg(name).env("TMPDIR", temporary.path());
    holder.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut holder = holder.spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let line = timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
    let (_scheme, rest) = line.strip_prefix(&start).unwrap().split_once("://").unwrap();
    let addr = rest.split('@').next_back().unwrap().split('/').next().unwrap().parse().unwrap();
    TcpStream::connect(addr).await.unwrap();
    Some((holder, addr, temporary))
}

fn content(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn a_killed_process_takes_its_servers_with_it() {
    let Some((mut holder, addr, folder)) = holder("redis", Redis::new()).await else { return };
    assert_eq!(content(&folder).len(), 1);
    holder.kill().await.unwrap();
    eventually(|| content(&folder).is_empty()).await;
    // Who is killed by somebody else than its parent is gone a moment later.
    eventually(|| std::net::TcpStream::connect(addr).is_err()).await;
}

/// And the folder that the data of such servers is copied from.
#[tokio::test]
async fn a_killed_process_takes_the_model_of_its_servers_data_with_it() {
    let Some((mut holder, addr, folder)) = holder("postgres", Postgres::new()).await else { return };
    assert_eq!(content(&folder).len(), 2);
    holder.kill().await.unwrap();
    eventually(|| content(&folder).is_empty()).await;
    eventually(|| std::net::TcpStream::connect(addr).is_err()).await;
}

#[tokio::test]
async fn a_process_that_is_told_to_stop_leaves_nothing() {
    let Some((mut holder, addr, folder)) = holder("redis", Redis::new()).await else { return };
    let pid = holder.id().unwrap().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().await.unwrap();
    let status = timeout(LIMIT, holder.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(content(&folder), [] as [PathBuf; 0]);
    is_refused(addr).await;
}

/// Which it would do in the temporary folder of all.
#[tokio::test]
async fn ministack_writes_nothing_beside_its_own_folder() {
    let Some((mut holder, _, folder)) = holder("sqs", Ministack::new()).await else { return };
    let beside = content(&folder);
    assert_eq!(beside.len(), 1, "{beside:?}");
    holder.kill().await.unwrap();
    eventually(|| content(&folder).is_empty()).await;
}
