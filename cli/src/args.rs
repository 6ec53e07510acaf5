//! The arguments that all commands share, and which commands there are.

use anyqueue::{PartitionId, PartitionOptions, Queue};
use clap::{Parser, Subcommand};

use crate::commands::{bench, dead, doctor, pages, pause, peek, pull, purge, push, stats, transfer, work};
use crate::failure::Result;
use crate::open::{self, Create};
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  export ANYQUEUE_URL=sqlite:jobs.db
  anyqueue push mail 'hello'
  anyqueue work mail --exec ./send-mail
  anyqueue stats

URLs:
  sqlite:jobs.db                        a file; sqlite:///srv/jobs.db with an absolute path
  postgres://user:password@host/db      redis://host:6379/    rediss:// with TLS
  redis-cluster://a:1/?nodes=b:2        redis-sentinel://a:26379/?master=main
  amqp://user:password@host/vhost       amqps:// with TLS
  sqs://eu-west-1/prefix                memory: (for a try; gone with the process)
  env:NAME                              the variable NAME holds the URL: so no password stands in the
                                        arguments, which other users of the machine can read
  Each takes options as query parameters, such as sqlite:jobs.db?synchronous=normal; a wrong one is
  answered with those that are known.

Exit codes:
  0  done
  1  tried, and failed
  2  asked for wrongly; nothing was done
  3  doctor or conformance found something wrong
  4  there is nothing of what was asked for";

/// Where the URL is taken from if it is not given.
pub(crate) const URL_VARIABLE: &str = "ANYQUEUE_URL";

/// Before the name of a variable that holds a URL.
const VARIABLE_PREFIX: &str = "env:";

/// Work queues on any backend: push, work, look inside, repair, move.
#[derive(Parser)]
#[command(
    name = "anyqueue",
    version,
    propagate_version = true,
    after_help = AFTER_HELP,
    max_term_width = 110,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Args)]
struct Common {
    /// Where the queues are; see the URLs in `anyqueue --help`
    #[arg(
        long, global = true, env = URL_VARIABLE, hide_env_values = true, value_name = "URL",
        value_parser = url_argument
    )]
    url: Option<String>,
    /// Writes JSON, one object on each line
    #[arg(long, global = true)]
    json: bool,
    /// Writes no notes and shows no progress
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    Push(push::Push),
    Pull(pull::Pull),
    Peek(peek::Peek),
    Work(work::Work),
    Stats(stats::Stats),
    #[command(subcommand)]
    Dead(dead::Dead),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Purge(purge::Purge),
    #[command(name = "move")]
    Move(transfer::Move),
    Doctor(doctor::Doctor),
    #[cfg(feature = "conformance")]
    Conformance(crate::commands::conformance::Conformance),
    Bench(bench::Bench),
    Completions(pages::Completions),
    Man(pages::Man),
}

impl Cli {
    /// Does what was asked for.
    pub(crate) async fn run(self) -> Result {
        let session = Session {
            url: self.common.url,
            output: Output { json: self.common.json, quiet: self.common.quiet },
        };
        match self.command {
            Command::Push(command) => command.run(&session).await,
            Command::Pull(command) => command.run(&session).await,
            Command::Peek(command) => command.run(&session).await,
            Command::Work(command) => command.run(&session).await,
            Command::Stats(command) => command.run(&session).await,
            Command::Dead(command) => command.run(&session).await,
            Command::Pause(command) => command.run(&session).await,
            Command::Resume(command) => command.run(&session).await,
            Command::Purge(command) => command.run(&session).await,
            Command::Move(command) => command.run(&session).await,
            Command::Doctor(command) => command.run(&session).await,
            #[cfg(feature = "conformance")]
            Command::Conformance(command) => command.run(&session).await,
            Command::Bench(command) => command.run(&session).await,
            Command::Completions(command) => command.run(&session),
            Command::Man(command) => command.run(&session),
        }
    }
}

/// What a command works with.
pub(crate) struct Session {
    url: Option<String>,
    pub(crate) output: Output,
}

impl Session {
    /// The URL of the command: its own argument, or the common one.
    pub(crate) fn url<'a>(&'a self, own: Option<&'a str>) -> Result<&'a str> {
        own.or(self.url.as_deref()).filter(|url| !url.is_empty()).ok_or_else(open::no_url)
    }

    /// The queue at the common URL, ready for use.
    pub(crate) async fn queue(&self, create: Create) -> Result<Queue> {
        open::queue(self.url(None)?, create).await
    }

    /// The same with options for its partitions.
    pub(crate) async fn queue_with(&self, create: Create, options: PartitionOptions) -> Result<Queue> {
        open::queue_with(self.url(None)?, create, options).await
    }
}

/// Reads a URL, or the name of the variable that holds it: what stands in the arguments of a command can be read by every user
/// of the machine, and a URL can hold a password.
pub(crate) fn url_argument(text: &str) -> Result<String, String> {
    let Some(name) = text.strip_prefix(VARIABLE_PREFIX) else { return Ok(text.to_owned()) };
    match std::env::var(name) {
        Ok(url) if !url.is_empty() => Ok(url),
        Ok(_) | Err(std::env::VarError::NotPresent) => Err(format!("the variable {name} is not set")),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("the variable {name} is not UTF-8")),
    }
}

/// Reads the name of a queue.
pub(crate) fn queue_name(text: &str) -> Result<PartitionId, String> {
    if text.contains("://") {
        return Err("this is a URL: give it with --url, and here the name of a queue".to_owned());
    }
    PartitionId::new(text).map_err(|error| error.message().to_owned())
}

/// Reads `name=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as name=value")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The one command that `--help`, completions and the man page describe.
pub(crate) fn description() -> clap::Command {
    use clap::CommandFactory as _;
    Cli::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_arguments_are_consistent() {
        super::description().debug_assert();
    }
}
