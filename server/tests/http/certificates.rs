//! Clients that are known by their certificates.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{ErrorKind, MessageData, Page};
use anyqueue_control::audit::Audit;
use anyqueue_control::tokens::{Bound, Right, Rights, Tokens};
use anyqueue_server::{ClientCertificates, Server, Tls, fingerprint_of};
use anyqueue_testkit::{Certificates, ClientCertificate};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, HandshakeKind};

use crate::bed::{Bed, memory};
use crate::rights::{ADMIN, ask, create};
use crate::tls::{DEADLINE, client, connect_as};

/// Far longer than an answer of the store is passed on.
const SOON: Duration = Duration::from_mins(1);

/// A service with certificates of one authority, which gives them to its clients, too.
struct Known {
    bed: Bed,
    authority: Certificates,
    tokens: Tokens,
}

impl Known {
    async fn new(clients: ClientCertificates) -> Self {
        Self::with(clients, DEADLINE).await
    }

    async fn with(clients: ClientCertificates, patience: Duration) -> Self {
        let authority = Certificates::make().await.unwrap();
        let tls = asking(&authority, clients);
        let bed = Bed::with(memory(), |builder| builder.tls(tls).token(ADMIN).patience(patience)).await;
        let tokens = Tokens::new(bed.queue.control().unwrap());
        Self { bed, authority, tokens }
    }

    /// The certificate of a client that is whoever has a token of its name, which may look at and manage `mail*`.
    async fn bound(&self, name: &str) -> ClientCertificate {
        let certificate = self.authority.client(name).await.unwrap();
        let rights = Rights::new([Right::Read, Right::Manage], ["mail*"]);
        let _secret = self.tokens.create(name, &rights, None).await.unwrap().unwrap();
        let fingerprint = fingerprint_of(&certificate.certificate).unwrap();
        assert_eq!(self.tokens.bind(name, &fingerprint).await.unwrap(), Bound::Done);
        certificate
    }

    fn client(&self, shown: Option<&ClientCertificate>) -> Arc<ClientConfig> {
        Arc::new(client(&self.authority, shown))
    }

