//! Encrypted connections, and those that are not.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{CancellationToken, Error, ErrorKind};
use anyqueue_server::{Server, ServerError, Tls};
use anyqueue_testkit::{Certificates, ClientCertificate};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::bed::{Bed, memory};

pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
const TOKEN: &str = "correct-horse-battery";

fn tls(certificates: &Certificates) -> Tls {
    Tls::from_files(certificates.certificate(), certificates.key()).unwrap()
}

async fn bed(certificates: &Certificates, patience: Duration) -> Bed {
    let tls = tls(certificates);
    Bed::with(memory(), |builder| builder.tls(tls).token(TOKEN).patience(patience).max_connections(4)).await
}

/// How a client connects that trusts this authority, and shows this if it is asked for it.
pub(crate) fn client(authority: &Certificates, shown: Option<&ClientCertificate>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.authority()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let Some(shown) = shown else { return config.with_no_client_auth() };
    let certificate = CertificateDer::from_pem_file(&shown.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&shown.key).unwrap();
    config.with_client_auth_cert(vec![certificate], key).unwrap()
}

pub(crate) async fn connect_as(
    bed: &Bed,
    client: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(bed.client.0).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    timeout(DEADLINE, TlsConnector::from(client.clone()).connect(name, stream)).await.expect("an end")
}

/// Connects as a client that trusts this authority and speaks these protocols.
async fn connect(
    bed: &Bed,
    authority: &Certificates,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = client(authority, None);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    connect_as(bed, &Arc::new(config)).await
}

/// Asks, and reads until the service hangs up.
async fn asked(mut stream: impl AsyncReadWrite, host: &str, path: &str, header: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("an end");
    String::from_utf8_lossy(&answer).into_owned()
}

trait AsyncReadWrite: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {}
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> AsyncReadWrite for S {}

#[tokio::test]
async fn who_trusts_its_authority_is_answered_in_secret() {
    let certificates = Certificates::make().await.unwrap();
    let bed = bed(&certificates, DEADLINE).await;
    let stream = connect(&bed, &certificates, &[b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let authorization = format!("authorization: Bearer {TOKEN}\r\n");
    let answer = asked(stream, "localhost", "/v1/partitions", &authorization).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let stream = connect(&bed, &certificates, &[]).await.unwrap();
    let answer = asked(stream, "localhost", "/v1/partitions", "").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "a token is needed all the same: {answer}");
    let newer = connect(&bed, &certificates, &[b"http/1.1", b"h2"]).await.unwrap();
    assert_eq!(newer.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    drop(newer);
    bed.end().await;
}

#[tokio::test]
async fn who_trusts_others_does_not_talk_to_it() {
    let (certificates, others) = (Certificates::make().await.unwrap(), Certificates::make().await.unwrap());
    let bed = bed(&certificates, DEADLINE).await;
    let refused = connect(&bed, &others, &[]).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    assert!(connect(&bed, &certificates, &[]).await.is_ok(), "it serves on");
}

#[tokio::test]
async fn who_speaks_no_tls_gets_no_answer() {
    let certificates = Certificates::make().await.unwrap();
    let bed = bed(&certificates, DEADLINE).await;
    let stream = TcpStream::connect(bed.client.0).await.unwrap();
    let answer = asked(stream, "localhost", "/livez", "").await;
    assert!(!answer.contains("HTTP/"), "{answer}");
}

#[tokio::test]
async fn who_says_nothing_keeps_nobody_waiting_and_is_cut() {
    let certificates = Certificates::make().await.unwrap();
    // Long enough for the one who does talk, also on a busy machine.
    let bed = bed(&certificates, Duration::from_secs(2)).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(bed.client.0).await.unwrap());
    }
    let stream = connect(&bed, &certificates, &[]).await.unwrap();
    let answer = asked(stream, "localhost", "/livez", "").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for mut silent in silent {
        let mut said = Vec::new();
        let _ = timeout(DEADLINE, silent.read_to_end(&mut said)).await.expect("it is cut");
        assert!(said.is_empty(), "{said:?}");
    }
}

