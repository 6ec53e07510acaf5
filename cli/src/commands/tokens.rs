//! `anyqueue tokens`: who may ask a service for what.

use std::time::Duration;

use anyqueue_control::tokens::{Right, Rights, TokenInfo, Tokens as Store};
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
  anyqueue tokens list
  anyqueue tokens delete mailer

It goes to the store, and needs no service. The token is printed once, and only a digest of it is kept. A service that was
started while there was no token asks nobody for one until it is started anew, or a token is created over it; with
`serve --require-tokens` it always does. A deleted token opens nothing within a second.

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
Example: anyqueue tokens create mailer --right push --right work --queue mail

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
    let mut table = Table::new(&["token", "rights", "queues", "created", "expires"]);
    for token in &all.tokens {
        if output.json {
            output.object(&line(token))?;
        } else {
            table.row(row(token));
        }
    }
    if output.json { Ok(()) } else { table.print(output) }
}

fn rights(token: &TokenInfo) -> Vec<&'static str> {
    token.rights.rights.iter().map(|right| right.as_str()).collect()
}

fn line(token: &TokenInfo) -> Value {
    let time = |time| humantime::format_rfc3339_millis(time).to_string();
    json!({
        "name": token.name,
        "rights": rights(token),
        "partitions": token.rights.partitions,
        "created_at": time(token.created_at),
        "expires_at": token.expires_at.map(time),
    })
}

fn row(token: &TokenInfo) -> [String; 5] {
    let time = |time| humantime::format_rfc3339_seconds(time).to_string();
    [
        token.name.clone(),
        rights(token).join(" "),
        preview(token.rights.partitions.join(" ").as_bytes(), 60),
        time(token.created_at),
        token.expires_at.map_or_else(|| "-".to_owned(), time),
    ]
}
