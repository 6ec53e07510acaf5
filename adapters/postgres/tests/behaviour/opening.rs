//! Opening: migrations, and input that is wrong.

use anyqueue::adapter::{PushQueueStorage, QueueStorage};
use anyqueue::{ErrorKind, RetryClass};
use anyqueue_postgres::PostgresQueue;

use crate::common::{Bed, part, pull, push, texts};

/// Tells a child process of the next test where to go.
const CHILD_URL: &str = "ANYQUEUE_TEST_CHILD_URL";

#[tokio::test]
async fn one_process_opens_a_schema_and_pushes() {
    let url = if let Ok(url) = std::env::var(CHILD_URL) {
        url
    } else {
        let Some(bed) = Bed::empty().await else { return };
        bed.url()
    };
    let queue = PostgresQueue::open(&url).await.unwrap();
    queue.init().await.unwrap();
    push(&queue, &part("p"), &["here"]).await;
}

#[tokio::test]
async fn twenty_processes_at_once_make_one_schema() {
    let Some(bed) = Bed::empty().await else { return };
    let start = || {
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "opening::one_process_opens_a_schema_and_pushes"]).env(CHILD_URL, bed.url());
        child.kill_on_drop(true).output()
    };
    let ended = futures_util::future::join_all((0..20).map(|_| start())).await;
    for output in ended {
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert_eq!(pull(&bed.open().await, &part("p"), 100).await.len(), 20);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let Some(bed) = Bed::empty().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &["kept"]).await;
    bed.run(format!(
        "INSERT INTO {}.migration (version, name) VALUES (1000, 'of a later release')",
        bed.schema
    ))
    .await;
    for create in [true, false] {
        let error = PostgresQueue::builder(&bed.url()).unwrap().create(create).open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.message().contains("newer"), "{error}");
    }
    assert_eq!(texts(&pull(&queue, &p, 1).await), ["kept"]);
}

#[tokio::test]
async fn without_create_a_missing_schema_is_said_and_not_made() {
    let Some(bed) = Bed::empty().await else { return };
    let error = PostgresQueue::builder(&bed.url()).unwrap().create(false).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.message().contains(&bed.schema), "{error}");
    bed.open().await;
    PostgresQueue::builder(&bed.url()).unwrap().create(false).open().await.unwrap();
}

#[tokio::test]
async fn a_role_without_rights_learns_which_are_missing() {
    let Some(bed) = Bed::empty().await else { return };
    let (schema, role) = (bed.schema.clone(), format!("{}_role", bed.schema));
    bed.run(format!("CREATE ROLE {role} LOGIN PASSWORD 'secret-word'")).await;
    let url = bed.url().replace("//postgres@", &format!("//{role}:secret-word@"));
    let error = PostgresQueue::open(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
    bed.open().await;
    bed.run(format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
    ))
    .await;
    let queue = PostgresQueue::open(&url).await.unwrap();
    let error = queue.push(&part("p"), &[anyqueue::MessageData::new("x")]).await.remove(0).unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
    assert!(error.message().contains("permission denied for table"), "{error}");
    assert!(!format!("{error:?} {queue:?}").contains("secret-word"));
    bed.run(format!("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")).await;
    push(&queue, &part("p"), &["allowed"]).await;
    assert_eq!(texts(&pull(&queue, &part("p"), 1).await), ["allowed"]);
}

#[tokio::test]
async fn check_tells_each_right_that_a_role_is_missing() {
    let Some(bed) = Bed::empty().await else { return };
    let (schema, role) = (bed.schema.clone(), format!("{}_role", bed.schema));
    let owner = bed.open().await;
    bed.run(format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
    ))
    .await;
    let queue = PostgresQueue::open(&bed.url_of(&role)).await.unwrap();
    queue.check().await.unwrap();
    let cases = [
        (format!("DELETE ON {schema}.message"), "DELETE on table message;"),
        (format!("UPDATE ON {schema}.message_group"), "UPDATE on table message_group;"),
        (format!("INSERT ON {schema}.partition"), "INSERT on table partition;"),
        (format!("INSERT ON {schema}.ended"), "INSERT on table ended;"),
        (format!("DELETE ON {schema}.control_entry"), "DELETE on table control_entry;"),
    ];
    for (right, told) in cases {
        bed.run(format!("REVOKE {right} FROM {role}")).await;
        let error = queue.check().await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
        assert!(error.message().contains(&schema) && error.message().contains(told), "{error}");
        bed.run(format!("GRANT {right} TO {role}")).await;
        queue.check().await.unwrap();
    }
    bed.run(format!("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC")).await;
    let error = queue.check().await.unwrap_err();
    assert!(error.message().contains("EXECUTE on function pull"), "{error}");
    owner.check().await.unwrap();
}

#[tokio::test]
async fn a_wrong_database_an_absent_server_and_a_bad_url_are_told_apart() {
    let Some(bed) = Bed::empty().await else { return };
    let (server, _) = bed.server_url().rsplit_once('/').unwrap();
    let wrong = format!("{server}/no_such_database").replace("//postgres@", "//postgres:secret-word@");
    let error = PostgresQueue::open(&wrong).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.message().contains("no_such_database"), "{error}");
    let absent = PostgresQueue::open("postgres://postgres:secret-word@127.0.0.1:1/x").await.unwrap_err();
    assert_eq!((absent.kind(), absent.retry()), (ErrorKind::Unavailable, RetryClass::Safe), "{absent}");
    let bad = PostgresQueue::open("postgres://user:secret-word@host:port/x").await.unwrap_err();
    assert_eq!(bad.kind(), ErrorKind::InvalidInput);
    for error in [error, absent, bad] {
        assert!(!format!("{error} {error:?}").contains("secret-word"), "{error:?}");
    }
}

#[tokio::test]
async fn another_scheme_is_refused_and_the_error_says_what_to_write() {
    for url in ["mysql://user:secret-word@host/x", "sqlite:jobs.db", "postgres+ssl://host/x"] {
        let error = PostgresQueue::open(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
        assert!(error.message().contains("write postgres://"), "{url}: {error}");
        assert!(!format!("{error:?}").contains("secret-word"), "{error:?}");
    }
    assert!(PostgresQueue::builder("postgresql://host/x").is_ok());
}

#[tokio::test]
async fn a_read_only_server_is_named_as_such() {
    let Some(bed) = Bed::empty().await else { return };
    bed.open().await;
    // Every transaction of this role is as on a replica.
    let role = format!("{}_reader", bed.schema);
    bed.run(format!(
        "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_transaction_read_only = on"
    ))
    .await;
    let queue = PostgresQueue::open(&bed.url().replace("//postgres@", &format!("//{role}@"))).await.unwrap();
    let error = queue.push(&part("p"), &[anyqueue::MessageData::new("x")]).await.remove(0).unwrap_err();
    for error in [error, queue.check().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.message().contains("read-only"), "{error}");
    }
}

#[tokio::test]
async fn a_dropped_schema_is_gone_and_can_be_made_again() {
    let Some(bed) = Bed::empty().await else { return };
    let queue = bed.open().await;
    push(&queue, &part("p"), &["gone with it"]).await;
    queue.drop_schema().await.unwrap();
    queue.drop_schema().await.unwrap(); // one that is not there is fine
    queue.close().await.unwrap();
    let error = PostgresQueue::open(&format!("{}&create=false", bed.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(pull(&bed.open().await, &part("p"), 1).await.is_empty());
}