    /// The answer to one request, with its head; nothing if the client was refused.
    async fn ask(&self, shown: Option<&ClientCertificate>, what: &str, headers: &str) -> String {
        let Ok(mut stream) = connect_as(&self.bed, &self.client(shown)).await else { return String::new() };
        let request = format!("{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        // With TLS 1.3 a client that is refused learns of it as it reads.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("an end");
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn status(&self, shown: Option<&ClientCertificate>, what: &str, headers: &str) -> u16 {
        status(&self.ask(shown, what, headers).await)
    }
}

fn asking(authority: &Certificates, clients: ClientCertificates) -> Tls {
    let tls = Tls::from_files(authority.certificate(), authority.key()).unwrap();
    tls.with_client_authority(authority.authority(), clients).unwrap()
}

/// Zero without an answer.
fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

const LOOK: &str = "GET /v1/partitions/mail";
const OTHERS: &str = "GET /v1/partitions/others";
const PAUSE: &str = "POST /v1/partitions/mail/pause";

#[tokio::test]
async fn a_certificate_that_stands_for_a_token_is_as_good_as_it_and_no_better() {
    let known = Known::new(ClientCertificates::Optional).await;
    let mailer = known.bound("mailer").await;
    let stranger = known.authority.client("stranger").await.unwrap();
    assert_eq!(known.status(Some(&mailer), LOOK, "").await, 200);
    assert_eq!(known.status(Some(&mailer), OTHERS, "").await, 403, "a queue that the token is not for");
    assert_eq!(known.status(Some(&mailer), "GET /v1/tokens", "").await, 403, "a right that it lacks");
    let refused = known.ask(Some(&stranger), LOOK, "").await;
    let fingerprint = fingerprint_of(&stranger.certificate).unwrap().to_string();
    assert_eq!(status(&refused), 401);
    assert!(refused.contains(&fingerprint) && refused.contains("anyqueue tokens bind"), "{refused}");
    assert_eq!(known.status(None, LOOK, "").await, 401);
    assert_eq!(known.status(None, "GET /livez", "").await, 200);
    for shown in [None, Some(&stranger)] {
        assert_eq!(known.status(shown, LOOK, &bearer(ADMIN)).await, 200, "a token does without");
    }
}

#[tokio::test]
async fn the_audit_trail_names_the_token_and_the_certificate_that_was_shown_for_it() {
    let known = Known::new(ClientCertificates::Required).await;
    let mailer = known.bound("mailer").await;
    let renewed = known.authority.client("renewed").await.unwrap();
    let fingerprints = [&mailer, &renewed].map(|it| fingerprint_of(&it.certificate).unwrap());
    assert_eq!(known.tokens.bind("mailer", &fingerprints[1]).await.unwrap(), Bound::Done);
    let empty = "content-length: 0\r\n";
    for (shown, headers) in [(&mailer, ""), (&renewed, ""), (&mailer, &*bearer(ADMIN))] {
        assert_eq!(known.status(Some(shown), PAUSE, &format!("{empty}{headers}")).await, 200);
    }
    let entries = Audit::new(known.bed.queue.control().unwrap()).list(Page::of(9)).await.unwrap().entries;
    let said: Vec<_> = entries
        .iter()
        .map(|entry| {
            assert_eq!(entry.path, "/v1/partitions/mail/pause");
            let details = entry.outcome.iter().flat_map(|outcome| &outcome.details);
            let mut certificates = details.filter(|(name, _)| name == "certificate");
            (entry.token.as_deref(), certificates.next().map(|(_, sha256)| sha256.clone()))
        })
        .collect();
    let [old, new] = fingerprints.map(|it| Some(it.to_string()));
    assert_eq!(said, [(None, None), (Some("mailer"), new), (Some("mailer"), old)], "the newest first");
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_out_of_its_time_is_refused_with_all_that_it_asks() {
    let others = Certificates::make().await.unwrap();
    let theirs = others.client("mailer").await.unwrap();
    for clients in [ClientCertificates::Optional, ClientCertificates::Required] {
        let known = Known::new(clients).await;
        let expired = known.authority.expired_client("late").await.unwrap();
        for (refused, why) in [(&theirs, "of another authority"), (&expired, "expired")] {
            // Also if somebody had bound it, and the client has a token besides.
            known.tokens.create("own", &Rights::everything(), None).await.unwrap();
            let fingerprint = fingerprint_of(&refused.certificate).unwrap();
            assert_eq!(known.tokens.bind("own", &fingerprint).await.unwrap(), Bound::Done);
            for headers in [String::new(), bearer(ADMIN)] {
                assert_eq!(known.ask(Some(refused), LOOK, &headers).await, "", "{clients:?}: {why}");
            }
        }
        let mailer = known.bound("mailer").await;
        assert_eq!(known.status(Some(&mailer), LOOK, "").await, 200, "it serves on");
    }
}

#[tokio::test]
async fn where_certificates_are_required_nobody_is_talked_to_without() {
    let known = Known::new(ClientCertificates::Required).await;
    for what in [LOOK, "GET /livez", "GET /login"] {
        assert_eq!(known.ask(None, what, &bearer(ADMIN)).await, "", "{what}");
    }
    let stranger = known.authority.client("stranger").await.unwrap();
    assert_eq!(known.status(Some(&stranger), LOOK, "").await, 401, "it stands for no token");
    assert_eq!(known.status(Some(&stranger), LOOK, &bearer(ADMIN)).await, 200);
}

#[tokio::test]
async fn each_request_is_somebodys_where_clients_are_asked_also_if_there_is_no_token() {
    let authority = Certificates::make().await.unwrap();
    let tls = asking(&authority, ClientCertificates::Optional);
    let bed = Bed::with(memory(), |builder| builder.tls(tls)).await;
    let tokens = Tokens::new(bed.queue.control().unwrap());
    let known = Known { bed, authority, tokens };
    assert_eq!(known.status(None, LOOK, "").await, 401);
    let mailer = known.bound("mailer").await;
    assert_eq!(known.status(Some(&mailer), LOOK, "").await, 200);
}

#[tokio::test]
async fn what_a_request_says_itself_counts_more_than_the_certificate_of_its_connection() {
    let known = Known::new(ClientCertificates::Optional).await;
    let mailer = known.bound("mailer").await;
    let rights = Rights::new([Right::Read], ["others"]);
    let other = known.tokens.create("other", &rights, None).await.unwrap().unwrap().text();
    assert_eq!(known.status(Some(&mailer), LOOK, &bearer(&other)).await, 403);
    assert_eq!(known.status(Some(&mailer), OTHERS, &bearer(&other)).await, 200);
    let wrong = bearer("aq_other_00000000000000000000000000000000");
    assert_eq!(known.status(Some(&mailer), LOOK, &wrong).await, 401, "a wrong one is not made up for");
    let form = format!("token={other}");
    let headers =
        format!("content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n", form.len());
    let entered = known.ask(Some(&mailer), "POST /login", &format!("{headers}\r\n{form}")).await;
    let cookie = entered.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a session");
    let session = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(known.status(Some(&mailer), OTHERS, &session).await, 200, "a session is said, too");
    assert_eq!(known.status(Some(&mailer), LOOK, &session).await, 403);
    // What is meant to say who asks, and does not, leaves nobody: not whoever the session or the certificate is.
    for said in [
        "authorization: Bearer\r\n",
        "authorization: Bearer  \r\n",
        "authorization:\r\n",
        "authorization: Basic bWFpbGVyOng=\r\n",
        "authorization: Bearer t\u{f6}ken\r\n",
        &format!("authorization: {other}\r\n"),
        &bearer(&other).repeat(2),
    ] {
        let answer = known.ask(Some(&mailer), LOOK, said).await;
        assert!(status(&answer) == 401 && answer.contains("holds no token"), "{said:?}: {answer}");
        assert_eq!(known.status(Some(&mailer), OTHERS, &format!("{said}{session}")).await, 401, "{said:?}");
        let person = format!("accept: text/html\r\n{said}");
        let answer = known.status(Some(&mailer), "GET /partitions/mail", &person).await;
        assert_eq!(answer, 401, "entering would not help: {said:?}");
    }
    let ended = "cookie: anyqueue_session=00000000000000000000000000000000\r\n";
    assert_eq!(known.status(Some(&mailer), LOOK, ended).await, 200, "one that has ended says nothing");
}

#[tokio::test]
async fn the_page_is_for_whoever_has_a_certificate_and_not_for_pages_of_other_sites() {
    let known = Known::new(ClientCertificates::Optional).await;
    let mailer = known.bound("mailer").await;
    let stranger = known.authority.client("stranger").await.unwrap();
    let page = "GET /partitions/mail";
    let html = "accept: text/html\r\n";
    assert_eq!(known.status(Some(&mailer), page, html).await, 200);
    for shown in [None, Some(&stranger)] {
        let led = known.ask(shown, page, html).await;
        assert!(status(&led) == 303 && led.contains("location: /login"), "{led}");
    }
    let form = "content-type: application/x-www-form-urlencoded\r\ncontent-length: 0\r\n";
    let pause = "POST /do/partitions/mail/pause";
    let own = format!("{form}origin: https://localhost\r\nsec-fetch-site: same-origin\r\n");
    assert_eq!(known.status(Some(&mailer), pause, &own).await, 303);
    assert!(known.bed.queue.is_paused("mail").await.unwrap());
    let from = |site: &str| format!("sec-fetch-site: {site}\r\n");
    for site in ["cross-site", "same-site"] {
        assert_eq!(known.status(Some(&mailer), LOOK, &from(site)).await, 401, "{site}");
        let resume = "POST /do/partitions/mail/resume";
        let strange = format!("{form}origin: https://evil.example\r\n{}", from(site));
        assert_eq!(known.status(Some(&mailer), resume, &strange).await, 403, "{site}");
        assert_eq!(known.status(None, LOOK, &format!("{}{}", from(site), bearer(ADMIN))).await, 200);
    }
    assert_eq!(known.status(Some(&mailer), LOOK, &from("none")).await, 200, "a person typed it");
    assert!(known.bed.queue.is_paused("mail").await.unwrap());
}

/// Asks on one connection again and again, until it is refused.
async fn until_refused(known: &Known, shown: &ClientCertificate, end: impl AsyncFnOnce()) {
    let mut stream = connect_as(&known.bed, &known.client(Some(shown))).await.unwrap();
    let mut ask = async || {
        stream.write_all(format!("{LOOK} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        // The answer is short: it comes in one piece, or its rest is no status line.
        let read = timeout(DEADLINE, stream.read(&mut answer)).await.expect("an answer").unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        if answer.starts_with("HTTP/1.1 ") { status(&answer) } else { 0 }
    };
    assert_eq!(ask().await, 200);
    end().await;
    let begun = Instant::now();
    while ask().await != 401 {
        assert!(begun.elapsed() < SOON, "it is still let in");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn who_is_unbound_or_whose_token_is_deleted_is_refused_also_on_a_connection_that_is_open() {
    let known = Known::new(ClientCertificates::Optional).await;
    let (one, other) = (known.bound("one").await, known.bound("other").await);
    until_refused(&known, &one, async || {
        assert!(known.tokens.delete("one").await.unwrap());
    })
    .await;
    let fingerprint = fingerprint_of(&other.certificate).unwrap();
    until_refused(&known, &other, async || {
        assert!(known.tokens.unbind(&fingerprint).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn events_end_once_their_certificate_is_unbound() {
    let known = Known::new(ClientCertificates::Optional).await;
    let mailer = known.bound("mailer").await;
    let mut events = connect_as(&known.bed, &known.client(Some(&mailer))).await.unwrap();
    events.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut said = String::new();
    while !said.contains("event: sample") {
        let mut bytes = [0; 4096];
        let count = timeout(DEADLINE, events.read(&mut bytes)).await.expect("a sample").unwrap();
        assert_ne!(count, 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    let fingerprint = fingerprint_of(&mailer.certificate).unwrap();
    assert!(known.tokens.unbind(&fingerprint).await.unwrap());
    // There is always something to tell, until there is nobody to be told.
    let changes = async {
        loop {
            known.bed.queue.push("mail", MessageData::new("x")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut rest = Vec::new();
    tokio::select! {
        () = changes => {}
        end = timeout(DEADLINE, events.read_to_end(&mut rest)) => assert!(end.is_ok(), "it goes on"),
    }
}

#[tokio::test]
async fn a_certificate_is_looked_at_each_time_a_client_connects() {
    let known = Known::new(ClientCertificates::Required).await;
    let mailer = known.bound("mailer").await;
    let client = known.client(Some(&mailer));
    for _ in 0..3 {
        let mut stream = connect_as(&known.bed, &client).await.unwrap();
        let request = format!("{LOOK} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = timeout(DEADLINE, stream.read_to_string(&mut answer)).await.expect("an end");
        assert_eq!(status(&answer), 200);
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full), "nothing is resumed");
    }
}

#[tokio::test]
async fn who_stops_within_the_agreement_is_cut() {
    // Long enough for the one who does not stop, also on a busy machine.
    let known = Known::with(ClientCertificates::Required, Duration::from_secs(2)).await;
    let mailer = known.bound("mailer").await;
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    let mut stopping = ClientConnection::new(known.client(Some(&mailer)), name).unwrap();
    stopping.write_tls(&mut hello).unwrap();
    let mut stream = TcpStream::connect(known.bed.client.0).await.unwrap();
    stream.write_all(&hello).await.unwrap();
    let mut said = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut said)).await.expect("it is cut");
    assert!(!said.is_empty(), "the service has asked for the certificate");
    assert_eq!(known.status(Some(&mailer), LOOK, "").await, 200, "it serves on");
}

#[tokio::test]
async fn certificates_are_bound_and_unbound_over_http() {
    let bed = Bed::with(memory(), |builder| builder.token(ADMIN)).await;
    create(&bed, "mailer", &["push"], &["mail"]).await;
    create(&bed, "other", &["push"], &["mail"]).await;
    let sha256 = "0a".repeat(32);
    let change = async |method: &str, name: &str, sha256: &str| {
        let path = format!("/v1/tokens/{name}/certificates/{sha256}");
        ask(&bed, ADMIN, method, &path, &json!({})).await.status
    };
    let shown = async |path: &str| ask(&bed, ADMIN, "GET", path, &json!({})).await.ok();
    assert_eq!(shown("/v1/tokens/mailer").await["certificates"], json!([]));
    assert_eq!(change("PUT", "mailer", "0a").await, 400);
    assert_eq!(change("PUT", "nobody", &sha256).await, 404);
    assert_eq!(change("PUT", "mailer", &sha256).await, 204);
    assert_eq!(change("PUT", "mailer", &sha256.to_uppercase()).await, 204, "again");
    assert_eq!(change("PUT", "other", &sha256).await, 409);
    assert_eq!(shown("/v1/tokens/mailer").await["certificates"], json!([sha256]));
    let all = shown("/v1/tokens").await;
    assert_eq!(all["tokens"][0]["certificates"], json!([sha256]));
    assert_eq!(all["tokens"][1]["certificates"], json!([]));
    assert_eq!(change("DELETE", "other", &sha256).await, 404, "it is not theirs");
    assert_eq!(change("DELETE", "mailer", &sha256).await, 204);
    assert_eq!(change("DELETE", "mailer", &sha256).await, 404);
    assert_eq!(change("PUT", "other", &sha256).await, 204, "it is free");
    let short = json!({ "rights": ["push"], "partitions": ["mail"], "valid_for_ms": 1 });
    ask(&bed, ADMIN, "PUT", "/v1/tokens/short", &short).await.ok();
    let expired = async {
        while change("PUT", "short", &"0b".repeat(32)).await != 409 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, expired).await.expect("it is refused once its time is over");
}

#[tokio::test]
async fn authorities_that_cannot_be_used_are_named_with_the_reason() {
    let authority = Certificates::make().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (missing, empty) = (folder.path().join("missing.crt"), folder.path().join("empty.crt"));
    std::fs::write(&empty, "nothing of the kind").unwrap();
    let tls = || Tls::from_files(authority.certificate(), authority.key()).unwrap();
    for (file, why) in [(&missing, "No such file"), (&empty, "there is none in it")] {
        for refused in [
            tls().with_client_authority(file, ClientCertificates::Optional).unwrap_err(),
            fingerprint_of(file).unwrap_err(),
        ] {
            let text = refused.to_string();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            assert!(text.contains(&file.display().to_string()) && text.contains(why), "{text}");
        }
    }
    let tls = asking(&authority, ClientCertificates::Required);
    let built = Server::builder(crate::guard::keeps_none()).token(ADMIN).tls(tls).build().await;
    let refused = built.unwrap_err().to_string();
    assert!(refused.contains("client certificates need tokens"), "{refused}");
}