#[tokio::test]
async fn it_ends_without_waiting_for_those_that_say_nothing() {
    let certificates = Certificates::make().await.unwrap();
    let bed = bed(&certificates, DEADLINE).await;
    let _silent = TcpStream::connect(bed.client.0).await.unwrap();
    // The answer shows that the one before it was accepted.
    let stream = connect(&bed, &certificates, &[]).await.unwrap();
    asked(stream, "localhost", "/livez", "").await;
    let begun = std::time::Instant::now();
    bed.end().await;
    // Those that are under way have ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_session_over_tls_is_never_sent_without_it() {
    let certificates = Certificates::make().await.unwrap();
    let bed = bed(&certificates, DEADLINE).await;
    let mut stream = connect(&bed, &certificates, &[]).await.unwrap();
    let form = format!("token={TOKEN}");
    let request = format!(
        "POST /login HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: {}\r\n\r\n{form}",
        form.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = timeout(DEADLINE, stream.read_to_string(&mut answer)).await.expect("an end");
    let cookie =
        answer.lines().find(|line| line.starts_with("set-cookie: ")).unwrap_or_else(|| panic!("{answer}"));
    assert!(cookie.contains("; HttpOnly") && cookie.ends_with("; Secure"), "{cookie}");
}

#[tokio::test]
async fn elsewhere_than_on_this_machine_it_needs_tokens_and_tls() {
    let certificates = Certificates::make().await.unwrap();
    let listener = || async { TcpListener::bind("0.0.0.0:0").await.unwrap() };
    let plain = Server::builder(memory()).token(TOKEN).build().await.unwrap();
    let refused = plain.serve(listener().await, CancellationToken::new()).await.unwrap_err();
    assert!(matches!(refused, ServerError::Plain(_)), "{refused}");
    assert!(refused.to_string().contains("certificate"), "{refused}");
    for open in [
        Server::builder(memory()).tls(tls(&certificates)).build().await.unwrap(),
        Server::builder(memory()).insecure(true).build().await.unwrap(),
    ] {
        let refused = open.serve(listener().await, CancellationToken::new()).await.unwrap_err();
        assert!(matches!(refused, ServerError::Open(_)), "{refused}");
    }
    let ended = CancellationToken::new();
    ended.cancel();
    for right in [
        Server::builder(memory()).token(TOKEN).tls(tls(&certificates)),
        Server::builder(memory()).token(TOKEN).insecure(true),
    ] {
        right.build().await.unwrap().serve(listener().await, ended.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn each_page_says_that_others_can_read_along() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Server::builder(memory()).token(TOKEN).insecure(true).build().await.unwrap();
    let end = CancellationToken::new();
    let serving = tokio::spawn(server.serve(listener, end.clone()));
    let authorization = format!("authorization: Bearer {TOKEN}\r\n");
    for path in ["/", "/tasks", "/dead", "/workers", "/cron", "/limits", "/audit", "/login"] {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let page = asked(stream, "localhost", path, &authorization).await;
        assert!(page.contains("without TLS"), "{path}: {page}");
    }
    end.cancel();
    timeout(DEADLINE, serving).await.expect("an end").unwrap().unwrap();
    let bed = Bed::new().await;
    let page = bed.client.get("/").await;
    assert!(!String::from_utf8_lossy(&page.body).contains("without TLS"), "nobody else reaches this one");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_with_the_reason() {
    let (certificates, others) = (Certificates::make().await.unwrap(), Certificates::make().await.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (missing, empty) = (folder.path().join("missing.crt"), folder.path().join("empty.crt"));
    std::fs::write(&empty, "nothing of the kind").unwrap();
    let (certificate, key) = (certificates.certificate(), certificates.key());
    let refused = |certificate: &std::path::Path, key: &std::path::Path| -> Error {
        Tls::from_files(certificate, key).unwrap_err()
    };
    for (error, name, why) in [
        (refused(&missing, &key), &missing, "No such file"),
        (refused(&empty, &key), &empty, "there is none in it"),
        (refused(&key, &key), &key, "there is none in it"),
        (refused(&certificate, &missing), &missing, "No such file"),
        (refused(&certificate, &empty), &empty, "key"),
        (refused(&certificate, &certificate), &certificate, "key"),
        (refused(&certificate, &others.key()), &others.key(), "cannot be used with the key"),
    ] {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(text.contains(&name.display().to_string()) && text.contains(why), "{why}: {text}");
    }
    assert_eq!(format!("{:?}", tls(&certificates)), "Tls { .. }", "no key in it");
}
