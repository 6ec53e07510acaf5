//! `anyqueue tokens`: who may make which requests to a service.

use std::time::Duration;

use anyqueue_control::tokens::{Bound, Fingerprint, Right, Rights, TokenInfo, Tokens as Store};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::control::ControlArgs;
use crate::failure::{Failure, Result, or_read_enough, with_causes};
use crate::open::Create;
use crate::output::{Output, Table, preview};
use crate::session::Session;

/// Creates and deletes the tokens with which programs and people ask `anyqueue serve`
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tokens create ops --right admin
  anyqueue tokens create mailer --right push --right work --queue mail --queue 'eu.*'
  anyqueue tokens create look --right read --valid-for 30d
  anyqueue tokens create mailer --right push --certificate mailer.crt
  anyqueue tokens bind mailer renewed.crt
  anyqueue tokens list
  anyqueue tokens delete mailer

It goes to the store, and needs no service. The token is printed once, and only a digest of it is kept. A service that was
started while there was no token asks nobody for one until it is started anew, or a token is created over it; with
`serve --require-tokens` it always does. A deleted token opens nothing within a second.

A service with --tls-client-ca takes whoever shows a certificate that is bound to a token for whoever has the token. The
certificate is known by its SHA-256: one that is renewed is bound besides, and the old one unbound.

Services on RabbitMQ and SQS find tokens where --control-url says.")]
pub(crate) struct Tokens {
    #[command(flatten)]
    control: ControlArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(Make),
    /// Has a client's certificate stand for a token, besides those that do already
    #[command(after_help = "Example: anyqueue tokens bind mailer mailer.crt")]
    Bind {
        /// The name of the token
        #[arg(value_name = "TOKEN")]
        name: String,
        /// A file with the certificate, in PEM, or its SHA-256
        #[arg(value_parser = certificate)]
        certificate: Fingerprint,
    },
    /// Has a client's certificate stand for nobody
    #[command(after_help = "Example: anyqueue tokens unbind mailer.crt\n\nExit code 4: it stood for nobody.")]
    Unbind {
        /// A file with the certificate, in PEM, or its SHA-256
        #[arg(value_parser = certificate)]
        certificate: Fingerprint,
    },
    /// Lists the tokens, without their secrets
    #[command(after_help = "Example: anyqueue tokens list\n\nExit code 4: there is none.")]
    List,
    /// Deletes a token
    #[command(after_help = "Example: anyqueue tokens delete mailer")]
    Delete {
        /// The name of the token
        #[arg(value_name = "TOKEN")]
        name: String,
    },
}

/// Creates a token, and prints it, once
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tokens create mailer --right push --right work --queue mail
  anyqueue tokens create mailer --right push --certificate mailer.crt

Rights: push; work (pull, settle, extend); read (look at queues and tasks); payloads (see what they hold); manage (pause, cancel,
retry, delete, schedules, limits); admin (tokens, and everything else).")]
struct Make {
    /// What it is called: a-z, 0-9, '-' and '.'
    #[arg(value_name = "TOKEN")]
    name: String,
    /// What it may do; can be repeated
    #[arg(long = "right", value_name = "RIGHT", required = true, value_parser = right)]
    rights: Vec<Right>,
    /// With which queues: names, or beginnings of names with a * at their end; can be repeated
    #[arg(long = "queue", value_name = "PATTERN", default_value = "*")]
    queues: Vec<String>,
    /// For how long it counts [default: until it is deleted]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    valid_for: Option<Duration>,
    /// A client's certificate, in PEM, or its SHA-256: it stands for the token, which is then told to nobody
    #[arg(long, value_parser = certificate)]
    certificate: Option<Fingerprint>,
}

/// A SHA-256, or the name of a file.
fn certificate(text: &str) -> Result<Fingerprint, String> {
    let said = text.parse::<Fingerprint>();
    #[cfg(feature = "serve")]
    let said = said.or_else(|_| anyqueue_server::fingerprint_of(text));
    said.map_err(|error| error.message().to_owned())
}

fn right(name: &str) -> Result<Right, String> {
    name.parse().map_err(|error: anyqueue::Error| error.message().to_owned())
}

impl Tokens {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let create =
            if matches!(self.command, Command::Create(_)) { Create::AsUrlSays } else { Create::Never };
        let queue = session.queue(create).await?;
        let control = self.control.open(&queue, create).await?;
        let tokens = Store::new(control.store.clone());
        let end = self.command.run(&tokens, session.output).await;
        let (let_go, closed) = (control.close().await, queue.close().await);
        end?;
        let_go?;
        Ok(closed?)
    }
}

