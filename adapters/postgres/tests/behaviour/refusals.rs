//! What a server can refuse: each is told apart, nothing acknowledged is lost, and no password is shown.

use std::path::PathBuf;
use std::process::Command;

use anyqueue::adapter::{PushQueueStorage, QueueStorage};
use anyqueue::{ErrorKind, MessageData, RetryClass};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Postgres, start_if_installed};
use sqlx::{Connection, PgConnection};

use crate::common::{Bed, part, pull, push, run, texts};

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let mut conn = PgConnection::connect(server.url()).await.unwrap();
    // The server writes its own rules anew: passwords for all but the superuser.
    let rules = "COPY (VALUES ('host all postgres 127.0.0.1/32 trust'), ('host all all 127.0.0.1/32 scram-sha-256')) TO";
    let file: String = sqlx::query_scalar("SHOW hba_file").fetch_one(&mut conn).await.unwrap();
    run(&mut conn, format!("{rules} '{file}'; CREATE ROLE app LOGIN PASSWORD 'right-word'")).await;
    run(&mut conn, "GRANT CREATE ON DATABASE postgres TO app; SELECT pg_reload_conf()".to_owned()).await;
    let url = |login: &str| server.url().replace("//postgres@", &format!("//{login}@"));

    // The rules are read again within moments.
    let mut error = None;
    for _ in 0..100 {
        match PostgresQueue::open(&url("app:secret-word")).await {
            Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            Err(refused) => {
                error = Some(refused);
                break;
            }
        }
    }
    let error = error.expect("a wrong password is refused");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
    assert!(error.message().contains("app") && error.message().contains("password"), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret-word"), "{error:?}");
    let unknown = PostgresQueue::open(&url("nobody:secret-word")).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::AccessDenied, "{unknown}");

    let queue = PostgresQueue::open(&url("app:right-word")).await.unwrap();
    push(&queue, &part("p"), &["allowed"]).await;
    assert!(!format!("{queue:?}").contains("right-word"));
}

/// The whole server, as a replica is.
#[tokio::test]
async fn a_server_that_becomes_read_only_loses_nothing_and_is_used_again_when_it_is_writable() {
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let (queue, p) = (PostgresQueue::open(server.url()).await.unwrap(), part("p"));
    push(&queue, &p, &["before"]).await;
    let mut conn = PgConnection::connect(server.url()).await.unwrap();
    let mut set = async |value: &str| {
        run(&mut conn, format!("ALTER DATABASE postgres SET default_transaction_read_only = {value}")).await;
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'anyqueue'";
        run(&mut conn, others.to_owned()).await;
    };
    set("on").await;
    let message = MessageData::new("after");
    let mut error = queue.push(&p, std::slice::from_ref(&message)).await.remove(0).unwrap_err();
    if !error.message().contains("read-only") {
        // The first call met the connection that was ended.
        error = queue.push(&p, std::slice::from_ref(&message)).await.remove(0).unwrap_err();
    }
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("read-only"), "{error}");
    set("off").await;
    while queue.push(&p, std::slice::from_ref(&message)).await.remove(0).is_err() {}
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["before", "after"]);
}

#[tokio::test]
async fn a_full_disk_is_told_and_what_was_acknowledged_stays() {
    let Some(bed) = Bed::empty().await else { return };
    let Some(disk) = SmallDisk::mount(&bed) else { return };
    let (role, space) = (format!("{}_role", bed.schema), format!("{}_space", bed.schema));
    bed.run(format!("CREATE TABLESPACE {space} LOCATION '{}'", disk.path().display())).await;
    bed.run(format!(
        "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_tablespace = {space}"
    ))
    .await;
    let (queue, p) = (PostgresQueue::open(&bed.url_of(&role)).await.unwrap(), part("p"));
    // Random, so that nothing can be compressed.
    let big = || MessageData::new((0..50_000).map(|_| fastrand::u8(..)).collect::<Vec<_>>());
    let (mut stored, mut refused) = (0, None);
    while refused.is_none() {
        for outcome in queue.push(&p, &[big(), big()]).await {
            match outcome {
                Ok(_) => stored += 1,
                Err(error) => refused = Some(error),
            }
        }
    }
    let error = refused.unwrap();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.message().contains("disk"), "{error}");
    assert!(stored > 0);

    disk.enlarge();
    push(&queue, &p, &["room again"]).await;
    let got = pull(&queue, &p, 1000).await;
    assert_eq!(got.len(), stored + 1, "each that was acknowledged, and the last");
    queue.close().await.unwrap();
    bed.run(format!("DROP SCHEMA {} CASCADE", bed.schema)).await;
    bed.run(format!("DROP TABLESPACE {space}")).await;
}

/// A disk of a few megabytes, in memory. Making one takes root's rights.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(bed: &Bed) -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("anyqueue-disk-").tempdir().unwrap();
        let mounted = bed.is_private()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=6m,mode=0777", "tmpfs"])
                .arg(folder.path())
                .output()
                .is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("NOT RUN: a full disk needs a private server and the right to mount one");
            return None;
        }
        let open = Command::new("chmod").arg("0777").arg(folder.path()).status();
        assert!(open.unwrap().success());
        Some(Self(folder))
    }

    fn path(&self) -> PathBuf {
        // The server wants a folder that is its own.
        let folder = self.0.path().join("space");
        if !folder.exists() {
            std::fs::create_dir(&folder).unwrap();
            let owned = Command::new("chown").arg("postgres").arg(&folder).status();
            assert!(owned.unwrap().success());
        }
        folder
    }

    fn enlarge(&self) {
        let larger = Command::new("mount").args(["-o", "remount,size=64m"]).arg(self.0.path()).status();
        assert!(larger.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server may still have a file of it open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_role_that_may_not_create_a_schema_learns_so() {
    let Some(bed) = Bed::empty().await else { return };
    let role = format!("{}_role", bed.schema);
    bed.run(format!("CREATE ROLE {role} LOGIN")).await;
    let error = PostgresQueue::open(&bed.url_of(&role)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
    assert!(error.message().contains("permission denied for database"), "{error}");
}
