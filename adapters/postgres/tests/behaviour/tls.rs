//! Encrypted connections, and servers that are not who they should be.

use anyqueue::{Error, ErrorKind, RetryClass};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Certificates, Postgres, Server, start_if_installed};
use sqlx::{Connection, PgConnection};

use crate::common::{part, pull, push, texts};

async fn server(certificates: &Certificates) -> Option<Server> {
    start_if_installed(Postgres::new().tls(certificates)).await.unwrap()
}

fn url(server: &Server, mode: &str, authority: &Certificates) -> String {
    let login = server.url().replace("//postgres@", "//postgres:secret-word@");
    format!("{login}?sslmode={mode}&sslrootcert={}&application_name=tls", authority.authority().display())
}

async fn refused(url: &str) -> Error {
    let error = PostgresQueue::open(url).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Never), "{error}");
    assert!(error.message().contains("sslmode"), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret-word"), "{error:?}");
    error
}

#[tokio::test]
async fn a_server_whose_certificate_is_right_is_talked_to_in_secret() {
    let certificates = Certificates::make().await.unwrap();
    let Some(server) = server(&certificates).await else { return };
    let (queue, p) =
        (PostgresQueue::open(&url(&server, "verify-full", &certificates)).await.unwrap(), part("p"));
    push(&queue, &p, &["secret"]).await;
    assert_eq!(texts(&pull(&queue, &p, 1).await), ["secret"]);
    let mut conn = PgConnection::connect(server.url()).await.unwrap();
    let plain = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'tls' AND NOT s.ssl";
    let plain: i64 = sqlx::query_scalar(plain).fetch_one(&mut conn).await.unwrap();
    assert_eq!(plain, 0, "connections that are not encrypted");
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let certificates = Certificates::make().await.unwrap();
    let Some(server) = server(&certificates).await else { return };
    let others = Certificates::make().await.unwrap();
    for mode in ["verify-ca", "verify-full"] {
        refused(&url(&server, mode, &others)).await;
    }
}

#[tokio::test]
async fn a_server_of_another_name_is_refused_by_verify_full_alone() {
    let certificates = Certificates::make_for("elsewhere.invalid").await.unwrap();
    let Some(server) = server(&certificates).await else { return };
    refused(&url(&server, "verify-full", &certificates)).await;
    PostgresQueue::open(&url(&server, "verify-ca", &certificates)).await.unwrap();
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let login = server.url().replace("//postgres@", "//postgres:secret-word@");
    refused(&format!("{login}?sslmode=require")).await;
}
