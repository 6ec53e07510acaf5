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

/// Manages the tokens with which programs and people use `anyqueue serve`
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

It uses the store directly, and needs no service. A token is printed once, and only a digest of it is kept. A service that
was started while there was no token requires none until it is restarted, or until a token is created through it; with
`serve --require-tokens` it always requires one. A deleted token admits nobody after at most a second.

With --tls-client-ca, a client with a certificate that is bound to a token needs no token. A certificate is identified by
its SHA-256: when it is renewed, bind the new one and unbind the old one.

For services on RabbitMQ and SQS, --control-url says where tokens are kept.")]
pub(crate) struct Tokens {
    #[command(flatten)]
    control: ControlArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(Make),
    /// Binds a client's certificate to a token, in addition to those that are bound already
    #[command(after_help = "Example: anyqueue tokens bind mailer mailer.crt")]
    Bind {
        /// The name of the token
        #[arg(value_name = "TOKEN")]
        name: String,
        /// A file with the certificate, in PEM, or its SHA-256
        #[arg(value_parser = certificate)]
        certificate: Fingerprint,
    },
    /// Unbinds a client's certificate
    #[command(
        after_help = "Example: anyqueue tokens unbind mailer.crt\n\nExit code 4: it was bound to no token."
    )]
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
    /// Its name: a-z, 0-9, '-' and '.'
    #[arg(value_name = "TOKEN")]
    name: String,
    /// What it may do; can be repeated
    #[arg(long = "right", value_name = "RIGHT", required = true, value_parser = right)]
    rights: Vec<Right>,
    /// For which queues: names, or beginnings of names followed by a *; can be repeated
    #[arg(long = "queue", value_name = "PATTERN", default_value = "*")]
    queues: Vec<String>,
    /// How long it is valid [default: until it is deleted]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    valid_for: Option<Duration>,
    /// A client's certificate, in PEM, or its SHA-256, to bind to the token, which is then shown to nobody
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
                    output.note(&format!("the certificate {certificate} was bound to no token"));
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
                "the token {name} has expired, so its certificates admit nobody: delete it and create it again, or bind another"
            );
            return Err(Failure::Failed(text));
        }
        Bound::Taken(other) => {
            let text =
                format!("the certificate {certificate} is bound to the token {other}: unbind it first");
            return Err(Failure::Failed(text));
        }
        other => return Err(Failure::Failed(format!("it is not bound: {other:?}"))),
    }
    let bound = json!({ "name": name, "certificate": certificate.to_string() });
    output.result(&format!("the certificate {certificate} is bound to {name}"), &bound)
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
