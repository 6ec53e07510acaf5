//! Encrypted connections, and servers that are not who they should be.

use anyqueue::{Error, ErrorKind, RetryClass};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Certificates, Redis, Server, start_if_installed};

use crate::common::{messages, part, pull_wait, push, texts};

const SECRET: &str = "secret-word";

async fn server(certificates: &Certificates) -> Option<Server> {
    start_if_installed(Redis::new().tls(certificates)).await.unwrap()
}

fn url(server: &Server, authority: &Certificates) -> String {
    format!("{}?ca_file={}", login(server.url()), authority.authority().display())
}

/// The default user has no password, and so takes any.
fn login(url: &str) -> String {
    url.replace("//", &format!("//default:{SECRET}@"))
}

async fn refused(url: &str) -> Error {
    let error = RedisQueue::open(url).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Never), "{error:?}");
    assert!(error.message().contains("certificate"), "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    error
}

/// A waiting pull is woken by a push of another handle.
async fn works(url: &str) {
    let (queue, other, p) =
        (RedisQueue::open(url).await.unwrap(), RedisQueue::open(url).await.unwrap(), part("p"));
    let waiting = tokio::spawn({
        let p = p.clone();
        async move { pull_wait(&queue, &p, 1).await }
    });
    push(&other, &p, &messages(&["secret"])).await;
    assert_eq!(texts(&waiting.await.unwrap()), ["secret"]);
}

#[tokio::test]
async fn a_server_whose_certificate_is_right_is_talked_to() {
    let certificates = Certificates::make().await.unwrap();
    let Some(server) = server(&certificates).await else { return };
    works(&url(&server, &certificates)).await;
}

#[tokio::test]
async fn a_server_of_another_authority_or_name_is_refused() {
    let certificates = Certificates::make().await.unwrap();
    let Some(server_here) = server(&certificates).await else { return };
    let others = Certificates::make().await.unwrap();
    refused(&url(&server_here, &others)).await;
    refused(&login(server_here.url())).await; // whom this system trusts
    let elsewhere = Certificates::make_for("elsewhere.invalid").await.unwrap();
    refused(&url(&server(&elsewhere).await.unwrap(), &elsewhere)).await;
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_shown_one() {
    let certificates = Certificates::make().await.unwrap();
    let strict = Redis::new().tls(&certificates).setting("tls-auth-clients", "yes");
    let Some(server) = start_if_installed(strict).await.unwrap() else { return };
    let url = format!("{}?ca_file={}", server.url(), certificates.authority().display());
    refused(&url).await;
    let (certificate, key) = (certificates.certificate(), certificates.key());
    works(&format!("{url}&cert_file={}&key_file={}", certificate.display(), key.display())).await;
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_told() {
    let certificates = Certificates::make().await.unwrap();
    for (url, said) in [
        ("rediss://127.0.0.1:1/?ca_file=/no/such/file".to_owned(), "/no/such/file"),
        (format!("redis://127.0.0.1:1/?ca_file={}", certificates.authority().display()), "rediss://"),
        (
            format!("rediss://127.0.0.1:1/?cert_file={}", certificates.certificate().display()),
            "cert_file and key_file",
        ),
    ] {
        let error = match RedisQueue::builder(&url) {
            Ok(builder) => builder.open().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidInput, RetryClass::Never), "{error}");
        assert!(error.message().contains(said), "{error}");
    }
}

#[tokio::test]
async fn whoever_speaks_in_the_clear_to_a_server_with_tls_learns_it_soon() {
    let certificates = Certificates::make().await.unwrap();
    let Some(server) = server(&certificates).await else { return };
    let plain = login(&server.url().replace("rediss:", "redis:"));
    let error = RedisQueue::open(&plain).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
}