impl Command {
    async fn run(self, tokens: &Store, output: Output) -> Result {
        match self {
            Self::Create(make) => make.run(tokens, output).await,
            Self::Bind { name, certificate } => bind(tokens, &name, &certificate, output).await,
            Self::Unbind { certificate } => {
                if !tokens.unbind(&certificate).await? {
                    output.note(&format!("the certificate {certificate} stood for nobody"));
                    return Err(Failure::Nothing);
                }
                let unbound = json!({ "certificate": certificate.to_string(), "unbound": true });
                output.result(&format!("unbound {certificate}"), &unbound)
            }
            Self::List => or_read_enough(list(tokens, output).await),
            Self::Delete { name } => {
                if !tokens.delete(&name).await? {
                    output.note(&format!("there is no token {name}: see `anyqueue tokens list`"));
                    return Err(Failure::Nothing);
                }
                output.result(&format!("deleted {name}"), &json!({ "token": name, "deleted": true }))
            }
        }
    }
}

impl Make {
    async fn run(self, tokens: &Store, output: Output) -> Result {
        let rights = Rights::new(self.rights, self.queues);
        let Some(secret) = tokens.create(&self.name, &rights, self.valid_for).await? else {
            return Err(Failure::Failed(format!("there is a token {}: delete it first", self.name)));
        };
        if let Some(certificate) = &self.certificate {
            let bound = bind(tokens, &self.name, certificate, output).await;
            if bound.is_err() {
                // Without the certificate it would stand for nobody.
                tokens.delete(&self.name).await?;
            }
            return bound;
        }
        output.note("this is shown once: keep it where nobody else reads it");
        let shown = output.result(&secret.text(), &json!({ "name": self.name, "token": secret.text() }));
        if shown.and_then(|()| output.flush()).is_ok() {
            return Ok(());
        }
        // Nobody has read it, so nobody can ever use it: its name is free again.
        tokens.delete(&self.name).await?;
        Err(Failure::Failed(format!("the token {} could not be shown, and is deleted again", self.name)))
    }
}

async fn bind(tokens: &Store, name: &str, certificate: &Fingerprint, output: Output) -> Result {
    match tokens.bind(name, certificate).await? {
        Bound::Done => {}
        Bound::NoToken => {
            output.note(&format!("there is no token {name}: see `anyqueue tokens list`"));
            return Err(Failure::Nothing);
        }
        Bound::Expired => {
            let text = format!(
                "the token {name} has expired, so that its certificates stand for nobody: delete it and create it anew, or bind another"
            );
            return Err(Failure::Failed(text));
        }
        Bound::Taken(other) => {
            let text = format!("the certificate {certificate} stands for the token {other}: unbind it first");
            return Err(Failure::Failed(text));
        }
        other => return Err(Failure::Failed(format!("it is not bound: {other:?}"))),
    }
    let bound = json!({ "name": name, "certificate": certificate.to_string() });
    output.result(&format!("the certificate {certificate} stands for {name}"), &bound)
}

async fn list(tokens: &Store, output: Output) -> Result {
    let all = tokens.list().await?;
    for (name, error) in &all.unreadable {
        output.warn(&format!("{name}: {}", with_causes(error)));
    }
    if all.tokens.is_empty() {
        output.note(if all.unreadable.is_empty() {
            "there is no token"
        } else {
            "there is no token that can be read"
        });
        return Err(Failure::Nothing);
    }
    let bound = tokens.certificates().await?;
    let mut table = Table::new(&["token", "rights", "queues", "created", "expires", "certificates"]);
    for token in &all.tokens {
        let of_it = bound.iter().filter(|(name, _)| *name == token.name);
        let certificates: Vec<String> = of_it.map(|(_, certificate)| certificate.to_string()).collect();
        if output.json {
            output.object(&line(token, &certificates))?;
        } else {
            table.row(row(token, certificates.len()));
        }
    }
    if output.json { Ok(()) } else { table.print(output) }
}

fn rights(token: &TokenInfo) -> Vec<&'static str> {
    token.rights.rights.iter().map(|right| right.as_str()).collect()
}

fn line(token: &TokenInfo, certificates: &[String]) -> Value {
    let time = |time| humantime::format_rfc3339_millis(time).to_string();
    json!({
        "name": token.name,
        "rights": rights(token),
        "partitions": token.rights.partitions,
        "created_at": time(token.created_at),
        "expires_at": token.expires_at.map(time),
        "certificates": certificates,
    })
}

fn row(token: &TokenInfo, certificates: usize) -> [String; 6] {
    let time = |time| humantime::format_rfc3339_seconds(time).to_string();
    [
        token.name.clone(),
        rights(token).join(" "),
        preview(token.rights.partitions.join(" ").as_bytes(), 60),
        time(token.created_at),
        token.expires_at.map_or_else(|| "-".to_owned(), time),
        if certificates == 0 { "-".to_owned() } else { certificates.to_string() },
    ]
}
