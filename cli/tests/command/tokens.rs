//! `anyqueue tokens`: created, told once, and obeyed by a service.

use serde_json::json;
#[cfg(feature = "serve")]
use tokio::io::AsyncWriteExt as _;

use crate::bed::Bed;
#[cfg(feature = "serve")]
use crate::bed::until;
#[cfg(feature = "serve")]
use crate::serve::serve;

#[tokio::test]
async fn a_token_is_told_once_listed_without_its_secret_and_deleted() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    bed.run(&["tokens", "list"]).await.ended_with(4);
    let create = ["tokens", "create", "mailer", "--right", "work", "--right", "push", "--queue", "mail"];
    let created = bed.ok(&[&create[..], &["--queue", "eu.*", "--valid-for", "30d"]].concat()).await;
    let token = created.out.trim();
    let secret = token.strip_prefix("aq_mailer_").unwrap_or_else(|| panic!("{created:?}")).to_owned();
    assert!(secret.len() == 32 && created.err.contains("shown once"), "{created:?}");

    let listed = bed.ok(&["tokens", "list"]).await.out;
    for shown in ["mailer", "push work", "mail eu.*"] {
        assert!(listed.contains(shown), "{shown}: {listed}");
    }
    let line = bed.ok(&["tokens", "list", "--json"]).await.objects().remove(0);
    assert_eq!((&line["rights"], &line["partitions"]), (&json!(["push", "work"]), &json!(["mail", "eu.*"])));
    assert!(line["expires_at"].as_str().unwrap() > line["created_at"].as_str().unwrap(), "{line}");
    let file = std::fs::read(bed.path("jobs.db")).unwrap();
    let log = std::fs::read(bed.path("jobs.db-wal")).unwrap_or_default();
    for place in [listed.as_bytes(), line.to_string().as_bytes(), &file, &log] {
        assert!(!place.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "the secret is kept");
    }

    let refused = bed.run(&create).await.ended_with(1);
    assert!(refused.err.contains("there is a token mailer: delete it first"), "{refused:?}");
    let gone = bed.ok(&["tokens", "delete", "mailer", "--json"]).await;
    assert_eq!(gone.objects(), [json!({ "token": "mailer", "deleted": true })]);
    let none = bed.run(&["tokens", "delete", "mailer"]).await.ended_with(4);
    assert!(none.err.contains("there is no token mailer"), "{none:?}");
    let again = bed.ok(&[&create[..], &["--json"]].concat()).await.objects().remove(0);
    assert_eq!(again["name"], "mailer");
    assert_ne!(again["token"], format!("aq_mailer_{secret}"), "another secret");
}

#[tokio::test]
async fn what_makes_no_token_is_refused_and_creates_none() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    for (bad, said) in [
        (&["t"][..], "--right"),
        (&["t", "--right", "root"], "payloads, manage, admin"),
        (&["T", "--right", "push"], "choose another than"),
        (&["t", "--right", "push", "--queue", "a*b"], "is not a pattern"),
        (&["t", "--right", "push", "--queue", ""], "is not a pattern"),
        (&["t", "--right", "admin", "--queue", "mail"], "use the pattern *"),
        (&["t", "--right", "push", "--valid-for", "0s"], "give it some time"),
        (&["t", "--right", "push", "--valid-for", "1000years"], "leave the time out"),
    ] {
        let ran = bed.run(&[&["tokens", "create"][..], bad].concat()).await.ended_with(2);
        assert!(ran.err.contains(said), "{said}: {ran:?}");
    }
    bed.run(&["tokens", "list"]).await.ended_with(4);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_token_that_nobody_could_read_is_not_left_behind() {
    let bed = Bed::new();
    let mut create = bed.command(&["tokens", "create", "mailer", "--right", "push"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = crate::bed::ended(create.stdout(full).spawn().unwrap()).await.ended_with(1);
    assert!(ran.err.contains("mailer could not be shown, and is deleted again"), "{ran:?}");
    bed.run(&["tokens", "list"]).await.ended_with(4);
}

#[cfg(feature = "serve")]
#[tokio::test]
async fn a_service_that_requires_tokens_obeys_those_that_the_command_makes_and_deletes() {
    let bed = Bed::new();
    let service = serve(&bed, &["--require-tokens"]).await;
    let look = async |header: &str, queue: &str| {
        service.ask("GET", &format!("/v1/partitions/{queue}"), header, "").await.0
    };
    assert_eq!(look("", "mail").await, 401, "there is none yet");
    let create = ["tokens", "create", "looker", "--right", "read", "--queue", "mail*"];
    let token = bed.ok(&create).await.out;
    let bearer = format!("authorization: Bearer {}\r\n", token.trim());
    assert_eq!(look(&bearer, "mail").await, 200);
    assert_eq!(look(&bearer, "others").await, 403);
    assert_eq!(look("", "mail").await, 401);
    bed.ok(&["tokens", "delete", "looker"]).await;
    until("it opens nothing", async || (look(&bearer, "mail").await == 401).then_some(())).await;
}

#[cfg(feature = "serve")]
#[tokio::test]
async fn tokens_that_are_there_when_it_starts_are_asked_for_without_being_told() {
    let bed = Bed::new();
    bed.ok(&["tokens", "create", "ops", "--right", "admin"]).await;
    let service = serve(&bed, &[]).await;
    assert_eq!(service.ask("GET", "/v1/partitions", "", "").await.0, 401);
}

#[cfg(feature = "serve")]
#[tokio::test]
async fn the_command_shows_who_managed_what_through_a_service() {
    let bed = Bed::new();
    bed.ok(&["push", "mail", "x"]).await;
    bed.run(&["audit"]).await.ended_with(4);
    let token = bed.ok(&["tokens", "create", "ops", "--right", "manage"]).await.out;
    let service = serve(&bed, &[]).await;
    let bearer = format!("authorization: Bearer {}\r\n", token.trim());
    for action in ["pause", "resume"] {
        assert_eq!(service.ask("POST", &format!("/v1/partitions/mail/{action}"), &bearer, "").await.0, 200);
    }
    let shown = bed.ok(&["audit", "--json"]).await.objects();
    assert_eq!(
        (&shown[0]["token"], &shown[0]["path"], &shown[0]["status"]),
        (&json!("ops"), &json!("/v1/partitions/mail/resume"), &json!(200))
    );
    assert_eq!(shown.len(), 2);
    let text = bed.ok(&["audit", "--limit", "1"]).await.out;
    assert!(text.contains("POST /v1/partitions/mail/resume") && !text.contains("pause"), "{text}");
}

#[tokio::test]
async fn a_certificate_stands_for_a_token_that_nobody_is_told() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let (one, other) = ("0a".repeat(32), "0B:".repeat(32));
    let other = other.trim_end_matches(':');
    bed.run(&["tokens", "bind", "mailer", &one]).await.ended_with(4);
    let create = ["tokens", "create", "mailer", "--right", "push", "--certificate", &one];
    let created = bed.ok(&create).await;
    assert_eq!(created.out.trim(), format!("the certificate {one} is bound to mailer"));
    assert!(!created.out.contains("aq_") && !created.err.contains("aq_"), "{created:?}");
    bed.ok(&["tokens", "create", "ops", "--right", "admin"]).await;
    let taken = bed.run(&["tokens", "bind", "ops", &one]).await.ended_with(1);
    assert!(taken.err.contains("is bound to the token mailer: unbind it first"), "{taken:?}");
    let taken = ["tokens", "create", "second", "--right", "push", "--certificate", &one];
    bed.run(&taken).await.ended_with(1);
    bed.ok(&["tokens", "bind", "mailer", other]).await;
    let listed = bed.ok(&["tokens", "list", "--json"]).await.objects();
    let names: Vec<_> = listed.iter().map(|token| token["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mailer", "ops"], "the one that could not be bound is deleted again");
    assert_eq!(listed[0]["certificates"], json!([one, "0b".repeat(32)]));
    assert_eq!(listed[1]["certificates"], json!([]));
    bed.ok(&["tokens", "unbind", &one]).await;
    bed.run(&["tokens", "unbind", &one]).await.ended_with(4);
    bed.ok(&["tokens", "create", "short", "--right", "push", "--valid-for", "1ms"]).await;
    let late = bed.run(&["tokens", "bind", "short", &one]).await.ended_with(1);
    assert!(late.err.contains("short has expired") && late.err.contains("create it again"), "{late:?}");
    for bad in ["", "0a", "missing.crt"] {
        bed.run(&["tokens", "bind", "ops", bad]).await.ended_with(2);
    }
}

#[cfg(feature = "serve")]
#[tokio::test]
async fn a_service_knows_clients_by_certificates_that_the_command_binds() {
    let bed = Bed::new();
    let certificates = anyqueue_testkit::Certificates::make().await.unwrap();
    let client = certificates.client("mailer").await.unwrap();
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (authority, key) = (text(certificates.authority()), text(certificates.key()));
    let shown = [text(client.certificate), text(client.key)];
    let tls =
        ["--tls-cert", &text(certificates.certificate()), "--tls-key", &key, "--tls-client-ca", &authority];
    let service = serve(&bed, &tls).await;
    let ask = async |shown: &[&str]| {
        let mut openssl = tokio::process::Command::new("openssl");
        openssl.args([
            "s_client",
            "-quiet",
            "-verify_quiet",
            "-CAfile",
            &authority,
            "-connect",
            &service.address,
        ]);
        let piped = std::process::Stdio::piped;
        openssl.args(shown).stdin(piped()).stdout(piped()).stderr(piped()).kill_on_drop(true);
        let mut asking = openssl.spawn().unwrap();
        let request = b"GET /v1/partitions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        asking.stdin.as_mut().unwrap().write_all(request).await.unwrap();
        let answer = crate::bed::ended(asking).await;
        answer.out.split(' ').nth(1).map_or_else(|| panic!("{answer:?}"), str::to_owned)
    };
    let with = ["-cert", shown[0].as_str(), "-key", shown[1].as_str()];
    assert_eq!((ask(&with).await, ask(&[]).await), ("401".to_owned(), "401".to_owned()));
    bed.ok(&["tokens", "create", "mailer", "--right", "read", "--certificate", &shown[0]]).await;
    until("it is known", async || (ask(&with).await == "200").then_some(())).await;
    assert_eq!(ask(&[]).await, "401");
    bed.ok(&["tokens", "unbind", &shown[0]]).await;
    until("it opens nothing", async || (ask(&with).await == "401").then_some(())).await;
}
